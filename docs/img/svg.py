"""Boxes, arrows and curves as SVG text that is readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

STYLE = """
.page { fill: #ffffff } .grid { stroke: #d5dbe3 } text { fill: #1c2430; font: 13px system-ui, sans-serif }
.box { fill: #eef2f7; stroke: #5b6b82 } .exact { fill: #fdeedd; stroke: #b5651d }
.noisy { fill: #e2f1e6; stroke: #3f7d58 } .wire { fill: none; stroke: #4a5566 } .head { fill: #4a5566 }
.small { font-size: 11.5px; fill: #4a5566 } .bold { font-weight: 600 }
.a { stroke: #1f6fb2 } .b { stroke: #c2571a } .c { stroke: #2f7d4f } .d { stroke: #7d4fa3 }
.fa { fill: #1f6fb2 } .fb { fill: #c2571a } .fc { fill: #2f7d4f } .fd { fill: #7d4fa3 }
@media (prefers-color-scheme: dark) {
.page { fill: #16191d } .grid { stroke: #363d47 } text { fill: #e6eaf0 }
.box { fill: #252b34; stroke: #8fa0b8 } .exact { fill: #3b2a18; stroke: #e0a067 }
.noisy { fill: #1c3325; stroke: #7cc497 } .wire { stroke: #aab4c3 } .head { fill: #aab4c3 }
.small { fill: #aab4c3 }
.a { stroke: #69b1ee } .b { stroke: #f09a63 } .c { stroke: #7cc497 } .d { stroke: #bd93df }
.fa { fill: #69b1ee } .fb { fill: #f09a63 } .fc { fill: #7cc497 } .fd { fill: #bd93df }
}
"""
LINE = 17  # px between lines of a text


class Drawing:
    """Collects shapes; `text` is the whole file."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.shapes: list[str] = []

    def label(self, x: float, y: float, text: str, *, kind: str = "", anchor: str = "middle") -> None:
        """Write lines of text; y is the middle of the first."""
        for number, line in enumerate(text.split("\n")):
            place = f'x="{x:.0f}" y="{y + 4.5 + LINE * number:.0f}" text-anchor="{anchor}"'
            self.shapes.append(f'<text {place} class="{kind}">{escape(line)}</text>')

    def box(self, x: float, y: float, width: float, height: float, text: str, *, kind: str = "box") -> None:
        """Draw a rectangle around (x, y) with its text in the middle."""
        corner = f'x="{x - width / 2:.0f}" y="{y - height / 2:.0f}"'
        self.shapes.append(f'<rect {corner} width="{width}" height="{height}" rx="6" class="{kind}"/>')
        self.label(x, y - LINE * text.count("\n") / 2, text)

    def arrow(
        self, *points: tuple[float, float], text: str = "", dashed: bool = False, up: float = 9
    ) -> None:
        """Connect points; the text stands above the middle of the first segment."""
        path = "M" + " L".join(f"{x:.0f} {y:.0f}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.shapes.append(
            f'<path d="{path}" class="wire" stroke-width="1.4"{dash} marker-end="url(#head)"/>'
        )
        if text:
            (x0, y0), (x1, y1) = points[:2]
            lines = text.count("\n")
            self.label((x0 + x1) / 2, (y0 + y1) / 2 - up - LINE * lines, text, kind="small")

    def curve(self, x: Sequence[float], y: Sequence[float], colour: str, *, dashed: bool = False) -> None:
        path = " ".join(f"{a:.0f},{b:.0f}" for a, b in zip(x, y, strict=True))
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        self.shapes.append(f'<polyline points="{path}" fill="none" class="{colour}" stroke-width="2"{dash}/>')

    def bar(self, x: float, top: float, bottom: float, width: float, colour: str) -> None:
        size = f'x="{x - width / 2:.0f}" y="{top:.0f}" width="{width:.0f}" height="{bottom - top:.0f}"'
        self.shapes.append(f'<rect {size} class="f{colour}"/>')

    @property
    def text(self) -> str:
        head = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" role="img">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{STYLE}</style>",
                f'<defs>{head} orient="auto"><path d="M0 0 L8 4 L0 8 z" class="head"/></marker></defs>',
                f'<rect width="{self.width}" height="{self.height}" rx="8" class="page"/>',
                *self.shapes,
                "</svg>\n",
            ]
        )


class Axes:
    """A frame in a drawing that turns numbers into pixels."""

    def __init__(
        self,
        drawing: Drawing,
        frame: tuple[float, float, float, float],
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        logarithmic: bool = False,
    ) -> None:
        self.drawing, self.frame, self.limits = drawing, frame, (x, y)
        self.scale = np.log if logarithmic else np.asarray

    def x(self, value: float) -> float:
        left, right, _, _ = self.frame
        low, high, here = (float(self.scale(each)) for each in (*self.limits[0], value))
        return left + (right - left) * (here - low) / (high - low)

    def y(self, value: float) -> float:
        _, _, top, bottom = self.frame
        low, high = self.limits[1]
        return bottom - (bottom - top) * (value - low) / (high - low)

    def ticks(self, x: Sequence[float], y: Sequence[float], form: str = "{:g}") -> None:
        left, right, _, bottom = self.frame
        for value in y:
            at = self.y(value)
            self.drawing.shapes.append(f'<path d="M{left:.0f} {at:.0f} H{right:.0f}" class="grid"/>')
            self.drawing.label(left - 8, at, form.format(value), kind="small", anchor="end")
        for value in x:
            written = f"{value:,.0f}".replace(",", " ")
            self.drawing.label(self.x(value), bottom + 16, written, kind="small")

    def curve(self, x: Sequence[float], y: Sequence[float], colour: str, *, dashed: bool = False) -> None:
        self.drawing.curve([self.x(each) for each in x], [self.y(each) for each in y], colour, dashed=dashed)
