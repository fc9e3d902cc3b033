"""Format numbers, names, means with intervals, and tables for a terminal or a notebook."""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np

from fedfairx.util.arrays import Array

Rows = Iterable[Sequence[object]]

#: Unicode categories of characters without a shape: control, format (such as a change of the direction of
#: writing), surrogates, and separators of lines and paragraphs.
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"  # letters and marks that are drawn as nothing


def half_width(values: Array) -> Array:
    """Half of the 95 % interval of the mean over the first axis (Student's t); NaN for one seed."""
    from scipy.special import stdtrit

    count = values.shape[0]
    if count < 2:
        return np.full(values.shape[1:], np.nan)
    return np.asarray(stdtrit(count - 1, 0.975) * values.std(axis=0, ddof=1) / math.sqrt(count))


def number(value: float) -> str:
    """Format a number with three or four figures and spaced thousands."""
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 1e7:
        return f"{value:.1e}"
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


def counted(count: int, what: str) -> str:
    """ "1 seed", "5 seeds"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def mean_and_half(values: Array) -> str:
    """The mean of one number for each seed, and half of its 95 % interval where there are two or more."""
    mean, half = float(values.mean()), float(half_width(values))
    return number(mean) if math.isnan(half) else f"{number(mean)} ± {number(half)}"


def visible(text: str) -> str:
    """The text with invisible characters escaped as in Python, so that two names never look the same by them.

    A right-to-left override, for instance, becomes the six characters ``\\u202e``.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        each.encode("unicode_escape").decode("ascii")
        if each in _BLANK or unicodedata.category(each) in _UNSEEN
        else each
        for each in text
    )


def text_table(columns: Sequence[object], rows: Rows) -> str:
    """Format rows as a plain-text table; invisible characters are escaped."""
    cells = [[visible(str(cell)) for cell in row] for row in (columns, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def html_table(columns: Sequence[object], rows: Rows, *, caption: str = "") -> str:
    """Format rows as an HTML table for a notebook; every cell is escaped."""

    def shown(cell: object) -> str:
        return html.escape(visible(str(cell)))

    def line(kind: str, cells: Sequence[object]) -> str:
        return "<tr>" + "".join(f"<{kind}>{shown(cell)}</{kind}>" for cell in cells) + "</tr>"

    head = f"<caption>{shown(caption)}</caption>" if caption else ""
    titles = line("th", columns) if columns else ""
    return f"<table>{head}{titles}{''.join(line('td', row) for row in rows)}</table>"


def duration(seconds: float) -> str:
    """An approximate duration."""
    for name, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            many = round(seconds / length)
            return f"{many} {name}{'' if many == 1 else 's'}"
    return "less than a minute"
