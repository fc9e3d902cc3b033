"""Run benchmarks one after the other, each in its own process on one core, and print one table of figures.

    python benchmarks/run.py                      # all but the long ones, about ten minutes on one core
    python benchmarks/run.py --quick              # smaller and noisier: does everything run?
    python benchmarks/run.py decide first_shares  # some of them
    python benchmarks/run.py --json > run.json    # figures as JSON

What is measured is printed on standard error meanwhile. The table is Markdown, with date, commit and machine.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from measure import parser

BENCHMARKS = (
    "decide",
    "shares",
    "scaling",
    "startup",
    "durable",
    "simulate",
    "memory",
    "solver",
    "release",
    "service",
    "federation",
)
#: Only by name: they take ten minutes to an hour.
LONG = (
    "versions",
    "first_shares",
    "little_known",
    "intercept",
    "own_record",
    "joining",
    "verdicts",
    "coverage",
    "members",
    "loss",
)
ONE_CORE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
FOLDER = Path(__file__).resolve().parent
HEAD = "| benchmark | figure | value | middle half | goal |\n| --- | --- | --- | --- | --- |"


def main() -> int:
    made = parser(__doc__)
    known = (*BENCHMARKS, *LONG)
    made.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; default: all up to {BENCHMARKS[-1]}"
    )
    args = made.parse_args()
    unknown = sorted(set(args.names) - set(known))
    if unknown:
        made.error(f"NAME must be one of {', '.join(known)}, got {', '.join(unknown)}")
    found, failed = [], []
    for name in args.names or BENCHMARKS:
        print(f"\n== {name}", file=sys.stderr, flush=True)
        command = [sys.executable, str(FOLDER / f"{name}.py"), "--json", *["--quick"] * args.quick]
        done = subprocess.run(command, env=os.environ | ONE_CORE, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            failed.append(name)
        else:
            found.append(json.loads(done.stdout))
    measured = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": commit(), "machine": machine()}
    if args.json:
        print(json.dumps(measured | {"benchmarks": found}, ensure_ascii=False, indent=1))
    else:
        print(f"\n*{', '.join(measured.values())}{', quick' * args.quick}.*\n\n{HEAD}")
        for benchmark in found:
            for figure in benchmark["figures"]:
                print(row(benchmark["benchmark"], figure))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def commit() -> str:
    """The commit that is checked out, and whether anything differs from it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no commit"


def machine() -> str:
    """The machine, with the load that it had."""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{os.cpu_count()} cores {platform.machine()}{load}, Python {platform.python_version()}"


def row(benchmark: str, figure: dict[str, Any]) -> str:
    """| benchmark | figure | value | middle half | goal |"""

    def short(value: float) -> str:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"

    spread = "" if figure["low"] is None else f"{short(figure['low'])} to {short(figure['high'])}"
    goal = ""
    if figure["met"] is not None:
        bound = "≤" if figure["at_most"] is not None else "≥"
        limit = figure["at_most"] if figure["at_most"] is not None else figure["at_least"]
        goal = f"{bound} {short(limit)}{'' if figure['met'] else ', **missed**'}"
    name = f"{figure['section']}: {figure['name'].strip()}" if figure["section"] else figure["name"]
    return f"| {benchmark} | {name} | {short(figure['value'])} {figure['unit']} | {spread} | {goal} |"


if __name__ == "__main__":
    raise SystemExit(main())
