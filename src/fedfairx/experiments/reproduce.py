"""`fedfairx reproduce`: run experiments, store their results, draw figures and write the report.

OUT/results/*.parquet   one file for each job
OUT/run.json            the manifest: experiments, size, provenance
OUT/figures/            every figure as PNG and SVG
OUT/report.html, report.md, scores.json
"""

from __future__ import annotations

import contextlib
import json
import platform
import time
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from fedfairx.errors import MissingLibrary, ResultsError
from fedfairx.experiments.datasets import missing
from fedfairx.experiments.experiment import PAPER, Experiment, Size
from fedfairx.experiments.provenance import SCHEMA, Provenance, provenance
from fedfairx.experiments.registry import experiments
from fedfairx.experiments.report.page import write_report
from fedfairx.experiments.scores import Scores
from fedfairx.experiments.sections import Ahead, DrawnSection, draw
from fedfairx.experiments.sweep.job_order import Job
from fedfairx.experiments.sweep.jobs import Swept, plan, sweep
from fedfairx.experiments.sweep.progress import Quiet, SweepProgress
from fedfairx.experiments.sweep.store import ResultStore
from fedfairx.simulation.executors import cores, engine
from fedfairx.util.files import remove_stale, write_whole
from fedfairx.util.formatting import counted

MANIFEST = "run.json"
Runs = Mapping[str, Mapping[str, str]]  # experiment → key of a run → id of its results
_LIBRARIES = ("numpy", "numba", "scipy")


@dataclass(frozen=True)
class Manifest:
    """The content and provenance of a results folder."""

    runs: Runs
    size: Size
    made_by: Provenance
    engine: str
    workers: int
    jobs: int
    reused: int
    sweep_seconds: float
    python: str = field(default_factory=platform.python_version)
    libraries: Mapping[str, str] = field(
        default_factory=lambda: {name: metadata.version(name) for name in _LIBRARIES}
    )

    def write(self, folder: Path) -> None:
        write_whole(folder / MANIFEST, json.dumps(asdict(self), indent=2) + "\n")

    @staticmethod
    def read(folder: Path) -> Manifest:
        """Read the manifest of a results folder."""
        path = folder / MANIFEST
        try:
            manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
        except FileNotFoundError:
            raise ResultsError(
                f"{folder} holds no results; make some with `fedfairx reproduce --out {folder}`"
            ) from None
        except (OSError, msgspec.MsgspecError):
            raise ResultsError(
                f"{path} is truncated or of another version; the results are intact, and `fedfairx "
                f"reproduce --out {folder}` writes it again"
            ) from None
        if manifest.made_by.schema != SCHEMA:
            raise ResultsError(
                f"{folder} was made by {manifest.made_by}; this version reads results schema {SCHEMA}"
            )
        return manifest


@dataclass(frozen=True)
class Reproduction:
    """The outcome of `reproduce`."""

    out: Path
    swept: Swept
    scores: Mapping[str, Scores]
    seconds: float

    @property
    def report(self) -> Path:
        return self.out / "report.html"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "out": str(self.out),
            "report": str(self.report),
            "jobs": self.swept.jobs,
            "reused": self.swept.reused,
            "failures": [{"job": f.job.label, "reason": f.reason} for f in self.swept.failures],
            "seconds": self.seconds,
            "scores": {name: scores.to_dict() for name, scores in self.scores.items()},
        }


