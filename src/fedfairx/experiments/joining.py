"""What members of a federation gain or lose by joining, each of them, on recorded offers.

A world is a set of offers, such as a year. All that is compared in it is compared with deciding alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedfairx.experiments.contents import Cell, Estimated, Grid, Hypothesis, Measure, below, mean, words
from fedfairx.experiments.experiment import Picture, Run, Size
from fedfairx.experiments.offers import OffersScenario, play_due, play_equal
from fedfairx.experiments.offers import play as play_agents
from fedfairx.experiments.outcomes import REWARD, Outcome, Outcomes
from fedfairx.experiments.report import figures
from fedfairx.experiments.scores import Estimate, ratio
from fedfairx.features import intercept, unit_ball
from fedfairx.util.arrays import Array
from fedfairx.util.figure_style import COLOURS

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


LOST_NOTE = (
    "Lost is the reward that was missed per 1000 decisions against choosing the action of each decision that "
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


def key(world: str, how: str) -> str:
    """The name of a run."""
    return f"{world}: {how}"


def runs_in(
    name: str, world: OffersScenario, hows: Iterable[str], size: Size, *, judged: Collection[str]
) -> list[Run]:
    """Live agents that decide in these ways, or, for `DUE`, what actions are entitled to.

    What no claim judges has as few seeds as other experiments.
    """
    runs = []
    for how in hows:
        least = SEEDS if size.full and how in judged else 0
        chosen, play = HOWS[EQUAL if how == DUE else how], _PLAYED.get(how, play_agents)
        runs.append(Run(key(name, how), world, chosen.algorithm, chosen.options, least, play))
    return runs


# --- contexts --------------------------------------------------------------------------------------------


def with_products(raw: Array, first: NDArray[np.bool_]) -> Array:
    """(n, d + d(d-1)/2) the numbers of each row, and all products of two of them."""
    from sklearn.preprocessing import PolynomialFeatures

    products = PolynomialFeatures(2, interaction_only=True, include_bias=False)
    return np.asarray(products.fit(raw[first]).transform(raw))


def scaled(raw: Array, first: NDArray[np.bool_]) -> Array:
    """(n, d + 1) contexts with an intercept, scaled into the unit ball by the rows that come `first`."""
    whole = intercept(raw)
    return unit_ball(whole, norm=float(np.quantile(np.linalg.norm(whole[first], axis=1), 0.99)))


# --- what is measured ------------------------------------------------------------------------------------


def over_time(own: Outcome, alone: Outcome) -> Array:
    """(seeds, members, points) fairness regret so far over that alone."""
    return np.asarray(own.by_agent / alone.by_agent[: len(own.seeds)])


def by_member(own: Outcome, alone: Outcome) -> Array:
    """(seeds, members) fairness regret at the end over that alone."""
    return over_time(own, alone)[:, :, -1]


@dataclass(frozen=True)
class Members:
    """The members of a federation, and what they decide about."""

    names: tuple[str, ...]
    kind: str  # "airport"
    decision: str  # "trip"
    each: int  # decisions of a member in a day or round

    def on_average(self, world: str, how: str) -> Estimated:
        """Fairness regret over that alone, the mean over members."""
        return mean(
            lambda outcomes: by_member(outcomes[key(world, how)], outcomes[key(world, ALONE)]).mean(axis=1)
        )

    def of_each(self, world: str, how: str) -> dict[str, Estimated]:
        """Fairness regret over that alone, by member."""

        def of(place: int) -> Estimated:
            def measure(outcomes: Outcomes) -> Estimate:
                own = by_member(outcomes[key(world, how)], outcomes[key(world, ALONE)])[:, place]
                return ratio(own, np.ones(own.size))

            return measure

        return {name: of(place) for place, name in enumerate(self.names)}

    def lost(self, run: str) -> Callable[[Outcomes], Array]:
        """(seeds,) reward lost per 1000 decisions against knowing the best action of every one."""
        return lambda outcomes: np.asarray(
            1000.0 * outcomes[run].final(REWARD) / (self.each * outcomes[run].rounds[-1])
        )

    def lost_on_average(self, run: str) -> Estimated:
        """Reward lost per 1000 decisions."""
        return mean(self.lost(run))

    def gain(self, statement: str, limit: float, world: str, how: str, *, note: str = "") -> Hypothesis:
        """The hypothesis that members gain on average."""
        what = f"fairness regret over that alone, the mean over {self.kind}s,"
        statement = f"{statement} (ours, not the paper's)"
        return below(statement, what, limit, self.on_average(world, how), note=note)

    def no_loss(self, statement: str, limit: float, world: str, how: str, *, note: str = "") -> Hypothesis:
        """The hypothesis that no member loses."""
        return below(
            f"{statement} (ours, not the paper's)",
            "fairness regret over that alone",
            limit,
            self.of_each(world, how),
            note=f" at every {self.kind}{note}",
        )

    def grid(self, title: Cell, world: str, hows: Iterable[str], note: Cell = "") -> Grid:
        """Regret of every way of deciding: per decision, over that alone, and in rewards."""

        def per_decision(how: str) -> Estimated:
            run = key(world, how)
            return mean(lambda outcomes: outcomes[run].final() / (self.each * outcomes[run].rounds[-1]))

        return Grid(
            title,
            (
                "policy",
                f"fairness regret per {self.decision}",
                "over that alone, mean",
                *self.names,
                f"lost per 1000 {self.decision}s",
            ),
            [
                (
                    HOWS[how].label,
                    per_decision(how),
                    self.on_average(world, how),
                    *(words("{.value:.3f}", each) for each in self.of_each(world, how).values()),
                    self.lost_on_average(key(world, how)),
                )
                for how in hows
            ],
            note,
        )

    def picture(
        self,
        name: str,
        caption: str,
        outcomes: Outcomes,
        shown: Iterable[tuple[str, str, str]],
        *,
        limits: tuple[float, float],
        xlabel: str,
        shape: tuple[float, float],
    ) -> Picture:
        """Each member's running fairness regret over that alone.

        `shown` are worlds, ways of deciding, and more for the label; those that have more are dotted and have
        no band.
        """
        figure, panels = figures.canvas(panels=len(self.names), width=shape[0], height=shape[1])
        for world, how, suffix in shown:
            own, alone = outcomes[key(world, how)], outcomes[key(world, ALONE)]
            for i, axes in enumerate(panels):
                values, label = over_time(own, alone)[:, i], HOWS[how].label + suffix
                style = ":" if suffix else "-"
                axes.plot(own.rounds, values.mean(axis=0), color=HOWS[how].colour, ls=style, label=label)
                if not suffix:
                    figures.band(axes, own.rounds, values, HOWS[how].colour)
        for axes, member, letter in zip(panels, self.names, "abcdef", strict=False):
            figures.level(axes)
            axes.set_title(f"({letter}) {member}")
            axes.set_ylim(*limits)
            axes.margins(x=0)
            axes.set_xlabel(xlabel)
        for axes in panels[1:]:
            axes.tick_params(labelleft=False)
        panels[0].set_ylabel("fairness regret, over that alone")
        figures.legend_below(figure, panels[0])
        return Picture(name, caption, figure)


def seeds_in(world: str, hows: Collection[str]) -> Measure:
    """The number of seeds, and which ways of deciding have fewer."""

    def measure(outcomes: Outcomes) -> str:
        sizes = {how: outcomes[key(world, how)].seeds.size for how in hows}
        fewer = [HOWS[how].label for how in hows if sizes[how] < sizes[ALONE]]
        return f"{sizes[ALONE]} seeds" + (f" ({min(sizes.values())}: {'; '.join(fewer)})" if fewer else "")

    return measure
