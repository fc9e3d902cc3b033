"""A sweep does what is missing, keeps what came, and says what failed."""

from __future__ import annotations

import io
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiment_helpers import outcome, small_run
from fedfairx.experiments.experiment import Run
from fedfairx.experiments.outcomes import Outcome
from fedfairx.experiments.provenance import provenance
from fedfairx.experiments.sweep import jobs as sweeping
from fedfairx.experiments.sweep.jobs import SweepInterruptedError, perform, plan, sweep
from fedfairx.experiments.sweep.progress import ProgressLines, Quiet, progress
from fedfairx.experiments.sweep.store import ResultStore
from fedfairx.lanes.vector_llvm import WIDTH
from fedfairx.simulation import Scenario


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path, provenance()).open()


def named(*runs):
    return [("exp", run) for run in runs]


class Here(Executor):
    """Does a job when it is handed in; `stop_at` presses Ctrl-C when its turn comes to be waited for."""

    def submit(self, fn, /, *args, **kwargs):
        future: Future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def test_the_same_run_of_two_experiments_is_done_once(store: ResultStore):
    jobs, reused = plan([("exp1", small_run("a")), ("exp2", small_run("b"))], 2, store)
    assert [job.label for job in jobs] == ["exp1 a, 2 seeds"]
    assert [job.wanted_by for job in jobs] == [("exp1", "exp2")]
    assert reused == 0


def test_a_run_has_the_seeds_of_the_experiment_that_wants_most(store: ResultStore):
    few, many = small_run("a"), replace(small_run("b"), least_seeds=5)
    for wanted in ([("exp1", few), ("exp2", many)], [("exp2", many), ("exp1", few)]):
        jobs, _ = plan(wanted, 2, store)
        assert {job.seeds: set(job.wanted_by) for job in jobs} == {
            (0, 1): {"exp1", "exp2"},
            (2, 3, 4): {"exp2"},
        }
    assert list(many.seeds(7)) == list(range(7))
    assert many.identity(provenance()) == few.identity(provenance())  # seeds are no part of what is run


def test_only_missing_seeds_are_planned(store: ResultStore):
    run = small_run()
    store.write(run, outcome((0, 2)))
    jobs, reused = plan(named(run), 4, store)
    assert [job.seeds for job in jobs] == [(1, 3)]
    assert reused == 2


def test_large_runs_are_split_and_come_first(store: ResultStore):
    large = small_run(
        horizon=sweeping.JOB_COST // 2
    )  # two agents: one seed is a job, and two fit in its lanes
    jobs, _ = plan(named(small_run(), large), 3, store)
    assert [job.seeds for job in jobs] == [(0, 1), (2,), (0, 1, 2)]


@pytest.mark.parametrize(("agents", "seeds"), [(10, 8), (40, 2), (20, 4)])
def test_the_agents_of_a_job_fill_blocks_of_lanes(agents: int, seeds: int):
    run = Run("a", Scenario(agents=agents, horizon=100_000), "b0")
    assert sweeping.seeds_of_a_job(run) == seeds
    assert agents * seeds % WIDTH == 0


def test_jobs_that_are_done_at_the_same_time_are_stored_in_their_order(store: ResultStore):
    jobs, _ = plan(named(*(small_run(horizon=20 + more) for more in range(8))), 2, store)
    stored: list[object] = []
    sweep(jobs, executor=Here(), store=store, progress=Quiet(), stored=stored.append)
    assert stored == jobs


def test_a_sweep_resumes_where_it_was(store: ResultStore):
    runs = named(small_run(), small_run(horizon=31))
    with ThreadPoolExecutor(2) as pool:
        jobs, _ = plan(runs[:1], 2, store)
        sweep(jobs, executor=pool, store=store, progress=Quiet())
        jobs, reused = plan(runs, 2, ResultStore(store.folder, provenance()).open())
    assert [job.run.scenario.horizon for job in jobs] == [31]
    assert reused == 2


def test_grouping_of_seeds_does_not_change_a_byte(store: ResultStore):
    run = small_run()
    together, alone = perform(run, (0, 1), provenance()), perform(run, (1,), provenance())
    np.testing.assert_array_equal(together.fairness_regret[1], alone.fairness_regret[0])


def test_the_weakest_arms_share_is_kept_where_exposure_is_measured():
    assert perform(small_run(), (0, 1), provenance()).weakest.shape == (2, 0)
    measured = perform(small_run(exposure=True), (0, 1), provenance())
    assert measured.weakest.shape == measured.fairness_regret.shape
    assert (measured.weakest > 0).all()


def test_live_agents_are_played_and_timed(store: ResultStore):
    def play(run: Run, seeds) -> Outcome:
        return replace(outcome(seeds, scale=float(run.scenario.horizon)), seconds=-1.0)

    run = replace(small_run(), play=play)
    assert run.identity(store.made_by) != small_run().identity(store.made_by)
    found = perform(run, (0, 1), provenance())
    assert found.seconds >= 0.0
    np.testing.assert_array_equal(found.fairness_regret, outcome(scale=30.0).fairness_regret)
    jobs, _ = plan(named(run), 2, store)
    with ThreadPoolExecutor(1) as pool:
        sweep(jobs, executor=pool, store=store, progress=Quiet())
    assert plan(named(run), 2, store) == ([], 2)


