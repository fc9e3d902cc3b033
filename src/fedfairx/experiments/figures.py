"""How figures look: one style, one colour for each algorithm, lines with bands, labels at their ends."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfairx.core.statistics import Array
from fedfairx.errors import ResultsError
from fedfairx.experiments.experiment import FAIRNESS, Outcome, Size
from fedfairx.experiments.files import remove_stale, write_whole
from fedfairx.experiments.scores import half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which people with any colour vision tell apart.
COLOURS = {
    "fairx-linucb": "#555555",
    "fed-fairx-linucb": "#0072B2",
    "priv-fairx-linucb": "#D55E00",
    "b1": "#AA3377",
    "b2": "#009E73",
    "fairx-bayes": "#7FBC41",
    "fed-fairx-bayes": "#1B7837",
    "priv-fairx-bayes": "#882255",
    "fairx-lints": "#88CCEE",
    "fed-fairx-lints": "#332288",
    "linucb": "#B8860B",
    "minimum-share": "#56B4E9",
    "paper-tree": "#8C564B",
    "tree": "#B8860B",
    "sqrt-toeplitz": "#56B4E9",
    "blt": "#D55E00",
    "released": "#D55E00",
    "released+local": "#E69F00",
    "own+released": "#7B3294",
    "fair": "#000000",
}
NAMES = {
    "fairx-linucb": "B0 (alone)",
    "fed-fairx-linucb": "Fed",
    "priv-fairx-linucb": "Priv",
    "fairx-bayes": "expected merit, alone",
    "fed-fairx-bayes": "expected merit, together",
    "priv-fairx-bayes": "expected merit, private",
    "fairx-lints": "Thompson, alone",
    "fed-fairx-lints": "Thompson, together",
    "b1": "B1",
    "b2": "B2",
    "linucb": "LinUCB",
    "minimum-share": "minimum share",
}
METRIC_NAMES = {"fairness_regret": "fairness regret", "reward_regret": "reward regret"}
_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedfairx",  # the same figure gives the same file
    "figure.dpi": 100,
    "savefig.dpi": 160,
}


End = tuple[float, str, str]  # value, label, colour


@dataclass(frozen=True)
class Line:
    """A curve over rounds: ours, and the paper's where it has one."""

    outcome: Outcome
    label: str
    colour: str
    paper: tuple[Array, Array] | None = None
    dotted: bool = False


@contextmanager
def styled() -> Iterator[None]:
    """The house style, for drawing and for saving."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        yield


def canvas(
    size: Size, *, panels: int = 1, width: float = 7.2, height: float = 3.3
) -> tuple[Figure, list[Axes]]:
    """A figure with the note of a reduced size on it; to be used inside `styled`."""
    from matplotlib.figure import Figure as NewFigure

    figure = NewFigure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(wspace=0.05)  # type: ignore[union-attr,call-arg]
    axes = list(np.atleast_1d(figure.subplots(1, panels)))
    if size.note:
        figure.suptitle(size.note, fontsize=8, color="#B22222", x=0.995, ha="right")
    return figure, axes


def save(figure: Figure, folder: Path, name: str) -> tuple[Path, Path]:
    """Write NAME.png and NAME.svg, each whole or not at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"{folder} could not be made ({error.strerror})") from None
    remove_stale(folder)
    paths = folder / f"{name}.png", folder / f"{name}.svg"
    write_whole(paths[0], drawn(figure, "png"))
    figure.set_layout_engine("none")  # it has been laid out; doing it again would cost as much as drawing
    write_whole(paths[1], drawn(figure, "svg", metadata={"Date": None}))
    return paths


def drawn(figure: Figure, kind: str, **more: Any) -> bytes:
    """The bytes of a figure's file: drawn in memory, because drawing into a file may stop half way."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, **more)
    return buffer.getvalue()


def thousands(axis: Any) -> None:
    """12 000, not 12000."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}".replace(",", " ")))


