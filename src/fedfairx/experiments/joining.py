"""What members of a federation gain or lose by joining, each of them, on recorded offers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedfairx.experiments.experiment import REWARD, Outcome, Run, Size
from fedfairx.experiments.offers import OffersScenario, play, play_due, play_equal
from fedfairx.experiments.report import figures
from fedfairx.experiments.scores import Estimate, Table, estimate, ratio
from fedfairx.util.arrays import Array
from fedfairx.util.figure_style import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEEDS = 10
EPSILON, DELTA = 2.0, 1e-6
DAILY = {"schedule": "every-round"}
PRIVATE = {"epsilon": EPSILON, "delta": DELTA, "schedule": "geometric"}
MAY_DIFFER = {"partners": "differ"}
ALONE, ALIKE, DIFFER, PRIVATE_ALIKE, PRIVATE_DIFFER = (
    "alone",
    "alike",
    "differ",
    "private, alike",
    "private, differ",
)
PAPER_ALONE, PAPER, PAPER_PRIVATE, THOMPSON, LINUCB = (
    "paper, alone",
    "paper",
    "paper, private",
    "thompson",
    "linucb",
)
EQUAL, DUE = "equal", "due"


LOST = (
    "Lost is the reward that was missed per 1000 decisions against choosing the arm of each decision that "
    "proved best, which nobody can know; equal shares show how much of that chance alone loses."
)


class How(NamedTuple):
    """A way of deciding, alone or together."""

    algorithm: str
    options: Mapping[str, Any]
    label: str
    colour: str


#: All settings but these are defaults.
HOWS = {
    ALONE: How("fairx-bayes", {}, "alone", COLOURS["fairx-linucb"]),
    ALIKE: How("fed-fairx-bayes", DAILY, "pooled as alike", COLOURS["fed-fairx-linucb"]),
    DIFFER: How("fed-fairx-bayes", DAILY | MAY_DIFFER, "weighed", COLOURS["fed-fairx-bayes"]),
    PRIVATE_ALIKE: How("priv-fairx-bayes", PRIVATE, "private, pooled as alike", COLOURS["blt"]),
    PRIVATE_DIFFER: How(
        "priv-fairx-bayes", PRIVATE | MAY_DIFFER, "private, weighed", COLOURS["priv-fairx-bayes"]
    ),
    PAPER_ALONE: How("fairx-linucb", {}, "the paper's rule, alone", COLOURS["b1"]),
    PAPER: How("fed-fairx-linucb", DAILY, "the paper's rule, pooled", COLOURS["b2"]),
    PAPER_PRIVATE: How(
        "priv-fairx-linucb", PRIVATE, "the paper's rule, private", COLOURS["priv-fairx-linucb"]
    ),
    THOMPSON: How("fairx-lints", {}, "Thompson, alone", COLOURS["fairx-lints"]),
    LINUCB: How("linucb", {}, "LinUCB, alone", COLOURS["linucb"]),
    EQUAL: How("fairx-bayes", {}, "equal shares", COLOURS["fair"]),
}
_PLAYED = {EQUAL: play_equal, DUE: play_due}  # without agents


def run(key: str, how: str, world: OffersScenario, size: Size, *, judged: bool) -> Run:
    """Live agents that decide in this way, or, for `DUE`, what arms are entitled to.

    What no claim judges has as few seeds as other experiments.
    """
    least = SEEDS if size.full and judged else 0
    chosen = HOWS[EQUAL if how == DUE else how]
    return Run(key, world, chosen.algorithm, chosen.options, least, _PLAYED.get(how, play))


def over_time(own: Outcome, alone: Outcome) -> Array:
    """(seeds, members, points) fairness regret so far over that alone."""
    return np.asarray(own.by_agent / alone.by_agent[: len(own.seeds)])


def by_member(own: Outcome, alone: Outcome) -> Array:
    """(seeds, members) fairness regret at the end over that alone."""
    return over_time(own, alone)[:, :, -1]


def over_alone(own: Outcome, alone: Outcome) -> tuple[Estimate, list[Estimate]]:
    """Fairness regret over that alone: the mean over members, and each member's."""
    found = by_member(own, alone)
    return estimate(found.mean(axis=1)), [ratio(each, np.ones(len(each))) for each in found.T]


def each_in_words(members: Sequence[str], found: Sequence[Estimate]) -> str:
    """What was found for each member."""
    return ", ".join(f"{name} {each}" for name, each in zip(members, found, strict=True))


def lost(outcome: Outcome, each: int) -> Array:
    """(seeds,) reward lost per 1000 decisions, `each` a day, against knowing the best arm of every one."""
    return np.asarray(1000.0 * outcome.final(REWARD) / (each * outcome.rounds[-1]))


def table(
    title: str,
    members: Sequence[str],
    found: Mapping[str, Outcome],
    *,
    each: int,
    decision: str,
    loss: str,
    note: str = "",
) -> Table:
    """Regret of every way of deciding: per decision, over that alone, and in rewards."""
    rows = []
    for how, outcome in found.items():
        mean, ratios = over_alone(outcome, found[ALONE])
        per = estimate(outcome.final() / (each * outcome.rounds[-1]))
        cells = (str(per), str(mean), *(f"{one.value:.3f}" for one in ratios))
        rows.append((HOWS[how].label, *cells, str(estimate(lost(outcome, each)))))
    columns = (f"fairness regret per {decision}", "over that alone, mean", *members, loss)
    return Table(title, ("policy", *columns), tuple(rows), note)


def draw(
    panels: Sequence[Axes],
    members: Sequence[str],
    shown: Iterable[tuple[Outcome, Outcome, str, str]],
    *,
    limits: tuple[float, float],
) -> None:
    """Draw each member's running fairness regret over that alone: own, alone, how, and more for the label.

    Those that have more in their label are dotted and have no band.
    """
    for own, alone, how, suffix in shown:
        for i, axes in enumerate(panels):
            values, label = over_time(own, alone)[:, i], HOWS[how].label + suffix
            style = ":" if suffix else "-"
            axes.plot(own.rounds, values.mean(axis=0), color=HOWS[how].colour, ls=style, label=label)
            if not suffix:
                figures.band(axes, own.rounds, values, HOWS[how].colour)
    for axes, name, letter in zip(panels, members, "abcdef", strict=False):
        figures.level(axes)
        axes.set_title(f"({letter}) {name}")
        axes.set_ylim(*limits)
        axes.margins(x=0)
    for axes in panels[1:]:
        axes.tick_params(labelleft=False)
    panels[0].set_ylabel("fairness regret, over that alone")
