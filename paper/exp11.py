"""Exp 11: several at once. Do sets and rankings give everybody the attention that merit deserves?"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fedfairx import Scenario
from paper import figures
from paper import world as env
from paper.experiment import METRICS, OURS, Experiment, Part, Picture, Results, Run, Size, glossary
from paper.figures import COLOURS
from paper.scores import Array, Claim, Table, below, estimate, judge, number
from paper.slots import attention, decided, one_after_the_other, ranked_due

LONGEST, SEEDS = 2_000, 10
QUARTER = 0.25  # of the regret of showing the best, that expected merit should not exceed
STARVED, SERVED = 0.5, 0.9  # of its due, that the weakest gets at most and at least
FLOOR = 0.004  # of the figure: what is below is drawn there
ONE = (1.0,)


class SlotWorld(NamedTuple):
    """Actions that stay, and the slots that they are shown in."""

    label: str
    arms: int
    slots: tuple[float, ...]

    def scenario(self, size: Size) -> Scenario:
        """One agent alone among actions whose contexts are drawn once."""
        horizon = min(size.horizon, LONGEST)
        return env.scenario(size, agents=1, arms=self.arms, contexts="persistent", horizon=horizon)


WORLDS = {
    "ranked": SlotWorld("5 ranked slots of 20 actions", 20, attention(5)),
    "set": SlotWorld("sets of 3 of 10 actions", 10, ONE * 3),
}
MERIT, SINGLE, ORDERED, BEST = "merit", "single", "ordered", "best"
#: Name → label, colour and marker.
POLICIES = {
    BEST: ("LinUCB's best in order", COLOURS["linucb"], "v"),
    ORDERED: ("one after the other", COLOURS["minimum-share"], "D"),
    SINGLE: ("expected merit, one slot", COLOURS["fairx-linucb"], "s"),
    MERIT: ("expected merit", COLOURS["fed-fairx-bayes"], "o"),
}


def key(world: str, policy: str) -> str:
    """The name of a run."""
    return f"{world}: {policy}"


def slots_of(world: str, policy: str) -> tuple[float, ...]:
    """The weights of the slots that a policy fills."""
    return ONE if policy == SINGLE else WORLDS[world].slots


def runs(size: Size) -> Iterator[Run]:
    """Every policy in both worlds, played by live agents."""
    least = SEEDS if size.full else 0
    for name, world in WORLDS.items():
        for policy in POLICIES:
            options: dict[str, Any] = {"slots": slots_of(name, policy)}
            play = one_after_the_other if policy == ORDERED else decided
            algorithm = "fairx-bayes"
            if policy == BEST:
                algorithm, options = "linucb", env.options(**options)
            # Half of the seeds decide what this is for, and its integrals are most of the work.
            seeds = least // 2 if policy == ORDERED else least
            yield Run(key(name, policy), world.scenario(size), algorithm, options, seeds, play)


def over_due(r: Results, size: Size, world: str, policy: str) -> Array:
    """(seeds, K): each rank's share of attention over what it is due."""
    outcome, weights = r[key(world, policy)], np.array(slots_of(world, policy))
    return np.asarray(
        outcome.exposure / ranked_due(WORLDS[world].scenario(size), weights, outcome.seeds.tolist())
    )


