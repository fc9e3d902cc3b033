"""Whether joining hurts anyone: live agents that join late, differ, drift apart or have little traffic.

Each member releases and absorbs by its own count of rewards, as services do. For each world it prints the
fairness regret of members over the same members alone, mean over seeds: the mean of members and the worst,
and the worst also over the first 100 and 1 000 rounds.

    python benchmarks/joining.py --quick
    python benchmarks/joining.py --epsilon 2
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

import fedfairx as ffx
from fedfairx.agent.schedules import Geometric, Plan
from fedfairx.privacy import SimulatedNoise

MEMBERS, ARMS, DIMENSION, ROUNDS, SEEDS = 10, 10, 5, 3000, 20
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


def members(seed: int, epsilon: float | None, partners: str) -> list[ffx.Agent]:
    """Live agents of one federation, or with partners "none" without a federation."""
    algorithm = "fed-fairx-bayes" if epsilon is None or partners == "none" else "priv-fairx-bayes"
    options = ffx.Options(
        algorithm=algorithm,
        schedule=SCHEDULE,
        epsilon=epsilon if algorithm.startswith("priv") else None,
        decide_from="own+released" if algorithm.startswith("priv") else None,
        partners="alike" if partners == "none" else partners,
    )
    plan = Plan(2 * ROUNDS, MEMBERS, DIMENSION)
    made = options.privatizers(plan, lambda i: SimulatedNoise(seed, agent=i))
    merit = ffx.merit.Exponential(STEEPNESS)
    return [
        ffx.Agent(
            DIMENSION,
            options=replace(options, merit=merit),
            seed=1000 * seed + i,
            privatizer=made[i],
            name=f"member-{i}",
        )
        for i in range(MEMBERS)
    ]


def play(world: World, epsilon: float | None, partners: str, seed: int) -> np.ndarray:
    """(points, members) fairness regret up to the `POINTS` of the rounds that are counted; NaN for members
    that are not counted."""
    rng = np.random.default_rng(seed)  # contexts, noise and traffic do not depend on partners
    thetas, agents = parameters(world, rng), members(seed, epsilon, partners)
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


def ratios(world: World, epsilon: float | None, partners: str, seeds: int, pool: object) -> np.ndarray:
    """(points, members) mean regret over seeds, over that alone."""
    run = pool.map  # type: ignore[attr-defined]
    joined = np.array(list(run(partial(play, world, epsilon, partners), range(seeds))))
    alone = np.array(list(run(partial(play, world, None, "none"), range(seeds))))
    return joined.mean(axis=0) / alone.mean(axis=0)


def main() -> None:
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--quick", action="store_true", help="three seeds instead of twenty")
    parser.add_argument("--seeds", type=int, help=f"(default: {SEEDS})")
    parser.add_argument("--epsilon", type=float, help="private members, own+released (default: exact sums)")
    parser.add_argument("--partners", default="differ", choices=("differ", "alike"))
    parser.add_argument("--world", action="append", choices=tuple(WORLDS), help="(default: all)")
    args = parser.parse_args()
    seeds = args.seeds or (3 if args.quick else SEEDS)
    ffx.Agent(DIMENSION).decide(np.zeros((2, DIMENSION)))  # compile once, before starting processes
    print(f"regret over alone, {seeds} seeds: {'world':<26}{'mean':>8}" + "".join(f"{t:>8}" for t in POINTS))
    with ProcessPoolExecutor(2) as pool:
        for name in args.world or WORLDS:
            found = ratios(WORLDS[name], args.epsilon, args.partners, seeds, pool)
            worst = "".join(f"{each:8.3f}" for each in np.nanmax(found, axis=1))
            print(f"{name:<52}{np.nanmean(found[-1]):8.3f}{worst}")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
