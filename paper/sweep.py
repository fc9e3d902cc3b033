"""Perform the runs of experiments, store each in a file, and write the report as experiments are complete.

OUT/results/*.npz       one file for each run, named by its id
OUT/run.json            the experiments of the report, their size, what made them
OUT/figures/            every figure as PNG and SVG
OUT/report.html, report.md, scores.json
"""

import contextlib
import io
import json
import os
import platform
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, as_completed
from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import BadZipFile

import numpy as np

from paper.datasets import missing
from paper.engine import Progress, ResultsError, cores, engine
from paper.experiment import PAPER, Experiment, Outcome, Part, Picture, Results, Run, Size, made_by, perform
from paper.figures import save, styled, write_note
from paper.report import Drawn, Section, write_report
from paper.scores import counted

EARLY = 20_000  # rounds that a run's first ones are worth: while little is known the solver works hardest
_DAMAGED = (OSError, EOFError, ValueError, KeyError, TypeError, NotImplementedError, BadZipFile, zlib.error)


class Interrupted(ResultsError):
    """Runs were interrupted; finished ones are stored."""


def write_whole(path: Path, content: bytes | str) -> None:
    """Create or replace a file; on failure the old one stays."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise ResultsError(f"{path} could not be written ({error.strerror or error})") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


# --- a folder --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Folder:
    """Stored results of a size, and the figures and the report that are made of them."""

    out: Path
    size: Size
    made_by: str

    def earlier(self) -> tuple[Sequence[str], str]:
        """The experiments of the last report, and its size, unless it is of this size and code."""
        try:
            last = json.loads((self.out / "run.json").read_bytes())
            size, same = Size(**last["size"]), last["made_by"] == self.made_by
            return last["experiments"], "" if same and size == self.size else str(size)
        except (OSError, ValueError, KeyError, TypeError):
            return (), ""

    def path(self, run: Run) -> Path:
        """The file of a run."""
        return self.out / "results" / f"{run.identity(self.made_by)}.npz"

    def read(self, run: Run) -> Outcome | None:
        """What is stored of a run; nothing if that is damaged or has too few seeds."""
        seeds = len(run.seeds(self.size.seeds))
        try:
            with np.load(self.path(run), allow_pickle=False) as arrays:
                stored = Outcome(**{item.name: arrays[item.name] for item in fields(Outcome)})
        except _DAMAGED:
            return None
        return stored.first(seeds) if len(stored.seeds) >= seeds else None

    def add(self, run: Run, outcome: Outcome) -> None:
        """Store a run."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **vars(outcome))
        write_whole(self.path(run), buffer.getvalue())

    def results(self, experiment: Experiment) -> Results:
        """The results of an experiment, all of whose runs must be stored."""
        results = Results()
        for run in experiment.runs(self.size):
            stored = self.read(run)
            if stored is None:
                made = f"{experiment.name} {run.key} at {self.size} by {self.made_by}"
                command = f"`python -m paper reproduce {experiment.name} --out {self.out}`"
                raise ResultsError(f"{self.out} has no results of {made}; run {command}")
            results[run.key] = stored
        return results

    def draw(self, experiment: Experiment, *, again: bool = True) -> Section:
        """Score and draw the stored results of an experiment; unless `again`, existing figures stay."""
        results, parts = self.results(experiment), list[Part | Drawn]()
        with styled():
            for part in experiment.parts(results, self.size):
                if not isinstance(part, Picture):
                    parts.append(part)
                    continue
                paths = [self.out / "figures" / f"{part.name}.{kind}" for kind in ("png", "svg")]
                if again or not all(path.is_file() for path in paths):
                    if experiment.reduced(self.size):
                        write_note(part.figure, self.size.note)
                    for path, content in zip(paths, save(part.figure), strict=True):
                        write_whole(path, content)
                parts.append(Drawn(part.caption, *paths))
        seeds, seconds = zip(*((len(each.seeds), each.seconds) for each in results.values()), strict=True)
        return Section(experiment, parts, max(seeds), sum(seconds))

    def write(self, sections: Sequence[Section], how: str, warning: str = "") -> None:
        """Write the report of these experiments."""
        files = write_report(sections, size=self.size, how=how, warning=warning)
        scores = {section.experiment.name: section.scores() for section in sections}
        last = {"size": asdict(self.size), "made_by": self.made_by, "experiments": list(scores)}
        for name, values in (("scores.json", scores), ("run.json", last)):
            files[name] = json.dumps(values, indent=2) + "\n"
        for name, text in files.items():
            write_whole(self.out / name, text)


