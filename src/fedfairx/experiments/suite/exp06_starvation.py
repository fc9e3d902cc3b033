"""Exp 6: starvation. Of actions that stay, who is shown how often?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedfairx.agent.algorithms import Algorithm, algorithm
from fedfairx.agent.schedules import Paper
from fedfairx.core.merit import Exponential
from fedfairx.experiments.contents import (
    Bar,
    Contents,
    Estimated,
    Grid,
    Hypothesis,
    Measure,
    mean,
    regret,
    seeds_of,
    words,
)
from fedfairx.experiments.experiment import OURS, Experiment, Picture, Run, Size, glossary
from fedfairx.experiments.outcomes import Outcomes
from fedfairx.experiments.report import figures
from fedfairx.experiments.scores import number
from fedfairx.experiments.suite.exp09_worlds import (
    MERIT,
    PAPER,
    PERSISTENT,
    RULES,
    WORLDS,
    algorithm_of,
    least_seeds,
)
from fedfairx.util.arrays import Array
from fedfairx.util.figure_style import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HOWS = {"alone": "alone", "fed": "together"}
# Label, colour and marker of each policy.
POLICIES = {
    "linucb": ("LinUCB", COLOURS["linucb"], "v"),
    "minimum-share": ("minimum share", COLOURS["minimum-share"], "D"),
    PAPER: ("paper's rule", RULES[PAPER].colour, "s"),
    MERIT: ("expected merit", RULES[MERIT].colour, "o"),
}
STARVED, SERVED = 0.5, 0.9
FLOOR = 0.004  # of the figure: what is below is drawn there
WORLD = WORLDS[PERSISTENT]


def policy(name: str, how: str) -> Algorithm:
    """Winner takes all and the minimum share learn together as the paper's rule does."""
    if name in RULES:
        return algorithm_of(name, how)
    alone = algorithm(name)
    return alone if how == "alone" else replace(alone, name=f"{how}-{name}", schedule=Paper())


def runs(size: Size) -> tuple[Run, ...]:
    """Every policy, alone and together, with exposure measured."""
    return tuple(
        Run(
            f"{name}, {how}",
            WORLD.scenario(size, how),
            policy(name, how),
            WORLD.options(name if name in RULES else PAPER, size),
            least_seeds(size),
        )
        for name in POLICIES
        for how in HOWS
    )


def fair_shares(size: Size, seeds: Iterable[int]) -> Array:
    """(seeds, K): the share of each rank under the fair policy of the true θ*, the best first."""
    world = WORLD.scenario(size, "alone")
    shares = []
    for seed in seeds:
        means = np.sort(world.features(seed) @ world.parameter(seed))[::-1]
        merit = np.exp(Exponential().steepness * (means - means[0]))
        shares.append(merit / merit.sum())
    return np.array(shares)


def over_fair(outcomes: Outcomes, size: Size, name: str, how: str) -> Array:
    """(seeds, K): each rank's share over its fair share."""
    outcome = outcomes[f"{name}, {how}"]
    return np.asarray(outcome.exposure / fair_shares(size, outcome.seeds.tolist()))


def contents(size: Size) -> Contents:
    """The last action's share against its fair share."""

    def last(name: str, how: str) -> Callable[[Outcomes], Array]:
        return lambda outcomes: over_fair(outcomes, size, name, how)[:, -1]

    def worst(name: str, how: str) -> Measure:
        return lambda outcomes: f"{last(name, how)(outcomes).min():.3f}"

    def share(name: str, how: str, rank: int) -> Measure:
        return mean(lambda outcomes: outcomes[f"{name}, {how}"].exposure[:, rank])

    def fair(rank: int) -> Measure:
        seeds = f"{MERIT}, alone"
        return lambda outcomes: number(
            float(fair_shares(size, outcomes[seeds].seeds.tolist())[:, rank].mean())
        )

    def by_how(name: str) -> dict[str, Estimated]:
        return {f"{name}_{how}": mean(last(name, how)) for how in HOWS}

    world = WORLD.scenario(size, "fed")
    return Contents(
        claims=(
            Hypothesis(
                "winner-takes-all starves actions, fair exposure does not (ours, not the paper's)",
                f"of actions that stay, the last gets below {STARVED:g} of its fair share from LinUCB, and "
                f"above {SERVED:g} of it from expected merit, alone and together",
                (Bar(by_how("linucb"), high=STARVED), Bar(by_how(MERIT), low=SERVED)),
                words(
                    "alone and together: LinUCB {linucb_alone.value:.2f} and {linucb_fed.value:.2f}, the "
                    "paper's rule {paper_alone.value:.2f} and {paper_fed.value:.2f}, expected merit "
                    "{merit_alone.value:.2f} and {merit_fed.value:.2f} of the fair share",
                    **by_how("linucb"),
                    **by_how(PAPER),
                    **by_how(MERIT),
                ),
            ),
        ),
        tables=(
            Grid(
                words(
                    f"Exposure of {world.arms} actions that stay, by rank of merit; one agent alone or "
                    f"{world.agents} together, T = {number(world.horizon)}, {{seeds}} seeds",
                    seeds=seeds_of(f"{MERIT}, alone"),
                ),
                (
                    "policy",
                    "agents learn",
                    "share of the best action",
                    "share of the last action",
                    "last action, over its fair share",
                    "the same in the worst seed",
                    "fairness regret at T",
                ),
                [
                    (
                        POLICIES[name][0],
                        HOWS[how],
                        share(name, how, 0),
                        share(name, how, -1),
                        mean(last(name, how)),
                        worst(name, how),
                        regret(f"{name}, {how}"),
                    )
                    for name in POLICIES
                    for how in HOWS
                ],
                words("Fair shares: best {}, last {}.", fair(0), fair(-1)),
            ),
        ),
    )


