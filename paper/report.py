"""The report: Markdown with links to figures, and one self-contained HTML page."""

import base64
import html
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fedfairx import schedules
from paper.experiment import DATA, OURS, OWN, PAPER, TEXTS, Experiment, Part, Size, glossary
from paper.scores import CRITERION, Claim, Headline, Ratio, Table, number

T = TypeVar("T")
# Tables that do not depend on results: where we differ from the paper and why.
OUT_OF_REACH, DEVIATIONS = (
    [[text.format(b1=schedules.Determinant()) for text in row] for row in TEXTS[name]]
    for name in ("out of reach", "deviations")
)
_ORIGINS = {PAPER: "the paper's", OURS: "beyond the paper"}
_VERDICTS = {"agrees": "good", "holds": "good", "differs": "bad", "does not hold": "bad", "undecided": "open"}


class Drawn(NamedTuple):
    """A figure on disk."""

    caption: str
    png: Path
    svg: Path


@dataclass(frozen=True)
class Section:
    """What the report says of one experiment."""

    experiment: Experiment
    parts: Sequence[Part | Drawn]
    seeds: int  # at most
    seconds: float  # of computing

    def of(self, kind: type[T]) -> list[T]:
        """Its parts of one kind."""
        return [part for part in self.parts if type(part) is kind]

    def scores(self) -> dict[str, Any]:
        """Plain values for JSON."""
        ratios = []
        for each in self.of(Ratio):
            low, high = (value if value == value else None for value in (each.ours.low, each.ours.high))
            ours = {"ours": each.ours.value, "low": low, "high": high}
            ratios.append({"name": each.name, "paper": each.paper, **ours, "verdict": each.verdict})
        claims, tables = (
            [claim._asdict() for claim in self.of(Claim)],
            [vars(table) for table in self.of(Table)],
        )
        found = {"ratios": ratios, "claims": claims, "tables": tables}
        return {**found, "notes": self.of(str), "headline": "".join(self.of(Headline))}


#: A piece of the report: a heading, a paragraph, a warning, or what a section has, with its content.
Item = tuple[str, Any]


def write_report(sections: Sequence[Section], *, size: Size, how: str, warning: str = "") -> dict[str, str]:
    """The files report.html and report.md. What is about the paper stands in them if its experiments do."""
    name, items = title(sections), list(_items(sections, size, how, warning))
    return {"report.html": _html(name, items), "report.md": _markdown(name, items)}


def title(sections: Sequence[Section]) -> str:
    """The title of a report: whose experiments it has; of a user's own, their titles."""
    origins = {section.experiment.origin for section in sections}
    own = [section.experiment.title for section in sections if section.experiment.origin == OWN]
    whose = {PAPER: "the paper's experiments", OURS: "our experiments"}
    shown = [text for origin, text in whose.items() if origin in origins]
    package = [f"Fair, private, federated bandits: {' and '.join(shown)}"] if shown else []
    return "; ".join([*package, *own])


def _items(sections: Sequence[Section], size: Size, how: str, warning: str) -> Iterator[Item]:
    origins = {section.experiment.origin for section in sections}
    if warning:
        yield "warning", warning
    if any(section.experiment.reduced(size) for section in sections):
        yield "warning", f"This is a {size.note}. Nothing here is judged against the paper."
    for section in sections:
        for headline in section.of(Headline):
            yield "heading", "What was found"
            yield "paragraph", headline
            yield "figure", section.of(Drawn)[0]
    words = glossary("fair share", "fairness regret", *(w for s in sections for w in s.experiment.words))
    for section in sections:
        words |= section.experiment.words
    yield "table", Table("", ("word", "meaning"), words.items())
    yield "paragraph", _how(sections, size, how)
    ratios = [
        (section.experiment.name, each.name, f"{each.paper:.2f}", each.ours, each.verdict, each.note)
        for section in sections
        for each in section.of(Ratio)
    ]
    if ratios:
        columns = ("experiment", "ratio", "paper", "ours", "verdict", "note")
        note = f"Criterion: {CRITERION}. Ratios are geometric means over paired seeds."
        yield "heading", "The paper's ratios beside ours"
        yield "table", Table("", columns, ratios, note)
    claims = [
        (section.experiment.name, each.statement, each.verdict, each.found, each.criterion)
        for section in sections
        for each in section.of(Claim)
    ]
    if claims:
        yield "heading", "Claims"
        yield "table", Table("", ("experiment", "claim", "verdict", "found", "criterion"), claims)
    for section in sections:
        yield from _experiment(section)
    if PAPER in origins:
        yield "heading", "Where the paper's figures can't be had, and why"
        yield "table", Table("", ("figure", "why"), OUT_OF_REACH)
    if origins & {PAPER, OURS}:
        yield "heading", "Every deviation from the paper"
        yield "table", Table("", ("the paper", "what we do"), DEVIATIONS)
        yield from _calibration()


