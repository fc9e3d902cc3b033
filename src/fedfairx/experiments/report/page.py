"""The report: Markdown with links to figures, and one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfairx.experiments.experiment import Experiment, Size
from fedfairx.experiments.provenance import Provenance
from fedfairx.experiments.report.deviations import DEVIATIONS, OUT_OF_REACH
from fedfairx.experiments.report.markup import Document, Html, Markdown
from fedfairx.experiments.scores import CRITERION, Scores, Table, number
from fedfairx.experiments.sweep.partial_files import write_whole
from fedfairx.experiments.world import stored_calibration

TITLE = "Fair, private, federated bandits: the paper's experiments, and ours"

WORDS = (
    (
        "fair share",
        "of an arm: its merit f(μ) over the merits of all arms of the round; the fair policy shows it so",
    ),
    (
        "fairness regret",
        "how far the shares shown are from the fair ones, |difference| summed over arms and rounds, mean "
        "over agents: 0 is fair, 2 a round is the worst there is",
    ),
    (
        "the paper's rule",
        "optimism: the fair policy of the parameter, among the plausible ones, that promises most",
    ),
    (
        "expected merit",
        "our default: each arm's share is in proportion to its merit's expectation, given the data",
    ),
    ("B0", "every agent learns alone (FairX-LinUCB)"),
    ("Fed", "agents share exact sums of what they saw (Fed-FairX-LinUCB)"),
    ("Priv", "agents share sums with noise that hides any one record, to (ε, δ) (Priv-FairX-LinUCB)"),
)


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
    """Write OUT/report.html and OUT/report.md."""
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
    _opening(page, sections)
    page.paragraph(_how(sections, size, made_by, facts))
    _summary(page, sections)
    for section in sections:
        _experiment(page, section)
    page.heading("Where the paper's figures can't be had, and why")
    page.table(Table("", ("figure", "why"), OUT_OF_REACH))
    page.heading("Every deviation from the paper")
    page.table(Table("", ("the paper", "what we do"), DEVIATIONS))
    _calibration(page)


def _opening(page: Document, sections: Sequence[Section]) -> None:
    """Write the headline with its figure, and define the terms of the page."""
    for section in sections:
        if section.scores.headline:
            page.heading("What was found")
            page.paragraph(section.scores.headline)
            page.figure(section.figures[0].png, section.figures[0].svg, section.figures[0].caption)
    page.table(Table("", ("word", "meaning"), WORDS))


def _how(sections: Sequence[Section], size: Size, made_by: Provenance, facts: Mapping[str, Any]) -> str:
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
    for drawn in section.figures[1 if section.scores.headline else 0 :]:  # the first opens the report
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
