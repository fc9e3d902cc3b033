"""The optimistic problem over a block of lanes: its region, its workspace, and its value at a point.

With V = L Lᵀ and θ = θ̂ + √β L⁻ᵀ u, ‖u‖ ≤ 1, the problem is to maximise g(u) = Σ_a π_a μ_a over the unit
ball, π ∝ f(μ). It is not concave. For every merit f, with slope ℓ = f'/f and z_a = L⁻¹ x_a,

    ∂g/∂μ_a = w_a = π_a (1 + ℓ_a (μ_a - g)),      ∇g = √β Σ_a w_a z_a.

L is never formed: a point u is held as the pair (pull, step) = (L u, L⁻ᵀ u), for which the inner product
⟨u, u'⟩ is Σ_j pull_j step'_j. One evaluation with its gradient costs 2Kd + d².
"""

from __future__ import annotations

from typing import NamedTuple

from fedfairx.core.merit_kernels import MERIT_ROWS, tilt
from fedfairx.core.policy import expose
from fedfairx.lanes.decorators import layout, stage
from fedfairx.lanes.linalg import scores
from fedfairx.lanes.rows import Rows, cut, flat, size_of
from fedfairx.lanes.vector import fma
from fedfairx.lanes.vector_llvm import WIDTH


class Region(NamedTuple):
    """The confidence ellipsoid {θ : ‖θ - θ̂‖_V ≤ √β} of every lane, or one of all lanes (Alg. 1 line 5)."""

    estimate: Rows  # (d,) θ̂
    inverse: Rows  # (d, d) V⁻¹
    radius: Rows  # (1,) √β


class Scratch(NamedTuple):
    """Workspace of one lane or a block. After `optimise` it holds policy, means and θ of every lane."""

    arms: Rows  # (ARM_ROWS, K)
    model: Rows  # (MODEL_ROWS, d)
    lane: Rows  # (LANE_ROWS,)
    square: Rows  # (SQUARE_ROWS, d, d)
    spare: Rows  # floats, for further starts


# Rows of the workspace.
MEANS, POLICY, WEIGHTS, SHARE = range(4)
HALF_WIDTHS = WEIGHTS  # free once the ascent is over
THETA, PULL, STEP, HERE_PULL, HERE_STEP, LAST_PULL, LAST_STEP, GAP_PULL, GAP_STEP, BEST_STEP = range(10)
OBJECTIVE, BEST, BEFORE, NORM, RESIDUAL, INERTIA, MEMORY, DONE, PROVED, ALONG, TURN = range(11)
CURVATURE, TURNED = range(2)
ARM_ROWS, MODEL_ROWS, LANE_ROWS, SQUARE_ROWS = 4, 10, 11, 2


@layout
def scratch(memory: Rows, arms: int, dimension: int) -> Scratch:
    """Lay out the workspace of a decision among `arms` arms in flat rows; `spare` is the remainder."""
    arm_rows, rest = cut(memory, ARM_ROWS, arms)
    model, rest = cut(rest, MODEL_ROWS, dimension)
    lane, rest = cut(rest, LANE_ROWS)
    square, rest = cut(rest, SQUARE_ROWS, dimension, dimension)
    return Scratch(arm_rows, model, lane, square, flat(rest))


class Starts(NamedTuple):
    """One decision and its block of starts: see `solver.restart`."""

    contexts: Rows  # (K, d)
    steps: Rows  # (K, d) V⁻¹x_a
    bounds: Rows  # (K,) upper bound of each arm that is worth a start, -inf of the others
    here_pull: Rows  # (d,) the present point
    here_step: Rows  # (d,)
    region: Region  # of every start: the same
    merit: Rows  # (MERIT_ROWS,) likewise
    work: Scratch  # a block


@layout
def starts_in(spare: Rows, work: Scratch, arms: int, dimension: int) -> Starts:
    """Lay out in flat floats what the starts of a decision share; `work` is their block."""
    contexts, rest = cut(spare, arms, dimension)
    steps, rest = cut(rest, arms, dimension)
    bounds, rest = cut(rest, arms)
    here_pull, rest = cut(rest, dimension)
    here_step, rest = cut(rest, dimension)
    estimate, rest = cut(rest, dimension)
    inverse, rest = cut(rest, dimension, dimension)
    radius, rest = cut(rest, 1)
    merit, rest = cut(rest, MERIT_ROWS)
    region = Region(estimate, inverse, radius)
    return Starts(contexts, steps, bounds, here_pull, here_step, region, merit, work)


def scratch_size(arms: int, dimension: int, *, lanes: int) -> int:
    """Number of flat rows of `lanes` lanes that `scratch` and the starts of one lane need."""
    own = size_of(scratch, arms, dimension)
    # Vectors are aligned: up to two of them are lost at the ends.
    spare = (own + 2) * WIDTH + size_of(starts_in, None, arms, dimension)
    return own + -(-spare // lanes)


@stage
def evaluate(contexts: Rows, region: Region, merit: Rows, work: Scratch) -> None:
    """θ, the means, the policy and the objective at the present point; WEIGHTS gets w = ∂g/∂μ."""
    theta, here = work.model[THETA], work.model[HERE_STEP]
    means, policy, weights = work.arms[MEANS], work.arms[POLICY], work.arms[WEIGHTS]
    for j in range(theta.shape[0]):
        theta[j] = fma(region.radius[0], here[j], region.estimate[j])
    scores(contexts, theta, means)
    objective = expose(merit, means, policy, weights)
    tilt(merit, means, policy, objective, weights)
    work.lane[OBJECTIVE] = objective


@stage
def evaluate_again(contexts: Rows, region: Region, merit: Rows, work: Scratch) -> None:
    """`evaluate` as a call instead of inlined code, for rare or large evaluations."""
    evaluate(contexts, region, merit, work)