def test_what_a_played_run_is_depends_on_the_file_that_plays_it(tmp_path: Path):
    """It may call other functions of its file, whose changes its own code would not show."""
    identities = []
    for helper in ("1", "2", "1"):
        file = tmp_path / "mine.py"
        file.write_text(f"def helper(): return {helper}\ndef play(run, seeds): return helper()\n")
        names: dict = {}
        exec(compile(file.read_text(), str(file), "exec"), names)
        identities.append(replace(small_run(), play=names["play"]).identity(provenance()))
    assert identities[0] == identities[2] != identities[1]


def test_a_failed_job_is_reported_and_the_others_go_on(
    store: ResultStore, capsys: pytest.CaptureFixture[str]
):
    bad = small_run("bad", algorithm="priv-fairx-linucb", epsilon=-1.0)
    jobs, _ = plan(named(bad, small_run("good")), 2, store)
    done = sweep(jobs, executor=Here(), store=store, progress=ProgressLines())
    assert [failure.job.run.key for failure in done.failures] == ["bad"]
    assert "epsilon" in done.failures[0].reason
    assert store.seeds(small_run().identity(provenance())) == {0, 1}
    assert "FAILED exp bad" in capsys.readouterr().err


def test_ctrl_c_keeps_what_is_under_way(store: ResultStore, monkeypatch: pytest.MonkeyPatch):
    real, seen = sweeping._in_order, []

    def interrupted(futures):
        if not seen:
            seen.append(True)
            yield next(iter(real(futures)))
            raise KeyboardInterrupt
        yield from real(futures)

    monkeypatch.setattr(sweeping, "_in_order", interrupted)
    jobs, _ = plan(named(small_run(), small_run(horizon=31)), 2, store)
    with pytest.raises(SweepInterruptedError, match="2 of 2 jobs are stored"):
        sweep(jobs, executor=Here(), store=store, progress=Quiet())
    again = ResultStore(store.folder, provenance()).open()
    assert plan(named(small_run(), small_run(horizon=31)), 2, again)[0] == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_result_is_not_lost_when_ctrl_c_comes_while_it_is_stored(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch, when: str
):
    jobs, _ = plan(named(*(small_run(key, horizon=20 + i) for i, key in enumerate("abc"))), 1, store)
    write, calls = ResultStore.write, []

    def interrupted(self, run, result):
        calls.append(run.key)
        if len(calls) != 2:
            return write(self, run, result)
        if when == "after":
            write(self, run, result)
        raise KeyboardInterrupt

    monkeypatch.setattr(ResultStore, "write", interrupted)
    with pytest.raises(SweepInterruptedError, match=r"^3 of 3 jobs are stored"):
        sweep(jobs, executor=Here(), store=store, progress=Quiet())
    assert len(list(store.folder.glob("*.parquet"))) == 3


def test_a_worker_with_other_code_is_refused(store: ResultStore):
    from dataclasses import replace

    with pytest.raises(Exception, match="worker must have"):
        perform(small_run(), (0,), replace(provenance(), code="other"))


def test_lines_tell_rate_and_time_left(capsys: pytest.CaptureFixture[str]):
    lines = ProgressLines()
    lines.start(2, 200)
    lines.done("exp1 fed", 100, 1.5)
    err = capsys.readouterr().err
    assert err.startswith("[1/2] exp1 fed: 1.5 s (")
    assert "s left)" in err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_with_rate_and_time_left():
    screen = Terminal()
    bar = progress(stream=screen)
    bar.start(2, 2_000_000)
    bar.done("exp1 fed", 1_000_000, 1.5)
    bar.say("a word between")
    bar.close()
    text = screen.getvalue()
    assert "1/2 jobs, exp1 fed" in text
    assert "agent-rounds/s" in text
    assert "50%" in text
    assert "a word between" in text


def test_quiet_and_logs():
    assert isinstance(progress(quiet=True, stream=Terminal()), Quiet)
    assert isinstance(progress(stream=io.StringIO()), ProgressLines)


def test_a_result_that_its_worker_took_along_is_made_again(tmp_path: Path):
    class Racy(ThreadPoolExecutor):
        """The first result is taken for an error, as Dask's executor does where a worker dies just then."""

        asked = 0

        def submit(self, fn, /, *args, **keywords):
            self.asked += 1
            if self.asked > 1:
                return super().submit(fn, *args, **keywords)

            def race():
                typ, error, trace = fn(*args, **keywords)
                return typ, error, trace

            return super().submit(race)

    store = ResultStore(tmp_path / "results", provenance()).open()
    jobs, _ = plan([("exp", small_run())], 1, store)
    with Racy(1) as executor:
        done = sweep(jobs, executor=executor, store=store, progress=Quiet())
    assert done.failures == ()
    assert executor.asked == len(jobs) + 1
