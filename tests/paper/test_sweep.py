"""What is missing is performed, what came is kept, and what failed is said."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiment_helpers import outcome, small_run
from paper import Experiment, Outcome, Picture, Results, Run, Size, sweep
from paper.engine import Progress, ResultsError
from paper.experiment import PAPER, made_by, perform
from paper.figures import canvas
from paper.sweep import Folder, Interrupted, Job, ordered, plan, reproduce, write_whole

SIZE = Size(horizon=30, seeds=2)
QUIET = Progress(quiet=True)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path, SIZE, "made")


def experiment(
    name: str, *runs: Run, fails: int = 0, error: type[BaseException] = RuntimeError, origin: Any = "own"
) -> Experiment:
    """One figure, the first `fails` drawings of which go wrong."""
    left = [fails]

    def report(_results: Results, _size: Size) -> Iterator[Picture]:
        left[0] -= 1
        if left[0] >= 0:
            raise error("no ink")
        yield Picture(f"{name}-figure", "caption", canvas()[0])

    return Experiment(name, name, f"What of {name}?", lambda _: runs or (small_run(),), report, origin)


# --- stored results --------------------------------------------------------------------------------------


def test_what_is_stored_is_read_again(folder: Folder):
    run, given = small_run(), replace(outcome((0, 1)), by_agent=np.arange(24.0).reshape(2, 3, 4))
    folder.add(run, given)
    assert folder.path(run).relative_to(folder.out) == Path("results", f"{run.identity('made')}.npz")
    found = folder.read(run)
    assert found is not None
    for name, value in vars(given).items():
        np.testing.assert_array_equal(getattr(found, name), value)


def test_of_more_seeds_the_first_are_taken_and_fewer_are_not_enough(folder: Folder):
    run, given = small_run(), replace(outcome((0, 1, 2)), by_agent=np.arange(36.0).reshape(3, 3, 4))
    folder.add(run, given)
    found = folder.read(run)
    assert found is not None
    assert found.seeds.tolist() == [0, 1]
    assert found.rounds.tolist() == given.rounds.tolist()
    np.testing.assert_array_equal(found.by_agent, given.by_agent[:2])
    assert folder.read(replace(run, least_seeds=4)) is None


def test_what_is_not_measured_is_kept_empty(folder: Folder):
    run = small_run()
    folder.add(run, replace(outcome(), exposure=np.empty(0)))
    found = folder.read(run)
    assert found is not None
    assert found.exposure.shape == (2, 0)


def test_a_missing_run_is_named(folder: Folder):
    with pytest.raises(ResultsError, match="no results of mine curve at T = 30, 2 seeds by made"):
        folder.results(experiment("mine", small_run("curve")))


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.95])
def test_a_file_cut_short_is_made_again_and_nothing_else_is_lost(folder: Folder, keep: float):
    run, other = small_run(), small_run(horizon=31)
    folder.add(run, outcome())
    folder.add(other, outcome())
    data = folder.path(run).read_bytes()
    folder.path(run).write_bytes(data[: int(keep * len(data))])
    (job,), reused = plan([experiment("mine", run, other)], folder)
    assert (job.run, reused) == (run, 1)


@pytest.mark.long
def test_a_changed_bit_is_never_believed(folder: Folder):
    """Every seventh byte, with one of its bits turned: the same values, or none."""
    run, given, refused = small_run(), outcome((0, 1)), 0
    folder.add(run, given)
    whole, rng = folder.path(run).read_bytes(), np.random.default_rng(0)
    for place in range(0, len(whole), 7):
        spoilt = bytearray(whole)
        spoilt[place] ^= 1 << int(rng.integers(8))
        folder.path(run).write_bytes(spoilt)
        found = folder.read(run)
        refused += found is None
        for name, value in vars(given).items() if found is not None else ():
            np.testing.assert_array_equal(getattr(found, name), value)
    assert refused > 100


def test_results_of_other_code_are_kept_but_not_used(folder: Folder):
    folder.add(small_run(), outcome())
    assert Folder(folder.out, SIZE, "made later").read(small_run()) is None
    assert folder.path(small_run()).exists()


def test_what_was_there_stays_when_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    write_whole(tmp_path / "a", "before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResultsError, match=r"a could not be written \(No space left on device\)"):
        write_whole(tmp_path / "a", "after")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


def test_a_folder_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="must be a folder that can be written"):
        reproduce([experiment("mine")], size=SIZE, out=tmp_path / "file")


# --- the plan --------------------------------------------------------------------------------------------


def test_the_same_run_of_two_experiments_is_done_once_with_all_seeds(folder: Folder):
    few, many = small_run("a"), replace(small_run("b"), least_seeds=5)
    for chosen in (
        [experiment("one", few), experiment("two", many)],
        [experiment("two", many), experiment("one", few)],
    ):
        (job,), reused = plan(chosen, folder)
        assert (job.seeds, set(job.wanted_by), reused) == (range(5), {"one", "two"}, 0)


def job(key: str, horizon: int, *names: str, live: bool = False) -> Job:
    run = replace(small_run(key, horizon=horizon), play=(lambda *_: outcome()) if live else None)
    return Job(run, list(names) or ["ours"], range(1))


def test_the_papers_come_first_and_then_the_longest() -> None:
    jobs = [job("long", 90_000), job("short", 10, "paper"), job("both", 60_000, "ours", "paper")]
    jobs.append(job("longest", 99_000))
    keys = [each.run.key for each in ordered(jobs, ["paper"])]
    assert keys == ["both", "short", "longest", "long"]
    assert ordered([]) == []


def test_live_agents_are_spread_among_others() -> None:
    """Two of them at once would wait for each other, because Python runs one thread at a time."""
    jobs = [job(f"live {i}", 10, live=True) for i in range(3)] + [job(f"other {i}", 10) for i in range(30)]
    places = [i for i, each in enumerate(ordered(jobs)) if each.run.play is not None]
    assert np.diff(places).min() >= 9


# --- performing ------------------------------------------------------------------------------------------


def test_grouping_of_seeds_does_not_change_a_byte():
    together, alone = (Outcome(**perform(small_run(), seeds, made_by())) for seeds in ((0, 1), (1,)))
    np.testing.assert_array_equal(together.fairness_regret[1], alone.fairness_regret[0])


def test_the_weakest_share_is_kept_where_exposure_is_measured():
    assert Outcome(**perform(small_run(), (0, 1), made_by())).weakest.shape == (2, 0)
    measured = Outcome(**perform(small_run(exposure=True), (0, 1), made_by()))
    assert measured.weakest.shape == measured.fairness_regret.shape
    assert (measured.weakest > 0).all()


def test_live_agents_are_played_and_timed():
    def play(run: Run, seeds) -> Outcome:
        return replace(outcome(seeds, scale=float(run.scenario.horizon)), seconds=-1.0)

    run = replace(small_run(), play=play)
    assert run.identity("x") != small_run().identity("x")
    found = Outcome(**perform(run, (0, 1), made_by()))
    assert found.seconds >= 0.0
    np.testing.assert_array_equal(found.fairness_regret, outcome(scale=30.0).fairness_regret)


def test_a_worker_with_other_code_is_refused():
    with pytest.raises(ValueError, match="a worker must have other, got fedfairx"):
        perform(small_run(), (0,), "other")


class Listening(Progress):
    """Notes what is said and done, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        super().__init__(stream=io.StringIO())

    def say(self, text: str, *, passing: bool = False) -> None:  # noqa: ARG002 (the protocol's)
        self.events.append(text.partition(" s (")[0])


