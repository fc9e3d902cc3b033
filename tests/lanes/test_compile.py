"""Where machine code is kept, and that the same source runs uncompiled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numba
import pytest

from fedfairx.core import agent_kernels, partners
from fedfairx.lanes import decorators as compiling
from fedfairx.simulation.kernel import loop as kernel
from fedfairx.util.file_lock import WaitingLock

TESTS = Path(__file__).resolve().parent.parent
fresh_folder = compiling.cache_folder.__wrapped__


def test_a_changed_source_means_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    for folder in compiling.COMPILED_SOURCES:
        shutil.copytree(compiling.PACKAGE / folder, package / folder)
    monkeypatch.setattr(compiling, "PACKAGE", package)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    first = fresh_folder()
    assert first == fresh_folder()
    assert Path(first).is_dir()
    source = package / "lanes" / "linalg.py"  # another file than the one whose function calls it
    source.write_text(source.read_text() + "\n# a comment\n")
    second = fresh_folder()
    assert second != first
    (package / "simulation" / "new.py").write_text("")
    third = fresh_folder()
    assert third not in (first, second)
    source = package / "core" / "optimism" / "solver.py"  # in a folder inside
    source.write_text(source.read_text() + "\n# a comment\n")
    assert fresh_folder() not in (first, second, third)


def test_machine_code_that_nobody_runs_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    old, recent, foreign = (tmp_path / name for name in ("fedfairx-old", "fedfairx-recent", "other"))
    for folder in (old, recent, foreign):
        (folder / "sub").mkdir(parents=True)
    long_ago = time.time() - 86_400 * (compiling.DAYS_KEPT + 1)
    for folder in (old, foreign):
        os.utime(folder, (long_ago, long_ago))
    mine = Path(fresh_folder())
    assert (mine.is_dir(), old.exists(), recent.exists(), foreign.exists()) == (True, False, True, True)
    os.utime(mine, (long_ago, long_ago))
    fresh_folder()
    assert time.time() - mine.stat().st_mtime < 3600  # used again


def test_without_a_folder_to_write_to_nothing_is_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert fresh_folder() is None
    monkeypatch.setattr(compiling, "cache_folder", lambda: None)

    @compiling.stage
    def twice(x: float) -> float:
        return 2.0 * x

    assert twice(4.0) == 8.0


# A part of test_kernel.py: exact sums at public rounds, noisy ones when a determinant says so.
UNCOMPILED = """
import runpy, sys
import pytest
code = pytest.main(["-p", "no:cacheprovider", "-k", "without_noise and fed-fairx-linucb or b1", sys.argv[1]])
assert code == 0, code
sys.path.insert(0, sys.argv[2])
runpy.run_module("lockstep", run_name="__main__")
"""


@pytest.mark.process
def test_agents_and_the_simulator_run_uncompiled_and_follow_the_oracle() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            UNCOMPILED,
            str(TESTS / "simulation" / "test_kernel.py"),
            str(TESTS / "support"),
        ],
        cwd=TESTS.parent,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "2 passed" in done.stdout
    assert done.stdout.splitlines()[-1] == "uncompiled: True"


FIRST = """
import logging, sys
if "silent" in sys.argv:
    logging.getLogger("fedfairx").setLevel(logging.ERROR)
from fedfairx.core import agent_kernels, partners
from fedfairx.lanes import decorators as compiling
from fedfairx.simulation.kernel import loop

def square(x):
    return x * x

