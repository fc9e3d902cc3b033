"""Writers of a document: Markdown, and one HTML page with embedded figures."""

from __future__ import annotations

import base64
import html
from pathlib import Path
from typing import Protocol

from fedfairx.experiments.scores import Table

_VERDICTS = {"agrees": "good", "holds": "good", "differs": "bad", "does not hold": "bad", "undecided": "open"}
_CSS = """
body{font:16px/1.55 system-ui,sans-serif;color:#1b1b1b;max-width:62rem;margin:2.5rem auto;padding:0 1.2rem}
h1{font-size:1.7rem;line-height:1.25}h2{font-size:1.25rem;margin-top:2.6rem;border-bottom:1px solid #ddd}
table{border-collapse:collapse;margin:1rem 0;font-size:.86rem;width:100%}
caption{text-align:left;font-weight:600;padding:.3rem 0}
th,td{text-align:left;padding:.32rem .6rem;border-bottom:1px solid #e4e4e4;vertical-align:top}
th{background:#f5f5f5}figure{margin:1.6rem 0}figure img{max-width:100%;height:auto}
figcaption,.note{color:#555;font-size:.86rem}
.warning{background:#fdecea;border-left:4px solid #b22222;padding:.6rem 1rem}
.good{color:#0a6b2d;font-weight:600}.bad{color:#a3261c;font-weight:600}.open{color:#8a6100;font-weight:600}
div.wide{overflow-x:auto}
@media (max-width:45rem){body{margin:1.2rem auto;font-size:15px}.wide table{width:max-content;min-width:100%}
.wide td,.wide th{max-width:13rem}
.wide th:first-child,.wide td:first-child{position:sticky;left:0;max-width:9rem;background:#fff}}
@media (prefers-color-scheme:dark){body{background:#16181b;color:#e4e4e4}th{background:#24272b}
.wide th:first-child,.wide td:first-child{background:#16181b}
th,td{border-color:#33373c}h2{border-color:#33373c}figure img{background:#fff;border-radius:4px}
figcaption,.note{color:#aaa}.warning{background:#3a1f1d}.good{color:#5fc98a}.bad{color:#f08a80}.open{color:#e0b050}}
"""


class Document(Protocol):
    """The writer of a report."""

    def heading(self, text: str) -> None: ...
    def paragraph(self, text: str) -> None: ...
    def warning(self, text: str) -> None: ...
    def table(self, table: Table) -> None: ...
    def figure(self, png: Path, svg: Path, caption: str) -> None: ...
    def text(self) -> str: ...


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

    def figure(self, png: Path, svg: Path, caption: str) -> None:
        folder = png.parent.name
        self._parts.append(f"![{caption}]({folder}/{png.name})\n\n{caption} ([SVG]({folder}/{svg.name}))")

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

    def figure(self, png: Path, svg: Path, caption: str) -> None:  # noqa: ARG002 (one page needs one of them)
        # As an image, not inline: element ids of several figures would clash in one page.
        data = base64.b64encode(svg.read_bytes()).decode()
        text = html.escape(caption)
        self._parts.append(
            f'<figure><img alt="{text}" src="data:image/svg+xml;base64,{data}">'
            f"<figcaption>{text}</figcaption></figure>"
        )

    def text(self) -> str:
        body = "\n".join(self._parts)
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width,initial-scale=1"><title>{self._title}</title>'
            f"<style>{_CSS}</style></head><body><h1>{self._title}</h1>\n{body}\n</body></html>\n"
        )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _html_cell(text: str) -> str:
    kind = f' class="{_VERDICTS[text]}"' if text in _VERDICTS else ""
    return f"<td{kind}>{html.escape(text)}</td>"
