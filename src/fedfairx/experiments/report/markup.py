"""Two writers of a document with the same methods: Markdown, and one HTML page with embedded figures."""

from __future__ import annotations

import base64
import html
from dataclasses import dataclass
from pathlib import Path

from fedfairx.experiments.experiment import DATA
from fedfairx.experiments.scores import Table

_VERDICTS = {"agrees": "good", "holds": "good", "differs": "bad", "does not hold": "bad", "undecided": "open"}


@dataclass(frozen=True)
class Drawn:
    """A figure on disk."""

    caption: str
    png: Path
    svg: Path


class Markdown:
    """Plain text with links to the figures, which lie in a folder beside it."""

    def __init__(self, title: str) -> None:
        self._parts = [f"# {title}"]

    def heading(self, text: str) -> None:
        self._parts.append(f"## {text}")

    def paragraph(self, text: str) -> None:
        self._parts.append(text)

    def warning(self, text: str) -> None:
        self._parts.append(f"> **{text}**")

    def table(self, table: Table) -> None:
        if table.title:
            self._parts.append(f"**{table.title}**")
        rows = [table.columns, tuple("---" for _ in table.columns), *table.rows]
        self._parts.append("\n".join("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows))
        if table.note:
            self._parts.append(f"*{table.note}*")

    def figure(self, drawn: Drawn) -> None:
        png, svg = (f"{path.parent.name}/{path.name}" for path in (drawn.png, drawn.svg))
        self._parts.append(f"![{drawn.caption}]({png})\n\n{drawn.caption} ([SVG]({svg}))")

    def text(self) -> str:
        return "\n\n".join(self._parts) + "\n"


class Html:
    """One page without references to anything outside it."""

    def __init__(self, title: str) -> None:
        self._title = html.escape(title)
        self._parts: list[str] = []

    def heading(self, text: str) -> None:
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def paragraph(self, text: str) -> None:
        self._parts.append(f"<p>{html.escape(text)}</p>")

    def warning(self, text: str) -> None:
        self._parts.append(f'<p class="warning">{html.escape(text)}</p>')

    def table(self, table: Table) -> None:
        head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
        body = "".join("<tr>" + "".join(_html_cell(cell) for cell in row) + "</tr>" for row in table.rows)
        title = f"<caption>{html.escape(table.title)}</caption>" if table.title else ""
        self._parts.append(
            f'<div class="wide"><table>{title}<thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )
        if table.note:
            self._parts.append(f'<p class="note">{html.escape(table.note)}</p>')

    def figure(self, drawn: Drawn) -> None:
        # As an image, not inline: element ids of several figures would clash in one page.
        data = base64.b64encode(drawn.svg.read_bytes()).decode()
        text = html.escape(drawn.caption)
        self._parts.append(
            f'<figure><img alt="{text}" src="data:image/svg+xml;base64,{data}">'
            f"<figcaption>{text}</figcaption></figure>"
        )

    def text(self) -> str:
        style, body = (DATA / "report.css").read_text(encoding="utf-8"), "\n".join(self._parts)
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width,initial-scale=1"><title>{self._title}</title>'
            f"<style>\n{style}</style></head><body><h1>{self._title}</h1>\n{body}\n</body></html>\n"
        )


Document = Markdown | Html


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _html_cell(text: str) -> str:
    kind = f' class="{_VERDICTS[text]}"' if text in _VERDICTS else ""
    return f"<td{kind}>{html.escape(text)}</td>"