def report(r: Results, size: Size) -> Iterator[Part]:
    """Regret against the other policies, and what the weakest gets."""
    for other, statement, limit in (
        (
            BEST,
            "of several slots, expected merit leaves a quarter of the fairness regret of showing the best",
            QUARTER,
        ),
        (ORDERED, "and less than drawing actions one after the other in proportion to merit", 1.0),
        (SINGLE, "and less, per unit of attention, than with one slot: more is learnt from a decision", 1.0),
    ):
        ratios = {
            chosen.label: r.over(key(world, MERIT), key(world, other)) for world, chosen in WORLDS.items()
        }
        what = f"expected merit's fairness regret over that of “{POLICIES[other][0]}”"
        yield below(statement, what, ratios, limit, note=" in both worlds")
    over = {(world, policy): over_due(r, size, world, policy) for policy in POLICIES for world in WORLDS}
    got = {setting: estimate(values[:, -1]) for setting, values in over.items()}  # by the weakest
    in_words = ", ".join(
        f"{label} {got['ranked', policy].value:.2f} and {got['set', policy].value:.2f}"
        for policy, (label, _, _) in POLICIES.items()
    )
    starved = judge({world: got[world, BEST] for world in WORLDS}, high=STARVED)
    served = judge({world: got[world, MERIT] for world in WORLDS}, low=SERVED)
    yield Claim(
        "the best in order starve the weakest, expected merit does not",
        f"of the attention that it is due, the weakest action gets below {STARVED:g} from LinUCB's "
        f"best in order, and above {SERVED:g} from expected merit, in both worlds",
        f"ranked slots and sets: {in_words} of what is due",
        served if starved == "holds" else starved,
    )
    for world, chosen in WORLDS.items():
        usual, scenario = key(world, MERIT), chosen.scenario(size)
        due = ranked_due(scenario, np.array(chosen.slots), r[usual].seeds.tolist()).mean(axis=0)
        rows = []
        for policy, (label, _, _) in POLICIES.items():
            regrets = [r.regret(key(world, policy), metric) for metric in METRICS]
            rows.append((label, *regrets, got[world, policy], f"{over[world, policy][:, -1].min():.2f}"))
        columns = ("policy", "fairness regret at T", "reward regret at T")
        yield Table(
            f"{chosen.label}, T = {number(scenario.horizon)}, {r.seeds(usual)} seeds (one after the other: "
            f"{r.seeds(key(world, ORDERED))})",
            (*columns, "weakest action, over its due", "the same in the worst seed"),
            rows,
            f"Of all attention the best action is due {number(due[0])}, the weakest {number(due[-1])}.",
        )
    yield (
        "Regret is per unit of attention, so that policies with other slots compare: distances from the "
        "attention that is due, and rewards, are divided by the sum of the slots' weights. The expected "
        "attention of actions that are drawn one after the other is integrated numerically, to 10⁻⁶."
    )

    figure, panels = figures.canvas(panels=2, width=8.6, height=3.5)
    ends = []
    for axes, (world, chosen), letter in zip(panels, WORLDS.items(), "ab", strict=True):
        lines = [figures.Line(r[key(world, policy)], *style[:2]) for policy, style in POLICIES.items()]
        ends.append(figures.draw_lines(axes, lines))
        axes.set(ylabel="fairness regret per unit of attention", title=f"({letter}) {chosen.label}")
    figures.share_height(panels, ends)
    yield Picture(
        "exp11-regret",
        "Exp 11, distance of everybody's attention from what merit deserves, summed over rounds and divided "
        f"by the sum of the slots' weights; mean and 95 % band, {r.seeds(key('set', MERIT))} seeds. LinUCB's "
        "best are always the same few. Actions drawn one after the other in proportion to merit stay at a "
        "distance even when merits are known. With several slots more is learnt from each decision than with "
        "one.",
        figure,
    )
    figure, panels = figures.canvas(panels=2, width=8.6, height=3.7)
    for axes, (world, chosen), letter in zip(panels, WORLDS.items(), "ab", strict=True):
        figures.by_rank(axes, {policy: over[world, policy] for policy in POLICIES}, POLICIES, FLOOR)
        axes.set_title(f"({letter}) {chosen.label}")
    panels[0].set_ylabel("share of attention, over what is due")
    figures.legend_below(figure, panels[0])
    yield Picture(
        "exp11-attention",
        "Exp 11, attention by rank of merit over what is due (dashed: 1 is fair), means over seeds. What is "
        f"below {FLOOR:g} is drawn there.",
        figure,
    )


QUESTION = "Do sets and rankings give everybody the attention that merit deserves?"
EXPERIMENT = Experiment("exp11", "Several at once", QUESTION, runs, report, OURS, glossary("expected merit"))
