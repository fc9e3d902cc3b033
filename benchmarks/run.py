"""Run all benchmarks one after the other, each in its own process on one core."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
ONE_CORE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def main() -> int:
    made = parser(__doc__)
    made.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; default: all")
    args = made.parse_args()
    unknown = sorted(set(args.names) - set(BENCHMARKS))
    if unknown:
        made.error(f"NAME must be one of {', '.join(BENCHMARKS)}, got {', '.join(unknown)}")
    options = [flag for flag, given in (("--quick", args.quick), ("--json", args.json)) if given]
    found, failed = [], []
    for name in args.names or BENCHMARKS:
        script = Path(__file__).with_name(f"{name}.py")
        print(f"\n== {name}", file=sys.stderr if args.json else sys.stdout, flush=True)
        done = subprocess.run(
            [sys.executable, str(script), *options],
            env=os.environ | ONE_CORE,
            stdout=subprocess.PIPE if args.json else None,
            check=False,
        )
        if done.returncode:
            failed.append(name)
        elif args.json:
            found.append(json.loads(done.stdout))
    if args.json:
        print(json.dumps(found, ensure_ascii=False, indent=1))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
