"""The report: Markdown with links to figures, and one self-contained HTML page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfairx.agent.schedules import Determinant
from fedfairx.experiments.experiment import DATA, OURS, OWN, PAPER, Experiment, Size, glossary
from fedfairx.experiments.provenance import Provenance
from fedfairx.experiments.report.markup import Document, Drawn, Html, Markdown
from fedfairx.experiments.scores import CRITERION, Scores, Table, number
from fedfairx.experiments.world import stored_calibration
from fedfairx.util.files import write_whole

_TEXTS = json.loads((DATA / "report.json").read_text(encoding="utf-8"))
# Tables that do not depend on results: where we differ from the paper and why.
OUT_OF_REACH, DEVIATIONS = (
    tuple(tuple(text.format(b1=Determinant()) for text in row) for row in _TEXTS[name])
    for name in ("out of reach", "deviations")
)
_EVERYWHERE = ("fair share", "fairness regret")  # words that every report needs
_ORIGINS = {PAPER: "the paper's", OURS: "beyond the paper"}


@dataclass(frozen=True)
class Section:
    """One experiment in the report."""

    experiment: Experiment
    scores: Scores
    figures: tuple[Drawn, ...]


def write_report(
    out: Path,
    sections: Sequence[Section],
    *,
    size: Size,
    made_by: Provenance,
    facts: Mapping[str, Any],
    warning: str = "",
) -> None:
    """Write OUT/report.html and OUT/report.md. What is about the paper stands in them if its experiments do.

    The deviations and the calibration are about ours as well.
    """
    origins, name = {section.experiment.origin for section in sections}, title(sections)
    for file, page in (("report.html", Html(name)), ("report.md", Markdown(name))):
        if warning:
            page.warning(warning)
        if any(section.experiment.reduced(size) for section in sections):
            page.warning(f"This is a {size.note}. Nothing here is judged against the paper.")
        _opening(page, sections)
        page.paragraph(_how(sections, size, made_by, facts))
        _summary(page, sections)
        for section in sections:
            _experiment(page, section)
        if PAPER in origins:
            page.heading("Where the paper's figures can't be had, and why")
            page.table(Table("", ("figure", "why"), OUT_OF_REACH))
        if origins & {PAPER, OURS}:
            page.heading("Every deviation from the paper")
            page.table(Table("", ("the paper", "what we do"), DEVIATIONS))
            _calibration(page)
        write_whole(out / file, page.text())


def title(sections: Sequence[Section]) -> str:
    """The title of a report: whose experiments it has; of a user's own, their titles."""
    origins = {section.experiment.origin for section in sections}
    own = [section.experiment.title for section in sections if section.experiment.origin == OWN]
    whose = {PAPER: "the paper's experiments", OURS: "our experiments"}
    shown = [text for origin, text in whose.items() if origin in origins]
    package = [f"Fair, private, federated bandits: {' and '.join(shown)}"] if shown else []
    return "; ".join([*package, *own])


def _opening(page: Document, sections: Sequence[Section]) -> None:
    """Write the headline with its figure, and define the terms of what was run."""
    for section in sections:
        if section.scores.headline:
            page.heading("What was found")
            page.paragraph(section.scores.headline)
            page.figure(section.figures[0])
    used = {word for section in sections for word in section.experiment.words}
    words = glossary(*_EVERYWHERE, *used)
    for section in sections:
        words |= section.experiment.words
    page.table(Table("", ("word", "meaning"), tuple(words.items())))


def _how(sections: Sequence[Section], size: Size, made_by: Provenance, facts: Mapping[str, Any]) -> str:
    """Describe how the results were made."""
    seeds = {
        s.experiment.name: max(len(run.seeds(size.seeds)) for run in s.experiment.runs(size))
        for s in sections
    }
    more = [f"0 to {count - 1} in {name}" for name, count in seeds.items() if count > size.seeds]
    also = f" ({', '.join(more)}, as the tables say)" if more else ""
    libraries = ", ".join(f"{name} {version}" for name, version in facts["libraries"].items())
    where = f"{facts['workers']} workers here" if facts["engine"] == "local" else facts["engine"]
    stored = f", {facts['reused']} results were stored already" if facts["reused"] else ""
    return (
        f"T = {number(size.horizon)} rounds, seeds 0 to {size.seeds - 1}{also}, the same for every "
        f"algorithm, so that comparisons are paired. Made by {made_by}, Python {facts['python']}, "
        f"{libraries}. Wall time of the simulations {facts['sweep_seconds']:.0f} s on {where} "
        f"({facts['jobs']} jobs{stored}); {facts['compute_seconds']:.0f} s of computing in all. Bands and "
        "intervals are 95 % of the mean over seeds."
    )


def _summary(page: Document, sections: Sequence[Section]) -> None:
    """List the ratios and claims of all experiments."""
    ratios = [
        (section.experiment.name, r.name, f"{r.paper:.2f}", str(r.ours), r.verdict, r.note)
        for section in sections
        for r in section.scores.ratios
    ]
    if ratios:
        page.heading("The paper's ratios beside ours")
        columns = ("experiment", "ratio", "paper", "ours", "verdict", "note")
        note = f"Criterion: {CRITERION}. Ratios are geometric means over paired seeds."
        page.table(Table("", columns, tuple(ratios), note))
    claims = [
        (section.experiment.name, c.statement, c.verdict, c.found, c.criterion)
        for section in sections
        for c in section.scores.claims
    ]
    if claims:
        page.heading("Claims")
        page.table(Table("", ("experiment", "claim", "verdict", "found", "criterion"), tuple(claims)))


def _experiment(page: Document, section: Section) -> None:
    experiment = section.experiment
    origin = f" ({_ORIGINS[experiment.origin]})" if experiment.origin in _ORIGINS else ""
    page.heading(f"{experiment.name}: {experiment.title}{origin}")
    page.paragraph(experiment.question)
    for drawn in section.figures[1 if section.scores.headline else 0 :]:  # the first opens the report
        page.figure(drawn)
    for table in section.scores.tables:
        page.table(table)
    for note in section.scores.notes:
        page.paragraph(note)


def _calibration(page: Document) -> None:
    stored = stored_calibration()
    result = stored["result"]
    page.heading("Calibration")
    page.paragraph(
        f"K = {result['arms']} arms, reward noise σ = {result['noise_sd']:g}, radius scale s = "
        f"{result['scale']:g}: fitted on the B0 curve of Exp 1 alone, by `fedfairx calibrate`. Everything "
        "else is a prediction."
    )
    rows = tuple(
        (
            f"{t['arms']}",
            f"{t['noise_sd']:g}",
            f"{t['scale']:.3f}",
            f"{100 * t['error']:.1f} %",
            number(t["at_end"]),
        )
        for t in stored["trials"]
    )
    title = "What was tried (the best scale for each K and σ)"
    columns = ("K", "σ", "best s", "typical distance from the paper's B0", "B0 at T")
    page.table(Table(title, columns, rows, stored["settings"]["note"]))
