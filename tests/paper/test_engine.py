"""Engines are executors; a cluster that loses a worker still gives every result, the same to the byte."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedfairx import Scenario
from fedfairx.errors import InvalidInput
from paper import Experiment, Outcome, Run, Size
from paper.engine import Progress, ResultsError, cores, engine
from paper.experiment import made_by, perform
from paper.registry import load
from paper.sweep import Folder, reproduce


def test_the_local_engine_is_threads():
    with engine("local", 2) as submit:
        assert [submit(lambda x: x * x, i).result() for i in range(5)] == [0, 1, 4, 9, 16]


def test_one_thread_per_processor():
    assert 1 <= cores() <= (os.cpu_count() or 1)


@pytest.mark.parametrize("name", ["ray", "dask://", "dask://host", "dask:/host:1", ""])
def test_unknown_engines_are_refused(name: str):
    with pytest.raises(InvalidInput, match="engine must be one of local, dask://HOST:PORT"), engine(name):
        pass


@pytest.mark.parametrize("workers", [0, -1])
def test_workers_are_counted(workers: int):
    with pytest.raises(InvalidInput, match="workers must be >= 1"), engine("local", workers):
        pass


def test_a_cluster_has_its_own_workers():
    with pytest.raises(InvalidInput, match="are for the local engine"), engine("dask://127.0.0.1:1", 2):
        pass


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InvalidInput, match="pip install distributed"), engine("dask://127.0.0.1:1"):
        pass


@pytest.mark.long
def test_no_scheduler(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("paper.engine._CONNECT_SECONDS", 0.2)
    with pytest.raises(ResultsError, match="no Dask scheduler"), engine(f"dask://127.0.0.1:{_free_port()}"):
        pass


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Cluster:
    """A scheduler and two workers, each a process group of its own."""

    def __init__(self, folder: Path) -> None:
        self.port = _free_port()
        address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler = self._start("scheduler", folder, "--host", "127.0.0.1", "--port", str(self.port))
        self.workers = [
            self._start("worker", folder, address, "--nthreads", "1", "--no-nanny") for _ in range(2)
        ]

    def _start(self, kind: str, folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
        with (folder / f"{kind}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments, "--no-dashboard"],
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,
            )

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self) -> None:
        for process in (*self.workers, self.scheduler):
            self.kill(process)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    pytest.importorskip("distributed")
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield found
    finally:
        found.stop()


class KillAfter(Progress):
    """Kills a worker when some results have come."""

    def __init__(self, cluster: Cluster, results: int) -> None:
        self.cluster, self.left = cluster, results
        super().__init__(quiet=True)

    def done(self, label: str, effort: float, seconds: float) -> None:  # noqa: ARG002 (the protocol's)
        self.left -= 1
        if self.left == 0:
            self.cluster.kill(self.cluster.workers[0])


PLUGIN = """
from dataclasses import dataclass
import numpy as np
from fedfairx import Scenario
from paper import Experiment, Outcome, Run

@dataclass(frozen=True)
class Every:
    gap: int = 7
    public = True
    def rounds(self, plan): return np.arange(self.gap, plan.horizon + 1, self.gap)
    def max_releases(self, plan): return plan.horizon // self.gap

def play(run, seeds):
    return Outcome(np.array(seeds), np.array([1]), np.ones((1, 1)), np.ones((1, 1)), syncs=np.array([3]))

def runs(size):
    world = Scenario(agents=2, arms=5, dimension=3, horizon=size.horizon)
    options = {"schedule": Every()}
    return Run("own", world, "fed-fairx-linucb", options), Run("live", world, "fairx-bayes", play=play)

EXPERIMENT = Experiment("shipped", "S", "?", runs, lambda results, size: ())
"""


@pytest.mark.process
def test_a_plug_in_is_sent_along(cluster: Cluster, tmp_path: Path):
    (tmp_path / "shipped.py").write_text(PLUGIN)
    module, _ = load(tmp_path / "shipped.py")
    with engine(f"dask://127.0.0.1:{cluster.port}", ship=(module,)) as submit:
        for run, syncs in zip(module.runs(Size(horizon=50, seeds=1)), (7, 3), strict=True):
            there = Outcome(**submit(perform, run, (0,), made_by()).result(timeout=300))
            assert there.syncs.tolist() == [syncs]


def test_a_worker_killed_in_between_loses_nothing(cluster: Cluster, tmp_path: Path):
    """Runs last: it leaves the cluster with one worker."""
    runs = [
        Run(f"run {i}", Scenario(agents=2, arms=5, dimension=3, horizon=400 + i), "fed-fairx-linucb")
        for i in range(24)
    ]
    exp = Experiment("exp", "E", "?", lambda _: runs, lambda *_: ())
    _wait_for_workers(cluster, 2)
    name, progress = f"dask://127.0.0.1:{cluster.port}", KillAfter(cluster, 4)
    done = reproduce([exp], size=Size(seeds=2), out=tmp_path, engine_name=name, progress=progress)
    assert cluster.workers[0].poll() is not None
    assert not done.failures
    folder = Folder(tmp_path, Size(seeds=2), made_by())
    for run in (runs[0], runs[-1]):
        here, there = Outcome(**perform(run, (0, 1), made_by())), folder.read(run)
        assert there is not None
        np.testing.assert_array_equal(here.fairness_regret, there.fairness_regret)


def _wait_for_workers(cluster: Cluster, count: int) -> None:
    from distributed import Client

    with Client(f"tcp://127.0.0.1:{cluster.port}", set_as_default=False) as client:
        client.wait_for_workers(count, timeout=60)
