"""Figures of the experiments: curves beside the paper's, regret at T against a parameter, axes, files."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfairx.errors import ResultsError
from fedfairx.experiments import paper_data
from fedfairx.experiments.experiment import Picture, Size
from fedfairx.experiments.outcomes import FAIRNESS, REWARD, Outcome, Outcomes
from fedfairx.experiments.scores import Estimate
from fedfairx.util.arrays import Array
from fedfairx.util.figure_style import COLOURS as COLOURS
from fedfairx.util.figure_style import METRIC_NAMES, NAMES, End, round_axis, thousands
from fedfairx.util.figure_style import band as band
from fedfairx.util.figure_style import end_labels as end_labels
from fedfairx.util.files import remove_stale, write_whole
from fedfairx.util.formatting import half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHED: Any = (0, (4, 2))  # the paper's curves


@dataclass(frozen=True)
class Line:
    """A curve over rounds: ours, and the paper's where it has one."""

    outcome: Outcome
    label: str
    colour: str
    paper: paper_data.Curve | None = None
    dotted: bool = False


@dataclass(frozen=True)
class Trend:
    """Regret at T against a parameter x, of the runs `key.format(x)`; the paper's where it has it."""

    key: str
    label: str
    colour: str
    paper: paper_data.Curve | None = None
    marker: str = "o"


def canvas(*, panels: int = 1, width: float = 7.2, height: float = 3.3) -> tuple[Figure, list[Axes]]:
    """A figure and its panels; to be used inside `styled`."""
    from matplotlib.figure import Figure as NewFigure

    figure = NewFigure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(wspace=0.05)  # type: ignore[union-attr,call-arg]
    axes = list(np.atleast_1d(figure.subplots(1, panels)))
    return figure, axes


def write_note(figure: Figure, note: str) -> None:
    """Write a note above a figure, such as that of a reduced size."""
    figure.suptitle(note, fontsize=8, color="#B22222", x=0.995, ha="right")


def save(figure: Figure, folder: Path, name: str) -> tuple[Path, Path]:
    """Write NAME.png and NAME.svg, each whole or not at all.

    It calls the canvases directly, because `savefig` draws figures with a layout twice.
    """
    from matplotlib import rcParams
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"{folder} could not be created ({error.strerror})") from None
    remove_stale(folder)
    paths = folder / f"{name}.png", folder / f"{name}.svg"
    figure.set_dpi(rcParams["savefig.dpi"])
    write_whole(paths[0], _in_memory(FigureCanvasAgg(figure).print_png))
    figure.set_layout_engine("none")  # the layout is done; a second one would take as long as drawing
    write_whole(paths[1], _in_memory(FigureCanvasSVG(figure).print_svg, metadata={"Date": None}))
    return paths


def drawn(figure: Figure, kind: str) -> bytes:
    """Render a figure to the bytes of a file."""
    return _in_memory(figure.savefig, format=kind)


def _in_memory(draw: Callable[..., Any], **more: Any) -> bytes:
    """Draw into memory, so that an interrupted drawing leaves no partial file."""
    buffer = io.BytesIO()
    draw(buffer, **more)
    return buffer.getvalue()


# --- axes ------------------------------------------------------------------------------------------------


