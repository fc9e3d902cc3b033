"""`fedfairx calibrate`: fit what the paper does not state, on the B0 curve of Exp 1 alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedfairx.cli.common import Output, add_verb, print_json, print_table


@dataclass(frozen=True, kw_only=True)
class Calibrate(Output):
    """Flags of `fedfairx calibrate`.

    out: write the calibration to this file.
    arms: values of K to try (default: 5,10,20).
    noise_sd: values of σ to try (default: 0.05,0.1,0.2).
    horizon: rounds of the curve to fit (default: 100000).
    workers: threads (default: one per processor).
    """

    out: Path | None = None
    arms: tuple[int, ...] | None = None
    noise_sd: tuple[float, ...] | None = None
    horizon: int | None = None
    workers: int | None = None


def add(verbs: Any) -> None:
    add_verb(
        verbs,
        "calibrate",
        run,
        Calibrate,
        summary="Fit K, σ and the radius' scale s on the paper's B0 curve. "
        "The world of every experiment is the result in experiments/data/calibration.json.",
        example="""
            fedfairx calibrate --out calibration.json
            fedfairx calibrate --arms 5,10 --noise-sd 0.1""",
    )


def run(args: Calibrate) -> int:
    from fedfairx.experiments.calibrate import Settings, calibrate, write
    from fedfairx.simulation.executors import engine

    changes: dict[str, Any] = {"arms": args.arms, "noise_sds": args.noise_sd, "horizon": args.horizon}
    changes = {name: value for name, value in changes.items() if value is not None}
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