def test_one_is_drawn_while_others_are_performed_and_only_once(tmp_path: Path) -> None:
    long, short = (experiment(name, small_run(horizon=n)) for name, n in (("long", 200), ("short", 20)))
    done = reproduce([short, long], size=SIZE, out=tmp_path, workers=1, progress=(progress := Listening()))
    report = tmp_path / "report.html"
    assert [re.sub(r": \d+\.\d$", "", event) for event in progress.events] == [
        "[1/2] long small, 2 seeds",
        "drawing long: long",
        f"{report} has long",
        "[2/2] short small, 2 seeds",
        "drawing short: short",
    ]
    assert {section.experiment.name for section in done.sections} == {"long", "short"}
    assert all((tmp_path / "figures" / f"{name}-figure.svg").exists() for name in ("long", "short"))
    assert "still run" not in report.read_text()


def test_a_stopped_one_has_the_papers_report_and_goes_on(tmp_path: Path) -> None:
    short = experiment("short", small_run(horizon=20), origin=PAPER)
    stopped = experiment("stopped", small_run(horizon=300), fails=1, error=KeyboardInterrupt)
    chosen = [experiment("long", small_run(horizon=200)), short, stopped]
    with pytest.raises(Interrupted, match=r"[23] of 3 runs are stored"):
        reproduce(chosen, size=SIZE, out=tmp_path, workers=1)
    page = (tmp_path / "report.md").read_text()
    assert "## short: short (the paper's)" in page
    assert page.index("> **These experiments still run") < page.index("stopped") < page.index("## short")
    assert "short" in json.loads((tmp_path / "scores.json").read_text())
    done = reproduce(chosen, size=SIZE, out=tmp_path, workers=1)
    assert done.reused >= 2
    assert {section.experiment.name for section in done.sections} == {"long", "short", "stopped"}
    assert "still run" not in (tmp_path / "report.md").read_text()


