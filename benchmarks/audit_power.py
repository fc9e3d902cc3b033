"""How often the audit detects each mistake of `tests/support/mistakes.py` and accuses correct code.

    python benchmarks/audit_power.py --seeds 25 --right 1000

Both use fewer releases and runs than the audit, which makes detection harder. The correct configurations
cover every mechanism, both adjacencies, signs known or not, centring, several slots, secure aggregation, both
modes of deciding, and one, few and many releases, each run with its own seed; "first look" counts those that
failed the first look and passed the second. All mistakes with one seed take about 50 seconds, a correct
configuration one.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

from fedfairx.agent.options import Options
from fedfairx.audit.audit import audit
from fedfairx.privacy import Bounds, Centring, mechanisms

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
from mistakes import MISTAKES, Mistake


def power(mistakes: list[Mistake], seeds: int, runs: int) -> None:
    """Count the seeds in which each mistake is detected by its check, and name what detects it most often."""
    detected = 0
    for mistake in mistakes:
        by: Counter[str] = Counter()
        caught = 0
        for seed in range(seeds):
            failed = mistake.audit(runs=runs, seed=seed).failed
            caught += mistake.caught_by(failed)
            by.update(failed)
        detected += caught == seeds
        check, count = by.most_common(1)[0] if by else ("nothing", 0)
        print(f"{caught:4d} of {seeds}  {mistake.name}  ({check}: {count})", flush=True)
    print(f"{detected} of {len(mistakes)} mistakes detected with every seed", flush=True)


def false_alarms(total: int, runs: int) -> None:
    """Count the correct configurations that are called false."""
    limits: list[dict[str, Any]] = [
        {},
        {"bounds": Bounds(adjacency="add-remove")},
        {"bounds": Bounds(nonnegative=True, gram_share=0.5)},
        {"centring": Centring.unit_box(3)},
        {"centring": Centring.unit_box(3), "bounds": Bounds(adjacency="add-remove")},
        {"slots": 3},
        {"aggregation": "secure"},
    ]
    modes = ("own+released", "released")
    settings = list(product(mechanisms(), limits, modes, (1, 20, 100, 530)))
    wrong = doubted = 0
    for seed in range(total):
        name, limit, mode, releases = settings[seed % len(settings)]
        claim = {"algorithm": "priv-fairx-bayes", "epsilon": 2.0, "delta": 0.1}
        options = Options(**claim, mechanism=name, decide_from=mode, **limit)  # type: ignore[arg-type]
        report = audit(options, dimension=3, releases=releases, runs=runs, seed=seed)
        wrong += not report.ok
        doubted += bool(report.unconfirmed)
        if report.failed or report.unconfirmed:
            what = f"FALSE: {report.failed}" if report.failed else f"first look: {report.unconfirmed}"
            print(f"  seed {seed}, {name}, {releases} releases: {what}", flush=True)
        if (seed + 1) % 100 == 0:
            print(
                f"  {seed + 1} right runs: {wrong} called false, first look failed in {doubted}", flush=True
            )
    print(f"{wrong} of {total} right runs called false; first look failed in {doubted}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--right", type=int, default=1_000)
    parser.add_argument("--only", nargs="*", metavar="TEXT", help="mistakes whose name holds one of these")
    parser.add_argument("--runs", type=int, default=200)
    args = parser.parse_args()
    false_alarms(args.right, args.runs)
    only = args.only or [""]
    power([each for each in MISTAKES if any(text in each.name for text in only)], args.seeds, args.runs)


if __name__ == "__main__":
    main()
