"""Exp 11: several at once. Do sets and rankings give everybody the attention that merit deserves?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfairx.core.slates import ONE
from fedfairx.experiments import world as env
from fedfairx.experiments.experiment import (
    METRICS,
    OURS,
    Experiment,
    Outcomes,
    Picture,
    Run,
    Size,
    glossary,
    over,
    regret,
)
from fedfairx.experiments.report import figures
from fedfairx.experiments.scores import Claim, Estimate, Scores, Table, claim_below, estimate, holds, number
from fedfairx.experiments.suite.exp11_agents import attention, decided, one_after_the_other, ranked_due
from fedfairx.simulation import Scenario
from fedfairx.util.arrays import Array
from fedfairx.util.figure_style import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST, SEEDS = 2_000, 10
QUARTER = 0.25  # of the regret of showing the best, that expected merit should not exceed
STARVED, SERVED = 0.5, 0.9  # of its due, that the weakest gets at most and at least
FLOOR = 0.004  # of the figure: what is below is drawn there


@dataclass(frozen=True)
class World:
    """Arms that stay, and the slots that they are shown in."""

    label: str
    arms: int
    slots: tuple[float, ...]

    def scenario(self, size: Size) -> Scenario:
        """One agent alone among arms whose contexts are drawn once."""
        horizon = min(size.horizon, LONGEST)
        return env.scenario(size, agents=1, arms=self.arms, contexts="persistent", horizon=horizon)


WORLDS = {
    "ranked": World("5 ranked slots of 20 arms", 20, attention(5)),
    "set": World("sets of 3 of 10 arms", 10, ONE * 3),
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


def runs(size: Size) -> tuple[Run, ...]:
    """Every policy in both worlds, played by live agents."""
    least = SEEDS if size.full else 0
    made = []
    for name, world in WORLDS.items():
        for policy in POLICIES:
            options: dict[str, Any] = {"slots": slots_of(name, policy)}
            play = one_after_the_other if policy == ORDERED else decided
            algorithm = "fairx-bayes"
            if policy == BEST:
                algorithm, options = "linucb", env.options(**options)
            # Half of the seeds decide what this is for, and its integrals are most of the work.
            seeds = least // 2 if policy == ORDERED else least
            made.append(Run(key(name, policy), world.scenario(size), algorithm, options, seeds, play))
    return tuple(made)


def over_due(outcomes: Outcomes, size: Size, world: str, policy: str) -> Array:
    """(seeds, K): each rank's share of attention over what it is due."""
    outcome, weights = outcomes[key(world, policy)], np.array(slots_of(world, policy))
    due = ranked_due(WORLDS[world].scenario(size), weights, outcome.seeds.tolist())
    return np.asarray(outcome.exposure / due)


def worst(outcomes: Outcomes, other: str) -> tuple[Estimate, str]:
    """Fairness regret of expected merit over another policy's: the larger of two worlds, and both."""
    found = {world: over(outcomes, key(world, MERIT), key(world, other)) for world in WORLDS}
    text = "; ".join(f"{WORLDS[world].label}: {item}" for world, item in found.items())
    return max(found.values(), key=lambda item: item.high), text


def score(outcomes: Outcomes, size: Size) -> Scores:
    """Regret against the other policies, and what the weakest gets."""
    last = {
        (world, policy): over_due(outcomes, size, world, policy)[:, -1]
        for world in WORLDS
        for policy in POLICIES
    }
    return Scores(
        claims=(*_regret_claims(outcomes), _weakest_claim(last)),
        tables=tuple(_table(outcomes, size, world, last) for world in WORLDS),
        notes=(
            "Regret is per unit of attention, so that policies with other slots compare: distances from the "
            "attention that is due, and rewards, are divided by the sum of the slots' weights. The expected "
            "attention of arms that are drawn one after the other is integrated numerically, to 10⁻⁶.",
        ),
    )


def _regret_claims(outcomes: Outcomes) -> Iterator[Claim]:
    statements = {
        BEST: (
            "of several slots, expected merit leaves a quarter of the fairness regret of showing the best",
            QUARTER,
        ),
        ORDERED: ("and less than drawing arms one after the other in proportion to merit", 1.0),
        SINGLE: ("and less, per unit of attention, than with one slot: more is learnt from a decision", 1.0),
    }
    for other, (statement, limit) in statements.items():
        found, text = worst(outcomes, other)
        what = f"expected merit's fairness regret over that of “{POLICIES[other][0]}”"
        note = " in both worlds"
        yield claim_below(f"{statement} (ours, not the paper's)", what, found, limit, text, note=note)


