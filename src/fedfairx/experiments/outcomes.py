"""The results of runs, seed by seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfairx.util.arrays import Array

FAIRNESS, REWARD = "fairness_regret", "reward_regret"
METRICS = (FAIRNESS, REWARD)


@dataclass(frozen=True)
class Outcome:
    """The results of a run: one row for each seed.

    >>> curves = np.array([[1.0, 2.0], [1.0, 3.0]])  # two seeds, noted at two rounds
    >>> none = np.empty((2, 0))
    >>> Outcome(np.arange(2), np.array([10, 20]), curves, curves, np.zeros(2), none, none, 0.1).final()
    array([2., 3.])
    """

    seeds: NDArray[np.int64]
    rounds: NDArray[np.int64]  # (points,)
    fairness_regret: Array  # (seeds, points), cumulative, mean over agents
    reward_regret: Array
    syncs: NDArray[np.int64]  # (seeds,)
    exposure: Array  # (seeds, actions) mean share by rank of the true mean, best first; empty unless measured
    weakest: (
        Array  # (seeds, points) what the weakest action was shown over what it was due since the last point
    )
    seconds: float  # CPU time
    by_agent: Array = field(default_factory=lambda: np.empty(0))  # (seeds, agents, points) fairness regret

    def __post_init__(self) -> None:
        if not self.by_agent.size:  # not measured: one row for each seed all the same
            object.__setattr__(self, "by_agent", np.empty((len(self.seeds), 0)))

    def regret(self, metric: str) -> Array:
        """(seeds, points)."""
        return self.fairness_regret if metric == FAIRNESS else self.reward_regret

    def final(self, metric: str = FAIRNESS) -> Array:
        """(seeds,) at the horizon."""
        return self.regret(metric)[:, -1]


#: The outcomes of an experiment, by the keys of its runs.
Outcomes = Mapping[str, Outcome]
