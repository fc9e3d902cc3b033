"""Whether joining hurts anyone: live agents that join late, differ, drift apart or have little traffic.

Each member releases and absorbs by its own count of rewards, as services do. For each world: the fairness
regret of members over the same members alone, mean over seeds, of all members and of the worst, and of the
worst also over the first 100 and 1 000 rounds.

The last section has the three members of `fedfairx demo` with exact sums, and for comparison members who take
each other for alike, and one agent with all data.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

import fedfairx as ffx
from fedfairx.agent.schedules import Geometric, Plan
from fedfairx.demo.couriers import SCHEMA, Couriers
from fedfairx.federation.roster.terms import Terms
from measure import Report, main

MEMBERS, ARMS, DIMENSION, ROUNDS = 10, 10, 5, 3000
SEEDS, FEW = 20, 2  # at full size and in a quick run
CITIES, BATCH = 3, 100  # of the demonstration, and orders that it places at once
WITHOUT = 600  # orders until which hardly a reward has come
POINTS = (100, 1000, ROUNDS)
STEEPNESS, NOISE_SD = 10.0, 0.1
SCHEDULE = Geometric(start=1)


@dataclass(frozen=True)
class World:
    """How members differ from the common θ (norm 1), and when they join."""

    spread: float = 0.0  # distance of each member
    clusters: float = 0.0  # distance of the second half from the first
    odd: float = 0.0  # distance of the last member; 2 is the opposite θ
    late: int = 0  # rounds that the others play before the last member joins
    rates: tuple[float, ...] = (1.0,) * MEMBERS  # share of rounds in which a member plays
    drift: float = 0.0  # sd per round and coordinate of each member's own random walk on the sphere
    common_drift: bool = False


TRAFFIC = (1.0, 0.5, 0.25, 0.12, 0.06, 0.03, 0.03, 0.03, 0.03, 0.03)
WORLDS = {
    "alike": World(),
    "all .1 apart": World(spread=0.1),
    "all .3 apart": World(spread=0.3),
    "all 1 apart": World(spread=1.0),
    "one of ten opposite": World(odd=2.0),
    "two clusters .1 apart": World(clusters=0.1),
    "two clusters .3 apart": World(clusters=0.3),
    "two clusters 1 apart": World(clusters=1.0),
    "late joiner, alike": World(late=ROUNDS),
    "late joiner .1 apart": World(late=ROUNDS, odd=0.1),
    "late joiner .3 apart": World(late=ROUNDS, odd=0.3),
    "late joiner 1 apart": World(late=ROUNDS, odd=1.0),
    "late joiner, opposite": World(late=ROUNDS, odd=2.0),
    "drift, common": World(drift=1e-3, common_drift=True),
    "drift, each its own": World(drift=1e-3),
    "unequal traffic, alike": World(rates=TRAFFIC),
    "unequal traffic, .1 apart": World(rates=TRAFFIC, spread=0.1),
    "unequal traffic, .3 apart": World(rates=TRAFFIC, spread=0.3),
}


def parameters(world: World, rng: np.random.Generator) -> np.ndarray:
    """The initial θ (members, d)."""
    common = rng.random(DIMENSION)
    thetas = np.tile(common / np.linalg.norm(common), (MEMBERS, 1))
    directions = rng.normal(size=thetas.shape)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    if world.odd == 2.0:
        thetas[-1] *= -1
    else:
        thetas[-1] += world.odd * directions[-1]
    thetas[MEMBERS // 2 :] += world.clusters * directions[0]
    return thetas + world.spread * directions


def softmax(logs: np.ndarray) -> np.ndarray:
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def members(seed: int, partners: str) -> list[ffx.Agent]:
    """Live agents of one federation, or with partners "none" without a federation."""
    options = ffx.Options(
        algorithm="fed-fairx-bayes",
        schedule=SCHEDULE,
        merit=ffx.merit.Exponential(STEEPNESS),
        partners="alike" if partners == "none" else partners,
    )
    return [
        ffx.Agent(DIMENSION, options=options, seed=1000 * seed + i, name=f"member-{i}")
        for i in range(MEMBERS)
    ]


def play(world: World, partners: str, seed: int) -> np.ndarray:
    """(points, members) fairness regret up to the `POINTS` of the rounds that are counted; NaN for members
    that are not counted."""
    rng = np.random.default_rng(seed)  # contexts, noise and traffic do not depend on partners
    thetas, agents = parameters(world, rng), members(seed, partners)
    due = {int(t) for t in SCHEDULE.rounds(Plan(2 * ROUNDS, MEMBERS, DIMENSION))}
    regret, held, found = np.zeros(MEMBERS), {}, []
    for t in range(world.late + ROUNDS):
        if world.drift:
            steps = rng.normal(size=(1 if world.common_drift else MEMBERS, DIMENSION))
            thetas = thetas + world.drift * steps
            thetas /= np.linalg.norm(thetas, axis=1, keepdims=True)
        playing = rng.random(MEMBERS) < world.rates
        contexts = rng.random((MEMBERS, ARMS, DIMENSION)) / np.sqrt(DIMENSION)
        noise = rng.normal(0.0, NOISE_SD, MEMBERS)
        if world.late:
            playing[:] = t < world.late
            playing[-1] = t >= world.late
        if world.late == t and world.late and partners != "none":
            agents[-1].absorb(held)
        for i in np.flatnonzero(playing):
            agent = agents[i]
            decision = agent.decide(contexts[i])
            means = contexts[i] @ thetas[i]
            agent.observe(decision, reward=float(means[decision.action] + noise[i]))
            if t >= world.late:
                regret[i] += np.abs(decision.policy - softmax(STEEPNESS * means)).sum()
            if partners != "none" and agent.observed in due:
                held[agent.name] = agent.release()
                agent.absorb({agent.name: held[agent.name]})
                if not world.late or t >= world.late:
                    for other in agents:
                        if other is not agent and not (world.late and other is not agents[-1]):
                            other.absorb({agent.name: held[agent.name]})
        if t + 1 - world.late in POINTS:
            found.append(regret.copy())
    last = np.arange(MEMBERS) == MEMBERS - 1
    return np.where(last, found, np.nan) if world.late else np.array(found)


def ratios(world: World, partners: str, seeds: int, pool: ProcessPoolExecutor) -> np.ndarray:
    """(points, members) mean regret over seeds, over that alone."""
    joined = np.array(list(pool.map(partial(play, world, partners), range(seeds))))
    alone = np.array(list(pool.map(partial(play, world, "none"), range(seeds))))
    return joined.mean(axis=0) / alone.mean(axis=0)


def couriers_agents(seed: int, partners: str) -> Sequence[ffx.Agent]:
    """The agents of three cities; "none" are those without a federation, "one" is one for all."""
    seeds = [int(np.random.default_rng([seed, place]).integers(2**32)) for place in range(CITIES)]
    if partners == "one":
        return [ffx.Agent(schema=SCHEMA, seed=seed)] * CITIES
    if partners == "none":
        return [ffx.Agent(schema=SCHEMA, seed=place) for place in range(CITIES)]
    terms = Terms(schema=SCHEMA, agents=CITIES, horizon=ROUNDS, algorithm="fed-fairx-bayes")
    return [terms.agent(f"org{k + 1}", partners=partners, seed=each) for k, each in enumerate(seeds)]


def couriers(partners: str, seed: int) -> np.ndarray:
    """(orders,) fairness regret of each order, mean of the cities."""
    cities = [Couriers([seed, place]) for place in range(CITIES)]
    agents, regret = couriers_agents(seed, partners), np.zeros((CITIES, ROUNDS))
    late: list[list[tuple[int, ffx.Decision, float]]] = [[] for _ in cities]
    for first in range(0, ROUNDS, BATCH):
        after = first + BATCH
        for place, (city, agent) in enumerate(zip(cities, agents, strict=True)):
            orders = [city.order() for _ in range(BATCH)]
            made = agent.decide_many([{"actions": each.rows, "context": each.context} for each in orders])
            for number, (order, decision) in enumerate(zip(orders, made, strict=True), first):
                regret[place, number] = order.unfairness(decision.policy)
                if order.after is not None:
                    late[place].append((number + order.after, decision, order.reward(decision.action)))
            came = [each for each in late[place] if each[0] < after]
            late[place] = [each for each in late[place] if each[0] >= after]
            agent.observe_many([decision for _, decision, _ in came], [reward for *_, reward in came])
        if partners in ("alike", "differ"):
            releases = {agent.name: agent.release() for agent in agents}
            for agent in agents:
                agent.absorb({name: each for name, each in releases.items() if name != agent.name})
    return np.asarray(regret.mean(axis=0))


def run(report: Report) -> None:
    seeds = FEW if report.quick else SEEDS
    ffx.Agent(DIMENSION).decide(np.zeros((2, DIMENSION)))  # compile once, before starting processes
    with ProcessPoolExecutor(2) as pool:
        report.heading(f"Regret over alone, {ROUNDS} rounds, exact sums, {seeds} seeds")
        for name, world in WORLDS.items():
            found = ratios(world, "differ", seeds, pool)
            report.add(f"{name}: all members", float(np.nanmean(found[-1])), "×")
            for point, each in zip(POINTS, found, strict=True):
                goal = {"at_most": 1.1} if point == ROUNDS else {}
                report.add(f"{name}: the worst, {point} rounds", float(np.nanmax(each)), "×", **goal)
        report.heading(f"{CITIES} cities of couriers, {ROUNDS} orders of each, {seeds} seeds")
        regrets = {
            name: np.array(list(pool.map(partial(couriers, name), range(seeds))))
            for name in ("none", "differ", "alike", "one")
        }
        alone = regrets.pop("none")
        early = alone[:, :WITHOUT].sum() / alone.sum()
        report.add(f"alone: part of the regret in the first {WITHOUT} orders", float(early), "")
        for name, found in regrets.items():
            ratio = found.sum(axis=1) / alone.sum(axis=1)
            low, high = (float(end(ratio)) for end in (np.min, np.max))
            report.add(f"{name}: regret ÷ alone", float(ratio.mean()), "×", low=low, high=high)
            later = found[:, WITHOUT:].sum() / alone[:, WITHOUT:].sum()
            report.add(f"{name}: after the first {WITHOUT} orders", float(later), "×")


if __name__ == "__main__":
    main("joining", run, __doc__)
