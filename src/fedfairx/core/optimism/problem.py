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
from numpy.typing import NDArray

from fedfairx.arrays import Array
from fedfairx.core.exposure import expose
from fedfairx.core.merit_table import MeritTable, tilt
from fedfairx.lanes.block import Lanes, lane_count
from fedfairx.lanes.compile import leaf, stage
from fedfairx.lanes.linear import scores
from fedfairx.lanes.registers import WIDTH
from fedfairx.lanes.vector import fma, load, store, zeros


class Region(NamedTuple):
    """The confidence ellipsoid {θ : ‖θ - θ̂‖_V ≤ √β} of every lane (Alg. 1 line 5)."""

    estimate: Array  # θ̂ (d, n)
    inverse: Array  # V⁻¹ (d, d, n), or (d, d) shared by all lanes
    radius: Array  # √β (n,)


class Scratch(NamedTuple):
    """Room for one lane or a block. After `optimise`: the policy, the means and θ of every lane."""

    arms: Array  # (ARM_ROWS, K, n)
    model: Array  # (MODEL_ROWS, d, n)
    lane: Array  # (LANE_ROWS, n)
    square: Array  # (SQUARE_ROWS, d, d, n)
    spare: Array  # (spare_size,) for further starts
    codes: NDArray[np.int64]  # (SPARE_CODES,) likewise
    lanes: Lanes


# Rows of the room.
MEANS, POLICY, WEIGHTS, SHARE = range(4)
WIDTHS = WEIGHTS  # free once the ascent is over
THETA, PULL, STEP, HERE_PULL, HERE_STEP, LAST_PULL, LAST_STEP, GAP_PULL, GAP_STEP, BEST_STEP = range(10)
OBJECTIVE, BEST, BEFORE, NORM, RESIDUAL, INERTIA, MEMORY, DONE, PROVED, ALONG, TURN = range(11)
CURVATURE, TURNED = range(2)
ARM_ROWS, MODEL_ROWS, LANE_ROWS, SQUARE_ROWS = 4, 10, 11, 2
MERIT_ROWS, SPARE_CODES = 5, 2 * WIDTH


@stage
def spare_size(arms: int, dimension: int) -> int:
    """Numbers that `restarts` needs: a decision's own data once, and a block of starts."""
    own = arms * (2 * dimension + 1) + dimension * (dimension + 2)
    rows = ARM_ROWS * arms + (MODEL_ROWS + 1) * dimension + LANE_ROWS + 1 + MERIT_ROWS
    return own + WIDTH * rows


def scratch(arms: int, dimension: int, lanes: Lanes) -> Scratch:
    """Fresh room for one decision, or a block of them, among `arms` arms."""
    n = lane_count(lanes)
    return Scratch(
        zeros(ARM_ROWS, arms, n),
        zeros(MODEL_ROWS, dimension, n),
        zeros(LANE_ROWS, n),
        zeros(SQUARE_ROWS, dimension, dimension, n),
        zeros(spare_size(arms, dimension)),
        zeros(SPARE_CODES, dtype=np.int64),
        lanes,
    )


@leaf
def evaluate(contexts: Array, region: Region, merit: MeritTable, work: Scratch) -> None:
    """θ, the means, the policy and the objective at the present point; WEIGHTS gets w = ∂g/∂μ."""
    lanes = work.lanes
    theta, here = work.model[THETA], work.model[HERE_STEP]
    means, policy, weights = work.arms[MEANS], work.arms[POLICY], work.arms[WEIGHTS]
    radius = load(lanes, region.radius)
    for j in range(theta.shape[0]):
        store(fma(radius, load(lanes, here, j), load(lanes, region.estimate, j)), lanes, theta, j)
    scores(lanes, contexts, theta, means)
    objective = expose(lanes, merit, means, policy, weights)
    tilt(lanes, merit, means, policy, objective, weights)
    store(objective, lanes, work.lane, OBJECTIVE)
