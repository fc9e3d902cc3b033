"""Experiments are drawn as soon as their results are stored, and what goes wrong there costs no result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from experiment_helpers import small_run
from fedfairx.experiments import Contents, Experiment, Outcomes, Picture, Run, Scores, Size, registry
from fedfairx.experiments.experiment import PAPER
from fedfairx.experiments.report.figures import canvas
from fedfairx.experiments.report.page import Section
from fedfairx.experiments.reproduce import reproduce
from fedfairx.experiments.sections import Ahead, DrawnSection
from fedfairx.experiments.sweep.job_order import Job
from fedfairx.experiments.sweep.jobs import SweepInterruptedError
from fedfairx.experiments.sweep.progress import Quiet

SIZE = Size(horizon=30, seeds=2)


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_PLUGGED", {})


class Watched(Quiet):
    """Notes what is said and done, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def say(self, text: str) -> None:
        self.events.append(text)

    def done(self, label: str, cost: int, seconds: float) -> None:  # noqa: ARG002 (the protocol's)
        self.events.append(f"done {label}")


def experiment(
    name: str,
    horizon: int,
    fails: int = 0,
    error: type[BaseException] = RuntimeError,
    origin: Literal["paper", "own"] = "own",
) -> Experiment:
    """One run, one figure, the first `fails` drawings of which go wrong."""
    left = [fails]

    def plot(_outcomes: Outcomes, _size: Size) -> Iterator[Picture]:
        left[0] -= 1
        if left[0] >= 0:
            raise error("no ink")
        yield Picture(f"{name}-figure", "caption", canvas()[0])

    return registry.register(
        Experiment(
            name,
            name,
            f"What of {name}?",
            lambda _: (small_run(horizon=horizon),),
            lambda _: Contents(),
            plot,
            origin=origin,
        )
    )


def test_one_is_drawn_while_others_are_computed_and_only_once(tmp_path: Path) -> None:
    long, short, progress = experiment("long", 200), experiment("short", 20), Watched()
    done = reproduce([short, long], size=SIZE, out=tmp_path, workers=1, progress=progress)
    report = tmp_path / "report.html"
    assert progress.events == [
        "done long small, 2 seeds",
        "drawing long: long",
        f"{report} has long",
        "done short small, 2 seeds",
        "drawing short: short",
        f"{report} has long, short",
    ]
    assert list(done.scores) == ["long", "short"]
    assert all((tmp_path / "figures" / f"{name}-figure.svg").exists() for name in ("long", "short"))
    assert "still run" not in report.read_text()


def test_the_papers_come_first_and_are_reported_before_others_are_done(tmp_path: Path) -> None:
    """Whoever stops it then has a report of the paper's, to which the next call adds the rest."""
    short = experiment("short", 20, origin=PAPER)
    chosen = [experiment("long", 200), short, experiment("stopped", 100, fails=1, error=KeyboardInterrupt)]
    with pytest.raises(SweepInterruptedError):
        reproduce(chosen, size=SIZE, out=tmp_path, workers=1)
    page = (tmp_path / "report.md").read_text()
    assert "## short: short (the paper's)" in page
    assert page.index("> **These experiments still run") < page.index("stopped") < page.index("## short")
    assert set(json.loads((tmp_path / "scores.json").read_text())) == {"long", "short"}
    done = reproduce(chosen, size=SIZE, out=tmp_path, workers=1)
    assert set(done.scores) == {"long", "short", "stopped"}
    assert "still run" not in (tmp_path / "report.md").read_text()


def test_what_could_not_be_drawn_is_tried_again_at_the_end(tmp_path: Path) -> None:
    chosen = [experiment("long", 200, fails=1), experiment("short", 20)]
    done = reproduce(chosen, size=SIZE, out=tmp_path, workers=1)
    assert (tmp_path / "figures" / "long-figure.png").exists()
    assert set(done.scores) == {"long", "short"}


def test_a_drawing_that_always_fails_is_heard_of_when_all_results_are_stored(tmp_path: Path) -> None:
    chosen = [experiment("long", 200, fails=9), experiment("short", 20)]
    with pytest.raises(RuntimeError, match="no ink"):
        reproduce(chosen, size=SIZE, out=tmp_path, workers=1)
    assert len(list((tmp_path / "results").glob("*.parquet"))) == 2


def test_whoever_interrupts_a_drawing_interrupts_the_sweep_and_can_go_on(tmp_path: Path) -> None:
    chosen = [experiment("long", 200, fails=1, error=KeyboardInterrupt), experiment("short", 20)]
    with pytest.raises(SweepInterruptedError, match=r"[12] of 2 jobs are stored"):
        reproduce(chosen, size=SIZE, out=tmp_path, workers=1)
    done = reproduce(chosen, size=SIZE, out=tmp_path, workers=1)
    assert done.swept.reused >= 2
    assert (tmp_path / "figures" / "long-figure.png").exists()


def test_all_jobs_that_an_experiment_wants_must_be_stored() -> None:
    drawn: list[str] = []

    def part(name: str) -> DrawnSection:
        drawn.append(name)
        return DrawnSection({}, Section(experiment(name, 30), Scores(), ()))

    def job(key: str, seed: int, *names: str) -> Job:
        return Job(Run(key, small_run().scenario, "b0"), (seed,), names)

    jobs = [job("a", 0, "both", "first"), job("a", 1, "both"), job("b", 0, "both")]
    ahead = Ahead(jobs, part)
    assert [(ahead.stored(each), tuple(drawn)) for each in jobs] == [
        (True, ("first",)),
        (False, ("first",)),
        (True, ("first", "both")),
    ]
    assert (set(ahead.parts), ahead.pending) == ({"first", "both"}, [])
