"""Small figures as inline SVG: positions are percentages, so that figures fit any width undistorted.

Colours come from the style sheet by class, for light and dark mode; a shape or a word repeats the meaning of
each colour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fedfairx.fairness import Row
from fedfairx.service.pages.formatting import number

_MANY = 40  # options whose shares are drawn one by one
_SEEN = 0.006  # the least width of one that was taken, among many
_TICKS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)


def scale_of(rows: Sequence[Row], tolerance: float) -> float:
    """The share at the right end of a table's figures: the least round number that all of them are within."""
    furthest = max((_furthest(row, tolerance) for row in rows), default=1.0)
    distance = _distance(max(furthest, _TICKS[0]))
    return min(1.0, max(1, math.ceil(furthest / distance - 1e-9)) * distance)


def _furthest(row: Row, tolerance: float) -> float:
    if row.estimate is None:
        return row.shown.high
    return max(row.shown.value, row.estimate.high, row.estimate.value / (1.0 - tolerance))


def ticks(scale: float) -> list[float]:
    """A few round shares from 0 to the scale."""
    distance = _distance(scale)
    return [distance * k for k in range(round(scale / distance) + 1)]


def _distance(length: float) -> float:
    """From one tick to the next."""
    return next((tick for tick in _TICKS if length / tick <= 4.01), 0.5)


def axis(scale: float) -> Markup:
    """The scale above a table's figures. Of five ticks, every second has its number, so that none touch."""
    places = ticks(scale)
    marks = [f'<line x1="{_x(tick, scale)}" x2="{_x(tick, scale)}" y1="15" y2="19"/>' for tick in places]
    marks += [
        f'<text x="{_x(tick, scale)}" y="11" text-anchor="{_anchor(tick, scale)}">{_percent(tick)}</text>'
        for tick in (places[::2] if len(places) == 5 else places)
    ]
    return Markup(f'<svg class="axis" height="20" aria-hidden="true">{"".join(marks)}</svg>')


def shares(row: Row, scale: float, tolerance: float) -> Markup:
    """The share shown as a dot, an estimate of the entitled one with its interval, and what is in line.

    Without an estimate, the share shown has its confidence interval.
    """
    parts = [
        f'<line class="grid" x1="{x}" x2="{x}" y1="0" y2="36"/>'
        for x in (_x(tick, scale) for tick in ticks(scale))
    ]
    label, shown = f"shown {_percent(row.shown.value, 1)}", row.shown
    if row.estimate is None:
        left, right = _x(shown.low, scale), _x(shown.high, scale)
        parts.append(f'<line class="shown" x1="{left}" x2="{right}" y1="18" y2="18"/>')
    else:
        due = row.estimate
        low, high = (1.0 - tolerance) * due.value, min(due.value / (1.0 - tolerance), scale)
        width = f"{100 * (high - low) / scale:.3f}%"
        left, right = _x(due.low, scale), _x(due.high, scale)
        parts += [
            f'<rect class="entitled" x="{_x(low, scale)}" y="7" width="{width}" height="22" rx="3"/>',
            f'<line class="estimated" x1="{left}" x2="{right}" y1="23" y2="23"/>',
            f'<circle class="estimated" cx="{_x(due.value, scale)}" cy="23" r="3.5"/>',
        ]
        ends = f"{_percent(due.low, 1)} to {_percent(due.high, 1)}"
        label += f", entitled to about {_percent(due.value, 1)}, from {ends}"
    level = 18 if row.estimate is None else 13
    parts += [
        f'<circle class="shown" cx="{_x(shown.value, scale)}" cy="{level}" r="4.5"/>',
        '<text class="ends" x="0" y="48">0 %</text>',
        f'<text class="ends" x="100%" y="48" text-anchor="end">{_percent(scale)}</text>',
    ]
    return Markup(
        f'<svg class="intervals" height="36" role="img" aria-label="{label}">{"".join(parts)}</svg>'
    )


@dataclass(frozen=True)
class Option:
    """An action that a decision could have taken."""

    name: str
    share: float | None
    taken: bool


