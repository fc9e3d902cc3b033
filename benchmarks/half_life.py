"""What a half-life gains where θ* changes and costs where it does not: live agents in Exp 9's drifting world.

For each world and each half-life it prints the fairness regret over that of the same agents without one, mean
over seeds and half of its 95 % interval. Contexts, θ* and noise of a seed are the same for all.

    python benchmarks/half_life.py --quick
    python benchmarks/half_life.py
    python benchmarks/half_life.py --agents 4

With --flights, the same on real flights (needs fedfairx[data]): each airport alone, ten trips a day. The
half-life is chosen by `ffx.evaluate` on the trips of January, then tried from February to December.

    python benchmarks/half_life.py --flights
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

import fedfairx as ffx
from fedfairx.experiments.experiment import Size
from fedfairx.experiments.offers import RANGE, OffersScenario, asked, due, shares
from fedfairx.experiments.suite import flights as suite
from fedfairx.experiments.suite.exp09_worlds import WORLDS
from fedfairx.util.formatting import mean_and_half

HALF_LIVES = (100, 300, 1000, 3000)
SEEDS = 10
DRIFTING = WORLDS["drifting"].scenario(Size(), "alone")
#: θ* of each: the sd of its walk a round, and the round at which it becomes another.
CHANGES = {"still": (0.0, 0), "drifting": (DRIFTING.drift, 0), "ten times as fast": (10 * DRIFTING.drift, 0)}
CHANGES["once, half way"] = 0.0, DRIFTING.horizon // 2


def play(change: str, agents: int, half_life: float | None, seed: int) -> float:
    """Fairness regret, mean over agents."""
    world, rng = replace(DRIFTING, agents=agents, drift=0.0), np.random.default_rng(seed)
    algorithm = "fairx-bayes" if agents == 1 else "fed-fairx-bayes"
    options = replace(world.options(algorithm=algorithm), merit=world.merit, half_life=half_life)
    shape = {"agents": agents, "dimension": world.dimension, "horizon": world.horizon}
    fed = ffx.Federation(**shape, options=options, seed=seed)
    theta, regret, (drift, turn) = world.parameter(seed), 0.0, CHANGES[change]
    for t in range(world.horizon):
        if drift:
            theta = theta + drift * rng.normal(size=theta.size)
            theta /= np.linalg.norm(theta)
        if turn and t == turn:
            theta = world.parameter(seed + 1000)
        contexts = rng.random((agents, world.arms, world.dimension)) / np.sqrt(world.dimension)
        noise = rng.normal(0.0, world.noise_sd, agents)
        for i, agent in enumerate(fed.agents):
            decision, means = agent.decide(contexts[i]), contexts[i] @ theta
            agent.observe(decision, reward=float(means[decision.action] + noise[i]))
            logs = world.merit.steepness * means  # type: ignore[attr-defined]
            fair = np.exp(logs - logs.max())
            regret += float(np.abs(decision.policy - fair / fair.sum()).sum())
        fed.end_round()
    return regret / agents


def flights(half_life: float | None, seed: int) -> tuple[float, float]:
    """February to December, each airport alone: reward lost per 1000 trips, and fairness regret per trip."""
    world = suite.world(2023, suite.JANUARY, suite.YEAR)
    offers, by_day = world.offers, asked(world.offers, world.each, seed)
    fed = _airports(world, half_life, seed)
    shown, made = shares(fed, offers, by_day), np.concatenate(by_day)
    lost = (offers.largest(offers.rewards) - offers.total(shown * offers.rewards))[made]
    return 1000.0 * float(lost.mean()), float(offers.total(np.abs(shown - due(offers)))[made].mean())


def january(seed: int) -> list[tuple[float, float]]:
    """What `evaluate` makes of each half-life on January's trips: gain over none, and half its interval."""
    world = suite.world(2023, suite.BEGUN, suite.JANUARY)
    offers, fed = world.offers, _airports(world, None, seed)
    logs: list[list[ffx.Logged]] = [[] for _ in fed.agents]
    for numbers in asked(offers, world.each, seed):
        for place, agent in enumerate(fed.agents):
            own = [slice(offers.first[n], offers.first[n + 1]) for n in numbers if offers.agents[n] == place]
            made = agent.decide_many([offers.contexts[rows] for rows in own])
            rewards = [float(offers.rewards[rows][each.action]) for rows, each in zip(own, made, strict=True)]
            agent.observe_many(made, rewards)
            for rows, each, reward in zip(own, made, rewards, strict=True):
                logs[place].append(ffx.Logged(each.policy, each.action, offers.contexts[rows], reward=reward))
    policies = {str(h): ffx.Options(half_life=h, reward_range=RANGE) for h in HALF_LIVES}
    found = [ffx.evaluate(log, policies) for log in logs]
    gains = [[each[name].gain for each in found] for name in policies]
    return [
        (float(np.mean([g.value for g in each])), float(np.mean([0.5 * (g.high - g.low) for g in each])))
        for each in gains
    ]


def _airports(world: OffersScenario, half_life: float | None, seed: int) -> ffx.Federation:
    options = ffx.Options(algorithm="fairx-bayes", reward_range=RANGE, half_life=half_life)
    shape = {"agents": world.agents, "dimension": world.dimension, "horizon": world.horizon}
    return ffx.Federation(**shape, options=options, seed=seed)


def compare_flights(seeds: range, pool: ProcessPoolExecutor) -> None:
    chosen = np.array(list(pool.map(january, seeds)))  # (seeds, half-lives, 2)
    columns = f"{'half-life':<12}{'January: gain':>24}{'lost per 1000':>14}{'more than none':>20}"
    print(columns + f"{'fairness regret, over none':>30}")
    without = np.array(list(pool.map(partial(flights, None), seeds)))
    for k, half_life in enumerate((None, *HALF_LIVES)):
        later = without if k == 0 else np.array(list(pool.map(partial(flights, half_life), seeds)))
        gain = "" if k == 0 else f"{chosen[:, k - 1, 0].mean():+.5f} ± {chosen[:, k - 1, 1].mean():.3f}"
        over = mean_and_half(later[:, 1] / without[:, 1])
        more = mean_and_half(later[:, 0] - without[:, 0])
        print(
            f"{half_life or 'none':<12}{gain:>24}{later[:, 0].mean():>14.1f}{more:>20}{over:>30}", flush=True
        )


def main() -> None:
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--quick", action="store_true", help="three seeds instead of ten")
    parser.add_argument("--agents", type=int, default=1, help="who share exact sums (default: 1)")
    parser.add_argument("--flights", action="store_true", help="real flights instead of a simulated world")
    args = parser.parse_args()
    seeds = range(3 if args.quick else SEEDS)
    ffx.Agent(DRIFTING.dimension).decide(np.zeros((2, DRIFTING.dimension)))  # compile once
    if args.flights:
        with ProcessPoolExecutor(2) as pool:
            compare_flights(seeds, pool)
        return
    print(f"regret over that without a half-life, {len(seeds)} seeds, T = {DRIFTING.horizon}, {args.agents=}")
    print(f"{'θ*':<20}{'without':>12}" + "".join(f"{h:>16}" for h in HALF_LIVES))
    with ProcessPoolExecutor(2) as pool:
        for change in CHANGES:
            without = np.array(list(pool.map(partial(play, change, args.agents, None), seeds)))
            line = f"{change:<20}{mean_and_half(without):>12}"
            for half_life in HALF_LIVES:
                found = np.array(list(pool.map(partial(play, change, args.agents, half_life), seeds)))
                line += f"{mean_and_half(found / without):>16}"
            print(line)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
