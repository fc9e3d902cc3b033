"""The world of partners: ways of deciding alone and together, and what each member gains or loses by joining.

A world is what decisions are about, such as a year. All that is compared in it is compared with deciding
alone.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedfairx.features import intercept, unit_ball
from paper import figures
from paper.experiment import REWARD, Outcome, Picture, Results, Run, Size
from paper.figures import COLOURS
from paper.offers import OffersScenario, play
from paper.scores import Array, Claim, Table, below, estimate, ratio

SEEDS = 10
EPSILON, DELTA = 2.0, 1e-6
DAILY, SELDOM = {"schedule": "every-round"}, {"schedule": "geometric"}
PRIVATE = {"epsilon": EPSILON, "delta": DELTA, **SELDOM}
MAY_DIFFER = {"partners": "differ"}
ALONE, ALIKE, DIFFER = "alone", "alike", "differ"
PRIVATE_ALIKE, PRIVATE_DIFFER = "private, alike", "private, differ"
PAPER_ALONE, PAPER, PAPER_PRIVATE = "paper, alone", "paper", "paper, private"
THOMPSON, LINUCB, EQUAL, DUE = "thompson", "linucb", "equal", "due"
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
    EQUAL: How(EQUAL, {}, "equal shares", COLOURS["fair"]),
}
JOINING = (ALONE, ALIKE, DIFFER, PRIVATE_ALIKE, PRIVATE_DIFFER)


def key(world: str, how: str) -> str:
    """The name of a run."""
    return f"{world}: {how}"


def runs_in(
    name: str, world: OffersScenario, hows: Iterable[str], size: Size, *, judged: Collection[str]
) -> Iterator[Run]:
    """Live agents that decide in these ways, or, for `DUE`, what actions are entitled to.

    What no claim judges has as few seeds as other experiments.
    """
    for how in hows:
        chosen, least = HOWS.get(how, HOWS[EQUAL]), SEEDS if size.full and how in judged else 0
        algorithm = DUE if how == DUE else chosen.algorithm
        yield Run(key(name, how), world, algorithm, chosen.options, least, play)


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


def seeds_in(r: Results, world: str, hows: Collection[str]) -> str:
    """The number of seeds, and which ways of deciding have fewer."""
    sizes = {how: r.seeds(key(world, how)) for how in hows}
    fewer = [HOWS[how].label for how in hows if sizes[how] < sizes[ALONE]]
    return f"{sizes[ALONE]} seeds" + (f" ({min(sizes.values())}: {'; '.join(fewer)})" if fewer else "")


class Members(NamedTuple):
    """The members of a federation, and what they decide about."""

    names: tuple[str, ...]
    kind: str  # "airport"
    decision: str  # "trip"
    each: int  # decisions of a member in a day or round

    def by_member(self, r: Results, world: str, how: str) -> Array:
        """(seeds, members) fairness regret at the end over that alone."""
        return over_time(r[key(world, how)], r[key(world, ALONE)])[:, :, -1]

    def lost(self, r: Results, run: str) -> Array:
        """(seeds,) reward lost per 1000 decisions against knowing the best action of every one."""
        return np.asarray(1000.0 * r[run].final(REWARD) / (self.each * r[run].rounds[-1]))

    def gain(
        self, r: Results, statement: str, limit: float, world: str, how: str, *, note: str = ""
    ) -> Claim:
        """The claim that members gain on average."""
        what = f"fairness regret over that alone, the mean over {self.kind}s,"
        return below(statement, what, estimate(self.by_member(r, world, how).mean(axis=1)), limit, note=note)

    def no_loss(
        self, r: Results, statement: str, limit: float, world: str, how: str, *, note: str = ""
    ) -> Claim:
        """The claim that no member loses."""
        own = self.by_member(r, world, how).T
        each = {name: ratio(values) for name, values in zip(self.names, own, strict=True)}
        note = f" at every {self.kind}{note}"
        return below(statement, "fairness regret over that alone", each, limit, note=note)

    def table(self, r: Results, title: str, world: str, hows: Iterable[str], note: str = "") -> Table:
        """Regret of every way of deciding: per decision, over that alone, and in rewards."""
        measured = (f"fairness regret per {self.decision}", "over that alone, mean")
        columns, rows = ("policy", *measured, *self.names, f"lost per 1000 {self.decision}s"), []
        for how in hows:
            run, own = r[key(world, how)], self.by_member(r, world, how)
            regret, mean = estimate(run.final() / (self.each * run.rounds[-1])), estimate(own.mean(axis=1))
            members = [f"{ratio(member).value:.3f}" for member in own.T]
            lost = estimate(self.lost(r, key(world, how)))
            rows.append((HOWS[how].label, regret, mean, *members, lost))
        return Table(f"{title}, {seeds_in(r, world, tuple(hows))}", columns, rows, note)

    def picture(
        self, name: str, caption: str, r: Results, shown: Iterable[tuple[str, str, str]], **shape: Any
    ) -> Picture:
        """Each member's running fairness regret over that alone; `shape` has `limits`, `xlabel` and `size`.

        `shown` are worlds, ways of deciding, and more for the label; those that have more are dotted and have
        no band.
        """
        width, height = shape["size"]
        figure, panels = figures.canvas(panels=len(self.names), width=width, height=height)
        for world, how, more in shown:
            own, colour, label = r[key(world, how)], HOWS[how].colour, HOWS[how].label + more
            values, style = over_time(own, r[key(world, ALONE)]), ":" if more else "-"
            for i, axes in enumerate(panels):
                axes.plot(own.rounds, values[:, i].mean(axis=0), color=colour, ls=style, label=label)
                if not more:
                    figures.band(axes, own.rounds, values[:, i], colour)
        for axes, member, letter in zip(panels, self.names, "abcdef", strict=False):
            figures.level(axes)
            axes.set(title=f"({letter}) {member}", ylim=shape["limits"])
            axes.margins(x=0)
            axes.set_xlabel(shape["xlabel"])
        for axes in panels[1:]:
            axes.tick_params(labelleft=False)
        panels[0].set_ylabel("fairness regret, over that alone")
        figures.legend_below(figure, panels[0])
        return Picture(name, caption, figure)