def plain_log(axis: Any, ticks: Sequence[float]) -> None:
    """Make an axis logarithmic, with these ticks labelled by plain numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}".replace(",", " ")))


def log_ticks(axis: Any, limits: tuple[float, float] | None = None) -> None:
    """Make an axis logarithmic, with at least four round ticks between its limits, if possible."""
    axes, name = axis.axes, axis.axis_name
    getattr(axes, f"set_{name}scale")("log")
    if limits is not None:
        getattr(axes, f"set_{name}lim")(*limits)
    low, high = limits or getattr(axes, f"get_{name}lim")()
    for bases in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), range(1, 10)):
        ticks = [b * 10.0**k for k in range(-4, 8) for b in bases if low <= b * 10.0**k <= high]
        if len(ticks) >= 4:
            break
    plain_log(axis, ticks)


def round_above(value: float) -> float:
    """Round up to one of …, 1, 3, 10, 30, …, so that an axis ends at a tick."""
    decade = 10.0 ** math.floor(math.log10(value))
    return next(digit * decade for digit in (1, 3, 10) if digit * decade >= value * (1 - 1e-9))


def power(value: float) -> str:
    """Format 0.1 as it is, 1e-06 as 10⁻⁶."""
    if value >= 1e-3:
        return f"{value:g}"
    digits = f"{value:.0e}".partition("e-")[2].lstrip("0")
    return "10⁻" + digits.translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def share_height(panels: Sequence[Axes], ends: Sequence[Sequence[End]]) -> None:
    """Give all panels the same y axis from zero, labelled on the first only."""
    top = max(axes.get_ylim()[1] for axes in panels)
    for axes, labels in zip(panels, ends, strict=True):
        axes.set_ylim(0, top)
        end_labels(axes, labels)
    for axes in panels[1:]:
        axes.set_ylabel("")


def key(axes: Axes, *, paper: bool, seeds: int, where: Any = "upper left") -> None:
    """Add a legend of the line styles."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Line2D([], [], color="#333333", label="ours, mean")]
    if seeds > 1:
        handles.append(Patch(color="#333333", alpha=0.2, lw=0, label=f"95 % band, {seeds} seeds"))
    if paper:
        handles.append(Line2D([], [], color="#333333", ls=DASHED, lw=1.1, label="paper"))
    axes.legend(handles=handles, loc=where, handlelength=2.2)


def legend_below(figure: Figure, axes: Axes) -> None:
    """Put the legend of a panel below the whole figure, in one line."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles))


def level(axes: Axes) -> None:
    """Draw a dashed line at 1."""
    axes.axhline(1.0, color="#333333", lw=0.9, ls="--")


# --- means with 95 % intervals ---------------------------------------------------------------------------


def error_bar(values: Array) -> Any:
    """Half the width of the 95 % interval of the mean over seeds; 0 for a single seed."""
    return np.nan_to_num(half_width(values))


def error_bars(estimates: Sequence[Estimate]) -> tuple[list[float], Array]:
    """Values of estimates, and (2, n) how far their intervals reach below and above."""
    sides = [[each.value - each.low for each in estimates], [each.high - each.value for each in estimates]]
    return [each.value for each in estimates], np.nan_to_num(sides)


def draw_curve(axes: Axes, rounds: Any, values: Array, label: str, colour: str, **style: Any) -> End:
    """Draw the mean over seeds with its 95 % band. Returns a label for `end_labels`."""
    mean = values.mean(axis=0)
    axes.plot(rounds, mean, color=colour, **style)
    band(axes, rounds, values, colour)
    return float(mean[-1]), label, colour


def draw_lines(axes: Axes, lines: Iterable[Line], metric: str = FAIRNESS) -> list[End]:
    """Draw cumulative regret: mean, 95 % band, the paper's dashed. Returns labels for `end_labels`."""
    ends: list[End] = []
    for line in lines:
        style, values = ":" if line.dotted else "-", line.outcome.regret(metric)
        ends.append(draw_curve(axes, line.outcome.rounds, values, line.label, line.colour, ls=style))
        if line.paper is not None:
            axes.plot(*line.paper, color=line.colour, ls=DASHED, lw=1.1)
    axes.set_ylabel(f"cumulative {METRIC_NAMES[metric]}")
    thousands(axes.yaxis)
    round_axis(axes)
    return ends


def draw_points(
    axes: Axes, x: Sequence[float], values: Sequence[Array], label: str, colour: str, marker: str = "o"
) -> End:
    """Draw connected means with 95 % intervals. Returns a label for `end_labels`."""
    means, halves = [float(v.mean()) for v in values], [float(error_bar(v)) for v in values]
    axes.errorbar(x, means, yerr=halves, color=colour, marker=marker, ms=4.5, capsize=2.5, lw=1.4)
    return means[-1], label, colour


def draw_mark(
    axes: Axes,
    place: float,
    values: Array,
    colour: str,
    *,
    filled: bool = True,
    across: bool = False,
    **style: Any,
) -> None:
    """Draw a mean with its 95 % interval at a place on the x axis, or `across` at one on the y axis."""
    x, y = (values.mean(), place) if across else (place, values.mean())
    half = {"xerr" if across else "yerr": error_bar(values)}
    axes.errorbar(x, y, **half, color=colour, mfc=colour if filled else "white", **style)


