"""Recorded offers: decisions in which the reward of every action is known, and live agents that make them.

Since every reward is known, regret needs no estimator. An agent sees only the reward of the action that it
drew. It decides all of a day's decisions before it learns their rewards, and agents share at the
end of a day.

What actions are due is the fair policy of a hindsight model: the linear model of each agent that fits all its
recorded rewards best, those of actions that it did not draw too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfairx import Federation, Options, Scenario, merit
from paper.experiment import Outcome, Run
from paper.scores import Array

POINTS = 100
RANGE = (0.0, 1.0)  # of rewards
CONTEXTS, ACTIONS, REWARDS = range(3)  # streams of random numbers

Integers = NDArray[np.int64]


def generator(seed: int, stream: int) -> np.random.Generator:
    """The random numbers of a seed's stream, as a simulation draws what it draws once."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream, 0)))


@dataclass(frozen=True, eq=False)
class Offers:
    """Decisions of several agents, day by day; a row is an action that is on offer in one of them.

    contexts: (n, d) what is known of an action before the decision.
    rewards: (n,) what it would give, in [0, 1].
    actions: (n,) which action it is, a place in `names`.
    first: (m + 1,) the first row of each decision, and n.
    agents, days: (m,) whose decision it is, and when; both are counted from 0.
    """

    contexts: Array
    rewards: Array
    arms: Integers
    first: Integers
    agents: Integers
    days: Integers
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, contexts: Array, rewards: Any, arms: Any, *, decisions: Any, agents: Any, days: Any
    ) -> Offers:
        """Offers from rows in any order, `decisions` their numbers; those of a single action are left out."""
        rewards, arms = np.asarray(rewards, dtype=float), np.asarray(arms, dtype=str)
        decisions, agents, days = (np.asarray(each, dtype=np.int64) for each in (decisions, agents, days))
        order = np.argsort(decisions, kind="stable")
        order = order[np.bincount(decisions)[decisions[order]] > 1]
        first = np.flatnonzero(np.diff(decisions[order], prepend=-1))
        names, places = np.unique(arms, return_inverse=True)
        rows = (np.ascontiguousarray(contexts[order]), rewards[order], places[order].astype(np.int64))
        ends = np.append(first, order.size).astype(np.int64)
        return cls(*rows, ends, agents[order][first], days[order][first], tuple(names.tolist()))

    def between(self, first: int, end: int) -> Offers:
        """The decisions of the days from `first` to before `end`, which become days from 0."""
        numbers = np.flatnonzero((self.days >= first) & (self.days < end))
        rows = np.concatenate([np.arange(self.first[i], self.first[i + 1]) for i in numbers])
        sizes = np.diff(self.first)[numbers]
        return Offers(
            self.contexts[rows],
            self.rewards[rows],
            self.arms[rows],
            np.append(0, sizes.cumsum()),
            self.agents[numbers],
            self.days[numbers] - first,
            self.names,
        )

    @property
    def decisions(self) -> Integers:
        """(n,) the decision of each row."""
        return np.repeat(np.arange(self.agents.size), np.diff(self.first))

    def total(self, values: Array) -> Array:
        """(m,) sums over the rows of each decision."""
        return np.asarray(np.add.reduceat(values, self.first[:-1]))

    def largest(self, values: Array) -> Array:
        """(m,) the largest value of the rows of each decision."""
        return np.asarray(np.maximum.reduceat(values, self.first[:-1]))


@dataclass(frozen=True, eq=False)
class OffersScenario(Scenario):
    """A world of recorded offers, of which every agent decides at most `each` per day, drawn by the seed."""

    offers: Offers = field(kw_only=True)
    each: int = field(kw_only=True, default=10)

    @classmethod
    def of(cls, offers: Offers, each: int) -> OffersScenario:
        """The scenario of these offers."""
        return cls(
            agents=int(offers.agents.max()) + 1,
            arms=int(np.diff(offers.first).max()),
            dimension=offers.contexts.shape[1],
            horizon=int(offers.days.max()) + 1,
            offers=offers,
            each=each,
        )


def hindsight(offers: Offers) -> Array:
    """(n,) the expected reward of each row under its agent's linear model, fitted to all of its rewards."""
    expected, owner = np.empty(offers.rewards.size), offers.agents[offers.decisions]
    for agent in np.unique(owner):
        rows = owner == agent
        x, y = offers.contexts[rows], offers.rewards[rows]
        expected[rows] = x @ (np.linalg.pinv(x.T @ x, rcond=1e-10, hermitian=True) @ (x.T @ y))
    return expected


