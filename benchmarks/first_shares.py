"""Fairness while little is known: named actions with newcomers, rows with features, couriers, three workers.

Live agents with every default left alone. Rewards come late. Figures are means over seeds. With
FEDFAIRX_BEFORE=PATH, the `src` folder of another checkout, regrets are compared with that version, in the
same worlds with the same luck; else they are shown alone.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from measure import Report, main, play_in

SEEDS, FEW = 20, 2  # at full size and in a quick run
STEEPNESS = 10.0  # of the default merit
TAUS, DELAYS = (0.05, 0.15, 0.3), (1, 200, 1000)  # sds of success rates; decisions until the reward is known
ACTIONS, EVERY, ROUNDS = 10, 500, 5_000  # named actions at first, rounds until one more joins, all rounds
ROWS, ROW_ROUNDS = 10, 2_000  # rows of a decision with features
SHAPES = tuple((d, sd) for d in (5, 15) for sd in (0.1, 0.5))  # features, and the noise of rewards
WORKERS, WORKER_SEEDS = (0.5, 0.6, 0.7), 100  # of the README
COURIER_REWARDS, ORDERS = 50, 2_500
NUMBERS, LEVELS, DESCRIBED_ROUNDS = 4, ("x", "y", "z"), 1_500  # of features by name
Result = dict[str, list[float]]


def fair(means: np.ndarray) -> np.ndarray:
    """The shares that these means entitle to."""
    merit = np.exp(STEEPNESS * (means - means.max()))
    return np.asarray(merit / merit.sum())


def newcomers(agent_of: Any, tau: float, delay: int, seed: int) -> Iterator[tuple[str, float]]:
    """Named actions, and one more every `EVERY` rounds: the regret, and the newcomers' shares before their
    first reward over the average share."""
    rng = np.random.default_rng([seed, 1])
    most = ACTIONS + ROUNDS // EVERY
    rates, luck = np.clip(0.5 + tau * rng.standard_normal(most), 0.02, 0.98), rng.random(ROUNDS)
    names = [f"action-{k:02d}" for k in range(most)]
    agent, made, known, regret, newest, shares = (
        agent_of(actions=names[:ACTIONS], seed=seed),
        [],
        set(),
        0.0,
        {},
        [],
    )
    for t in range(ROUNDS):
        if t and t % EVERY == 0:
            newest[t] = names[ACTIONS + t // EVERY - 1]
            agent.add_actions(newest[t])
        if t >= delay:
            earlier = made[t - delay]
            action = names.index(earlier.name)
            known.add(earlier.name)
            agent.observe(earlier, reward=float(luck[t - delay] < rates[action]))
        made.append(agent.decide())
        count, policy = len(agent.actions), np.asarray(made[-1].policy)
        regret += float(np.abs(policy - fair(rates[:count])).sum())
        shares += [policy[names.index(name)] * count for name in newest.values() if name not in known]
    yield "regret", regret
    yield "newcomer", float(np.mean(shares)) if shares else 0.0


def rows(
    agent_of: Any, world: str, dimension: int, sd: float, delay: int, seed: int
) -> Iterator[tuple[str, float]]:
    """Contexts with features: the regret. In `world` contexts or θ may be of any sign."""
    rng = np.random.default_rng([seed, 2])
    theta = rng.standard_normal(dimension)
    theta /= np.linalg.norm(theta)
    if world == "positive":
        theta = np.abs(theta)
    if world == "signs":
        all_contexts = rng.uniform(-1.0, 1.0, (ROW_ROUNDS, ROWS, dimension)) / np.sqrt(dimension)
    else:
        all_contexts = rng.random((ROW_ROUNDS, ROWS, dimension)) / np.sqrt(dimension)
    noise = sd * rng.standard_normal(ROW_ROUNDS)
    agent, made, regret = agent_of(dimension, seed=seed), [], 0.0
    for t in range(ROW_ROUNDS):
        means = all_contexts[t] @ theta
        decision = agent.decide(all_contexts[t])
        made.append((decision, float(means[decision.action] + noise[t])))
        regret += float(np.abs(np.asarray(decision.policy) - fair(means)).sum())
        if t >= delay:
            earlier, reward = made[t - delay]
            agent.observe(earlier, reward=reward)
    yield "regret", regret


def couriers(agent_of: Any, city: Any, seed: int) -> Iterator[tuple[str, float]]:
    """Couriers: the regret; until the 50th reward, the part of decisions in which a share is above one half;
    before any reward, the part of rows whose share is between a third of and twice the average."""
    world, agent = city.Couriers(seed), agent_of(schema=city_schema(city), seed=seed)
    waiting: dict[int, list[tuple[Any, float]]] = {}
    rewards, large, within, decisions, first, regret = 0, 0, 0, 0, 0, 0.0
    for t in range(ORDERS):
        for decision, reward in waiting.pop(t, []):
            agent.observe(decision, reward=reward)
            rewards += 1
        order = world.order()
        decision = agent.decide(order.rows, context=order.context)
        policy = np.asarray(decision.policy)
        if order.after is not None:
            waiting.setdefault(t + order.after, []).append((decision, order.reward(decision.action)))
        regret += float(np.abs(policy - order.entitled).sum())
        if rewards < COURIER_REWARDS:
            decisions, large = decisions + 1, large + int(policy.max() > 0.5)
        if rewards == 0:
            first += policy.size
            within += int(((policy >= 1 / 3 / policy.size) & (policy <= 2 / policy.size)).sum())
    yield "regret", regret
    yield "large", large / decisions
    yield "within", within / first


def described(agent_of: Any, delay: int, seed: int) -> Iterator[tuple[str, float]]:
    """Numbers and a category by name, whose effects on success rates are of any sign: the regret."""
    from fedfairx.features import Schema

    rng = np.random.default_rng([seed, 9])
    effects, by_level = rng.normal(0.0, 0.25, NUMBERS), rng.normal(0.0, 0.1, len(LEVELS))
    names = [f"number-{k}" for k in range(NUMBERS)]
    agent = agent_of(schema=Schema({**dict.fromkeys(names, (0, 10)), "level": list(LEVELS)}), seed=seed)
    made: list[tuple[Any, float]] = []
    regret = 0.0
    for t in range(DESCRIBED_ROUNDS):
        numbers, levels = rng.uniform(0.0, 10.0, (ROWS, NUMBERS)), rng.integers(0, len(LEVELS), ROWS)
        rates = np.clip(0.5 + (numbers / 10.0 - 0.5) @ effects + by_level[levels], 0.0, 1.0)
        actions = [
            {**dict(zip(names, row.tolist(), strict=True)), "level": LEVELS[level]}
            for row, level in zip(numbers, levels, strict=True)
        ]
        decision = agent.decide(actions)
        made.append((decision, float(rng.random() < rates[decision.action])))
        regret += float(np.abs(np.asarray(decision.policy) - fair(rates)).sum())
        if t >= delay:
            agent.observe(made[t - delay][0], reward=made[t - delay][1])
    yield "regret", regret


def city_schema(city: Any) -> Any:
    from fedfairx.features import Schema

    return Schema(city.FEATURES, shared=list(city.SHARED))


def three_workers(agent_of: Any, seed: int) -> Iterator[tuple[str, float]]:
    """The README's workers: whether a share is below a third of its due after 50 rewards."""
    rng, rates = np.random.default_rng([seed, 3]), np.array(WORKERS)
    agent = agent_of(actions=["ann", "ben", "cid"], seed=seed)
    for _ in range(50):
        decision = agent.decide()
        agent.observe(decision, reward=float(rng.random() < rates[decision.action]))
    yield "starved", float((np.asarray(agent.policy()) < fair(rates) / 3.0).any())


