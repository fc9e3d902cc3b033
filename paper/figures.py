"""Figures of the experiments: curves beside the paper's, regret at T against a parameter, axes, files."""

import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from fedfairx.evaluation import Estimate
from paper import world as env
from paper.experiment import DATA, FAIRNESS, REWARD, Outcome, Picture, Results, Size
from paper.scores import Array, estimate, half_width

_STYLE = json.loads((DATA / "style.json").read_text(encoding="utf-8"))
#: Okabe and Ito's colours, which people with any colour vision tell apart.
COLOURS: dict[str, str] = _STYLE["colours"]
NAMES: dict[str, str] = _STYLE["names"]
METRIC_NAMES = {FAIRNESS: "fairness regret", REWARD: "reward regret"}
DASHED: Any = (0, (4, 2))  # the paper's curves
End = tuple[float, str, str]  # value, label, colour


class Line(NamedTuple):
    """A curve over rounds: ours, and the paper's where it has one."""

    outcome: Outcome
    label: str
    colour: str
    paper: env.Curve | None = None
    dotted: bool = False


class Trend(NamedTuple):
    """Regret at T against a parameter x, of the runs `key.format(x)`; the paper's where it has it."""

    key: str
    label: str
    colour: str
    paper: env.Curve | None = None
    marker: str = "o"


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style while figures are drawn and saved."""
    with mpl.rc_context(_STYLE["style"]):  # its hash salt makes the same figure the same SVG file
        yield


def canvas(*, panels: int = 1, width: float = 7.2, height: float = 3.3) -> tuple[Figure, list[Axes]]:
    """A figure and its panels; to be used inside `styled`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(wspace=0.05)  # type: ignore[union-attr,call-arg]
    axes = list(np.atleast_1d(figure.subplots(1, panels)))
    return figure, axes


def write_note(figure: Figure, note: str) -> None:
    """Write a note above a figure, such as that of a reduced size."""
    figure.suptitle(note, fontsize=8, color="#B22222", x=0.995, ha="right")


def save(figure: Figure) -> tuple[bytes, bytes]:
    """The figure as PNG and SVG. It calls canvases, because `savefig` draws figures with a layout twice."""
    png, svg = io.BytesIO(), io.BytesIO()
    figure.set_dpi(mpl.rcParams["savefig.dpi"])
    FigureCanvasAgg(figure).print_png(png)  # type: ignore[no-untyped-call]
    figure.set_layout_engine("none")  # the layout is done; a second one would take as long as drawing
    FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None})  # type: ignore[no-untyped-call]
    return png.getvalue(), svg.getvalue()


# --- axes ------------------------------------------------------------------------------------------------


def thousands(axis: Any) -> None:
    """Format tick labels with spaced thousands."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}".replace(",", " ")))


def round_axis(axes: Axes) -> None:
    """Set the x axis of curves over rounds, from 0 to the last round, with few ticks."""
    axes.margins(x=0)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.set_xlim(left=0)
    thousands(axes.xaxis)
    axes.set_xlabel("round t")


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


def plain_log(axis: Any, ticks: Sequence[float]) -> None:
    """Make an axis logarithmic, with these ticks labelled by plain numbers."""
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


def mark(axes: Axes, places: Any, estimates: Iterable[Estimate], **style: Any) -> None:
    """Draw estimates with their intervals at places on the x axis, or `across` at places on the y axis."""
    values, low, high = np.array([(each.value, each.low, each.high) for each in estimates]).T
    reach = np.nan_to_num([values - low, high - values])  # 0 for a single seed
    if style.pop("across", False):
        axes.errorbar(values, places, xerr=reach, **style)
    else:
        axes.errorbar(places, values, yerr=reach, **style)


def draw_curve(axes: Axes, rounds: Any, values: Array, name: str, colour: str, **style: Any) -> End:
    """Draw the mean over seeds with its 95 % band. Returns a label for `end_labels`."""
    mean = values.mean(axis=0)
    axes.plot(rounds, mean, color=colour, **style)
    band(axes, rounds, values, colour)
    return float(mean[-1]), name, colour


def draw_lines(axes: Axes, lines: Iterable[Line], metric: str = FAIRNESS) -> list[End]:
    """Draw cumulative regret: mean, 95 % band, the paper's dashed. Returns labels for `end_labels`."""
    ends: list[End] = []
    for line in lines:
        style, values = ":" if line.dotted else "-", getattr(line.outcome, metric)
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
    estimates = [estimate(each) for each in values]
    mark(axes, x, estimates, color=colour, marker=marker, ms=4.5, capsize=2.5, lw=1.4)
    return estimates[-1].value, label, colour