def reproduce(
    chosen: Sequence[Experiment],
    *,
    size: Size,
    out: Path,
    engine_name: str = "local",
    workers: int | None = None,
    progress: SweepProgress | None = None,
    ship: tuple[ModuleType, ...] = (),
    replace: bool = False,
) -> Reproduction:
    """Run what is not stored yet, the paper's experiments first, draw figures and write the report.

    The report is written whenever an experiment is complete. Experiments whose libraries are not installed
    are left out, and a message says what to install. Experiments in the folder's report stay in it. If they
    are of another size or by other code, they can't, and the call is refused unless `replace` is set.
    """
    progress = progress or Quiet()
    began = time.perf_counter()
    chosen = _installed(chosen, progress)
    others, dropped = _others(out, chosen, size, replace=replace)
    store = ResultStore(out / "results", provenance()).open()
    remove_stale(out)
    _tell(store, progress)
    wanted = [(experiment.name, run) for experiment in chosen for run in experiment.runs(size)]
    papers = [experiment.name for experiment in chosen if experiment.origin == PAPER]
    jobs, reused = plan(wanted, size.seeds, store, first=papers)
    if reused:
        progress.say(f"{reused} results of {out} are used again; {len(jobs)} jobs are left")
    ids = {each.name: _ids(each, size, store.made_by) for each in chosen}

    def part(name: str) -> DrawnSection:
        experiment = next(each for each in chosen if each.name == name)
        return draw(experiment, ids[name], size, store, out, progress)

    def write(swept: Swept, without: Collection[str], why: str, show: SweepProgress) -> Mapping[str, Scores]:
        """Write the manifest and the report of all experiments but some."""
        manifest = Manifest(
            runs={name: runs for name, runs in {**others, **ids}.items() if name not in without},
            size=size,
            made_by=store.made_by,
            engine=engine_name,
            workers=(workers or cores()) if engine_name == "local" else 0,
            jobs=swept.jobs,
            reused=swept.reused,
            sweep_seconds=swept.seconds,
        )
        manifest.write(out)
        return render(
            _registered(manifest, show),
            manifest=manifest,
            store=store,
            out=out,
            progress=show,
            parts=ahead.parts,
            warning=f"{why}: {', '.join(without)}." if without else "",
        )

    def stored(job: Job) -> None:
        if ahead.stored(job):
            so_far = Swept(len(jobs), reused, (), time.perf_counter() - began)
            why = "These experiments still run, and this report will have them"
            with contextlib.suppress(Exception):  # raised at the end, when all results are stored
                write(so_far, ahead.pending, why, Quiet())
                progress.say(f"{out / 'report.html'} has {', '.join(ahead.parts)}")

    ahead = Ahead(jobs, part)
    if jobs:
        with engine(engine_name, workers, ship=ship) as executor:
            swept = sweep(
                jobs, executor=executor, store=store, progress=progress, reused=reused, stored=stored
            )
    else:
        swept = Swept(0, reused, (), 0.0)
    failed = [each.name for each in chosen if not _is_whole(each, ids[each.name], size, store)]
    for name in failed:
        progress.say(f"{name} is left out of the report, because jobs failed")
    scores = write(swept, failed, "These experiments are left out, because jobs failed", progress)
    _remove_figures(out, set(dropped) - ({*others, *ids} - {*failed}))
    return Reproduction(out, swept, scores, time.perf_counter() - began)


def redraw(
    names: Sequence[str] = (), *, out: Path, progress: SweepProgress | None = None
) -> Mapping[str, Scores]:
    """Draw experiments (default: all) again from stored results, and write the report of all.

    The results may be of this code, or of other code whose results it can read.
    """
    progress = progress or Quiet()
    manifest = Manifest.read(out)
    for name in names:
        if name not in manifest.runs:
            text = f"{out} holds no results of {name}; run `fedfairx reproduce {name} --out {out}`"
            raise ResultsError(text)
    store = ResultStore(out / "results", manifest.made_by).look()
    registered = _registered(manifest, progress)
    scores = render(registered, manifest=manifest, store=store, out=out, progress=progress, only=names)
    return {name: each for name, each in scores.items() if not names or name in names}