def all_worlds() -> dict[str, Any]:
    """Every world by name: a function from a seed to named numbers."""
    import fedfairx as ffx

    path = Path(__file__).resolve().parent.parent / "src" / "fedfairx" / "demo" / "couriers.py"
    spec = importlib.util.spec_from_file_location("couriers", path)  # an earlier version has no such module
    assert spec is not None
    assert spec.loader is not None
    city = sys.modules["couriers"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(city)
    worlds: dict[str, Any] = {}
    for delay in DELAYS:
        for tau in TAUS:
            worlds[f"newcomers, delay {delay}, tau {tau}"] = lambda seed, tau=tau, delay=delay: newcomers(
                ffx.Agent, tau, delay, seed
            )
    for world, delays in (("any", (0, 500)), ("signs", (0, 500)), ("positive", (0, 1000))):
        for dimension, sd in SHAPES:
            for delay in delays:
                worlds[f"{world}, delay {delay}, d {dimension}, sd {sd}"] = (
                    lambda seed, world=world, dimension=dimension, sd=sd, delay=delay: rows(
                        ffx.Agent, world, dimension, sd, delay, seed
                    )
                )
    for delay in (0, 500):
        worlds[f"described, delay {delay}"] = lambda seed, delay=delay: described(ffx.Agent, delay, seed)
    worlds["couriers"] = lambda seed: couriers(ffx.Agent, city, seed)
    worlds["workers"] = lambda seed: three_workers(ffx.Agent, seed)
    return worlds


def play(seeds: int, quick: bool, only: str = "") -> dict[str, Result]:
    """The numbers of every world, over seeds."""
    results: dict[str, Result] = {}
    for name, world in all_worlds().items():
        if only in name:
            result: Result = {}
            for seed in range(WORKER_SEEDS if name == "workers" and not quick else seeds):
                for key, value in world(seed):
                    result.setdefault(key, []).append(value)
            results[name] = result
    return results


def run(report: Report) -> None:
    seeds, before = FEW if report.quick else SEEDS, os.environ.get("FEDFAIRX_BEFORE")
    arguments = [__file__, "--play", str(seeds)] + ["--quick"] * report.quick
    now: dict[str, Result] = play_in(None, *arguments)
    old: dict[str, Result] | None = None if before is None else play_in(before, *arguments)

    def regrets(found: dict[str, Result], start: str) -> np.ndarray:
        """(seeds,) mean regret over the worlds whose names begin like this."""
        return np.mean([each["regret"] for name, each in found.items() if name.startswith(start)], axis=0)

    def compare(title: str, start: str, at_most: float) -> None:
        mine = regrets(now, start)
        report.add(f"{title}: regret", float(mine.mean()), "")
        if old is not None:
            theirs = regrets(old, start)
            error = float(np.std(mine / theirs, ddof=1) / np.sqrt(mine.size))
            ratio = float(mine.mean() / theirs.mean())
            more = {"low": ratio - 2 * error, "high": ratio + 2 * error, "at_most": at_most}
            report.add(f"{title}: regret ÷ before", ratio, "×", **more)

    report.heading(f"{ACTIONS} named actions, one more every {EVERY} rounds, T = {ROUNDS}, {seeds} seeds")
    for delay in DELAYS:
        for tau in TAUS:
            name = f"newcomers, delay {delay}, tau {tau}"
            compare(f"success rates N(0.5, {tau}²), rewards {delay} late", name, 1.1 if delay == 1 else 0.5)
            share = float(np.mean(now[name]["newcomer"]))
            report.add(f"{name}: newcomer before its first reward ÷ average", share, "×", at_most=1.5)
    report.heading(
        f"{ROWS} rows with features, T = {ROW_ROUNDS}, means over {len(SHAPES)} shapes, {seeds} seeds"
    )
    for world, text in (("any", "contexts ≥ 0, θ of any sign"), ("signs", "both of any sign")):
        for delay, most in ((0, 1.05), (500, 0.9)):
            compare(f"{text}, delay {delay}", f"{world}, delay {delay},", most)
    for delay, most in ((0, 1.05), (1000, 1.25)):
        compare(f"θ ≥ 0, delay {delay}", f"positive, delay {delay},", most)
    report.heading(f"{ROWS} rows with features by name, T = {DESCRIBED_ROUNDS}, {seeds} seeds")
    for delay, most in ((0, 1.05), (500, 0.9)):
        compare(f"effects of any sign, delay {delay}", f"described, delay {delay}", most)
    report.heading(f"Couriers, rewards 300 to 900 decisions late, 8 % never, {seeds} seeds")
    compare(f"{ORDERS} orders", "couriers", 0.9)
    for title, key, goal in (
        ("decisions until the 50th reward with a share above 1/2", "large", {"at_most": 0.05}),
        ("rows before any reward from 1/3 to 2 average shares", "within", {"at_least": 0.95}),
    ):
        report.add(title, float(np.mean(now["couriers"][key])), "", **goal)
        if old is not None:
            report.add(f"{title}, before", float(np.mean(old["couriers"][key])), "")
    report.heading("The README's three workers after 50 rewards")
    title = "seeds of 100 in which a share is below a third of its due"
    report.add(title, 100.0 * float(np.mean(now["workers"]["starved"])), "", at_most=25)
    if old is not None:
        report.add(f"{title}, before", 100.0 * float(np.mean(old["workers"]["starved"])), "")


if __name__ == "__main__":
    if "--play" in sys.argv:
        print(json.dumps(play(int(sys.argv[2]), "--quick" in sys.argv)))
    else:
        main("first_shares", run, __doc__)