def draw_ratios(
    axes: Axes, places: Array, ratios: Mapping[str, Sequence[Estimate]], rules: Mapping[str, Any], step: float
) -> None:
    """Draw the ratios of several rules side by side, at places on the y axis."""
    for i, (name, rule) in enumerate(rules.items()):
        style = {"color": rule.colour, "marker": rule.marker, "label": rule.label, "ms": 5, "lw": 0}
        beside = places + step * ((len(rules) - 1) / 2 - i)
        mark(axes, beside, ratios[name], across=True, elinewidth=1.1, **style)


def draw_bar(axes: Axes, place: float, values: Array, width: float, colour: str, **style: Any) -> float:
    """Draw a mean with its 95 % interval as a bar. Returns the interval's end."""
    half = float(np.nan_to_num(half_width(values)))
    axes.bar(
        place, values.mean(), width, yerr=half, color=colour, error_kw={"lw": 0.9, "capsize": 2}, **style
    )
    return float(values.mean()) + half


def draw_trends(
    axes: Axes,
    results: Results,
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
        values = [results[trend.key.format(x)].final(metric) for x in xs]
        ends.append(draw_points(axes, xs, values, trend.label, trend.colour, trend.marker))
        if trend.paper is not None:
            axes.plot(*trend.paper, color=trend.colour, ls=DASHED, lw=1.1, marker="D", ms=4, mfc="w")
    if log_y:
        axes.set_yscale("log")
        axes.set_ylim(top=round_above(axes.get_ylim()[1]))
        log_ticks(axes.yaxis)
    else:
        thousands(axes.yaxis)
    axes.set(xlabel=xlabel, ylabel=f"{METRIC_NAMES[metric]} at T")
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
    results: Results,
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
    draw_trends(ours, results, xs, trends, xlabel=xlabel, metric=REWARD, log_y=False)
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
        x, y = env.curve(name, each, metric=REWARD, until=until)
        axes.plot(x, y, color=colour, ls=DASHED, **style)
        ends.append((float(y[-1]), label, colour))
    axes.set_ylim(bottom=0)
    thousands(axes.yaxis)
    return ends


def by_rank(
    axes: Axes, shares: Mapping[str, Array], policies: Mapping[str, tuple[str, str, str]], floor: float
) -> None:
    """Draw shares (seeds, ranks) over what is due, of policies with a label, a colour and a marker each."""
    arms = next(iter(shares.values())).shape[1]
    for i, (name, values) in enumerate(shares.items()):
        label, colour, marker = policies[name]
        ranks = np.arange(1, arms + 1) + 0.16 * (i - 1.5)  # side by side: none hides another
        mean = np.maximum(values.mean(axis=0), floor)
        axes.plot(ranks, mean, color=colour, marker=marker, ms=4, lw=0.8, label=label)
    level(axes)
    plain_log(axes.yaxis, [0.01, 0.03, 0.1, 0.3, 1, 3, 10])
    axes.set_ylim(0.8 * floor, 1.3 * max(float(values.mean(axis=0).max()) for values in shares.values()))
    axes.set_xticks(range(1, arms + 1) if arms <= 10 else [1, *range(5, arms + 1, 5)])
    axes.set_xlabel("rank of the action's true mean")
