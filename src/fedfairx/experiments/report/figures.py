"""Figures of the experiments: curves beside the paper's, points, axes, files."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfairx.errors import ResultsError
from fedfairx.experiments.experiment import FAIRNESS, Outcome, Size
from fedfairx.experiments.sweep.partial_files import remove_stale, write_whole
from fedfairx.util.arrays import Array
from fedfairx.util.figure_style import COLOURS as COLOURS
from fedfairx.util.figure_style import METRIC_NAMES, End, band, few_rounds, thousands
from fedfairx.util.figure_style import end_labels as end_labels
from fedfairx.util.formatting import half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Line:
    """A curve over rounds: ours, and the paper's where it has one."""

    outcome: Outcome
    label: str
    colour: str
    paper: tuple[Array, Array] | None = None
    dotted: bool = False


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


def plain_log(axis: Any, ticks: Sequence[float]) -> None:
    """Set the ticks of a logarithmic axis, labelled by plain numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}".replace(",", " ")))


def round_above(value: float) -> float:
    """Round up to one of …, 1, 3, 10, 30, …, so that an axis ends at a tick."""
    decade = 10.0 ** math.floor(math.log10(value))
    return next(step * decade for step in (1, 3, 10) if step * decade >= value * (1 - 1e-9))


def log_ticks(axis: Any, low: float, high: float) -> None:
    """Set at least four round ticks between low and high on a logarithmic axis, if possible."""
    for bases in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), range(1, 10)):
        ticks = [b * 10.0**k for k in range(-4, 8) for b in bases if low <= b * 10.0**k <= high]
        if len(ticks) >= 4:
            break
    plain_log(axis, ticks)


def power(value: float) -> str:
    """Format 0.1 as it is, 1e-06 as 10⁻⁶."""
    if value >= 1e-3:
        return f"{value:g}"
    digits = f"{value:.0e}".partition("e-")[2].lstrip("0")
    return "10⁻" + digits.translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def draw_lines(axes: Axes, lines: Iterable[Line], metric: str = FAIRNESS) -> list[End]:
    """Draw cumulative regret: mean, 95 % band, the paper's dashed. Returns labels for `end_labels`."""
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
    """Give all panels the same y axis from zero, labelled on the first only."""
    top = max(axes.get_ylim()[1] for axes in panels)
    for axes, labels in zip(panels, ends, strict=True):
        axes.set_ylim(0, top)
        end_labels(axes, labels)
    for axes in panels[1:]:
        axes.set_ylabel("")


def error_bar(values: Array) -> Any:
    """Half the width of the 95 % interval of the mean over seeds; 0 for a single seed."""
    return np.nan_to_num(half_width(values))


def draw_points(
    axes: Axes,
    x: Sequence[float],
    values: Sequence[Array],
    *,
    colour: str,
    label: str = "",
    marker: str = "o",
) -> None:
    """Draw regret at the horizon against a parameter: connected means with 95 % intervals."""
    means = [float(v.mean()) for v in values]
    halves = [float(error_bar(v)) for v in values]
    axes.errorbar(
        list(x), means, yerr=halves, color=colour, label=label, marker=marker, ms=4.5, capsize=2.5, lw=1.4
    )


def key(axes: Axes, *, paper: bool, seeds: int, where: Any = "upper left") -> None:
    """Add a legend of the line styles."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Line2D([], [], color="#333333", label="ours, mean")]
    if seeds > 1:
        handles.append(Patch(color="#333333", alpha=0.2, lw=0, label=f"95 % band, {seeds} seeds"))
    if paper:
        handles.append(Line2D([], [], color="#333333", ls=(0, (4, 2)), lw=1.1, label="paper"))
    axes.legend(handles=handles, loc=where, handlelength=2.2)
