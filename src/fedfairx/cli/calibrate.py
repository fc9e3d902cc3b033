"""`fedfairx calibrate`: fit the parameters that the paper does not state to the B0 curve of Exp 1."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedfairx.cli.common import Output
from fedfairx.util.formatting import text_table


@dataclass(frozen=True, kw_only=True)
class Calibrate(Output):
    """Fit K, σ and the scale s of the radius to the paper's B0 curve. All experiments use the result that is
    stored in experiments/data/calibration.json.

        fedfairx calibrate --out calibration.json
        fedfairx calibrate --arms 5,10 --noise-sd 0.1

    out: write the calibration to this file.
    arms: values of K to try (default: 5,10,20).
    noise_sd: values of σ to try (default: 0.05,0.1,0.2).
    horizon: rounds of the curve to fit (default: 100000).
    workers: number of threads (default: one per processor).
    """

    out: Path | None = None
    arms: tuple[int, ...] | None = None
    noise_sd: tuple[float, ...] | None = None
    horizon: int | None = None
    workers: int | None = None

    def run(self) -> int:
        from fedfairx.experiments.calibrate import SearchGrid, calibrate, write
        from fedfairx.simulation.executors import engine

        changes: dict[str, Any] = {"arms": self.arms, "noise_sds": self.noise_sd, "horizon": self.horizon}
        changes = {name: value for name, value in changes.items() if value is not None}
        with engine("local", self.workers) as executor:
            calibration = calibrate(replace(SearchGrid(), **changes), executor=executor)
        formats = {"arms": "", "noise_sd": "g", "scale": ".3f", "error": ".3f", "at_end": ".0f"}
        trials = calibration["trials"]
        rows = [[format(trial[name], each) for name, each in formats.items()] for trial in trials]
        table = text_table(("K", "σ", "best s", "error", "B0 at T"), rows)
        self.answer(calibration, f"{table}\n\nchosen: {calibration['result']}")
        if self.out is not None:
            write(calibration, self.out)
        return 0