def plain_log(axis: Any, ticks: Sequence[float]) -> None:
    """A logarithmic axis with these ticks, written as plain numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}".replace(",", " ")))


def log_ticks(axis: Any, low: float, high: float) -> None:
    """Enough round numbers between low and high on a logarithmic axis."""
    for bases in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), range(1, 10)):
        ticks = [b * 10.0**k for k in range(-4, 8) for b in bases if low <= b * 10.0**k <= high]
        if len(ticks) >= 4:
            break
    plain_log(axis, ticks)


def power(value: float) -> str:
    """0.1 as it is, 1e-06 as 10⁻⁶."""
    if value >= 1e-3:
        return f"{value:g}"
    digits = f"{value:.0e}".partition("e-")[2].lstrip("0")
    return "10⁻" + digits.translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def draw_lines(axes: Axes, lines: Iterable[Line], metric: str = FAIRNESS) -> list[End]:
    """Cumulative regret over rounds: mean, 95 % band, the paper's dashed. Gives what `end_labels` takes."""
    ends: list[End] = []
    for line in lines:
        values, rounds = line.outcome.regret(metric), line.outcome.rounds
        mean = values.mean(axis=0)
        axes.plot(rounds, mean, color=line.colour, ls=":" if line.dotted else "-")
        band(axes, rounds, values, line.colour)
        ends.append((float(mean[-1]), line.label, line.colour))
        if line.paper is not None:
            axes.plot(*line.paper, color=line.colour, ls=(0, (4, 2)), lw=1.1)
    axes.set_xlabel("round t")
    axes.set_ylabel(f"cumulative {METRIC_NAMES[metric]}")
    thousands(axes.xaxis)
    thousands(axes.yaxis)
    axes.margins(x=0)
    few_rounds(axes)
    return ends


def share_height(panels: Sequence[Axes], ends: Sequence[Sequence[End]]) -> None:
    """The same height from zero for all panels, and a label of the axis on the first alone."""
    top = max(axes.get_ylim()[1] for axes in panels)
    for axes, labels in zip(panels, ends, strict=True):
        axes.set_ylim(0, top)
        end_labels(axes, labels)
    for axes in panels[1:]:
        axes.set_ylabel("")


def few_rounds(axes: Axes) -> None:
    """Few enough ticks that they don't touch."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.set_xlim(left=0)


def band(axes: Axes, x: Any, values: Array, colour: str) -> None:
    """The 95 % interval of the mean over seeds."""
    if values.shape[0] > 1:
        mean, half = values.mean(axis=0), half_width(values)
        axes.fill_between(x, mean - half, mean + half, color=colour, alpha=0.18, lw=0)


def draw_points(
    axes: Axes,
    x: Sequence[float],
    values: Sequence[Array],
    *,
    colour: str,
    label: str = "",
    marker: str = "o",
) -> None:
    """Regret at the horizon against a parameter: means joined, 95 % intervals as bars."""
    means = [float(v.mean()) for v in values]
    halves = np.nan_to_num([float(half_width(v)) for v in values])
    axes.errorbar(
        list(x), means, yerr=halves, color=colour, label=label, marker=marker, ms=4.5, capsize=2.5, lw=1.4
    )


def end_labels(axes: Axes, ends: Sequence[End], *, gap: float = 0.065) -> None:
    """Names at the right end of lines, pushed apart where they would overlap. Call it last."""
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
    for (_, label, colour), position in zip(ordered, positions, strict=True):
        axes.text(
            1.025, position, label, transform=axes.transAxes, color=colour, fontsize=8, va="center", ha="left"
        )


def key(axes: Axes, *, paper: bool, seeds: int, where: Any = "upper left") -> None:
    """What the line styles mean."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Line2D([], [], color="#333333", label="ours, mean")]
    if seeds > 1:
        handles.append(Patch(color="#333333", alpha=0.2, lw=0, label=f"95 % band, {seeds} seeds"))
    if paper:
        handles.append(Line2D([], [], color="#333333", ls=(0, (4, 2)), lw=1.1, label="paper"))
    axes.legend(handles=handles, loc=where, handlelength=2.2)