def _experiment(section: Section) -> Iterator[Item]:
    experiment = section.experiment
    origin = f" ({_ORIGINS[experiment.origin]})" if experiment.origin in _ORIGINS else ""
    yield "heading", f"{experiment.name}: {experiment.title}{origin}"
    yield "paragraph", experiment.question
    opening = bool(section.of(Headline))  # whose figure opens the report
    yield from (("figure", drawn) for drawn in section.of(Drawn)[opening:])
    yield from (("table", table) for table in section.of(Table))
    yield from (("paragraph", note) for note in section.of(str))


def _how(sections: Sequence[Section], size: Size, how: str) -> str:
    """How the results were made."""
    more = [f"0 to {s.seeds - 1} in {s.experiment.name}" for s in sections if s.seeds > size.seeds]
    also = f" ({', '.join(more)}, as the tables say)" if more else ""
    computing = sum(section.seconds for section in sections)
    return (
        f"T = {number(size.horizon)} rounds, seeds 0 to {size.seeds - 1}{also}, the same for "
        f"every algorithm, so that comparisons are paired. {how}; {computing:.0f} s of computing in all. "
        "Bands and intervals are 95 % of the mean over seeds."
    )


def _calibration() -> Iterator[Item]:
    stored = json.loads((DATA / "calibration.json").read_text(encoding="utf-8"))
    result = stored["result"]
    yield "heading", "Calibration"
    text = (
        f"K = {result['arms']} arms, reward noise σ = {result['noise_sd']:g}, radius scale s = "
        f"{result['scale']:g}: fitted on the B0 curve of Exp 1 alone, by `python -m paper calibrate`. "
        "Everything else is a prediction."
    )
    yield "paragraph", text
    rows = [
        (t["arms"], f"{t['noise_sd']:g}", f"{t['scale']:.3f}", f"{100 * t['error']:.1f} %", t["at_end"])
        for t in stored["trials"]
    ]
    columns = ("K", "σ", "best s", "typical distance from the paper's B0", "B0 at T")
    about = "What was tried (the best scale for each K and σ)"
    yield "table", Table(about, columns, rows, stored["settings"]["note"])


# --- two formats -----------------------------------------------------------------------------------------


def _markdown(name: str, items: Sequence[Item]) -> str:
    """Plain text with links to the figures, which lie in a folder beside it."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    def written(kind: str, content: Any) -> str:
        if kind == "table":
            rows = "\n".join(map(line, [content.columns, ["---"] * len(content.columns), *content.rows]))
            about, note = (
                f"{mark}{text}{mark}" for mark, text in (("**", content.title), ("*", content.note))
            )
            return "\n\n".join([*([about] if content.title else []), rows, *([note] if content.note else [])])
        if kind == "figure":
            png, svg = (f"{path.parent.name}/{path.name}" for path in content[1:])
            return f"![{content.caption}]({png})\n\n{content.caption} ([SVG]({svg}))"
        return {"heading": "## {}", "paragraph": "{}", "warning": "> **{}**"}[kind].format(content)

    return "\n\n".join([f"# {name}", *(written(*item) for item in items)]) + "\n"


def _html(name: str, items: Sequence[Item]) -> str:
    """One page without references to anything outside of it."""

    def cell(text: str) -> str:
        kind = f' class="{_VERDICTS[text]}"' if text in _VERDICTS else ""
        return f"<td{kind}>{html.escape(text)}</td>"

    def written(kind: str, content: Any) -> str:
        if kind == "table":
            head = "".join(f"<th>{html.escape(column)}</th>" for column in content.columns)
            body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in content.rows)
            about = f"<caption>{html.escape(content.title)}</caption>" if content.title else ""
            note = f'\n<p class="note">{html.escape(content.note)}</p>' if content.note else ""
            table = f"<table>{about}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            return f'<div class="wide">{table}</div>{note}'
        if kind == "figure":
            # As an image, not inline: element ids of several figures would clash in one page.
            data, text = base64.b64encode(content.svg.read_bytes()).decode(), html.escape(content.caption)
            image = f'<img alt="{text}" src="data:image/svg+xml;base64,{data}">'
            return f"<figure>{image}<figcaption>{text}</figcaption></figure>"
        tags = {"heading": "<h2>{}</h2>", "paragraph": "<p>{}</p>", "warning": '<p class="warning">{}</p>'}
        return tags[kind].format(html.escape(content))

    style, about = (DATA / "report.css").read_text(encoding="utf-8"), html.escape(name)
    body = "\n".join(written(*item) for item in items)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><title>{about}</title>'
        f"<style>\n{style}</style></head><body><h1>{about}</h1>\n{body}\n</body></html>\n"
    )
