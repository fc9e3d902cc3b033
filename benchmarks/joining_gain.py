"""The gain of joining a federation: simulated fairness regret over that of the same agents alone.

For each ε, number of members and horizon, the mean regret over seeds of a private federation with the
defaults (`priv-fairx-bayes`, geometric schedule, δ = 1e-6, `blt`, records clipped around zero, as `federate
init` makes it) over that of `fairx-bayes`, alone, with the same seeds. "centred" clips around the middle of
the world's box instead; "exact" is `fed-fairx-bayes`, without noise. World: 10 arms, 5 features in
[0, 1]^5/√5, noise of sd 0.1, exponential merit of steepness 10, one θ for all, partners alike: judging
partners (--partners differ, as services do) takes far longer and gives about the same result in this world.
--write stores the table where `federate init` and `fedfairx privacy` read it; modes that were not measured
stay.

    python benchmarks/joining_gain.py --quick
    python benchmarks/joining_gain.py --write          # over an hour on one busy core
    python benchmarks/joining_gain.py --mode own+released --partners differ --members 10
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import fedfairx as ffx
from fedfairx.federation.setup.joining_gain import EPSILONS, FILE, HORIZONS, MEMBERS

DELTA = 1e-6
#: The number of seeds, by the largest number of decisions of all members.
SEEDS = ((100_000, 40), (1_000_000, 10), (10_000_000, 4))
PRIVATE: dict[str, Any] = {"algorithm": "priv-fairx-bayes", "delta": DELTA, "centring": None}
MODES: dict[str, dict[str, Any]] = {
    "own+released": {**PRIVATE, "decide_from": "own+released"},
    "own+released, centred": {**PRIVATE, "decide_from": "own+released", "centring": "scenario"},
    "released": {**PRIVATE, "decide_from": "released"},
    "released, centred": {**PRIVATE, "decide_from": "released", "centring": "scenario"},
    "exact": {"algorithm": "fed-fairx-bayes"},
}
Ratios = list[list[list[float]]]  # [horizon][ε][members]


def seeds_for(members: int, horizon: int) -> int:
    return next(seeds for most, seeds in SEEDS if members * horizon <= most)


def regrets(members: int, horizon: int, seeds: int, **how: Any) -> np.ndarray:
    """(seeds,) fairness regret at the horizon, mean over members."""
    world = ffx.Scenario(agents=members, horizon=horizon)
    return np.asarray(ffx.simulate(world, seeds=seeds, points=1, **how).fairness_regret[:, -1])


def ratio(joined: np.ndarray, alone: np.ndarray) -> tuple[float, float]:
    """Mean over mean, and half of its 95 % interval (delta method, seeds paired)."""
    value = float(joined.mean() / alone.mean())
    spread = float(np.std(joined - value * alone, ddof=1)) if len(alone) > 1 else math.nan
    return value, 1.96 * spread / math.sqrt(len(alone)) / float(alone.mean())


def measure(
    mode: str, partners: str, horizons: Sequence[int], sizes: Sequence[int], epsilons: Sequence[float]
) -> Ratios:
    """Print and return the ratios of a mode."""
    found: Ratios = []
    for horizon in horizons:
        rows: list[list[float]] = [[] for _ in epsilons]
        for members in sizes:
            seeds = seeds_for(members, horizon)
            alone = regrets(members, horizon, seeds, algorithm="fairx-bayes")
            for row, epsilon in zip(rows, epsilons, strict=True):
                budget = {} if mode == "exact" else {"epsilon": epsilon}
                joined = regrets(members, horizon, seeds, partners=partners, **MODES[mode], **budget)
                value, half = ratio(joined, alone)
                row.append(round(value, 3))
                print(
                    f"{mode:<24}T = {horizon:<8}ε = {epsilon:<6g}m = {members:<5}{seeds:>3} seeds"
                    f"{alone.mean():10.1f} alone{value:9.3f} ± {half:.3f}",
                    flush=True,
                )
        found.append(rows)
    return found


def text(ratios: dict[str, Ratios]) -> str:
    """The text of `joining_gain.json` with these ratios: a line for each ε."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    lines = [f' "{name}": {json.dumps(value)},' for name, value in stored.items() if name != "ratios"]
    modes = []
    for mode, values in ratios.items():
        tables = ["   [" + ",\n    ".join(json.dumps(row) for row in rows) + "]" for rows in values]
        modes.append(f'  "{mode}": [\n' + ",\n".join(tables) + "\n  ]")
    return "\n".join(["{", *lines, ' "ratios": {', ",\n".join(modes), " }", "}", ""])


def main() -> None:
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--quick", action="store_true", help="one horizon, two sizes and two ε; not stored")
    parser.add_argument("--mode", action="append", choices=tuple(MODES), help="(default: all)")
    parser.add_argument("--members", type=int, action="append", help=f"(default: {MEMBERS}, to be stored)")
    parser.add_argument("--partners", default="alike", choices=("alike", "differ"), help="(default: alike)")
    parser.add_argument("--write", action="store_true", help="store the table (default: print it)")
    args = parser.parse_args()
    if args.write and (args.quick or args.members or args.partners != "alike"):
        parser.error("the whole table is stored, or nothing")
    horizons, sizes = ((1_000,), (2, 10)) if args.quick else (HORIZONS, args.members or MEMBERS)
    found: dict[str, Any] = {}
    for mode in args.mode or MODES:
        budgets = (math.inf,) if mode == "exact" else (2.0, 8.0) if args.quick else EPSILONS
        found[mode] = measure(mode, args.partners, horizons, sizes, budgets)
    if args.write:
        # Other modes may have been stored since.
        kept = {**json.loads(FILE.read_text(encoding="utf-8"))["ratios"], **found}
        FILE.write_text(text({mode: kept[mode] for mode in MODES if mode in kept}), encoding="utf-8")
        print(f"written: {FILE.name}")


if __name__ == "__main__":
    main()
