"""Panels and tables that experiments share: the paper's curves, regret at T against a parameter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedfairx.experiments import paper_data as paper
from fedfairx.experiments.experiment import METRICS, REWARD, Outcome, Size
from fedfairx.experiments.report.figures import canvas, draw_points, log_ticks, plain_log, round_above
from fedfairx.experiments.scores import Table, estimate, number
from fedfairx.util.arrays import Array
from fedfairx.util.figure_style import COLOURS, METRIC_NAMES, NAMES, End, end_labels, few_rounds, thousands

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHED = (0, (4, 2))


def regret_table(
    title: str, columns: tuple[str, ...], rows: Iterable[tuple[Outcome, tuple[str, ...]]], note: str = ""
) -> Table:
    """Table of outcomes: each row's own cells, then both regrets at T and the synchronisations."""
    filled = (
        (*cells, *(str(estimate(made.final(metric))) for metric in METRICS), number(float(made.syncs.mean())))
        for made, cells in rows
    )
    measured = ("fairness regret at T", "reward regret at T", "synchronisations")
    return Table(title, (*columns, *measured), tuple(filled), note)


def reward_panels(size: Size) -> tuple[Figure, Axes, Axes]:
    """A figure of reward regret: a panel for ours, which is signed, and one for the paper's."""
    figure, (ours, printed) = canvas(size, panels=2)
    ours.axhline(0, color="#333333", lw=0.7)
    ours.set_title("(a) ours: signed, against the fair policy")
    return figure, ours, printed


def series_style(name: str) -> tuple[str, str]:
    """Label and colour of one of the paper's series."""
    full = "fairx-linucb" if name == "b0" else name
    return ("B0" if name == "b0" else NAMES[full]), COLOURS[full]


def paper_rounds(axes: Axes, experiment: str, series: Sequence[str], size: Size) -> None:
    """Draw the paper's "reward regret" over rounds, dashed."""
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
    """Draw means with 95 % intervals, the paper's dashed with open marks; label the ends (`extra` too)."""
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


def title_trends(axes: Axes, size: Size) -> None:
    """Explain solid and dashed lines in the title."""
    dashed = "dashed: paper" if size.comparable else "the paper has T = 100 000 only"
    axes.set_title(f"solid: ours, 95 % intervals; {dashed}")


def paper_trends(
    axes: Axes, experiment: str, series: Sequence[str], *, xlabel: str, ticks: Sequence[float]
) -> None:
    """Draw the paper's "reward regret" at the horizon, dashed."""
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
