"""`fedfairx calibrate`: fit what the paper does not state, on the B0 curve of Exp 1 alone."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedfairx.cli.common import add_json, add_verb, print_json, print_table


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "calibrate",
        run,
        summary="fit K, σ and the radius' scale s on the paper's B0 curve",
        details="The world of every experiment is the result in experiments/data/calibration.json.",
        example="fedfairx calibrate --out calibration.json",
    )
    parser.add_argument("--out", type=Path, help="write the calibration to this file (default: none)")
    parser.add_argument("--arms", type=int, nargs="+", help="values of K to try (default: 5 10 20)")
    parser.add_argument(
        "--noise-sd", type=float, nargs="+", help="values of σ to try (default: 0.05 0.1 0.2)"
    )
    parser.add_argument("--horizon", type=int, help="rounds of the curve to fit (default: 100000)")
    parser.add_argument("--workers", type=int, help="threads (default: one per processor)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from fedfairx.experiments.calibrate import Settings, calibrate, write
    from fedfairx.simulation.executors import engine

    given = {"arms": args.arms, "noise_sds": args.noise_sd, "horizon": args.horizon}
    changes: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
        if value is not None
    }
    with engine("local", args.workers) as executor:
        found = calibrate(replace(Settings(), **changes), executor=executor)
    if args.json:
        print_json(found)
    else:
        rows = [
            (t["arms"], f"{t['noise_sd']:g}", f"{t['scale']:.3f}", f"{t['error']:.3f}", f"{t['at_end']:.0f}")
            for t in found["trials"]
        ]
        print_table(("K", "σ", "best s", "error", "B0 at T"), rows)
        print(f"\nchosen: {found['result']}")
    if args.out is not None:
        write(found, args.out)
    return 0