square.__module__ = "fedfairx.somewhere"
twice = compiling.stage(square)
print(twice(3.0), twice(3))
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("place", "arguments", "said"),
    [
        ("cache", [], "the machine code is cached in "),
        ("file/below", [], "NUMBA_CACHE_DIR"),
        ("cache", ["silent"], None),
    ],
)
def test_the_first_compilation_is_said_once(
    tmp_path: Path, place: str, arguments: list[str], said: str | None
) -> None:
    (tmp_path / "file").write_text("")
    script = tmp_path / "first.py"
    script.write_text(FIRST)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / place), "NUMBA_DISABLE_JIT": "0"}
    done = subprocess.run(
        [sys.executable, str(script), *arguments], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["9.0", "9"]
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == (0 if said is None else 1)
    assert said is None or said in lines[0]


@pytest.mark.skipif(not compiling.COMPILING, reason="nothing is compiled")
def test_only_what_may_take_long_lets_other_threads_run() -> None:
    """A decision of microseconds that gave the GIL away would wait for it in a busy service: each time."""
    for brief in (agent_kernels.decide_by_posterior, agent_kernels.learn_one, agent_kernels.learn_named):
        assert not brief.targetoptions.get("nogil")
    for long in (kernel.run, agent_kernels.decide_one, agent_kernels._learnt_sizes, partners.power_in):
        assert long.targetoptions["nogil"]


def test_checkouts_of_the_same_source_share_machine_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def place(source: Path) -> tuple[str, str]:
        found = compiling._Locator.from_function(place, str(source))  # type: ignore[arg-type]
        assert found is not None
        return found.get_cache_path(), found.get_source_stamp()

    here = place(compiling.PACKAGE / "core" / "policy.py")
    assert here == place(compiling.PACKAGE / "core" / "slates.py")
    assert here[0] == os.path.join(str(compiling.cache_folder()), "core")
    outside = tmp_path / "core" / "policy.py"
    shutil.copytree(compiling.PACKAGE / "core", outside.parent)
    first = place(outside)
    assert first[0] != here[0]
    outside.write_text(outside.read_text() + "# changed")  # a file that the digest does not include
    assert place(outside)[0] == first[0]
    assert place(outside)[1] != first[1]
    monkeypatch.setattr(compiling, "PACKAGE", tmp_path)
    assert place(outside) == here
    assert compiling._Locator.from_function(place, "<string>") is None  # type: ignore[arg-type]


def test_machine_code_is_kept_at_that_place() -> None:
    assert agent_kernels.learn_one._cache.cache_path == os.path.join(str(compiling.cache_folder()), "core")


COMPILES = """
import sys
import numpy as np
from fedfairx.core.statistics import add_one
sys.stdin.readline()  # all begin at once
add_one(np.zeros(5), np.ones(2), 1.0)
print(sum(add_one.stats.cache_misses.values()), "scipy.linalg" in sys.modules)
"""


def start(program: str, folder: Path, *arguments: object) -> subprocess.Popen[str]:
    """Start Python with this folder as the cache of machine code; it waits for a line."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder)},
    )


@pytest.mark.process
@pytest.mark.skipif(not compiling.COMPILING, reason="nothing is compiled")
def test_one_of_several_processes_compiles_and_a_later_one_loads_little(tmp_path: Path) -> None:
    processes = [start(COMPILES, tmp_path) for _ in range(3)]
    for each in processes:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    answers = [each.communicate()[0].split() for each in processes]
    assert sorted(compiled for compiled, _ in answers) == ["0", "0", "1"]
    assert all(compiled == "1" or heavy == "False" for compiled, heavy in answers)


HOLDS = """
import sys
from pathlib import Path
from fedfairx.util.file_lock import WaitingLock
lock = WaitingLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.mark.process
def test_a_killed_process_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = start(HOLDS, tmp_path, path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    in_vain = WaitingLock(path, most_seconds=0.0)
    assert not in_vain.held
    in_vain.free()
    holder.kill()
    holder.communicate()
    after = WaitingLock(path, most_seconds=0.0)
    assert after.held
    after.free()
    again = WaitingLock(path, most_seconds=0.0)
    assert again.held
    again.free()


@pytest.mark.skipif(not compiling.COMPILING, reason="nothing is compiled")
def test_what_can_not_be_compiled_is_not_waited_for() -> None:
    cache = agent_kernels.learn_one._cache
    with pytest.raises(numba.TypingError):
        agent_kernels.learn_one("memory", None, "values", 0, 1, "weight", "reward")
    lock = WaitingLock(Path(cache._cache_file._index_path).with_suffix(".lock"), most_seconds=0.0)
    assert lock.held
    lock.free()


def test_a_folder_without_locks_is_no_obstacle(tmp_path: Path) -> None:
    lock = WaitingLock(tmp_path / "missing" / "lock")
    assert not lock.held
    lock.free()
