"""People who differ beyond their features, and the truth about them.

`batches` are for a test of change: nothing changes but who comes, unless a change is asked for. `play` has an
agent decide about people, and `covered` and `judged` hold the exposure table's intervals and verdicts against
what the true expected rewards entitle to. Own records are told to an agent by the names of its decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

import fedfairx as ffx
from worlds import by_chance

PERSONAL, OFFERED = 2, 1  # features of a person, and of a person near an order
STEEPNESS = 10.0  # of the default merit
LEAST = 0.02  # success rates lie between it and 1 less it
TOLERANCE = 0.2


@dataclass
class People:
    """Expected rewards are level + contexts·effects + beyond, of numbers of the person and of the offer."""

    own: np.ndarray  # (K, PERSONAL)
    effects: np.ndarray  # (PERSONAL + OFFERED,)
    beyond: np.ndarray  # (K,) u
    level: float
    noise_sd: float | None  # None: rewards are 0 or 1

    @classmethod
    def likely(cls, rng: np.random.Generator, count: int, *, tau: float) -> People:
        """As an agent with every default assumes them: sizes lognormal around the first guesses, τ's that
        given, and 2σ₀²/σ² ~ χ² with two degrees of freedom."""
        prior = ffx.Prior.for_merit(ffx.merit.Exponential(STEEPNESS), intercept=True)
        sd, tau = np.array([prior.sd, tau]) * np.exp(rng.standard_normal(2))
        noise_sd = prior.noise_sd * np.sqrt(2.0 / rng.chisquare(2))
        effects = rng.normal(0.0, sd, PERSONAL + OFFERED)
        return cls(_own(rng, count), effects, rng.normal(0.0, tau, count), rng.normal(), noise_sd)

    @classmethod
    def of_a_city(cls, rng: np.random.Generator, count: int, *, tau: float) -> People:
        """Success rates around one half."""
        effects = rng.normal(0.0, 0.3, PERSONAL + OFFERED)
        return cls(_own(rng, count), effects, rng.normal(0.0, tau, count), 0.5, None)

    @property
    def names(self) -> list[str]:
        return [f"person-{k:03d}" for k in range(len(self.beyond))]

    def contexts(self, rng: np.random.Generator, near: np.ndarray) -> np.ndarray:
        """(n, d) in the unit ball."""
        offers = rng.uniform(-1.0, 1.0, (len(near), OFFERED))
        return np.hstack([self.own[near], offers]) / np.sqrt(PERSONAL + OFFERED)

    def means(self, near: np.ndarray, contexts: np.ndarray) -> np.ndarray:
        means = self.level + contexts @ self.effects + self.beyond[near]
        return means if self.noise_sd is not None else means.clip(LEAST, 1.0 - LEAST)

    def rewards(self, rng: np.random.Generator, means: np.ndarray) -> np.ndarray:
        if self.noise_sd is None:
            return np.asarray(rng.random(means.shape) < means, dtype=np.float64)
        return rng.normal(means, self.noise_sd)


def _own(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.uniform(-1.0, 1.0, (count, PERSONAL))


# --- for a test of change -----------------------------------------------------------------------------------


class Batch(NamedTuple):
    """Records with their names' numbers."""

    contexts: np.ndarray  # (n, d + 1), the last column is 1
    who: np.ndarray  # (n,)
    rewards: np.ndarray  # (n,)

    def with_columns(self, names: int) -> np.ndarray:
        """(n, d + 1 + K) with a column for each name: the dense model, in which the mix is no change."""
        return np.hstack([self.contexts, np.eye(names)[self.who]])


