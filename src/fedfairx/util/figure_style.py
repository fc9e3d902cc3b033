"""The style of all figures: fonts, a colour for each algorithm, bands, labels at the ends of lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfairx.errors import needs
from fedfairx.util.arrays import Array
from fedfairx.util.formatting import counted, half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DATA = json.loads((files("fedfairx.util") / "figure_style.json").read_text(encoding="utf-8"))
#: Okabe and Ito's colours, which people with any colour vision tell apart.
COLOURS: dict[str, str] = _DATA["colours"]
METRIC_NAMES = {"fairness_regret": "fairness regret", "reward_regret": "reward regret"}
End = tuple[float, str, str]  # value, label, colour


@dataclass(frozen=True)
class Curves:
    """The measured curves of one name: (seeds, points) for each metric."""

    label: str
    algorithm: str
    rounds: Any
    values: Mapping[str, Array]


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style while figures are drawn and saved."""
    with needs("plots"):
        import matplotlib as mpl

    with mpl.rc_context(_DATA["style"]):  # its hash salt makes the same figure the same SVG file
        yield


def draw_curves(lines: Sequence[Curves]) -> Figure:
    """Draw a panel for each metric with a curve and a 95 % band for each name."""
    with styled():
        from matplotlib.figure import Figure as NewFigure

        figure = NewFigure(figsize=(9.0, 3.3), layout="constrained")
        panels = np.atleast_1d(figure.subplots(1, len(METRIC_NAMES)))
        for axes, (metric, title) in zip(panels, METRIC_NAMES.items(), strict=True):
            ends: list[End] = []
            for line, colour in zip(lines, _colours(lines), strict=True):
                values = line.values[metric]
                axes.plot(line.rounds, values.mean(axis=0), color=colour)
                band(axes, line.rounds, values, colour)
                ends.append((float(values[:, -1].mean()), line.label, colour))
            seeds = sorted({line.values[metric].shape[0] for line in lines})
            axes.set_title(f"{title}, {' or '.join(counted(count, 'seed') for count in seeds)}")
            thousands(axes.yaxis)
            round_axis(axes)
            end_labels(axes, ends)
    return figure


def _colours(lines: Sequence[Curves]) -> list[str]:
    """Colours of the curves: the algorithm's own if it occurs once, else an unused one."""
    names = [line.algorithm for line in lines]
    own = {name: colour for name, colour in COLOURS.items() if names.count(name) == 1}
    others = iter([colour for name, colour in COLOURS.items() if name not in own] * len(lines))
    return [own.get(name) or next(others) for name in names]


def thousands(axis: Any) -> None:
    """Format tick labels with spaced thousands."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}".replace(",", " ")))


def round_axis(axes: Axes) -> None:
    """Set the x axis of curves over rounds, from 0 to the last round, with few ticks."""
    few_rounds(axes)
    thousands(axes.xaxis)
    axes.set_xlabel("round t")


def few_rounds(axes: Axes) -> None:
    """Let curves over rounds fill the x axis, with so few ticks that their labels do not touch."""
    from matplotlib.ticker import MaxNLocator

    axes.margins(x=0)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.set_xlim(left=0)


def band(axes: Axes, x: Any, values: Array, colour: str) -> None:
    """Shade the 95 % interval of the mean over seeds."""
    if values.shape[0] > 1:
        mean, half = values.mean(axis=0), half_width(values)
        axes.fill_between(x, mean - half, mean + half, color=colour, alpha=0.18, lw=0)


def end_labels(axes: Axes, ends: Sequence[End], *, gap: float = 0.065) -> None:
    """Label lines at their right end, without overlaps. Call it after setting the axis limits."""
    low, high = axes.get_ylim()
    logarithmic = axes.get_yscale() == "log"
    scale = np.log if logarithmic else np.asarray

    def place(value: float) -> float:
        return float((scale(value) - scale(low)) / (scale(high) - scale(low)))

    ordered = sorted(ends, key=lambda end: end[0])
    positions = [place(value) for value, _, _ in ordered]
    for _ in range(50):  # a few sweeps of pushing neighbours apart
        for i in range(len(positions) - 1):
            overlap = gap - (positions[i + 1] - positions[i])
            if overlap > 1e-6:
                positions[i] -= overlap / 2
                positions[i + 1] += overlap / 2
    lift = max(0.5 * gap - min(positions, default=gap), 0.0)  # below the axis stand its numbers
    positions = [position + lift for position in positions]
    for (_, label, colour), position in zip(ordered, positions, strict=True):
        axes.text(
            1.025, position, label, transform=axes.transAxes, color=colour, fontsize=8, va="center", ha="left"
        )
