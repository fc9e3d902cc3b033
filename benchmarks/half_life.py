"""What a half-life gains where θ* changes and costs where it does not: live agents in Exp 9's drifting world.

For each world and each half-life it prints the fairness regret over that of the same agents without one, mean
over seeds and half of its 95 % interval. Contexts, θ* and noise of a seed are the same for all.

    python benchmarks/half_life.py --quick
    python benchmarks/half_life.py
    python benchmarks/half_life.py --agents 4
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


def main() -> None:
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--quick", action="store_true", help="three seeds instead of ten")
    parser.add_argument("--agents", type=int, default=1, help="who share exact sums (default: 1)")
    args = parser.parse_args()
    seeds = range(3 if args.quick else SEEDS)
    ffx.Agent(DRIFTING.dimension).decide(np.zeros((2, DRIFTING.dimension)))  # compile once
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
