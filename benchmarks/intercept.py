"""Rewards that are not around 0: the regret of live agents of arrays, every default.

It is compared with that of a ridge regression with an intercept and the same merit, and of the same agent
where rewards go through 0. Rewards are around 0.5, around 50, and in (-70, -3), with the range given; without
noise, with normal noise, and of two values. Private federations, plain and secure, are compared with the same
agents alone and, with FEDFAIRX_BEFORE=PATH (the `src` folder of another checkout), where rewards go through
0, with that version.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from measure import Report, main, play_in

SEEDS, FEW = 20, 2  # at full size and in a quick run
ARMS, DIMENSION, ROUNDS = 6, 5, 1_500
SLOPE, NOISE, STEEPNESS = 0.6, 0.2, 10.0  # in halves of the range; of the default merit over a whole range
AGENTS, SHARED_ROUNDS, EPSILON = 5, 3_000, 2.0
NOISES = ("none", "normal", "two values")
Result = dict[str, list[float]]


class World(NamedTuple):
    """The middle of rewards, half of their range, and the range that an agent is given, if any."""

    middle: float
    half: float
    range: tuple[float, float] | None


WORLDS = {
    "around 0.5": World(0.5, 0.5, None),
    "around 50": World(50.0, 0.5, None),
    "in (-70, -3)": World(-36.5, 33.5, (-70.0, -3.0)),
}


class Luck:
    """Contexts in the unit ball, θ of norm 1, and what chance adds to rewards, all in halves of the range."""

    def __init__(self, seed: int, rounds: int, agents: int = 1) -> None:
        rng = np.random.default_rng([seed, 55])
        theta = rng.standard_normal(DIMENSION)
        self.theta = theta / np.linalg.norm(theta)
        contexts = rng.standard_normal((rounds, agents, ARMS, DIMENSION))
        self.contexts = contexts / np.maximum(np.linalg.norm(contexts, axis=-1, keepdims=True), 1.0)
        self.normals, self.uniforms = rng.standard_normal((rounds, agents)), rng.random((rounds, agents))

    def means(self, t: int, agent: int = 0) -> np.ndarray:
        return SLOPE * self.contexts[t, agent] @ self.theta

    def reward(self, noise: str, t: int, mean: float, agent: int = 0) -> float:
        if noise == "two values":
            return 1.0 if self.uniforms[t, agent] < 0.5 * (1.0 + mean) else -1.0
        return float(
            np.clip(mean + (NOISE * self.normals[t, agent] if noise == "normal" else 0.0), -1.0, 1.0)
        )


def fair(means: np.ndarray) -> np.ndarray:
    """The shares that these means, in halves of the range, entitle to."""
    merit = np.exp(0.5 * STEEPNESS * (means - means.max()))
    return np.asarray(merit / merit.sum())


class Ridge:
    """Ridge regression, λ = 1, with an intercept that is not penalised, and a softmax."""

    def __init__(self) -> None:
        self.gram, self.moment = np.diag([1.0] * DIMENSION + [1e-9]), np.zeros(DIMENSION + 1)

    def policy(self, contexts: np.ndarray) -> np.ndarray:
        return fair(
            np.column_stack([contexts, np.ones(len(contexts))]) @ np.linalg.solve(self.gram, self.moment)
        )

    def learn(self, context: np.ndarray, reward: float) -> None:
        row = np.append(context, 1.0)
        self.gram += np.outer(row, row)
        self.moment += reward * row


def regret_of_ridge(noise: str, seed: int) -> float:
    luck, ridge, regret = Luck(seed, ROUNDS), Ridge(), 0.0
    rng = np.random.default_rng([seed, 56])
    for t in range(ROUNDS):
        means, policy = luck.means(t), ridge.policy(luck.contexts[t, 0])
        action = rng.choice(ARMS, p=policy)
        regret += float(np.abs(policy - fair(means)).sum())
        ridge.learn(luck.contexts[t, 0, action], luck.reward(noise, t, means[action]))
    return regret


def regret_of_agent(world: World, noise: str, seed: int) -> float:
    import fedfairx as ffx

    luck, regret = Luck(seed, ROUNDS), 0.0
    agent = ffx.Agent(DIMENSION, seed=seed, **_range(world))
    for t in range(ROUNDS):
        means, decision = luck.means(t), agent.decide(luck.contexts[t, 0])
        regret += float(np.abs(decision.policy - fair(means)).sum())
        agent.observe(
            decision, reward=world.middle + world.half * luck.reward(noise, t, means[decision.action])
        )
    return regret


def _range(world: World) -> dict[str, Any]:
    return {} if world.range is None else {"reward_range": world.range}


def shifted(world: World) -> World:
    """The same rewards, moved so that their middle is 0."""
    ends = None if world.range is None else (-world.half, world.half)
    return World(0.0, world.half, ends)


def regret_of_federation(middle: float, kind: str, seed: int) -> float:
    """Mean over agents, of "alone", "plain" or "secure"."""
    import fedfairx as ffx

    options: dict[str, Any] = {"algorithm": "fairx-bayes"}
    if kind != "alone":
        options = {"algorithm": "priv-fairx-bayes", "epsilon": EPSILON, "aggregation": kind}
    fed = ffx.Federation(agents=AGENTS, dimension=DIMENSION, horizon=SHARED_ROUNDS, seed=seed, **options)
    luck, regret = Luck(seed, SHARED_ROUNDS, AGENTS), 0.0
    for t in range(SHARED_ROUNDS):
        for i, agent in enumerate(fed.agents):
            means, decision = luck.means(t, i), agent.decide(luck.contexts[t, i])
            regret += float(np.abs(decision.policy - fair(means)).sum())
            agent.observe(decision, reward=middle + 0.5 * luck.reward("normal", t, means[decision.action], i))
        fed.end_round()
    return regret / AGENTS


def all_regrets(seed: int) -> Iterator[tuple[str, float]]:
    """Every figure by name."""
    for noise in NOISES:
        yield f"ridge, {noise}", regret_of_ridge(noise, seed)
        for name, world in WORLDS.items():
            yield f"{name}, {noise}", regret_of_agent(world, noise, seed)
            yield f"{name} less it, {noise}", regret_of_agent(shifted(world), noise, seed)
    for kind in ("alone", "plain", "secure"):
        yield f"{kind} around 0.5", regret_of_federation(0.5, kind, seed)
        yield f"{kind} around 0", regret_of_federation(0.0, kind, seed)


def play(seeds: int) -> Result:
    """The figures over seeds."""
    result: Result = {}
    for seed in range(seeds):
        for name, regret in all_regrets(seed):
            result.setdefault(name, []).append(regret)
    return result


def run(report: Report) -> None:
    seeds, before = FEW if report.quick else SEEDS, os.environ.get("FEDFAIRX_BEFORE")
    now = play(seeds)

    def compare(title: str, mine: list[float], theirs: list[float], at_most: float) -> None:
        one, two = np.array(mine), np.array(theirs)
        ratio = float(one.mean() / two.mean())
        error = float(np.std((one - ratio * two) / two.mean(), ddof=1) / np.sqrt(one.size))
        low, high = ratio - 1.96 * error, ratio + 1.96 * error
        report.add(title, ratio, "×", low=low, high=high)
        report.add("    its upper 95 % limit", high, "×", at_most=at_most)

    report.heading(f"{ARMS} rows of {DIMENSION} numbers, T = {ROUNDS}, {seeds} seeds: regret")
    for noise in NOISES:
        for name in WORLDS:
            mine = now[f"{name}, {noise}"]
            report.add(f"{name}, noise {noise}", float(np.mean(mine)), "")
            compare("  ÷ ridge with an intercept", mine, now[f"ridge, {noise}"], 1.15)
            compare("  ÷ through 0", mine, now[f"{name} less it, {noise}"], 1.03)
    report.heading(f"{AGENTS} private agents, ε = {EPSILON}, T = {SHARED_ROUNDS}, {seeds} seeds: regret")
    old: Result | None = None  # of another version's federations where rewards go through 0
    if before is not None:
        old = play_in(before, __file__, "--before", str(seeds))
    if old is not None:  # what it costs not to know that rewards go through 0, without any privacy
        mine, theirs = (np.mean(each["alone around 0"]) for each in (now, old))
        report.add("alone, around 0 ÷ before", float(mine / theirs), "×")
    for kind in ("plain", "secure"):
        compare(f"{kind}, around 0.5 ÷ alone", now[f"{kind} around 0.5"], now["alone around 0.5"], 1.03)
        if old is not None:
            compare(f"{kind}, around 0 ÷ before", now[f"{kind} around 0"], old[f"{kind} around 0"], 1.05)


if __name__ == "__main__":
    if "--before" in sys.argv:
        kinds = ("alone", "plain", "secure")
        count = int(sys.argv[2])
        print(
            json.dumps(
                {f"{k} around 0": [regret_of_federation(0.0, k, s) for s in range(count)] for k in kinds}
            )
        )
    else:
        main("intercept", run, __doc__)