def _weakest_claim(last: Mapping[tuple[str, str], Array]) -> Claim:
    starved = max(float(last[world, BEST].mean()) for world in WORLDS)
    served = min(float(last[world, MERIT].mean()) for world in WORLDS)
    means = [
        f"{label} {' and '.join(f'{last[world, policy].mean():.2f}' for world in WORLDS)}"
        for policy, (label, _, _) in POLICIES.items()
    ]
    return Claim(
        "the best in order starve the weakest, expected merit does not (ours, not the paper's)",
        f"of the attention that it is due, the weakest arm gets below {STARVED:g} from LinUCB's best in "
        f"order, and above {SERVED:g} from expected merit, in both worlds",
        f"ranked slots and sets: {', '.join(means)} of what is due",
        holds(starved < STARVED and served > SERVED),
    )


def _table(outcomes: Outcomes, size: Size, world: str, last: Mapping[tuple[str, str], Array]) -> Table:
    rows = []
    for policy, (label, _, _) in POLICIES.items():
        regrets = (regret(outcomes, key(world, policy), metric) for metric in METRICS)
        values = last[world, policy]
        rows.append((label, *regrets, str(estimate(values)), f"{values.min():.2f}"))
    chosen, seeds = WORLDS[world], outcomes[key(world, MERIT)].seeds
    due = ranked_due(chosen.scenario(size), np.array(chosen.slots), seeds.tolist()).mean(axis=0)
    best, weakest = (number(float(due[rank])) for rank in (0, -1))
    return Table(
        f"{chosen.label}, T = {number(chosen.scenario(size).horizon)}, {seeds.size} seeds",
        (
            "policy",
            "fairness regret at T",
            "reward regret at T",
            "weakest arm, over its due",
            "the same in the worst seed",
        ),
        tuple(rows),
        f"Of all attention the best arm is due {best}, the weakest {weakest}.",
    )


def plot(outcomes: Outcomes, size: Size) -> Iterator[Picture]:
    """Regret over rounds, and attention by rank, in both worlds."""
    yield _regret_figure(outcomes)
    yield _rank_figure(outcomes, size)


def _regret_figure(outcomes: Outcomes) -> Picture:
    figure, panels = figures.canvas(panels=2, width=8.6, height=3.5)
    ends = []
    for axes, (world, chosen), letter in zip(panels, WORLDS.items(), "ab", strict=True):
        lines = [
            figures.Line(outcomes[key(world, policy)], label, colour)
            for policy, (label, colour, _) in POLICIES.items()
        ]
        ends.append(figures.draw_lines(axes, lines))
        axes.set_ylabel("fairness regret per unit of attention")
        axes.set_title(f"({letter}) {chosen.label}")
    figures.share_height(panels, ends)
    seeds = outcomes[key("set", MERIT)].seeds.size
    return Picture(
        "exp11-regret",
        "Exp 11, distance of everybody's attention from what merit deserves, summed over rounds and divided "
        "by the sum of the slots' weights; mean and 95 % band, "
        f"{seeds} seeds. LinUCB's best are always the same few. Arms drawn one after the other in proportion "
        "to merit stay at a distance even when merits are known. With several slots more is learnt from "
        "each decision than with one.",
        figure,
    )


def _rank_figure(outcomes: Outcomes, size: Size) -> Picture:
    figure, panels = figures.canvas(panels=2, width=8.6, height=3.7)
    for axes, (world, chosen), letter in zip(panels, WORLDS.items(), "ab", strict=True):
        _by_rank(axes, {policy: over_due(outcomes, size, world, policy) for policy in POLICIES})
        axes.set_title(f"({letter}) {chosen.label}")
    panels[0].set_ylabel("share of attention, over what is due")
    figures.legend_below(figure, panels[0])
    return Picture(
        "exp11-attention",
        "Exp 11, attention by rank of merit over what is due (dashed: 1 is fair), means over seeds. What is "
        f"below {FLOOR:g} is drawn there.",
        figure,
    )


def _by_rank(axes: Axes, shares: Mapping[str, Array]) -> None:
    arms = next(iter(shares.values())).shape[1]
    for i, (policy, values) in enumerate(shares.items()):
        label, colour, marker = POLICIES[policy]
        ranks = np.arange(1, arms + 1) + 0.16 * (i - 1.5)  # side by side: none hides another
        mean = np.maximum(values.mean(axis=0), FLOOR)
        axes.plot(ranks, mean, color=colour, marker=marker, ms=4, lw=0.8, label=label)
    figures.level(axes)
    figures.plain_log(axes.yaxis, [0.01, 0.03, 0.1, 0.3, 1, 3, 10])
    axes.set_ylim(0.8 * FLOOR, 1.3 * max(float(values.mean(axis=0).max()) for values in shares.values()))
    axes.set_xticks(range(1, arms + 1) if arms <= 10 else [1, *range(5, arms + 1, 5)])
    axes.set_xlabel("rank of the arm's true mean")


QUESTION = "Do sets and rankings give everybody the attention that merit deserves?"
EXPERIMENT = Experiment(
    "exp11",
    "Several at once",
    QUESTION,
    runs,
    score,
    plot,
    origin=OURS,
    words=glossary("expected merit"),
)
