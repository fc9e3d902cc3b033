"""What one hostile member can do: a member's share of the better of two actions, mean over seeds.

Four honest members have 200 records of two actions with success rates 0.7 and 0.4. The fifth claims records
in which the better one always failed and the other always succeeded. A sixth, which decides, has 0, 10 or 100
rewards of its own.

    python benchmarks/hostile.py
    python benchmarks/hostile.py --honest 1
"""

from __future__ import annotations

import argparse

import numpy as np

import fedfairx as ffx

RATES, RECORDS, SEEDS = np.array([0.7, 0.4]), 200, 8
CLAIMED, OWN = (0, 200, 2_000, 20_000), (0, 10, 100)


def member(name: str, partners: str) -> ffx.Agent:
    return ffx.Agent(2, name=name, partners=partners, reward_range=(0, 1), seed=0)


def outcomes(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Actions, as contexts, and their rewards."""
    actions = np.eye(2)[rng.integers(0, 2, count)]
    return actions, (rng.random(count) < actions @ RATES).astype(float)


def share(partners: str, honest: int, claimed: int, own: int, seed: int) -> float:
    rng, releases = np.random.default_rng(seed), {}
    for i in range(honest):
        agent = member(f"org{i}", partners)
        agent.learn(*outcomes(rng, RECORDS))
        releases[agent.name] = agent.release()
    if claimed:
        agent, actions = member("hostile", partners), np.eye(2)[np.arange(claimed) % 2]
        agent.learn(actions, actions[:, 1])
        releases[agent.name] = agent.release()
    here = member("here", partners)
    here.absorb(releases)
    if own:
        here.learn(*outcomes(rng, own))
    return float(here.policy(np.eye(2))[0])


def main() -> None:
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--honest", type=int, default=4, help="honest partners (default: 4)")
    args = parser.parse_args()
    print(f"{'partners':<10}{'claimed':>8}" + "".join(f"{f'{own} own':>10}" for own in OWN))
    for partners in ("alike", "differ"):
        for claimed in CLAIMED:
            means = [
                np.mean([share(partners, args.honest, claimed, own, seed) for seed in range(SEEDS)])
                for own in OWN
            ]
            print(f"{partners:<10}{claimed:>8}" + "".join(f"{mean:10.3f}" for mean in means), flush=True)


if __name__ == "__main__":
    main()