def batches(
    seed: int,
    *,
    count: int = 40,
    size: int = 100,
    names: int = 20,
    tau: float = 0.15,
    mix: bool = True,
    change: str | None = None,
) -> Iterator[Batch]:
    """Rewards 0 or 1. With `mix` the worse half makes nine of ten records at first, and the better half from
    the middle on: the mean rises, and so do rewards of the same features. `change`: from the middle on an
    "effect" turns round, or the best "person" is as bad as the others are good."""
    rng = np.random.default_rng([seed, 56])
    people = People.of_a_city(rng, names, tau=tau)
    better = people.beyond > np.median(people.beyond)
    for batch in range(count):
        late = 2 * batch >= count
        if 2 * batch == count and change == "effect":
            people.effects[int(np.argmax(np.abs(people.effects)))] *= -1.0
        if 2 * batch == count and change == "person":
            people.beyond[int(np.argmax(people.beyond))] = -0.4
        chances = np.where(better == late, 0.9, 0.1) if mix else np.ones(names)
        who = rng.choice(names, size, p=chances / chances.sum())
        contexts = people.contexts(rng, who)
        rewards = people.rewards(rng, people.means(who, contexts))
        yield Batch(ffx.features.intercept(contexts), who, rewards)


# --- for intervals and verdicts -----------------------------------------------------------------------------


@dataclass
class Played:
    """A log, and by name in how many decisions it was near, and its shares given, shown and truly due."""

    people: People
    log: list[ffx.Logged] = field(default_factory=list)
    sums: np.ndarray = field(default_factory=lambda: np.zeros((0, 4)))
    who: list[int] = field(default_factory=list)  # whose record each decision is

    def shares(self, name: str) -> np.ndarray:
        """(3,) given, shown and due, on average over decisions in which the name was near."""
        rounds, *sums = self.sums[self.people.names.index(name)]
        return np.array(sums) / rounds


def play(
    people: People,
    decisions: int,
    rng: np.random.Generator,
    *,
    near: int = 4,
    agent: ffx.Agent | None = None,
    told: bool = True,
) -> Played:
    """An agent of contexts, which is told names or not, decides and learns; without one shares are equal."""
    played, names = Played(people, sums=np.zeros((len(people.beyond), 4))), people.names
    for _ in range(decisions):
        here = rng.choice(len(names), near, replace=False)
        contexts, labels = people.contexts(rng, here), [names[k] for k in here]
        means = people.means(here, contexts)
        if agent is None:
            policy = np.full(near, 1.0 / near)
            action = by_chance(rng, policy)
        else:
            decision = agent.decide(contexts, names=labels if told else None)
            policy, action = np.array(decision.policy), decision.action
        reward = float(people.rewards(rng, means[action]))
        if agent is not None:
            agent.observe(decision, reward=reward)
        merit = np.exp(STEEPNESS * (means - means.max()))
        shown = np.arange(near) == action
        played.sums[here] += np.column_stack([np.ones(near), policy, shown, merit / merit.sum()])
        rows = ffx.features.intercept(contexts)  # as an agent of arrays has them
        played.log.append(ffx.Logged(policy, action, rows, labels, reward=reward))
        played.who.append(int(here[action]))
    return played


def covered(played: Played, table: ffx.Exposure) -> float:
    """The part of names whose due share is in its credible interval."""
    hits = []
    for row in table.actions:
        assert row.estimate is not None
        hits.append(row.estimate.low <= played.shares(row.name)[2] <= row.estimate.high)
    return float(np.mean(hits))


def judged(played: Played, table: ffx.Exposure) -> tuple[int, int]:
    """Likely verdicts about names, and how many of them are wrong."""
    verdicts, wrong = 0, 0
    for row in table.actions:
        assert row.likely is not None
        given, shown, due = played.shares(row.name)
        ratios = given / due, shown / due
        right = {
            "likely below": max(ratios) < 1 - TOLERANCE,
            "likely above": min(ratios) > 1 / (1 - TOLERANCE),
            "in line": min(ratios) >= 1 - TOLERANCE and max(ratios) <= 1 / (1 - TOLERANCE),
        }
        if row.likely.verdict in right:
            verdicts, wrong = verdicts + 1, wrong + (not right[row.likely.verdict])
    return verdicts, wrong
