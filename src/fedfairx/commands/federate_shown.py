"""What there is to see of a demonstration of a federation: a table, a line, a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedfairx.util.formatting import text_table

if TYPE_CHECKING:
    from fedfairx.commands.orders import Orders

__all__ = ["draw", "line", "table"]

HEADINGS = ("agent", "decisions", "rewards", "releases", "lag", "privacy", "regret", "alone", "ratio")


def table(orders: Sequence[Orders], looks: Sequence[dict[str, Any]]) -> str:
    """How each organisation stands; `looks` are what its service says."""
    return text_table(HEADINGS, [_row(each, look) for each, look in zip(orders, looks, strict=True)])


def line(orders: Sequence[Orders], looks: Sequence[dict[str, Any]]) -> str:
    """How all stand together, for where a table can't be drawn over itself."""
    together, alone = (sum(getattr(each, which) for each in orders) for which in ("together", "alone"))
    parts = [
        f"{sum(each.decisions for each in orders)} decisions",
        f"{sum(each.rewarded for each in orders)} rewards",
        f"{sum(look['sync']['released'] for look in looks if look)} releases",
        f"lag {max((_lag(look) for look in looks if look), default=0)}",
        *sorted({f"privacy {_privacy(look)}" for look in looks if look}),
        f"fairness regret {together / len(orders):.1f} together, {alone / len(orders):.1f} alone",
    ]
    return ", ".join(parts)


def _row(orders: Orders, look: dict[str, Any]) -> tuple[object, ...]:
    regrets = (f"{orders.together:.1f}", f"{orders.alone:.1f}")
    ratio = f"{orders.together / orders.alone:.2f}" if orders.alone else ""
    if not look:
        return (orders.name, orders.decisions, orders.rewarded, "?", "?", "?", *regrets, ratio)
    released = look["sync"]["released"]
    counts = (orders.name, orders.decisions, orders.rewarded, released)
    return (*counts, _lag(look), _privacy(look), *regrets, ratio)


def _lag(look: dict[str, Any]) -> int:
    return max((peer["lag"] for peer in look["sync"]["peers"].values()), default=0)


def _privacy(look: dict[str, Any]) -> str:
    """What is spent of the budget."""
    said = look["privacy"]
    return f"{said['spent']} of {said['releases']} (ε={said['epsilon']:g})" if said["private"] else "exact"


def draw(curve: list[tuple[int, float, float]], epsilon: float | None, file: str) -> None:
    """Mean fairness regret over rounds, together and alone."""
    from fedfairx.util.plotting import COLOURS, end_labels, few_rounds, styled, thousands

    rounds, together, alone = zip(*curve, strict=True)
    name = "fed-fairx-bayes" if epsilon is None else "priv-fairx-bayes"
    with styled():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.4, 3.3), layout="constrained")
        axes = figure.subplots()
        ends = []
        for values, label, colour in (
            (together, "together", COLOURS[name]),
            (alone, "alone", COLOURS["fairx-bayes"]),
        ):
            axes.plot(rounds, values, color=colour)
            ends.append((values[-1], label, colour))
        axes.set_title("fairness regret, mean of the organisations")
        axes.set_xlabel("orders of each")
        thousands(axes.xaxis)
        thousands(axes.yaxis)
        axes.margins(x=0)
        few_rounds(axes)
        end_labels(axes, ends)
        figure.savefig(file)
