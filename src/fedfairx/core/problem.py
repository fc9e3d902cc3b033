"""The optimistic problem over a block of lanes: its region, its room to work in, and its value at a point.

With V = L Lᵀ and θ = θ̂ + √β L⁻ᵀ u, ‖u‖ ≤ 1, the problem is to maximise g(u) = Σ_a π_a μ_a over the unit
ball, π ∝ f(μ). It is not concave. For every merit f, with slope ℓ = f'/f and z_a = L⁻¹ x_a,

    ∂g/∂μ_a = w_a = π_a (1 + ℓ_a (μ_a - g)),      ∇g = √β Σ_a w_a z_a.

L is never formed: a point u is held as the pair (pull, step) = (L u, L⁻ᵀ u), for which the inner product
⟨u, u'⟩ is Σ_j pull_j step'_j. One evaluation with its gradient costs 2Kd + d².
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedfairx.core.arithmetic import fma
from fedfairx.core.compile import stage
from fedfairx.core.exposure import expose
from fedfairx.core.lanes import Lanes, lane_count
from fedfairx.core.linear import scores
from fedfairx.core.merit import MeritTable, tilt
from fedfairx.core.statistics import Array


class Region(NamedTuple):
    """The confidence ellipsoid {θ : ‖θ - θ̂‖_V ≤ √β} of every lane (Alg. 1 line 5)."""

    estimate: Array  # θ̂ (d, n)
    inverse: Array  # V⁻¹ (d, d, n), or (d, d) shared by all lanes
    radius: Array  # √β (n,)


class Scratch(NamedTuple):
    """Room for a block of lanes. After `optimise`: the policy, the means and θ of every lane."""

    arms: Array  # (ARM_ROWS, K, n)
    model: Array  # (MODEL_ROWS, d, n)
    lane: Array  # (LANE_ROWS, n)
    square: Array  # (SQUARE_ROWS, d, d, n)
    lanes: Lanes


# Rows of the room.
MEANS, POLICY, WEIGHTS, SHARE = range(4)
WIDTH = WEIGHTS  # free once the ascent is over
THETA, PULL, STEP, HERE_PULL, HERE_STEP, LAST_PULL, LAST_STEP, GAP_PULL, GAP_STEP, BEST_STEP = range(10)
OBJECTIVE, BEST, BEFORE, NORM, RESIDUAL, INERTIA, MEMORY, DONE, PROVED, A, B = range(11)
CURVATURE, TURNED = range(2)
ARM_ROWS, MODEL_ROWS, LANE_ROWS, SQUARE_ROWS = 4, 10, 11, 2


def scratch(arms: int, dimension: int, lanes: Lanes) -> Scratch:
    """Fresh room for `lanes` decisions among `arms` arms."""
    n = lane_count(lanes)
    return Scratch(
        np.zeros((ARM_ROWS, arms, n)),
        np.zeros((MODEL_ROWS, dimension, n)),
        np.zeros((LANE_ROWS, n)),
        np.zeros((SQUARE_ROWS, dimension, dimension, n)),
        lanes,
    )


@stage
def evaluate(contexts: Array, region: Region, merit: MeritTable, work: Scratch) -> None:
    """θ, the means, the policy and the objective at the present point; WEIGHTS gets w = ∂g/∂μ."""
    theta, here = work.model[THETA], work.model[HERE_STEP]
    means, policy, weights = work.arms[MEANS], work.arms[POLICY], work.arms[WEIGHTS]
    objective, radius, estimate = work.lane[OBJECTIVE], region.radius, region.estimate
    dimension = theta.shape[0]
    lanes = work.lanes
    for j in range(dimension):
        for l in range(lane_count(lanes)):
            theta[j, l] = fma(radius[l], here[j, l], estimate[j, l])
    scores(lanes, contexts, theta, means)
    expose(lanes, merit, means, policy, weights, objective, work.lane[A])
    tilt(lanes, merit, means, policy, objective, weights)
