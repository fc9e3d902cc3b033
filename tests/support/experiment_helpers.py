"""Small runs and made-up outcomes, and what a report says without drawing."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import TypeVar

import numpy as np

from fedfairx import Scenario
from paper import Experiment, Outcome, Picture, Results, Run, Size

T = TypeVar("T")


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


def said(experiment: Experiment, outcomes: Mapping[str, Outcome], size: Size, kind: type[T]) -> list[T]:
    """The parts of a kind that come before the first picture."""
    parts = experiment.parts(Results(outcomes), size)
    before = takewhile(lambda part: not isinstance(part, Picture), parts)
    return [part for part in before if type(part) is kind]
