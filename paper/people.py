"""People who differ beyond their features, in Exp 9: what an own record beside features gains and costs.

An action is a courier near an order. What an order given to a courier earns, 0 or 1, depends on five numbers,
three of the courier and two of the way to the order, and on the courier in a way that is in no number. Live
agents with every default get numbers and names; features alone have `own_record=False`.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

import fedfairx as ffx
from fedfairx import Scenario
from fedfairx.evaluation import Estimate
from paper import figures
from paper.experiment import Outcome, Picture, Results, Run, Size
from paper.offers import CONTEXTS, REWARDS, generator
from paper.scores import Claim, Table, below, number

SEEDS, ORDERS, POINTS = 20, 1_500, 30
PERSONAL, OFFERED, NEAR, PEOPLE = 3, 2, 8, 30
EFFECT = 0.3  # sd of what the numbers say, in parts of the range of rewards
LEAST = 0.02  # of a chance, and of its complement
EVERY, DELAY = 60, 200  # orders until one more courier comes, and until a reward does
OWN, FEATURES = "own record and features", "features alone"
COLOURS = {0.0: "#0072B2", 0.05: "#E69F00", 0.1: "#D55E00"}  # of τ, how far people differ
WHEN = {0: "at once", DELAY: f"{DELAY} orders late, and newcomers"}
#: The most that regret may be, over that of features alone, by τ: rewards at once, and late with newcomers.
LIMITS = {0.0: (1.08, 1.05), 0.05: (1.03, 1.03), 0.1: (0.87, 0.95)}


@dataclass(frozen=True)
class PeopleScenario(Scenario):
    """Couriers who differ by `differ` (sd) beyond their numbers, and rewards that come `late` orders late."""

    differ: float = field(kw_only=True, default=0.0)
    late: int = field(kw_only=True, default=0)


def key(differ: float, late: int, how: str) -> str:
    """The name of a run."""
    return f"people, τ = {differ:g}, {late} late: {how}"


def runs(size: Size) -> Iterator[Run]:
    """One agent alone, with own records and without."""
    orders, least = min(size.horizon, ORDERS), SEEDS if size.full else 0
    for differ, late, how in product(LIMITS, WHEN, (OWN, FEATURES)):
        world = PeopleScenario(
            agents=1, arms=NEAR, dimension=PERSONAL + OFFERED, horizon=orders, differ=differ, late=late
        )
        yield Run(key(differ, late, how), world, "fairx-bayes", {"own_record": how == OWN}, least, play)


def play(run: Run, seeds: Sequence[int]) -> Outcome:
    """Fairness regret against shares by true chances, and reward regret against the best of the couriers."""
    regrets = np.array([regret(run, seed) for seed in seeds])
    world = run.scenario
    points = np.unique(np.linspace(1, world.horizon, min(POINTS, world.horizon)).round().astype(np.int64))
    fairness, reward = regrets.cumsum(axis=2)[:, :, points - 1].transpose(1, 0, 2)
    return Outcome(np.array(seeds), points, fairness, reward)


def regret(run: Run, seed: int) -> np.ndarray:
    """(2, orders) fairness and reward regret of each order."""
    world = run.scenario
    assert isinstance(world, PeopleScenario)
    rng, luck = generator(seed, CONTEXTS), generator(seed, REWARDS)
    count = PEOPLE + (world.horizon // EVERY if world.late else 0)
    numbers = rng.normal(size=(count, PERSONAL))
    beyond = world.differ * rng.normal(size=count)
    effects = rng.normal(size=world.dimension) * EFFECT / np.sqrt(world.dimension)
    agent = ffx.Agent(world.dimension, algorithm=run.algorithm, seed=seed, **run.options)
    steepness = ffx.merit.Exponential.for_range(0.0, 1.0).steepness
    waiting: deque[tuple[ffx.Decision, float]] = deque()
    missed = []
    for t in range(world.horizon):
        there = PEOPLE + (t // EVERY if world.late else 0)
        near = rng.choice(there, NEAR, replace=False)
        contexts = np.column_stack([numbers[near], rng.normal(size=(NEAR, OFFERED))])
        chances = (0.5 + contexts @ effects + beyond[near]).clip(LEAST, 1.0 - LEAST)
        decision = agent.decide(contexts, names=[f"courier {each}" for each in near])
        worth = np.exp(steepness * (chances - chances.max()))
        missed.append(
            (
                np.abs(decision.policy - worth / worth.sum()).sum(),
                chances.max() - decision.policy @ chances,
            )
        )
        waiting.append((decision, float(luck.random() < chances[decision.action])))
        if len(waiting) > world.late:
            done, reward = waiting.popleft()
            agent.observe(done, reward=reward)
    return np.array(missed).T


def over(r: Results, differ: float, late: int) -> Estimate:
    """Regret with own records over that of features alone."""
    return r.over(key(differ, late, OWN), key(differ, late, FEATURES))


def claims(r: Results) -> Iterator[Claim]:
    """Own records gain where people differ, and cost little where they don't."""
    for statement, taus in (
        ("where people differ beyond their features, own records gain", (0.1,)),
        ("where they differ a little, own records don't cost", (0.05,)),
        ("where they don't differ, own records cost little", (0.0,)),
    ):
        for place, late in enumerate(WHEN):
            each = {f"τ = {tau:g}": over(r, tau, late) for tau in taus}
            limit = LIMITS[taus[0]][place]
            yield below(
                f"{statement}, rewards {WHEN[late]}", "regret over that of features alone", each, limit
            )


def table(r: Results) -> Table:
    """Regret by how far people differ."""
    usual = key(0.0, 0, OWN)
    return Table(
        f"People who differ by τ beyond their features: fairness regret [95 % interval] after "
        f"{number(r[usual].rounds[-1])} orders, one agent alone, {r.seeds(usual)} seeds",
        ("τ", "rewards", OWN, FEATURES, "ratio"),
        [
            (
                f"{tau:g}",
                WHEN[late],
                *(r.regret(key(tau, late, how)) for how in (OWN, FEATURES)),
                over(r, tau, late),
            )
            for tau, late in product(LIMITS, WHEN)
        ],
        f"{PEOPLE} couriers, {NEAR} near each order, rewards 0 or 1, every default; one more courier comes "
        f"every {EVERY} orders where rewards are late. τ is in parts of the range of rewards.",
    )


def picture(r: Results) -> Picture:
    """Regret so far over that of features alone, by how far people differ."""
    figure, panels = figures.canvas(panels=2, width=7.8, height=3.4)
    for axes, late, letter in zip(panels, WHEN, "ab", strict=True):
        for tau, colour in COLOURS.items():
            own, plain = r[key(tau, late, OWN)], r[key(tau, late, FEATURES)]
            values = own.fairness_regret / plain.fairness_regret
            name = f"people differ by τ = {tau:g}"
            figures.draw_curve(axes, own.rounds, values, name, colour, label=name)
        figures.level(axes)
        figures.round_axis(axes)
        axes.set(title=f"({letter}) {'late, with newcomers' if late else 'at once'}", xlabel="order")
    panels[0].set_ylabel("fairness regret so far,\nover features alone")
    figures.legend_below(figure, panels[0])
    run = r[key(0.0, 0, OWN)]
    return Picture(
        "exp9-people",
        f"Exp 9, people who differ by τ (sd) beyond their features: fairness regret so far with own records, "
        f"over that of the same agents with features alone, in {number(run.rounds[-1])} orders; means over "
        f"{run.seeds.size} paired seeds with 95 % bands. Below 1 (dashed) own records are better.",
        figure,
    )
