"""How often 95 % credible intervals of shares and of θ hold, and how far `evaluate`'s fairness regret is off.

Live agents with every default left alone decide and learn; expected rewards are linear. Coverage is the mean
over actions or features, and over worlds. In "assumed" worlds the sizes of θ and of noise, and the mean of
named actions, are drawn from what the agent assumes of them before the first reward; in "prior" worlds they
are its first guesses; in "population" worlds they are others. Noise is normal, or rewards are 0 or 1 if there
is a range. "As if known" are intervals under the posterior that decides, where learnt sizes count as known.

Fairness regret is compared with the true one of the same log, and "at the estimate" is the distance from the
shares that the agent gives after the whole log.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import fedfairx as ffx
from fedfairx.fairness.credible import Normal, coordinates
from measure import Report, main

SIZES = {50: 200, 200: 200, 1000: 80}  # worlds for each number of rewards
LOGS = {200: 40, 2_000: 20, 20_000: 6}  # the same, for fairness regret
FEW = 4  # worlds in a quick run
ARMS, FEATURES = 10, 5
NAMES = [f"action-{k}" for k in range(ARMS)]
STEEPNESS = 10.0  # of the default merit
LEAST = 0.02  # success rates lie between it and 1 less it
POPULATIONS = {True: 0.15, False: 0.5}  # sd of named actions' expected rewards, and of a coordinate of θ
KINDS = (("assumed", False), ("prior", False), ("population", False), ("population", True))
Numbers = dict[str, list[float]]


class World(NamedTuple):
    """An agent, contexts (n, K, d) or None for named actions, θ, and rewards of expected ones."""

    agent: ffx.Agent
    contexts: np.ndarray | None
    theta: np.ndarray
    reward: Callable[[float], float]

    def means(self, t: int) -> np.ndarray:
        """Expected rewards of the t-th decision's actions."""
        return self.theta if self.contexts is None else np.asarray(self.contexts[t] @ self.theta)


def world(rng: np.random.Generator, n: int, *, named: bool, kind: str, ranged: bool) -> World:
    options: Any = {"reward_range": (0.0, 1.0)} if ranged else {}
    arms: Any = {"actions": NAMES} if named else {"dimension": FEATURES}
    agent = ffx.Agent(**arms, seed=0, **options)
    contexts = None if named else rng.random((n, ARMS, FEATURES)) / np.sqrt(FEATURES)
    prior, size = agent.prior, ARMS if named else FEATURES
    mean, sd, noise = prior.mean, prior.sd, prior.noise_sd
    if kind == "population":
        mean, sd, noise = 0.5 if named else 0.0, POPULATIONS[named], 0.3
    if kind == "assumed":
        mean = rng.normal(mean, np.hypot(sd, noise)) if named else 0.0
        sd, noise = sd * np.exp(rng.standard_normal()), noise * np.sqrt(2.0 / rng.chisquare(2))
    theta = rng.normal(mean, sd, size)
    if not ranged:
        return World(agent, contexts, theta, lambda mean: float(rng.normal(mean, noise)))
    if contexts is None:
        theta = theta.clip(LEAST, 1.0 - LEAST)
    else:
        theta = np.abs(theta)
        theta /= max(1.0, float((contexts @ theta).max()) / (1.0 - LEAST))
    return World(agent, contexts, theta, lambda mean: float(rng.random() < mean))


def due(means: np.ndarray) -> np.ndarray:
    """The shares (K,) that these means entitle to."""
    merit = np.exp(STEEPNESS * (means - means.max()))
    return np.asarray(merit / merit.sum())


def play(this: World, n: int) -> list[ffx.Logged]:
    """The log of n decisions and rewards."""
    agent, log = this.agent, []
    for t in range(n):
        contexts = None if this.contexts is None else this.contexts[t]
        decision = agent.decide(contexts)
        reward = this.reward(float(this.means(t)[decision.action]))
        agent.observe(decision, reward=reward)
        rows: Any = np.arange(ARMS) if contexts is None else contexts
        log.append(ffx.Logged(decision.policy, decision.action, rows, NAMES, reward=reward))
    return log


