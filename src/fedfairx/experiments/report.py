"""The report: Markdown with links to the figures, and one HTML page that holds everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfairx.experiments.deviations import DEVIATIONS, OUT_OF_REACH
from fedfairx.experiments.environment import stored_calibration
from fedfairx.experiments.experiment import Experiment, Size
from fedfairx.experiments.files import write_whole
from fedfairx.experiments.identity import Provenance
from fedfairx.experiments.markup import Document, Html, Markdown
from fedfairx.experiments.scores import CRITERION, Scores, Table, number

TITLE = "Fair, private, federated bandits: the paper's experiments, and ours"


@dataclass(frozen=True)
class Drawn:
    """A figure on disk."""

    name: str
    caption: str
    png: Path
    svg: Path


@dataclass(frozen=True)
class Section:
    """One experiment in the report."""

    experiment: Experiment
    scores: Scores
    figures: tuple[Drawn, ...]


def write_report(
    out: Path, sections: Sequence[Section], *, size: Size, made_by: Provenance, facts: Mapping[str, Any]
) -> tuple[Path, Path]:
    """OUT/report.html and OUT/report.md."""
    paths = []
    for name, document in (("report.html", Html(TITLE)), ("report.md", Markdown(TITLE))):
        _compose(document, sections, size, made_by, facts)
        path = out / name
        write_whole(path, document.text())
        paths.append(path)
    return paths[0], paths[1]


def _compose(
    page: Document, sections: Sequence[Section], size: Size, made_by: Provenance, facts: Mapping[str, Any]
) -> None:
    if size.note:
        page.warning(f"This is a {size.note}. Nothing here is judged against the paper.")
    page.paragraph(_how(size, made_by, facts))
    _summary(page, sections)
    for section in sections:
        _experiment(page, section)
    page.heading("Where the paper's figures can't be had, and why")
    page.table(Table("", ("figure", "why"), OUT_OF_REACH))
    page.heading("Every deviation from the paper")
    page.table(Table("", ("the paper", "what we do"), DEVIATIONS))
    _calibration(page)


def _how(size: Size, made_by: Provenance, facts: Mapping[str, Any]) -> str:
    libraries = ", ".join(f"{name} {version}" for name, version in facts["libraries"].items())
    where = f"{facts['workers']} workers here" if facts["engine"] == "local" else facts["engine"]
    stored = f", {facts['reused']} results were stored already" if facts["reused"] else ""
    return (
        f"T = {number(size.horizon)} rounds, seeds 0 to {size.seeds - 1}, the same for every algorithm, so "
        f"that comparisons are paired. Made by {made_by}, Python {facts['python']}, {libraries}. Wall time "
        f"of the simulations {facts['sweep_seconds']:.0f} s on {where} ({facts['jobs']} jobs{stored}); "
        f"{facts['compute_seconds']:.0f} s of computing in all. Bands and intervals are 95 % of the mean "
        "over seeds."
    )


def _summary(page: Document, sections: Sequence[Section]) -> None:
    ratios = [(section.experiment.name, item) for section in sections for item in section.scores.ratios]
    if ratios:
        page.heading("The paper's ratios beside ours")
        page.table(
            Table(
                "",
                ("experiment", "ratio", "paper", "ours", "verdict", "note"),
                tuple((name, r.name, f"{r.paper:.2f}", str(r.ours), r.verdict, r.note) for name, r in ratios),
                f"Criterion: {CRITERION}. Ratios are geometric means over paired seeds.",
            )
        )
    claims = [(section.experiment.name, item) for section in sections for item in section.scores.claims]
    if claims:
        page.heading("Claims")
        page.table(
            Table(
                "",
                ("experiment", "claim", "verdict", "found", "criterion"),
                tuple((name, c.statement, c.verdict, c.found, c.criterion) for name, c in claims),
            )
        )


def _experiment(page: Document, section: Section) -> None:
    experiment = section.experiment
    origin = "the paper's" if experiment.paper else "beyond the paper"
    page.heading(f"{experiment.name}: {experiment.title} ({origin})")
    page.paragraph(experiment.question)
    for drawn in section.figures:
        page.figure(drawn.png, drawn.svg, drawn.caption)
    for table in section.scores.tables:
        page.table(table)
    for note in section.scores.notes:
        page.paragraph(note)


def _calibration(page: Document) -> None:
    stored = stored_calibration()
    page.heading("Calibration")
    result = stored["result"]
    page.paragraph(
        f"K = {result['arms']} arms, reward noise σ = {result['noise_sd']:g}, radius scale s = "
        f"{result['scale']:g}: fitted on the B0 curve of Exp 1 alone, by `fedfairx calibrate`. Everything "
        "else is a prediction."
    )
    trials = stored.get("trials")
    if trials:
        rows = tuple(
            (
                str(t["arms"]),
                f"{t['noise_sd']:g}",
                f"{t['scale']:.3f}",
                f"{100 * t['error']:.1f} %",
                number(t["at_end"]),
            )
            for t in trials
        )
        columns = ("K", "σ", "best s", "typical distance from the paper's B0", "B0 at T")
        page.table(
            Table(
                "What was tried (the best scale for each K and σ)", columns, rows, stored["settings"]["note"]
            )
        )