def policy(options: Sequence[Option], whole: float = 1.0) -> Markup:
    """A decision's shares of the whole side by side, those taken filled."""
    parts, at, many = [], 0.0, len(options) > _MANY
    for option in _merged(options) if many else options:
        kind, share = "taken" if option.taken else "left", (option.share or 0.0) / whole
        seen = max(share, _SEEN) if option.taken and many else share
        place, width = f"{100 * at:.3f}%", f"{100 * seen:.3f}%"
        parts.append(f'<rect class="{kind}" x="{place}" y="1" width="{width}" height="14"/>')
        at += share
    kind = "policy many" if many else "policy"
    return Markup(f'<svg class="{kind}" height="16" aria-hidden="true">{"".join(parts)}</svg>')


def _merged(options: Sequence[Option]) -> Sequence[Option]:
    """Options in the same order; neighbours that were not taken become one."""
    parts: list[Option] = []
    for option in options:
        if parts and not (option.taken or parts[-1].taken):
            last = parts.pop()
            option = Option("", (last.share or 0.0) + (option.share or 0.0), False)
        parts.append(option)
    return parts


@dataclass(frozen=True)
class Scale:
    """The values at both ends of a column of figures, for dots with intervals and for bars."""

    low: float
    high: float

    @classmethod
    def around(cls, values: Sequence[float]) -> Scale:
        """A scale with zero and all of the values in it."""
        low, high = min([0.0, *values]), max([0.0, *values])
        return cls(low, high if high > low else low + 1.0)

    def x(self, value: float) -> str:
        place = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return f"{2 + 96 * place:.3f}%"


def estimate(value: float, low: float, high: float, shown: Scale) -> Markup:
    """A dot with its interval, on a scale with a line at zero."""
    zero, at = shown.x(0.0), shown.x(value)
    label = f"{number(value)}, between {number(low)} and {number(high)}"
    return Markup(
        f'<svg class="estimate" height="22" role="img" aria-label="{label}">'
        f'<line class="grid" x1="{zero}" x2="{zero}" y1="0" y2="22"/>'
        f'<line class="shown" x1="{shown.x(low)}" x2="{shown.x(high)}" y1="11" y2="11"/>'
        f'<circle class="shown" cx="{at}" cy="11" r="4.5"/></svg>'
    )


def bar(value: float, shown: Scale, unsure: float | None = None) -> Markup:
    """A bar from zero to the left or to the right, and below it a thin one for what is not known yet."""
    places = [(value, "less" if value < 0 else "more", 4, 14 if unsure is None else 9)]
    places += [] if unsure is None else [(unsure, "unsure", 15, 4)]
    bars = ""
    for length, kind, top, height in places:
        zero, at = sorted(float(shown.x(end)[:-1]) for end in (0.0, length))
        width = f"{at - zero:.3f}%"
        bars += f'<rect class="{kind}" x="{zero:.3f}%" y="{top}" width="{width}" height="{height}" rx="1"/>'
    return Markup(
        f'<svg class="estimate" height="22" aria-hidden="true">{bars}'
        f'<line class="grid" x1="{shown.x(0.0)}" x2="{shown.x(0.0)}" y1="0" y2="22"/></svg>'
    )


def meter(value: float, most: float) -> Markup:
    """How much of something is used."""
    share = min(1.0, value / most) if most else 0.0
    return Markup(
        '<svg class="meter" height="10" aria-hidden="true">'
        '<rect class="whole" width="100%" height="10" rx="5"/>'
        f'<rect class="used" width="{100 * share:.3f}%" height="10" rx="5"/></svg>'
    )


def _x(share: float, scale: float) -> str:
    return f"{100 * min(share, scale) / scale:.3f}%"


def _anchor(tick: float, scale: float) -> str:
    return "start" if tick == 0 else "end" if tick > 0.999 * scale else "middle"


def _percent(share: float, digits: int | None = None) -> str:
    number = round(100 * share, 6)
    return f"{number:g} %" if digits is None else f"{number:.{digits}f} %"
