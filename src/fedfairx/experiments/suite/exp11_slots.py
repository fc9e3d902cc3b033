"""Exp 11: several at once. Do sets and rankings give everybody the attention that merit deserves?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfairx.core.slates import ONE
from fedfairx.experiments import world as env
from fedfairx.experiments.contents import (
    Bar,
    Contents,
    Grid,
    Hypothesis,
    Measure,
    below,
    mean,
    over,
    regret,
    seeds_of,
    words,
)
from fedfairx.experiments.experiment import OURS, Experiment, Picture, Run, Size, glossary
from fedfairx.experiments.outcomes import METRICS, Outcomes
from fedfairx.experiments.report import figures
from fedfairx.experiments.scores import number
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
class SlotWorld:
    """Arms that stay, and the slots that they are shown in."""

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


def runs(size: Size) -> tuple[Run, ...]:
    """Every policy in both worlds, played by live agents."""
    least = SEEDS if size.full else 0
    all_runs = []
    for name, world in WORLDS.items():
        for policy in POLICIES:
            options: dict[str, Any] = {"slots": slots_of(name, policy)}
            play = one_after_the_other if policy == ORDERED else decided
            algorithm = "fairx-bayes"
            if policy == BEST:
                algorithm, options = "linucb", env.options(**options)
            # Half of the seeds decide what this is for, and its integrals are most of the work.
            seeds = least // 2 if policy == ORDERED else least
            all_runs.append(Run(key(name, policy), world.scenario(size), algorithm, options, seeds, play))
    return tuple(all_runs)


def over_due(outcomes: Outcomes, size: Size, world: str, policy: str) -> Array:
    """(seeds, K): each rank's share of attention over what it is due."""
    outcome, weights = outcomes[key(world, policy)], np.array(slots_of(world, policy))
    due = ranked_due(WORLDS[world].scenario(size), weights, outcome.seeds.tolist())
    return np.asarray(outcome.exposure / due)


def weakest(world: str, policy: str, size: Size) -> Callable[[Outcomes], Array]:
    """(seeds,) what the weakest action gets over what it is due."""
    return lambda outcomes: over_due(outcomes, size, world, policy)[:, -1]


#: Other policy → statement, and the limit of expected merit's fairness regret over the other's.
STATEMENTS = {
    BEST: (
        "of several slots, expected merit leaves a quarter of the fairness regret of showing the best",
        QUARTER,
    ),
    ORDERED: ("and less than drawing actions one after the other in proportion to merit", 1.0),
    SINGLE: ("and less, per unit of attention, than with one slot: more is learnt from a decision", 1.0),
}


def contents(size: Size) -> Contents:
    """Regret against the other policies, and what the weakest gets."""
    got = {(world, policy): mean(weakest(world, policy, size)) for policy in POLICIES for world in WORLDS}
    in_words = ", ".join(f"{label} {{.value:.2f}} and {{.value:.2f}}" for label, _, _ in POLICIES.values())
    return Contents(
        claims=(
            *(
                below(
                    f"{statement} (ours, not the paper's)",
                    f"expected merit's fairness regret over that of “{POLICIES[other][0]}”",
                    limit,
                    {chosen.label: over(key(w, MERIT), key(w, other)) for w, chosen in WORLDS.items()},
                    note=" in both worlds",
                )
                for other, (statement, limit) in STATEMENTS.items()
            ),
            Hypothesis(
                "the best in order starve the weakest, expected merit does not (ours, not the paper's)",
                f"of the attention that it is due, the weakest action gets below {STARVED:g} from LinUCB's "
                f"best in order, and above {SERVED:g} from expected merit, in both worlds",
                (
                    Bar({world: got[world, BEST] for world in WORLDS}, high=STARVED),
                    Bar({world: got[world, MERIT] for world in WORLDS}, low=SERVED),
                ),
                words(f"ranked slots and sets: {in_words} of what is due", *got.values()),
            ),
        ),
        tables=tuple(_grid(world, size) for world in WORLDS),
        notes=(
            "Regret is per unit of attention, so that policies with other slots compare: distances from the "
            "attention that is due, and rewards, are divided by the sum of the slots' weights. The expected "
            "attention of actions that are drawn one after the other is integrated numerically, to 10⁻⁶.",
        ),
    )


def _grid(world: str, size: Size) -> Grid:
    chosen, usual = WORLDS[world], key(world, MERIT)

    def worst(policy: str) -> Measure:
        return lambda outcomes: f"{weakest(world, policy, size)(outcomes).min():.2f}"

    def due(rank: int) -> Measure:
        def measure(outcomes: Outcomes) -> str:
            seeds, slots = outcomes[usual].seeds.tolist(), np.array(chosen.slots)
            return number(float(ranked_due(chosen.scenario(size), slots, seeds)[:, rank].mean()))

        return measure

    return Grid(
        words(
            f"{chosen.label}, T = {number(chosen.scenario(size).horizon)}, {{}} seeds "
            "(one after the other: {})",
            seeds_of(usual),
            seeds_of(key(world, ORDERED)),
        ),
        (
            "policy",
            "fairness regret at T",
            "reward regret at T",
            "weakest action, over its due",
            "the same in the worst seed",
        ),
        [
            (
                label,
                *(regret(key(world, policy), metric) for metric in METRICS),
                mean(weakest(world, policy, size)),
                worst(policy),
            )
            for policy, (label, _, _) in POLICIES.items()
        ],
        words("Of all attention the best action is due {}, the weakest {}.", due(0), due(-1)),
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
        f"{seeds} seeds. LinUCB's best are always the same few. Actions drawn one after the other in "
        "proportion to merit stay at a distance even when merits are known. With several slots more is "
        "learnt from each decision than with one.",
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
    axes.set_xlabel("rank of the action's true mean")


QUESTION = "Do sets and rankings give everybody the attention that merit deserves?"
EXPERIMENT = Experiment(
    "exp11", "Several at once", QUESTION, runs, contents, plot, OURS, glossary("expected merit")
)
