"""Experiments' parts of the report, scored and drawn: each as soon as its own results are stored."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfairx.errors import ResultsError
from fedfairx.experiments.experiment import Experiment, Outcome, Outcomes, Size
from fedfairx.experiments.report.figures import save, styled
from fedfairx.experiments.report.page import Drawn, Section
from fedfairx.experiments.sweep.progress import Progress
from fedfairx.experiments.sweep.scheduling import Job
from fedfairx.experiments.sweep.store import Store


@dataclass(frozen=True)
class Part:
    """What an experiment gave, and its section."""

    outcomes: Outcomes
    section: Section


def draw(
    experiment: Experiment,
    ids: Mapping[str, str],
    size: Size,
    store: Store,
    out: Path,
    progress: Progress,
    *,
    anew: bool = True,
) -> Part:
    """Score and draw what is stored under the `ids` of its runs; where not `anew`, figures there are stay."""
    outcomes: dict[str, Outcome] = {}
    for run in experiment.runs(size):
        identity = ids.get(run.key)
        if identity is None:
            raise ResultsError(
                f"{out} was made by {store.made_by}, whose {experiment.name} has no {run.key}; run "
                f"`fedfairx reproduce {experiment.name} --out {out}`"
            )
        outcomes[run.key] = store.read(identity, run.seeds(size.seeds), label=run.key)
    if anew:
        progress.say(f"drawing {experiment.name}: {experiment.title}")
    scores, drawn = experiment.score(outcomes, size), []
    with styled():
        for picture in experiment.plot(outcomes, size):
            png, svg = (out / "figures" / f"{picture.name}.{kind}" for kind in ("png", "svg"))
            if anew or not (png.is_file() and svg.is_file()):
                png, svg = save(picture.figure, out / "figures", picture.name)
            drawn.append(Drawn(picture.name, picture.caption, png, svg))
    return Part(outcomes, Section(experiment, scores, tuple(drawn)))


class Ahead:
    """Draws while jobs run, which leave Python to others: after the last one little is left to do.

    `stored` is to be told of every job that is. Whatever goes wrong is left for when all results are safe:
    then the experiment is drawn once more, and whoever waits hears of it.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        ids: Mapping[str, Mapping[str, str]],
        identity: Callable[[Job], str],
        part: Callable[[str], Part],
    ) -> None:
        """`ids` are those of each experiment's runs; `part` draws the experiment of a name."""
        self.parts: dict[str, Part] = {}
        self._identity, self._part = identity, part
        self._jobs = Counter(identity(job) for job in jobs)  # still to do, of each run
        self._missing = {name: set(runs.values()) & set(self._jobs) for name, runs in ids.items()}

    def stored(self, job: Job) -> None:
        identity = self._identity(job)
        self._jobs[identity] -= 1
        if self._jobs[identity] > 0:
            return
        for name, missing in self._missing.items():
            if identity in missing:
                missing.remove(identity)
                if not missing:
                    with contextlib.suppress(Exception):
                        self.parts[name] = self._part(name)