def due(offers: Offers) -> Array:
    """(n,) the share of each row that is fair under the hindsight model, by the default merit."""
    expected, steepness = hindsight(offers), merit.Exponential.for_range(*RANGE).steepness
    worth = np.exp(steepness * (expected - offers.largest(expected)[offers.decisions]))
    return np.asarray(worth / offers.total(worth)[offers.decisions])


def asked(offers: Offers, each: int, seed: int) -> list[Integers]:
    """The decisions to make, by day: for every agent at most `each`, drawn at random in random order."""
    order = generator(seed, CONTEXTS).permutation(offers.agents.size)
    groups = offers.days[order] * (offers.agents.max() + 1) + offers.agents[order]
    order = order[np.argsort(groups, kind="stable")]
    groups = np.sort(groups)
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    place = np.arange(order.size) - np.repeat(starts, np.diff(starts, append=order.size))
    numbers = order[place < each]
    return [numbers[offers.days[numbers] == day] for day in range(int(offers.days.max()) + 1)]


def shares(federation: Federation, offers: Offers, by_day: Sequence[Integers]) -> Array:
    """(n,) the probability with which each row was drawn by live agents; NaN where they were not asked."""
    drawn = np.full(offers.rewards.size, np.nan)
    for numbers in by_day:
        for place, agent in enumerate(federation.agents):
            own = numbers[offers.agents[numbers] == place]
            rows = [slice(*pair) for pair in zip(offers.first[own], offers.first[own + 1], strict=True)]
            decisions = agent.decide_many([offers.contexts[each] for each in rows])
            for each, decision in zip(rows, decisions, strict=True):
                drawn[each] = decision.policy
            places = [each.start + decision.action for each, decision in zip(rows, decisions, strict=True)]
            agent.observe_many(decisions, offers.rewards[places].tolist())
        federation.end_round()
    return drawn


def play(run: Run, seeds: Sequence[int]) -> Outcome:
    """What live agents decide by the run's algorithm, or shares that are "equal" or what is "due".

    Fairness regret is against what actions are due, reward regret against the action of each decision that
    proved best.
    """
    # Contexts have an intercept of their own, which all rules then learn alike.
    given = {"algorithm": run.algorithm, "reward_range": RANGE, "intercept": False, **run.options}
    world = run.scenario
    sizes: Any = {name: getattr(world, name) for name in ("agents", "dimension", "horizon")}
    assert isinstance(world, OffersScenario)
    offers, fair = world.offers, due(world.offers)
    best, cells = offers.largest(offers.rewards), offers.agents * world.horizon + offers.days
    rounds = np.unique(np.linspace(1, world.horizon, min(POINTS, world.horizon)).round().astype(np.int64))
    fairness, reward, exposure, syncs = [], [], [], []

    def curves(values: Array, numbers: Integers) -> Array:
        """(agents, points) running sums over days."""
        daily = np.bincount(cells[numbers], values[numbers], minlength=world.agents * world.horizon)
        return np.asarray(daily.reshape(world.agents, -1).cumsum(axis=1)[:, rounds - 1])

    for seed in seeds:
        by_day = asked(offers, world.each, seed)
        numbers, exchanges = np.concatenate(by_day), 0
        if run.algorithm == "due":
            shown = fair
        elif run.algorithm == "equal":
            shown = 1.0 / np.diff(offers.first)[offers.decisions]
        else:
            federation = Federation(**sizes, options=Options(**given), seed=seed)
            shown = shares(federation, offers, by_day)
            exchanges = federation.syncs
        fairness.append(curves(offers.total(np.abs(shown - fair)), numbers))
        reward.append(curves(best - offers.total(shown * offers.rewards), numbers))
        rows = np.isin(offers.decisions, numbers)
        per_arm = np.bincount(offers.arms[rows], shown[rows], minlength=len(offers.names))
        exposure.append(per_arm / numbers.size)
        syncs.append(exchanges)
    by_agent = np.array(fairness)
    mean, rewards = by_agent.mean(axis=1), np.array(reward).mean(axis=1)
    return Outcome(
        np.array(seeds), rounds, mean, rewards, np.array(syncs), np.array(exposure), by_agent=by_agent
    )