def test_what_could_not_be_drawn_is_tried_again_at_the_end(tmp_path: Path) -> None:
    chosen = [experiment("long", small_run(horizon=200), fails=1), experiment("short", small_run())]
    reproduce(chosen, size=SIZE, out=tmp_path, workers=1)
    assert (tmp_path / "figures" / "long-figure.png").exists()


def test_a_drawing_that_always_fails_is_heard_of_when_all_results_are_stored(tmp_path: Path) -> None:
    chosen = [experiment("long", small_run(horizon=200), fails=9), experiment("short", small_run())]
    with pytest.raises(RuntimeError, match="no ink"):
        reproduce(chosen, size=SIZE, out=tmp_path, workers=1)
    assert len(list((tmp_path / "results").glob("*.npz"))) == 2


def test_a_failed_run_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    bad = experiment("bad", small_run("bad", algorithm="priv-fairx-linucb", epsilon=-1.0))
    done = reproduce([bad, experiment("good")], size=SIZE, out=tmp_path, progress=(progress := Listening()))
    (label,) = done.failures
    assert label == "bad bad, 2 seeds"
    assert "epsilon" in done.failures[label]
    assert [section.experiment.name for section in done.sections] == ["good"]
    assert any(event.startswith("FAILED bad bad") for event in progress.events)
    assert "are left out, because runs failed: bad." in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_result_is_not_lost_when_ctrl_c_comes_while_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
):
    chosen = [experiment("mine", *(small_run(key, horizon=20 + i) for i, key in enumerate("abc")))]
    add, calls = Folder.add, []

    def interrupted(self, run, result):
        calls.append(run.key)
        if len(calls) != 2:
            return add(self, run, result)
        if when == "after":
            add(self, run, result)
        raise KeyboardInterrupt

    monkeypatch.setattr(Folder, "add", interrupted)
    with pytest.raises(Interrupted):
        reproduce(chosen, size=SIZE, out=tmp_path, workers=1)
    assert (calls[1] in calls[2:]) is (when == "before")  # it is stored then
    monkeypatch.setattr(Folder, "add", add)
    done = reproduce(chosen, size=SIZE, out=tmp_path, workers=1)
    assert done.reused >= 2


def test_a_result_that_its_worker_took_along_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Racy(ThreadPoolExecutor):
        """The first result is taken for an error, as Dask's executor does where a worker dies just then."""

        asked = 0

        def submit(self, fn, /, *args, **keywords):
            self.asked += 1
            if self.asked > 1:
                return super().submit(fn, *args, **keywords)
            return super().submit(lambda: [*fn(*args, **keywords), fn.absent])

    with Racy(1) as executor:

        @contextmanager
        def racy(*_: object, **__: object):
            yield executor.submit

        monkeypatch.setattr(sweep, "engine", racy)
        done = reproduce([experiment("mine")], size=SIZE, out=tmp_path, engine_name="dask://some:1")
    assert not done.failures
    assert executor.asked == 2


# --- progress --------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_progress_tells_the_time_left(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch):
    clock = iter([0.0, 0.0, 4.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    progress = Progress(stream=stream)
    progress.start(2, 40.0)
    progress.done("exp11 set, 10 seeds", 10.0, 3.9)
    text = stream.getvalue()
    assert "[1/2] exp11 set, 10 seeds: 3.9 s (12 s left)" in text
    assert text.endswith("\n") is not stream.isatty()


def test_a_message_takes_the_place_of_what_passes():
    screen = Terminal()
    progress = Progress(stream=screen)
    progress.say("[1/2] passing", passing=True)
    progress.say("a word")
    assert screen.getvalue().splitlines()[-1].endswith("a word")
    assert "\r" in screen.getvalue()
    Progress(quiet=True, stream=(quiet := io.StringIO())).say("nothing")
    assert quiet.getvalue() == ""


# --- the command -----------------------------------------------------------------------------------------


@pytest.mark.process
def test_ctrl_c_keeps_results_and_says_how_to_go_on(tmp_path: Path):
    out = tmp_path / "out"
    # The first run is waited for; the second is long enough to be interrupted.
    command = [sys.executable, "-m", "paper", "reproduce", "exp1", "--horizon", "30000", "--seeds", "1"]
    process = subprocess.Popen(
        [*command, "--workers", "1", "--out", str(out)],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Tests run in the background inherit an ignored SIGINT, and so would the child.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + 300
        while not list(out.glob("results/*.npz")):
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    stored = len(list(out.glob("results/*.npz")))
    assert process.returncode == 130
    assert f"{stored} of 6 runs are stored" in err
    assert "the same command goes on from there" in err
    assert "Traceback" not in err