def covered(this: World, n: int) -> Iterator[tuple[str, float]]:
    """The parts of shares and of coordinates of θ that are in their intervals."""
    log, agent = play(this, n), this.agent
    truth = np.mean([due(this.means(t)) for t in range(n)], axis=0)
    known = Normal(agent.estimate, agent.covariance, agent.options.reward_range)
    for belief, text in ((agent.posterior, ""), (known, ", as if known")):
        table = ffx.exposure(log, merit=agent.merit, posterior=belief)
        hits = [
            row.estimate is not None and row.estimate.low <= share <= row.estimate.high
            for row, share in zip(table.actions, truth, strict=True)
        ]
        yield f"shares{text}", float(np.mean(hits))
        low, high = coordinates(belief, rewards=this.contexts is None)
        yield f"θ{text}", float(np.mean((low <= this.theta) & (this.theta <= high)))


def regrets(this: World, n: int) -> Iterator[tuple[str, float]]:
    """The log's true fairness regret, its estimates, and whether the interval holds."""
    log, agent = play(this, n), this.agent
    policies = np.array([decision.policy for decision in log])
    final = [agent.policy(None if this.contexts is None else this.contexts[t]) for t in range(n)]
    found = ffx.evaluate(log, [], reward_range=(0.0, 1.0))["the log"].fairness_regret
    truth = float(np.mean([np.abs(policies[t] - due(this.means(t))).sum() for t in range(n)]))
    yield "true", truth
    yield "estimated", found.value
    yield "at the estimate", float(np.abs(policies - np.array(final)).sum(axis=1).mean())
    yield "interval holds", float(found.low <= truth <= found.high)


def over_worlds(
    count: int, measure: Callable[[World, int], Iterator[tuple[str, float]]], n: int, **kind: Any
) -> Numbers:
    """What is measured in each of these worlds, by name."""
    found: Numbers = {}
    for seed in range(count):
        rng = np.random.default_rng([n, seed, *kind["kind"].encode(), kind["named"], kind["ranged"]])
        for key, value in measure(world(rng, n, **kind), n):
            found.setdefault(key, []).append(value)
    return found


def run(report: Report) -> None:
    warnings.simplefilter("ignore", ffx.errors.ScaleWarning)  # some assumed worlds have large rewards
    for n, count in SIZES.items():
        count = FEW if report.quick else count
        report.heading(f"Coverage after {n} rewards, {count} worlds each")
        for named in (True, False):
            for kind, ranged in KINDS:
                found = over_worlds(count, covered, n, named=named, kind=kind, ranged=ranged)
                text = f"{'named' if named else 'rows'}, {kind}{', range' if ranged else ''}"
                for key, values in found.items():
                    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(count))
                    report.add(f"{text}: {key}", mean, "", low=mean - 2 * error, high=mean + 2 * error)
    report.heading("Fairness regret of a log over the true one, rewards 0 or 1, range given")
    for n, count in LOGS.items():
        count = FEW if report.quick else count
        for named in (True, False):
            found = over_worlds(count, regrets, n, named=named, kind="population", ranged=True)
            text = f"{'named' if named else 'rows'}, {n} decisions, {count} worlds"
            truth = np.array(found["true"])
            report.add(f"{text}: true", float(truth.mean()), "")
            for key in ("estimated", "at the estimate"):
                ratio = float(np.mean(found[key]) / truth.mean())
                error = float(np.std(found[key] - ratio * truth, ddof=1) / np.sqrt(count) / truth.mean())
                report.add(f"{text}: {key}", ratio, "×", low=ratio - 2 * error, high=ratio + 2 * error)
            report.add(f"{text}: intervals that hold", float(np.mean(found["interval holds"])), "")


if __name__ == "__main__":
    main("coverage", run, __doc__)