def render(
    chosen: Sequence[Experiment],
    *,
    manifest: Manifest,
    store: ResultStore,
    out: Path,
    progress: SweepProgress,
    only: Sequence[str] = (),
    parts: dict[str, DrawnSection] | None = None,
    warning: str = "",
) -> Mapping[str, Scores]:
    """Figures, scores and the report of experiments whose results are all stored.

    With `only`, the figures of others stay as they are on disk. What is in `parts` is not drawn again, and
    what is drawn is added to it. A `warning` opens the report.
    """
    drawn = {} if parts is None else parts
    for experiment in chosen:
        asked, ids = not only or experiment.name in only, manifest.runs[experiment.name]
        if experiment.name in drawn:
            continue
        try:
            drawn[experiment.name] = draw(experiment, ids, manifest.size, store, out, progress, again=asked)
        except ResultsError as error:
            if asked:
                raise
            progress.say(f"{experiment.name} is left out of the report: {error}")
    shown = [drawn[experiment.name] for experiment in chosen if experiment.name in drawn]
    seconds = {
        manifest.runs[part.section.experiment.name][key]: outcome.seconds
        for part in shown
        for key, outcome in part.outcomes.items()
    }
    facts = asdict(manifest) | {"compute_seconds": sum(seconds.values())}
    sections = [part.section for part in shown]
    write_report(out, sections, size=manifest.size, made_by=manifest.made_by, facts=facts, warning=warning)
    scores_by_name = {section.experiment.name: section.scores for section in sections}
    text = json.dumps({name: scores.to_dict() for name, scores in scores_by_name.items()}, indent=2)
    write_whole(out / "scores.json", text + "\n")
    return scores_by_name


def _registered(manifest: Manifest, progress: SweepProgress) -> list[Experiment]:
    """The experiments of a manifest that are registered; a plug-in may not be loaded."""
    for name in manifest.runs:
        if name not in experiments():
            progress.say(f"{name} is left out of the report; its --plugin is needed to draw it")
    chosen = [experiment for name, experiment in experiments().items() if name in manifest.runs]
    return _installed(chosen, progress)


def _installed(chosen: Sequence[Experiment], progress: SweepProgress) -> list[Experiment]:
    """Those whose libraries are installed; an error if none is."""
    reasons = {experiment.name: missing(experiment.libraries) for experiment in chosen}
    installed = [experiment for experiment in chosen if not reasons[experiment.name]]
    if chosen and not installed:
        raise MissingLibrary("; ".join(f"{name}: {text}" for name, text in reasons.items()))
    for name, text in reasons.items():
        if text:
            progress.say(f"{name} is left out: {text}")
    return installed


def _others(out: Path, chosen: Sequence[Experiment], size: Size, *, replace: bool) -> tuple[Runs, Runs]:
    """Experiments of the folder's report that can stay in it, and those that can't.

    The latter are refused unless they are run again now, at no smaller size, or may be replaced.
    """
    try:
        earlier = Manifest.read(out)
    except ResultsError:
        return {}, {}
    if (earlier.size, earlier.made_by) == (size, provenance()):
        return earlier.runs, {}
    smaller = size.horizon < earlier.size.horizon or size.seeds < earlier.size.seeds
    again = set() if smaller else {experiment.name for experiment in chosen}
    lost = [name for name in earlier.runs if name not in again]
    if lost and not replace:
        sizes = [f"T = {each.horizon}, {counted(each.seeds, 'seed')}" for each in (earlier.size, size)]
        why = f"at {sizes[0]}, and this is {sizes[1]}" if earlier.size != size else "by other code"
        raise ResultsError(
            f"{out} holds a report of {', '.join(lost)} {why}; give another --out, or --replace to lose it"
        )
    return {}, earlier.runs


def _remove_figures(out: Path, names: Set[str]) -> None:
    """Remove the figures of experiments that are no longer in the report."""
    for name in names:
        for path in (out / "figures").glob(f"{name}[-.]*"):
            if path.suffix in (".png", ".svg"):
                path.unlink(missing_ok=True)


def _ids(experiment: Experiment, size: Size, made_by: Provenance) -> Mapping[str, str]:
    """The ids of an experiment's runs, by their keys."""
    return {run.key: run.identity(made_by) for run in experiment.runs(size)}


def _is_whole(experiment: Experiment, ids: Mapping[str, str], size: Size, store: ResultStore) -> bool:
    """Whether every run has every seed stored."""
    runs = experiment.runs(size)
    return all(store.seeds(ids[run.key]).issuperset(run.seeds(size.seeds)) for run in runs)


def _tell(store: ResultStore, progress: SweepProgress) -> None:
    for path in store.damaged:
        progress.say(f"{path.name} was cut short or changed and is set aside; what it held is computed again")
    for maker, count in store.foreign.items():
        progress.say(f"{count} results by {maker} are kept, but not used: this is {store.made_by}")
