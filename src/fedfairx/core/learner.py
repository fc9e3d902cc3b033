"""What a learner holds, over a block of lanes; `posterior.learn_with_surprise` is how it learns."""

from __future__ import annotations

from typing import NamedTuple

from fedfairx.arrays import Array
from fedfairx.core.statistics import packed_size
from fedfairx.lanes.block import Lanes, lane_count
from fedfairx.lanes.vector import zeros


class Learner(NamedTuple):
    """The statistics that decisions come from, what is derived from them, and the observation at hand."""

    statistics: Array  # packed Gram and moment (q, n), without the regulariser
    inverse: Array  # V⁻¹ (d, d, n)
    estimate: Array  # θ̂ (d, n)
    radius: Array  # √β (n,)
    chosen: Array  # (d, n) the context being learnt
    reward: Array  # (n,) the reward being learnt
    product: Array  # (d, n) V⁻¹ x
    growth: Array  # (n,) 1 + xᵀ V⁻¹ x of the last observation: what det V grew by
    lanes: Lanes


def learner(dimension: int, lanes: Lanes, regulariser: float) -> Learner:
    """A learner that has seen nothing: V = λI, b = 0."""
    n = lane_count(lanes)
    inverse = zeros(dimension, dimension, n)
    for j in range(dimension):
        inverse[j, j] = 1.0 / regulariser
    return Learner(
        zeros(packed_size(dimension), n),
        inverse,
        zeros(dimension, n),
        zeros(n),
        zeros(dimension, n),
        zeros(n),
        zeros(dimension, n),
        zeros(n),
        lanes,
    )
