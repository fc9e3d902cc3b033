"""Panels that experiments share: the paper's own curves, and regret at T against a parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedfairx.experiments import paper_data as paper
from fedfairx.experiments.experiment import REWARD, Size
from fedfairx.experiments.report.figures import (
    COLOURS,
    METRIC_NAMES,
    NAMES,
    End,
    draw_points,
    end_labels,
    few_rounds,
    log_ticks,
    plain_log,
    round_above,
    thousands,
)
from fedfairx.util.arrays import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHED = (0, (4, 2))


def series_style(name: str) -> tuple[str, str]:
    """Label and colour of one of the paper's series."""
    full = "fairx-linucb" if name == "b0" else name
    return ("B0" if name == "b0" else NAMES[full]), COLOURS[full]


def paper_rounds(axes: Axes, experiment: str, series: Sequence[str], size: Size) -> None:
    """The paper's own "reward regret" over rounds, as printed, dashed."""
    ends = []
    for name in series:
        label, colour = series_style(name)
        x, y = paper.up_to(paper.curve(experiment, REWARD, name), size.horizon)
        axes.plot(x, y, color=colour, ls=DASHED, lw=1.2)
        ends.append((float(y[-1]), label, colour))
    axes.set_title("(b) the paper's plotted “reward regret”")
    axes.set_xlabel("round t")
    thousands(axes.xaxis)
    thousands(axes.yaxis)
    axes.margins(x=0)
    axes.set_ylim(bottom=0)
    few_rounds(axes)
    end_labels(axes, ends)


@dataclass(frozen=True)
class Trend:
    """Regret at the horizon against a parameter: ours, and the paper's where it has it."""

    x: Sequence[float]
    values: Sequence[Array]  # (seeds,) at each x
    label: str
    colour: str
    paper: paper.Curve | None = None
    marker: str = "o"


def draw_trends(
    axes: Axes,
    trends: Sequence[Trend],
    *,
    xlabel: str,
    metric: str,
    log_x: bool = True,
    log_y: bool = True,
    extra: Sequence[End] = (),
) -> None:
    """Means with 95 % intervals, the paper's dashed with open marks, names at the right end (`extra` too)."""
    ends = list(extra)
    if log_x:
        axes.set_xscale("log")
        ticks = sorted({float(x) for trend in trends for x in trend.x})
        plain_log(axes.xaxis, ticks)
    for trend in trends:
        draw_points(axes, trend.x, trend.values, colour=trend.colour, marker=trend.marker)
        ends.append((float(trend.values[-1].mean()), trend.label, trend.colour))
        if trend.paper is not None:
            axes.plot(*trend.paper, color=trend.colour, ls=DASHED, lw=1.1, marker="D", ms=4, mfc="w")
    if log_y:
        axes.set_yscale("log")
        axes.set_ylim(top=round_above(axes.get_ylim()[1]))
        log_ticks(axes.yaxis, *axes.get_ylim())
    else:
        thousands(axes.yaxis)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(f"{METRIC_NAMES[metric]} at T")
    end_labels(axes, ends)


def paper_trends(
    axes: Axes, experiment: str, series: Sequence[str], *, xlabel: str, ticks: Sequence[float]
) -> None:
    """The paper's own "reward regret" at the horizon, as printed, dashed."""
    axes.set_xscale("log")
    plain_log(axes.xaxis, ticks)
    ends = []
    for name in series:
        label, colour = series_style(name)
        x, y = paper.curve(experiment, REWARD, name)
        axes.plot(x, y, color=colour, ls=DASHED, lw=1.1, marker="D", ms=4, mfc="w")
        ends.append((float(y[-1]), label, colour))
    axes.set_ylim(bottom=0)
    thousands(axes.yaxis)
    axes.set_xlabel(xlabel)
    axes.set_title("(b) the paper's plotted “reward regret”")
    end_labels(axes, ends)
