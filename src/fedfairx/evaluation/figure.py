"""The figure of an evaluation: mean rewards with their intervals, and the share of each action."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedfairx.util.figure_style import COLOURS, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedfairx.evaluation.estimators import PolicyValue

MOST = 12  # actions that are drawn: those that the log shows most


def draw(values: Sequence[PolicyValue], error: float) -> Figure:
    """Draw both panels; the first of the values is that of the log."""
    with styled():
        from matplotlib.figure import Figure as NewFigure

        figure = NewFigure(figsize=(9.0, 3.6), layout="constrained")
        rewards, shares = figure.subplots(1, 2)
        palette = list(dict.fromkeys(COLOURS.values()))
        colours = [palette[k % len(palette)] for k in range(len(values))]
        _rewards(rewards, values, error, colours)
        _shares(shares, values, colours)
    return figure


def _rewards(axes: Axes, values: Sequence[PolicyValue], error: float, colours: list[str]) -> None:
    for place, (value, colour) in enumerate(zip(values, colours, strict=True)):
        for each, offset, width in ((value.reward, 0.0, 3.0), (value.ips, 0.22, 1.0)):
            axes.plot([each.low, each.high], [place + offset] * 2, color=colour, lw=width)
            axes.plot([each.value], [place + offset], "o", color=colour, ms=5 if offset == 0 else 3)
        if value.refused:
            axes.text(0.5, place, "the log can't tell", transform=axes.get_yaxis_transform(), ha="center")
    axes.set_yticks(range(len(values)), [value.name for value in values])
    for label, colour in zip(axes.get_yticklabels(), colours, strict=True):
        label.set_color(colour)
    axes.invert_yaxis()
    axes.axvline(values[0].reward.value, color="0.7", lw=0.8, zorder=0)
    level = f"{100 * (1 - error):g} %"
    axes.set_title(f"mean reward with {level} interval (thin: IPS)")


def _shares(axes: Axes, values: Sequence[PolicyValue], colours: list[str]) -> None:
    logged = values[0]
    names = sorted(logged.action_shares, key=lambda name: -logged.action_shares[name])[:MOST]
    height = 0.8 / len(values)
    for k, (value, colour) in enumerate(zip(values, colours, strict=True)):
        shares = [100 * value.action_shares.get(name, math.nan) for name in names]
        places = np.arange(len(names)) + (k - 0.5 * (len(values) - 1)) * height
        axes.barh(places, shares, height, color=colour)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("%")
    more = len(logged.action_shares) - len(names)
    axes.set_title("share where available" + (f" (without {more} shown less)" if more else ""))
