"""Sections of the report, each scored and drawn as soon as its experiment's results are stored."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfairx.errors import ResultsError
from fedfairx.experiments.experiment import Experiment, Size
from fedfairx.experiments.outcomes import Outcome, Outcomes
from fedfairx.experiments.report.figures import save, write_note
from fedfairx.experiments.report.markup import Drawn
from fedfairx.experiments.report.page import Section
from fedfairx.experiments.sweep.job_order import Job
from fedfairx.experiments.sweep.progress import SweepProgress
from fedfairx.experiments.sweep.store import ResultStore
from fedfairx.util.figure_style import styled


@dataclass(frozen=True)
class DrawnSection:
    """The outcomes of an experiment and its section of the report."""

    outcomes: Outcomes
    section: Section


def draw(
    experiment: Experiment,
    ids: Mapping[str, str],
    size: Size,
    store: ResultStore,
    out: Path,
    progress: SweepProgress,
    *,
    again: bool = True,
) -> DrawnSection:
    """Score and draw the results stored under `ids`; unless `again`, existing figures stay."""
    outcomes: dict[str, Outcome] = {}
    for run in experiment.runs(size):
        identity = ids.get(run.key)
        if identity is None:
            raise ResultsError(
                f"{out} was made by {store.made_by}, whose {experiment.name} has no {run.key}; run "
                f"`fedfairx reproduce {experiment.name} --out {out}`"
            )
        outcomes[run.key] = store.read(identity, run.seeds(size.seeds), label=run.key)
    if again:
        progress.say(f"drawing {experiment.name}: {experiment.title}")
    scores, drawn = experiment.score(outcomes, size), []
    with styled():
        for picture in experiment.plot(outcomes, size):
            if experiment.reduced(size):
                write_note(picture.figure, size.note)
            png, svg = (out / "figures" / f"{picture.name}.{kind}" for kind in ("png", "svg"))
            if again or not (png.is_file() and svg.is_file()):
                png, svg = save(picture.figure, out / "figures", picture.name)
            drawn.append(Drawn(picture.caption, png, svg))
    return DrawnSection(outcomes, Section(experiment, scores, tuple(drawn)))


class Ahead:
    """Draw experiments while jobs, which release the GIL, still run.

    Call `stored` after each stored job. Errors are ignored here: when all results are stored, the experiment
    is drawn again, and the error is raised then.
    """

    def __init__(self, jobs: Sequence[Job], draw: Callable[[str], DrawnSection]) -> None:
        """`draw` draws the experiment of a name."""
        self.parts: dict[str, DrawnSection] = {}
        self._draw = draw
        self._missing = Counter(name for job in jobs for name in job.wanted_by)  # jobs of each experiment

    @property
    def pending(self) -> list[str]:
        """Experiments whose results are not complete, or could not be drawn."""
        return [name for name in self._missing if name not in self.parts]

    def stored(self, job: Job) -> bool:
        """Draw the experiments that have all their results now; say whether there is one."""
        self._missing.subtract(job.wanted_by)
        complete = [name for name in job.wanted_by if not self._missing[name]]
        for name in complete:
            with contextlib.suppress(Exception):
                self.parts[name] = self._draw(name)
        return any(name in self.parts for name in complete)
