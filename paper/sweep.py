"""Perform the runs of experiments, store each in a file, and write the report as experiments are complete.

OUT/results/*.npz       one file for each run, named by its id
OUT/run.json            the experiments, their size, what made them
OUT/figures/            every figure as PNG and SVG
OUT/report.html, report.md, scores.json
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import asdict, dataclass, fields
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from paper.datasets import missing
from paper.engine import Progress, ResultsError, cores, engine
from paper.experiment import PAPER, Experiment, Outcome, Part, Picture, Results, Run, Size, made_by, perform
from paper.figures import save, styled, write_note
from paper.report import Drawn, Section, write_report
from paper.scores import counted

MANIFEST = "run.json"
SCHEMA = 4
_DAMAGED = (EOFError, zipfile.BadZipFile, zlib.error)
EARLY = 20_000  # rounds that a run's first ones are worth: while little is known the solver works hardest


# --- files -----------------------------------------------------------------------------------------------


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


class Store:
    """The results in a folder: a file for each run, with the id of the run in it."""

    def __init__(self, folder: Path, maker: str) -> None:
        self.folder, self.maker = folder, maker

    def path(self, run: Run) -> Path:
        """The file of a run."""
        return self.folder / f"{run.identity(self.maker)}.npz"

    def read(self, run: Run) -> Outcome | None:
        """All stored seeds of a run, if any; `ResultsError` for a file that is damaged."""
        path = self.path(run)
        try:
            with np.load(path, allow_pickle=False) as arrays:
                values = {name: arrays[name] for name in arrays.files}
            whole = values.pop("id").item() == path.stem
            seconds = values.pop("seconds").item()
            return Outcome(**values, seconds=seconds) if whole else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, NotImplementedError, *_DAMAGED):
            text = f"{path} is damaged; remove it, and run the same command again"
            raise ResultsError(text) from None

    def usable(self, run: Run, say: Callable[[str], None]) -> Outcome | None:
        """The same, but a damaged file is set aside."""
        try:
            return self.read(run)
        except ResultsError:
            path = self.path(run)
            path.replace(path.with_suffix(".damaged"))
            say(f"{path.name} was cut short or changed and is set aside; what it held is computed again")
            return None

    def add(self, run: Run, outcome: Outcome) -> None:
        """Store seeds of a run, beside those that are stored already."""
        before = self.read(run)
        if before is not None:
            new = [seed for seed in outcome.seeds.tolist() if seed not in before.seeds]
            if not new:
                return
            outcome = before.and_then(outcome.take(new))
        buffer = io.BytesIO()
        values: dict[str, Any] = {item.name: getattr(outcome, item.name) for item in fields(outcome)}
        np.savez_compressed(buffer, id=self.path(run).stem, **values)
        write_whole(self.path(run), buffer.getvalue())

    def results(self, experiment: Experiment, size: Size) -> Results:
        """The results of an experiment, all of whose runs must be stored."""
        results = Results()
        for run in experiment.runs(size):
            stored, seeds = self.read(run), run.seeds(size.seeds)
            absent = [seed for seed in seeds if stored is None or seed not in stored.seeds]
            if stored is None or absent:
                raise ResultsError(
                    f"{self.folder} has no results of {experiment.name} {run.key} for "
                    f"{'seed' if len(absent) == 1 else 'seeds'} {', '.join(map(str, absent))} by "
                    f"{self.maker}; run "
                    f"`python -m paper reproduce {experiment.name} --out {self.folder.parent}`"
                )
            results[run.key] = stored.take(seeds)
        return results


@dataclass(frozen=True)
class Manifest:
    """The content and origin of a results folder."""

    experiments: Sequence[str]
    size: Size
    made_by: str
    engine: str
    workers: int
    jobs: int
    reused: int
    sweep_seconds: float
    python: str = platform.python_version()
    libraries: Mapping[str, str] | None = None
    schema: int = SCHEMA

    def write(self, folder: Path) -> None:
        libraries = {name: metadata.version(name) for name in ("numpy", "numba", "scipy")}
        write_whole(folder / MANIFEST, json.dumps(asdict(self) | {"libraries": libraries}, indent=2) + "\n")

    @staticmethod
    def read(folder: Path) -> Manifest:
        """Read the manifest of a results folder."""
        path = folder / MANIFEST
        again = f"`python -m paper reproduce --out {folder}`"
        try:
            values = json.loads(path.read_bytes())
            manifest = Manifest(**{**values, "size": Size(**values["size"])})
        except FileNotFoundError:
            raise ResultsError(f"{folder} holds no results; make some with {again}") from None
        except (OSError, ValueError, KeyError, TypeError):
            text = f"{path} is truncated or of another version; the results are intact, and {again} writes it"
            raise ResultsError(text) from None
        if manifest.schema != SCHEMA:
            text = f"{path} has schema {manifest.schema}; this version reads results schema {SCHEMA}"
            raise ResultsError(text)
        return manifest


# --- jobs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Job:
    """The seeds of a run that are not stored yet."""

    run: Run
    seeds: tuple[int, ...]
    wanted_by: tuple[str, ...]  # experiments

    @property
    def cost(self) -> int:
        """Agent-rounds."""
        return self.run.scenario.agents * self.run.scenario.horizon * len(self.seeds)

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


def plan(chosen: Sequence[Experiment], size: Size, store: Store, progress: Progress) -> tuple[list[Job], int]:
    """The jobs still to do, and how many pairs of run and seed are stored already.

    The same run of two experiments is done once. The paper's experiments come first; among them, and then
    among ours, one is completed after the other. Live agents, which Python runs one at a time, are spread.
    """
    users: dict[str, list[tuple[Experiment, Run]]] = {}
    for experiment in chosen:
        for run in experiment.runs(size):
            users.setdefault(run.identity(store.maker), []).append((experiment, run))
    jobs, reused = list[Job](), 0
    for same in users.values():
        run = max((each for _, each in same), key=lambda each: each.least_seeds)
        stored = store.usable(run, progress.say)
        done = set() if stored is None else set(stored.seeds.tolist())
        seeds = tuple(seed for seed in run.seeds(size.seeds) if seed not in done)
        reused += len(run.seeds(size.seeds)) - len(seeds)
        if seeds:
            jobs.append(Job(run, seeds, tuple(dict.fromkeys(each.name for each, _ in same))))
    return ordered(jobs, [each.name for each in chosen if each.origin == PAPER]), reused


def ordered(jobs: Sequence[Job], first: Iterable[str] = ()) -> list[Job]:
    """The jobs of the experiments `first` before all others, long ones first, live agents spread."""
    order = list[Job]()
    for early in (True, False):
        stage = [job for job in jobs if any(name in job.wanted_by for name in first) == early]
        places = list[tuple[float, Job]]()
        for live in (False, True):
            kind = [job for job in stage if (job.run.play is not None) == live]
            passed, whole = 0.0, sum(job.effort for job in kind)
            for job in sorted(kind, key=lambda job: (-job.effort, job.label)):
                places.append((passed / whole, job))
                passed += job.effort
        order += [job for _, job in sorted(places, key=lambda place: place[0])]
    return order


# --- the loop --------------------------------------------------------------------------------------------


class Interrupted(ResultsError):
    """Runs were interrupted; finished ones are stored."""


@dataclass(frozen=True)
class Reproduction:
    """The outcome of `reproduce`."""

    out: Path
    jobs: int
    reused: int  # pairs of run and seed that were stored already
    failures: Mapping[str, str]  # by label, with the reason
    sections: Sequence[Section]
    seconds: float

    @property
    def report(self) -> Path:
        return self.out / "report.html"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = {name: getattr(self, name) for name in ("jobs", "reused", "failures", "seconds")}
        scores = {section.experiment.name: section.scores() for section in self.sections}
        return {"out": str(self.out), "report": str(self.report), **values, "scores": scores}


def reproduce(
    chosen: Sequence[Experiment],
    *,
    size: Size,
    out: Path,
    engine_name: str = "local",
    workers: int | None = None,
    progress: Progress | None = None,
    ship: tuple[ModuleType, ...] = (),
    replace: bool = False,
    known: Iterable[Experiment] = (),
) -> Reproduction:
    """Perform what is not stored yet, the paper's experiments first, draw figures and write the report.

    The report is written whenever an experiment is complete. Experiments whose libraries are not installed
    are left out, and a message says what to install. Experiments in the folder's report stay in it if they
    are `known`. If they are of another size or by other code, they can't, and the call is refused unless
    `replace` is set.
    """
    began, progress = time.perf_counter(), progress or Progress(quiet=True)
    chosen = installed(chosen, progress)
    store = Store(out / "results", made_by())
    others, dropped = _others(out, chosen, known, size, store.maker, replace=replace)
    try:
        store.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        text = f"out must be a folder that can be written, got {out} ({error.strerror})"
        raise ResultsError(text) from None
    for stale in store.folder.glob(".*.partial"):  # what a killed run left
        stale.unlink(missing_ok=True)
    jobs, reused = plan(chosen, size, store, progress)
    if reused:
        progress.say(f"{reused} results of {out} are used again; {len(jobs)} runs are left")
    failures, sections, handled = dict[str, str](), dict[str, Section](), set[Job]()
    waiting = {
        experiment.name: sum(experiment.name in job.wanted_by for job in jobs) for experiment in chosen
    }

    def write(*, why: str = "", without: Sequence[str] = ()) -> list[Section]:
        """Draw what is complete, and write the report."""
        for experiment in (*chosen, *others):
            if experiment.name not in (*sections, *without):
                progress.say(f"drawing {experiment.name}: {experiment.title}")
                sections[experiment.name] = draw(experiment, size, store, out)
        shown = [
            sections[each.name] for each in _in_order((*others, *chosen), known) if each.name in sections
        ]
        Manifest(
            experiments=[section.experiment.name for section in shown],
            size=size,
            made_by=store.maker,
            engine=engine_name,
            workers=(workers or cores()) if engine_name == "local" else 0,
            jobs=len(jobs),
            reused=reused,
            sweep_seconds=time.perf_counter() - began,
        ).write(out)
        _write(out, shown, f"{why}: {', '.join(without)}." if without else "")
        return shown

    def stored(job: Job, outcome: Outcome) -> None:
        store.add(job.run, outcome)
        progress.done(job.label, job.cost, job.effort, outcome.seconds)
        for name in job.wanted_by:
            waiting[name] -= 1
        left = [name for name, count in waiting.items() if count]
        if left and not all(waiting[name] for name in job.wanted_by):
            with contextlib.suppress(Exception):  # raised at the end, when all results are stored
                write(why="These experiments still run, and this report will have them", without=left)
                progress.say(f"{out / 'report.html'} has {', '.join(sections)}")

    progress.start(len(jobs), sum(job.cost for job in jobs), sum(job.effort for job in jobs))
    if jobs:
        with engine(engine_name, workers, ship=ship) as executor:
            futures = {executor.submit(perform, job.run, job.seeds, store.maker): job for job in jobs}
            try:
                for future in _as_completed(futures):
                    job = futures[future]
                    if reason := _failure(future):
                        if engine_name != "local":  # a worker died between giving its result and saying so
                            future = executor.submit(perform, job.run, job.seeds, store.maker)
                            reason = _failure(future)
                        if reason:
                            failures[job.label] = reason
                            progress.say(f"FAILED {job.label}: {reason}")
                            continue
                    stored(job, Outcome(**future.result()))
                    handled.add(job)  # not before: one that is interrupted while it is stored is stored again
            except KeyboardInterrupt:
                done = _stop(futures, handled, store, progress)
                raise Interrupted(f"{done} of {len(jobs)} runs are stored in {store.folder}") from None
    failed = [name for name, count in waiting.items() if count]
    for name in failed:
        progress.say(f"{name} is left out of the report, because runs failed")
    shown = write(why="These experiments are left out, because runs failed", without=failed)
    for name in set(dropped) - {section.experiment.name for section in shown}:
        _remove_figures(out, name)
    return Reproduction(out, len(jobs), reused, failures, shown, time.perf_counter() - began)


def _as_completed(futures: Iterable[Future[Any]]) -> Iterable[Future[Any]]:
    """The futures as they are done; those that are done at the same time in the order given."""
    waiting = list(futures)
    while waiting:
        done, _ = wait(waiting, return_when=FIRST_COMPLETED)
        yield from (future for future in waiting if future in done)
        waiting = [future for future in waiting if future not in done]


def _failure(future: Future[Any]) -> str:
    """Why a job failed; nothing if it did not."""
    try:
        future.result()
    except (Exception, CancelledError) as error:  # a worker may fail in any way; the other jobs must go on
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def _stop(futures: Mapping[Future[Any], Job], handled: set[Job], store: Store, progress: Progress) -> int:
    """Cancel jobs that have not begun, and store those under way, because compiled code can't be interrupted.

    Returns how many are stored.
    """
    left = [future for future, job in futures.items() if job not in handled and not future.cancel()]
    if any(not future.done() for future in left):
        progress.say(f"stopping after {counted(len(left), 'run')} under way (Ctrl-C again leaves at once)")
    whole = [future for future in _as_completed(left) if not _failure(future)]
    for future in whole:
        store.add(futures[future].run, Outcome(**future.result()))
    return len(handled) + len(whole)


def installed(chosen: Iterable[Experiment], progress: Progress) -> list[Experiment]:
    """Those whose libraries are installed; an error if none is."""
    chosen = list(chosen)
    reasons = {experiment.name: missing(experiment.libraries) for experiment in chosen}
    if chosen and all(reasons.values()):
        raise ResultsError("; ".join(f"{name}: {text}" for name, text in reasons.items()))
    for name, text in reasons.items():
        if text:
            progress.say(f"{name} is left out: {text}")
    return [experiment for experiment in chosen if not reasons[experiment.name]]


def _others(
    out: Path,
    chosen: Sequence[Experiment],
    known: Iterable[Experiment],
    size: Size,
    maker: str,
    *,
    replace: bool,
) -> tuple[list[Experiment], list[str]]:
    """Experiments of the folder's report that stay in it, and the names of those that can't.

    The latter are refused unless they are run again now, at no smaller size, or may be replaced.
    """
    try:
        earlier = Manifest.read(out)
    except ResultsError:
        return [], []
    names = {experiment.name for experiment in chosen}
    if (earlier.size, earlier.made_by) == (size, maker):
        return [each for each in known if each.name in earlier.experiments and each.name not in names], []
    smaller = size.horizon < earlier.size.horizon or size.seeds < earlier.size.seeds
    lost = [name for name in earlier.experiments if smaller or name not in names]
    if lost and not replace:
        why = f"at {earlier.size}, and this is {size}" if earlier.size != size else "by other code"
        raise ResultsError(
            f"{out} holds a report of {', '.join(lost)} {why}; give another --out, or --replace to lose it"
        )
    return [], list(earlier.experiments)


def _in_order(some: Iterable[Experiment], known: Iterable[Experiment]) -> list[Experiment]:
    places = {experiment.name: place for place, experiment in enumerate(known)}
    return sorted(some, key=lambda experiment: places.get(experiment.name, len(places)))


def _remove_figures(out: Path, name: str) -> None:
    for path in (out / "figures").glob(f"{name}[-.]*"):
        path.unlink(missing_ok=True)


# --- drawing ---------------------------------------------------------------------------------------------


def draw(experiment: Experiment, size: Size, store: Store, out: Path, *, again: bool = True) -> Section:
    """Score and draw the stored results of an experiment; unless `again`, existing figures stay."""
    results, parts = store.results(experiment, size), list[Part | Drawn]()
    with styled():
        for part in experiment.parts(results, size):
            if isinstance(part, Picture):
                if experiment.reduced(size):
                    write_note(part.figure, size.note)
                paths = [out / "figures" / f"{part.name}.{kind}" for kind in ("png", "svg")]
                if again or not all(path.is_file() for path in paths):
                    for path, content in zip(paths, save(part.figure), strict=True):
                        write_whole(path, content)
                parts.append(Drawn(part.caption, *paths))
            else:
                parts.append(part)
    return Section(experiment, parts, sum(each.seconds for each in results.values()))


def redraw(
    names: Sequence[str] = (), *, known: Iterable[Experiment], out: Path, progress: Progress | None = None
) -> list[Section]:
    """Draw experiments (default: all) again from stored results, and write the report of all.

    The results may be of other code, if it has the same runs.
    """
    progress, manifest = progress or Progress(quiet=True), Manifest.read(out)
    for name in names:
        if name not in manifest.experiments:
            raise ResultsError(
                f"{out} holds no results of {name}; run `python -m paper reproduce {name} --out {out}`"
            )
    store, sections = Store(out / "results", manifest.made_by), []
    by_name = {experiment.name: experiment for experiment in known}
    for name in set(manifest.experiments) - by_name.keys():
        progress.say(f"{name} is left out of the report; its --plugin is needed to draw it")
    for experiment in installed(
        [by_name[each] for each in manifest.experiments if each in by_name], progress
    ):
        asked = not names or experiment.name in names
        try:
            sections.append(draw(experiment, manifest.size, store, out, again=asked))
        except ResultsError as error:
            if asked:
                raise
            progress.say(f"{experiment.name} is left out of the report: {error}")
    _write(out, sections)
    return [section for section in sections if not names or section.experiment.name in names]


def _write(out: Path, sections: Sequence[Section], warning: str = "") -> None:
    manifest = Manifest.read(out)
    for name, text in write_report(
        sections, size=manifest.size, facts=asdict(manifest), warning=warning
    ).items():
        write_whole(out / name, text)
    scores = {section.experiment.name: section.scores() for section in sections}
    write_whole(out / "scores.json", json.dumps(scores, indent=2) + "\n")