def plot(outcomes: Outcomes, size: Size) -> Iterator[Picture]:
    """Share over fair share by rank, alone and together; fairness regret."""
    figure, panels = figures.canvas(panels=3, width=10.4, height=3.7)
    for axes, how, letter in zip(panels, HOWS, "ab", strict=False):
        _by_rank(axes, {name: over_fair(outcomes, size, name, how) for name in POLICIES})
        axes.set_title(f"({letter}) who is shown, agents learn {HOWS[how]}")
    panels[0].set_ylabel("share of exposure, over the fair share")
    _regret(panels[2], outcomes)
    panels[2].set_title("(c) what it costs; open: together")
    figures.legend_below(figure, panels[0])
    yield Picture(
        "exp6-starvation",
        "Exp 6, exposure by rank of merit over the fair share (dashed: 1 is fair), of ten actions that stay. "
        "LinUCB gives all to the action with the largest upper bound; the minimum-share policy adds a floor "
        "of 0.02 for each action (after Patil et al. 2020), whatever its merit. What is below "
        f"{FLOOR:g} is drawn there.",
        figure,
    )


def _by_rank(axes: Axes, shares: dict[str, Array]) -> None:
    for i, (name, values) in enumerate(shares.items()):
        label, colour, marker = POLICIES[name]
        ranks = np.arange(1, values.shape[1] + 1) + 0.16 * (i - 1.5)  # side by side: none hides another
        mean = values.mean(axis=0)
        axes.plot(ranks, np.maximum(mean, FLOOR), color=colour, marker=marker, ms=4, lw=0.8, label=label)
    figures.level(axes)
    figures.plain_log(axes.yaxis, [0.01, 0.03, 0.1, 0.3, 1, 3, 10])
    axes.set_ylim(0.8 * FLOOR, 1.3 * max(float(values.mean(axis=0).max()) for values in shares.values()))
    axes.set_xticks(range(1, values.shape[1] + 1))
    axes.set_xlabel("rank of the action's true mean")


def _regret(axes: Axes, outcomes: Outcomes) -> None:
    finals = {(name, how): outcomes[f"{name}, {how}"].final() for name in POLICIES for how in HOWS}
    for (name, how), values in finals.items():
        place = len(POLICIES) - 1 - list(POLICIES).index(name) + (0.12 if how == "alone" else -0.12)
        _, colour, marker = POLICIES[name]
        figures.draw_mark(
            axes, place, values, colour, filled=how == "alone", across=True, marker=marker, ms=6, capsize=3
        )
    axes.set_yticks(range(len(POLICIES)), [label for label, _, _ in reversed(POLICIES.values())])
    means = [float(values.mean()) for values in finals.values()]
    figures.log_ticks(axes.xaxis, (0.5 * min(means), 1.5 * max(means)))
    axes.set_ylim(-0.5, len(POLICIES) - 0.5)
    axes.set_xlabel("fairness regret at T")


QUESTION = (
    "Of actions that stay, who is starved of exposure by winner-takes-all and by optimism, and does a "
    "minimum share mend it?"
)
EXPERIMENT = Experiment(
    "exp6", "Starvation", QUESTION, runs, contents, plot, OURS, glossary("the paper's rule", "expected merit")
)
