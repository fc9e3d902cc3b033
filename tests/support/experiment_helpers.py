"""Small runs and made-up outcomes."""

from __future__ import annotations

import numpy as np

from fedfairx.experiments import Outcome, Run
from fedfairx.simulation import Scenario


def small_run(
    key: str = "small", *, horizon: int = 30, algorithm: str = "fed-fairx-linucb", **options
) -> Run:
    return Run(key, Scenario(agents=2, arms=3, dimension=2, horizon=horizon), algorithm, options)


def outcome(seeds=(0, 1), *, points: int = 4, scale: float = 1.0, arms: int = 3) -> Outcome:
    seeds = np.array(seeds, dtype=np.int64)
    curve = np.arange(1.0, points + 1) * scale
    return Outcome(
        seeds=seeds,
        rounds=np.arange(1, points + 1) * 10,
        fairness_regret=curve + 0.1 * seeds[:, None],
        reward_regret=-curve + 0.1 * seeds[:, None],
        syncs=np.full(seeds.size, 7),
        exposure=np.full((seeds.size, arms), 1 / arms),
        weakest=np.ones((seeds.size, points)),
        seconds=0.5,
    )