def draw_bar(axes: Axes, place: float, values: Array, width: float, colour: str, **style: Any) -> None:
    """Draw a mean with its 95 % interval as a bar."""
    half, thin = error_bar(values), {"lw": 0.9, "capsize": 2}
    axes.bar(place, values.mean(), width, yerr=half, color=colour, error_kw=thin, **style)


def draw_trends(
    axes: Axes,
    outcomes: Outcomes,
    xs: Sequence[float],
    trends: Iterable[Trend],
    *,
    xlabel: str,
    metric: str = FAIRNESS,
    log_y: bool = True,
    extra: Sequence[End] = (),
) -> None:
    """Draw means with 95 % intervals, the paper's dashed with open marks; label the ends (`extra` too)."""
    ends = list(extra)
    plain_log(axes.xaxis, xs)
    for trend in trends:
        values = [outcomes[trend.key.format(x)].final(metric) for x in xs]
        ends.append(draw_points(axes, xs, values, trend.label, trend.colour, trend.marker))
        if trend.paper is not None:
            axes.plot(*trend.paper, color=trend.colour, ls=DASHED, lw=1.1, marker="D", ms=4, mfc="w")
    if log_y:
        axes.set_yscale("log")
        axes.set_ylim(top=round_above(axes.get_ylim()[1]))
        log_ticks(axes.yaxis)
    else:
        thousands(axes.yaxis)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(f"{METRIC_NAMES[metric]} at T")
    end_labels(axes, ends)


def title_trends(axes: Axes, size: Size) -> None:
    """Explain solid and dashed lines in the title."""
    dashed = "dashed: paper" if size.comparable else "the paper has T = 100 000 only"
    axes.set_title(f"solid: ours, 95 % intervals; {dashed}")


# --- beside the paper's ----------------------------------------------------------------------------------


def series_style(name: str) -> tuple[str, str]:
    """Label and colour of one of the paper's series."""
    full = "fairx-linucb" if name == "b0" else name
    return ("B0" if name == "b0" else NAMES[full]), COLOURS[full]


def reward_panels() -> tuple[Figure, Axes, Axes]:
    """A figure of reward regret: a panel for ours, which is signed, and one for the paper's."""
    figure, (ours, printed) = canvas(panels=2)
    ours.axhline(0, color="#333333", lw=0.7)
    ours.set_title("(a) ours: signed, against the fair policy")
    printed.set_title("(b) the paper's plotted “reward regret”")
    return figure, ours, printed


def reward_rounds(
    name: str,
    size: Size,
    lines: Iterable[Line],
    series: Sequence[str],
    caption: str,
    where: str = "upper left",
) -> Picture:
    """Reward regret over rounds: our lines, and the paper's series."""
    figure, ours, printed = reward_panels()
    end_labels(ours, draw_lines(ours, lines, REWARD))
    key(ours, paper=False, seeds=size.seeds, where=where)
    ends = _draw_paper(printed, name, series, size.horizon, lw=1.2)
    round_axis(printed)
    end_labels(printed, ends)
    return Picture(f"{name}-reward", caption, figure)


def reward_trends(
    name: str,
    outcomes: Outcomes,
    xs: Sequence[float],
    trends: Iterable[Trend],
    series: Sequence[str],
    caption: str,
    *,
    xlabel: str,
    ticks: Sequence[float],
) -> Picture:
    """Reward regret at T against a parameter: our trends, and the paper's series."""
    figure, ours, printed = reward_panels()
    draw_trends(ours, outcomes, xs, trends, xlabel=xlabel, metric=REWARD, log_y=False)
    plain_log(printed.xaxis, ticks)
    ends = _draw_paper(printed, name, series, math.inf, lw=1.1, marker="D", ms=4, mfc="w")
    printed.set_xlabel(xlabel)
    end_labels(printed, ends)
    return Picture(f"{name}-reward", caption, figure)


def _draw_paper(axes: Axes, name: str, series: Sequence[str], until: float, **style: Any) -> list[End]:
    """Draw the paper's "reward regret", dashed. Returns labels for `end_labels`."""
    ends = []
    for each in series:
        label, colour = series_style(each)
        x, y = paper_data.curve(name, REWARD, each, until=until)
        axes.plot(x, y, color=colour, ls=DASHED, **style)
        ends.append((float(y[-1]), label, colour))
    axes.set_ylim(bottom=0)
    thousands(axes.yaxis)
    return ends