# --- the order of runs -----------------------------------------------------------------------------------


@dataclass(eq=False)
class Job:
    """A run that is not stored yet, and the experiments that want it."""

    run: Run
    wanted_by: list[str] = field(default_factory=list)
    seeds: range = range(0)

    @property
    def effort(self) -> float:
        """Estimated duration, relative to other jobs."""
        world, run = self.run.scenario, self.run
        size = world.agents * len(self.seeds) * world.arms * world.dimension
        optimism = "bayes" not in run.algorithm and "lints" not in run.algorithm  # has a solver
        rule = 1.0 if optimism else 0.3
        weighing = 2.4 if optimism and run.options.get("decide_from") == "own+released" else 1.0
        return (world.horizon + EARLY) * size * rule * weighing * (50.0 if run.play else 1.0)

    @property
    def label(self) -> str:
        return f"{self.wanted_by[0]} {self.run.key}, {counted(len(self.seeds), 'seed')}"


def plan(chosen: Iterable[Experiment], folder: Folder) -> tuple[list[Job], int]:
    """The jobs of all runs that are not stored yet, and how many are; the same run of two is done once."""
    jobs = dict[Path, Job]()
    for experiment in chosen:
        for run in experiment.runs(folder.size):
            job = jobs.setdefault(folder.path(run), Job(run))
            job.wanted_by.append(experiment.name)
            job.run = max(job.run, run, key=lambda each: each.least_seeds)
            job.seeds = job.run.seeds(folder.size.seeds)
    left = [job for job in jobs.values() if folder.read(job.run) is None]
    return ordered(left, {each.name for each in chosen if each.origin == PAPER}), len(jobs) - len(left)


def ordered(jobs: Iterable[Job], first: Iterable[str] = ()) -> list[Job]:
    """Jobs of the experiments `first` before all others, and long ones first.

    Live agents, which Python runs one at a time, are spread among the others.
    """
    kinds = defaultdict[tuple[bool, bool], list[Job]](list)
    for job in sorted(jobs, key=lambda job: (-job.effort, job.label)):
        kinds[set(first).isdisjoint(job.wanted_by), job.run.play is not None].append(job)
    places = list[tuple[bool, float, Job]]()
    for (late, _), same in kinds.items():
        passed = list(accumulate((job.effort for job in same), initial=0.0))
        places += [(late, before / passed[-1], job) for before, job in zip(passed, same, strict=False)]
    return [job for *_, job in sorted(places, key=lambda place: place[:2])]


# --- the loop --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reproduction:
    """The outcome of `reproduce`."""

    out: Path
    runs: int
    reused: int  # runs that were stored already
    failures: Mapping[str, str]  # by label, with the reason
    sections: Sequence[Section]
    seconds: float

    @property
    def report(self) -> Path:
        return self.out / "report.html"


