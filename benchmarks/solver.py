"""The optimistic solver against brute force, and the paper's projected gradient for comparison.

Random instances: K 1 to 100, d 1 to 50, steepness 0.1 to 100, ellipsoids of condition up to 1e8, duplicate
arms, zero contexts. Brute force is the best of 1 000 random starts, each polished.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from fedfairx.agent.algorithms import SOLVERS
from fedfairx.core import merit as kinds
from measure import Contestant, Report, finish, parser, race
from problem import problem
from scaling import agent_for, deciding

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
import reference as ref
from instances import Answer, Instance, solve, wild

NEAR = 1e-6


def draw(rng: np.random.Generator) -> tuple[Instance, tuple[Any, Any]]:
    instance, steepness = wild(rng), float(10 ** rng.uniform(-1, 2))
    return instance, (kinds.Exponential(steepness), ref.Exponential(steepness))


def compare(report: Report, *, instances: int, seed: int) -> None:
    report.heading(f"{instances:,} random instances, against brute force")
    rng = np.random.default_rng(seed)
    short: dict[str, list[float]] = {name: [] for name in SOLVERS}
    below: dict[str, int] = dict.fromkeys(SOLVERS, 0)
    outside: dict[str, int] = dict.fromkeys(SOLVERS, 0)
    for number in range(instances):
        instance, pair = draw(rng)
        _, best = ref.optimistic_bruteforce(
            instance.estimate, instance.gram, instance.radius, instance.contexts, pair[1], 1000, number
        )
        for name, solver in SOLVERS.items():
            answer: Answer = solve(instance, pair, solver)
            short[name].append(best - answer.value)
            below[name] += answer.value < answer.value_at_estimate - 1e-12 * (1 + abs(answer.value))
            outside[name] += answer.excess > NEAR
        if (number + 1) % 1000 == 0:
            report.note(f"{number + 1:,} done")
    for name in SOLVERS:
        gaps = np.array(short[name])
        ours = name == "fixed-point"
        share = 100 * float(np.mean(gaps <= NEAR))
        report.add(f"{name}: within 1e-6 of brute force", share, "%", **({"at_least": 99.9} if ours else {}))
        report.add(f"{name}: above brute force by more than 1e-6", 100 * float(np.mean(gaps < -NEAR)), "%")
        report.add(f"{name}: worst shortfall", max(float(gaps.max()), 0.0), "")
        report.add(f"{name}: below the objective at θ̂", below[name], "", at_most=0)
        report.add(f"{name}: outside the region", outside[name], "", at_most=0)


def pace(report: Report, *, observations: int, turns: int) -> None:
    report.heading(f"Time of a decision at K=10, d=5, after {observations:,} observations")
    rounds = problem(observations, arms=10, dimension=5)
    field = {
        name: Contestant(deciding(agent_for(rounds, solver=name), rounds.contexts[:100]), 100)
        for name in SOLVERS
    }
    times = race(field, turns=turns)
    report.ratio("fixed-point ÷ pgd", times["fixed-point"].over(times["pgd"]))


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--instances", type=int, default=None, help="default: 1000, quick: 50")
    made.add_argument("--seed", type=int, default=0)
    args = made.parse_args()
    if args.instances is not None and args.instances < 1:
        made.error(f"--instances must be >= 1, got {args.instances}")
    instances = args.instances or (50 if args.quick else 1000)

    def run(report: Report) -> None:
        compare(report, instances=instances, seed=args.seed)
        pace(report, observations=1_000 if args.quick else 10_000, turns=5 if args.quick else 25)

    finish(Report("solver", args.quick, args.json), run)


if __name__ == "__main__":
    main()
