"""How often the audit detects each mistake of tests/support/broken.py, and how often it accuses correct code.

    python benchmarks/audit_power.py --seeds 100 --right 1000

Both use fewer releases and runs than the audit, which makes detection harder. The correct configurations
cover every mechanism, both adjacencies, signs known or not, and centring, each with its own seed; "first
look" counts those that failed the first look and passed the second. All mistakes with one seed take about
20 seconds, a correct configuration half a second.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from broken import MISTAKES, asked, mistake
from fedfairx.privacy import Bounds, Centring, mechanisms
from fedfairx.privacy.audit.audit import audit


def power(names: list[str], seeds: int, releases: int, runs: int) -> None:
    """Count the seeds in which each mistake is detected, and name the check that detects it most often."""
    for name in names:
        by: Counter[str] = Counter()
        caught = 0
        for seed in range(seeds):
            report = audit(**mistake(name, asked(releases=releases)), runs=runs, seed=seed)
            caught += not report.ok
            by.update(report.failed)
        check, count = by.most_common(1)[0] if by else ("nothing", 0)
        print(f"{caught:4d} of {seeds}  {name}  ({check}: {count})", flush=True)


def false_alarms(total: int, runs: int) -> None:
    """Count the correct configurations that are called false."""
    box = Centring.unit_box(3)
    limits = [
        (Bounds(), None),
        (Bounds(adjacency="add-remove"), None),
        (Bounds(nonnegative=True, gram_share=0.5), None),
        (box.inner_bounds(), box),
        (box.inner_bounds(adjacency="add-remove"), box),
    ]
    settings = list(product(mechanisms(), limits, (1, 20, 100)))
    wrong = doubted = 0
    for seed in range(total):
        name, (bounds, centring), releases = settings[seed % len(settings)]
        made = asked(name, releases, bounds)
        report = audit(made, bounds=bounds, dimension=3, centring=centring, runs=runs, seed=seed)
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
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--right", type=int, default=1_000)
    parser.add_argument("--only", nargs="*", metavar="TEXT", help="mistakes whose name holds one of these")
    parser.add_argument("--releases", type=int, default=64)
    parser.add_argument("--runs", type=int, default=500)
    args = parser.parse_args()
    false_alarms(args.right, args.runs)
    names = [name for name in MISTAKES if not args.only or any(text in name for text in args.only)]
    power(names, args.seeds, args.releases, args.runs)


if __name__ == "__main__":
    main()