def reproduce(
    chosen: Sequence[Experiment],
    *,
    size: Size,
    out: Path,
    engine_name: str = "local",
    workers: int | None = None,
    progress: Progress | None = None,
    ship: tuple[ModuleType, ...] = (),
    known: Sequence[Experiment] = (),
) -> Reproduction:
    """Perform what is not stored yet, the paper's experiments first, draw figures and write the report.

    The report is written whenever an experiment is complete. Experiments whose libraries are not installed
    are left out, and a message says what to install. Experiments of the folder's last report stay in it if
    they are `known`, and of the same size and code.
    """
    began, progress, known = time.perf_counter(), progress or Progress(quiet=True), known or chosen
    chosen, folder = installed(chosen, progress), Folder(out, size, made_by())
    shown = _prepared(folder, chosen, known, progress)
    jobs, reused = plan(chosen, folder)
    if reused:
        progress.say(f"{reused} results of {out} are used again; {len(jobs)} runs are left")
    waiting = Counter(name for job in jobs for name in job.wanted_by)
    sections, failures = dict[str, Section](), dict[str, str]()

    def write(why: str) -> list[Section]:
        """Draw what is complete, and write the report."""
        without = [each.name for each in shown if waiting[each.name]]
        for experiment in shown:
            if experiment.name not in (*sections, *without):
                progress.say(f"drawing {experiment.name}: {experiment.title}")
                sections[experiment.name] = folder.draw(experiment, again=experiment in chosen)
        where = f"{workers or cores()} workers here" if engine_name == "local" else engine_name
        libraries = ", ".join(f"{name} {metadata.version(name)}" for name in ("numpy", "numba", "scipy"))
        how = (
            f"Made by {folder.made_by}, Python {platform.python_version()}, {libraries}. Wall time "
            f"{time.perf_counter() - began:.0f} s on {where} ({len(jobs)} runs, {reused} were stored already)"
        )
        warning = f"{why}: {', '.join(without)}." if without else ""
        drawn = [sections[each.name] for each in shown if each.name in sections]
        folder.write(drawn, how, warning)
        return drawn

    def keep(job: Job, outcome: Outcome) -> None:
        folder.add(job.run, outcome)
        progress.done(job.label, job.effort, outcome.seconds)
        waiting.subtract(job.wanted_by)
        if any(waiting.values()) and not all(waiting[name] for name in job.wanted_by):
            with contextlib.suppress(Exception):  # raised at the end, when all results are stored
                write("These experiments still run, and this report will have them")
                progress.say(f"{out / 'report.html'} has {', '.join(sections)}")

    progress.start(len(jobs), sum(job.effort for job in jobs))
    with engine(engine_name, workers, ship=ship) as submit:
        futures = {submit(perform, job.run, job.seeds, folder.made_by): job for job in jobs}
        try:
            for future in as_completed(futures):
                job = futures[future]
                if _failure(future) and engine_name != "local":  # once more: its worker may have died
                    future = submit(perform, job.run, job.seeds, folder.made_by)
                if reason := _failure(future):
                    failures[job.label] = reason
                    progress.say(f"FAILED {job.label}: {reason}")
                else:
                    keep(job, Outcome(**future.result()))
        except KeyboardInterrupt:
            # Compiled code can't be interrupted. What was being stored may be whole or not.
            left = [f for f, job in futures.items() if not f.cancel() and folder.read(job.run) is None]
            if not all(future.done() for future in left):
                runs = counted(len(left), "run")
                progress.say(f"stopping after {runs} under way (Ctrl-C again leaves at once)")
            for future in as_completed(left):
                if not _failure(future):
                    folder.add(futures[future].run, Outcome(**future.result()))
            done = sum(folder.read(job.run) is not None for job in jobs)
            raise Interrupted(f"{done} of {len(jobs)} runs are stored in {out / 'results'}") from None
    drawn = write("These experiments are left out, because runs failed")
    return Reproduction(out, len(jobs), reused, failures, drawn, time.perf_counter() - began)


def _prepared(
    folder: Folder, chosen: Sequence[Experiment], known: Iterable[Experiment], progress: Progress
) -> list[Experiment]:
    """What the report will have: what was chosen, and what it has, if that is of the same size and code."""
    try:
        (folder.out / "results").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        text = f"out must be a folder that can be written, got {folder.out} ({error.strerror})"
        raise ResultsError(text) from None
    for stale in (folder.out / "results").glob(".*.partial"):  # what a killed run left
        stale.unlink(missing_ok=True)
    earlier, other = folder.earlier()
    if other:
        progress.say(f"the report of {', '.join(earlier)} at {other} is replaced; results stay")
        for path in (folder.out / "figures").glob("*"):
            path.unlink()

    def stays(each: Experiment) -> bool:
        stored = each.name in earlier and not other and not missing(each.libraries)
        return stored and all(folder.read(run) is not None for run in each.runs(folder.size))

    return [each for each in known if each in chosen or stays(each)]


def _failure(future: Future[Any]) -> str:
    """Why a run failed; nothing if it did not."""
    try:
        future.result()
    except (Exception, CancelledError) as error:  # a worker may fail in any way; the other runs must go on
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def installed(chosen: Iterable[Experiment], progress: Progress) -> list[Experiment]:
    """Those whose libraries are installed; an error if none is."""
    chosen = list(chosen)
    reasons = {each.name: text for each in chosen if (text := missing(each.libraries))}
    if reasons and len(reasons) == len(chosen):
        raise ResultsError("; ".join(f"{name}: {text}" for name, text in reasons.items()))
    for name, text in reasons.items():
        progress.say(f"{name} is left out: {text}")
    return [each for each in chosen if each.name not in reasons]
