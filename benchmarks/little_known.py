"""What to expect from few rewards: the distance from fair shares by rewards for each number of the model.

Live agents with every default left alone. The distance is the sum of |share - fair share|, over that of equal
shares; means over seeds, with the 90 % quantile of the seeds. Couriers' rewards come 50 to 2 000 orders late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import fedfairx as ffx
from fedfairx.demo import couriers
from first_shares import ROWS, fair
from measure import Report, main

SEEDS, FEW = 20, 2
STEPS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # rewards for each number: where a column begins
ENOUGH = 17  # rewards for each number that a world goes on to
EARLIEST, LATEST = 50, 2_000  # orders after which a courier's reward comes
FIRST, LAST = 100, 600  # orders that are looked at apart
LARGE = 0.5  # a share


class Seen(NamedTuple):
    """One decision: rewards known before it, the distance from fair shares, that of equal ones."""

    rewards: int
    apart: float
    equal: float
    largest: float


World = Callable[[int], tuple[int, Iterator[Seen]]]  # by seed: the model's numbers, and decisions


def follow(
    agent: ffx.Agent,
    offers: Iterator[tuple[Any, dict[str, Any], np.ndarray, Callable[[int], float]]],
    late: Callable[[], int | None],
) -> Iterator[Seen]:
    """Decide about offers (actions, keywords, fair shares, rewards) until rewards are many."""
    waiting: dict[int, list[tuple[Any, float]]] = {}
    rewards, most = 0, ENOUGH * agent.knowledge.numbers
    for t, (actions, more, due, reward) in enumerate(offers):
        for decision, value in waiting.pop(t, []):
            agent.observe(decision, reward=value)
            rewards += 1
        if rewards >= most:
            return
        decision = agent.decide(actions, **more) if actions is not None else agent.decide()
        after = late()
        if after is not None:
            waiting.setdefault(t + after, []).append((decision, reward(decision.action)))
        shares = np.asarray(decision.policy)
        apart, equal = np.abs(shares - due).sum(), np.abs(1.0 / due.size - due).sum()
        yield Seen(rewards, float(apart), float(equal), float(shares.max()))


def of_couriers(seed: int) -> tuple[int, Iterator[Seen]]:
    """Couriers by five features, three of them numbers and one the weather."""
    city, rng = couriers.Couriers(seed), np.random.default_rng([seed, 77])
    kinds = {name: kind for name, kind in couriers.FEATURES.items() if name != "fragile"}
    agent = ffx.Agent(schema=ffx.features.Schema(kinds, shared=["weather"]), seed=seed)

    def offers() -> Iterator[Any]:
        while True:
            order = city.order()
            order.context["fragile"] = False
            yield order.rows, {"context": {"weather": order.context["weather"]}}, order.entitled, order.reward

    def late() -> int | None:
        after = int(rng.integers(EARLIEST, LATEST + 1))
        return None if rng.random() < couriers.NEVER else after

    return agent.knowledge.numbers, follow(agent, offers(), late)


def of_rows(dimension: int, sd: float, seed: int) -> tuple[int, Iterator[Seen]]:
    """Contexts and θ of any sign, rewards with noise."""
    rng = np.random.default_rng([seed, 2])
    theta = rng.standard_normal(dimension)
    theta /= np.linalg.norm(theta)
    agent = ffx.Agent(dimension, seed=seed)

    def offers() -> Iterator[Any]:
        while True:
            contexts = rng.uniform(-1.0, 1.0, (ROWS, dimension)) / np.sqrt(dimension)
            means, noise = contexts @ theta, sd * rng.standard_normal()
            yield (
                contexts,
                {},
                fair(means),
                lambda action, means=means, noise=noise: float(means[action] + noise),
            )

    return agent.knowledge.numbers, follow(agent, offers(), lambda: 1)


def of_names(count: int, tau: float, seed: int) -> tuple[int, Iterator[Seen]]:
    """Named actions, whose success rates differ by this sd."""
    rng = np.random.default_rng([seed, 1])
    rates = np.clip(0.5 + tau * rng.standard_normal(count), 0.02, 0.98)
    agent = ffx.Agent(actions=[f"action-{k}" for k in range(count)], seed=seed)

    def offers() -> Iterator[Any]:
        while True:
            yield None, {}, fair(rates), lambda action: float(rng.random() < rates[action])

    return agent.knowledge.numbers, follow(agent, offers(), lambda: 1)


WORLDS: dict[str, World] = {
    "couriers, five features": of_couriers,
    "5 numbers, rewards' noise 0.1": lambda seed: of_rows(5, 0.1, seed),
    "15 numbers, rewards' noise 0.1": lambda seed: of_rows(15, 0.1, seed),
    "15 numbers, rewards' noise 0.5": lambda seed: of_rows(15, 0.5, seed),
    "10 names, success rates ± 0.3": lambda seed: of_names(10, 0.3, seed),
    "10 names, success rates ± 0.15": lambda seed: of_names(10, 0.15, seed),
}


def run(report: Report) -> None:
    for name, world in WORLDS.items():
        by_step: list[list[float]] = [[] for _ in STEPS]
        early: list[list[Seen]] = []
        numbers = 0
        for seed in range(FEW if report.quick else SEEDS):
            numbers, decisions = world(seed)
            seen = list(decisions)
            early.append(seen[FIRST:LAST])
            steps = np.searchsorted(STEPS, np.array([each.rewards for each in seen]) / numbers, side="right")
            for step, ratios in enumerate(by_step, 1):
                here = [each for each, its in zip(seen, steps, strict=True) if its == step]
                if here:
                    ratios.append(sum(each.apart for each in here) / sum(each.equal for each in here))
        report.heading(f"{name}: a model of {numbers} numbers")
        ends = (*STEPS[1:], ENOUGH)
        for first, end, ratios in zip(STEPS, ends, by_step, strict=True):
            if ratios:
                title = f"{first:g} to {end:g} rewards a number: distance ÷ that of equal shares"
                report.add(title, float(np.mean(ratios)), "×", high=float(np.quantile(ratios, 0.9)), low=0.0)
        if world is of_couriers:
            apart = [float(np.mean([each.apart for each in one])) for one in early]
            equal = [float(np.mean([each.equal for each in one])) for one in early]
            large = [each.largest > LARGE for one in early for each in one]
            report.add(f"distance, decisions {FIRST} to {LAST}, the largest of a seed", max(apart), "")
            report.add("  mean over seeds", float(np.mean(apart)), "")
            report.add("  of equal shares", float(np.mean(equal)), "")
            report.add("  part with a share above 1/2", float(np.mean(large)), "")


if __name__ == "__main__":
    main("little_known", run, __doc__)
