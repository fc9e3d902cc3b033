"""A proof, for one decision, that the point in hand is the best of the region or of a part of it."""

from __future__ import annotations

import math

from fedfairx.core.arithmetic import exp, fma
from fedfairx.core.compile import stage
from fedfairx.core.lanes import lane_count
from fedfairx.core.linear import blend, largest_row, multiply, subtract_row
from fedfairx.core.merit import EXPONENTIAL, MeritTable
from fedfairx.core.problem import (
    BEFORE,
    CURVATURE,
    DONE,
    GAP_PULL,
    GAP_STEP,
    MEANS,
    NORM,
    OBJECTIVE,
    POLICY,
    PROVED,
    PULL,
    SHARE,
    TURNED,
    WIDTH,
    A,
    B,
    Region,
    Scratch,
)
from fedfairx.core.statistics import Array


@stage
def coarse_half_widths(contexts: Array, region: Region, work: Scratch) -> None:
    """WIDTH ← an upper bound on what `half_widths` gives, by ‖y_a‖² ≤ ‖V⁻¹‖_∞ ‖x_a - x̄‖²; costs Kd + d²."""
    arms = contexts.shape[0]
    dimension, lanes = region.estimate.shape[0], work.lanes
    width = work.arms[WIDTH]
    centre, offset, largest = work.model[PULL], work.model[GAP_PULL], work.lane[A]
    radius = region.radius
    blend(lanes, contexts, work.arms[POLICY], centre)
    largest_row(lanes, region.inverse, largest, work.lane[B])
    for l in range(lane_count(lanes)):
        largest[l] = radius[l] * math.sqrt(largest[l])
    for a in range(arms):
        subtract_row(lanes, contexts, a, centre, offset)
        for l in range(lane_count(lanes)):
            width[a, l] = 0.0
        for j in range(dimension):
            for l in range(lane_count(lanes)):
                width[a, l] = fma(offset[j, l], offset[j, l], width[a, l])
        for l in range(lane_count(lanes)):
            width[a, l] = largest[l] * math.sqrt(width[a, l])


@stage
def half_widths(contexts: Array, region: Region, work: Scratch) -> None:
    """WIDTH ← R_a = √β ‖y_a‖, y_a = z_a - Σ_b π_b z_b: how far arm a's mean can move against the others'."""
    arms = contexts.shape[0]
    dimension, lanes = region.estimate.shape[0], work.lanes
    width = work.arms[WIDTH]
    centre, offset, product = work.model[PULL], work.model[GAP_PULL], work.model[GAP_STEP]
    radius = region.radius
    blend(lanes, contexts, work.arms[POLICY], centre)
    for a in range(arms):
        subtract_row(lanes, contexts, a, centre, offset)
        multiply(lanes, region.inverse, offset, product)
        for l in range(lane_count(lanes)):
            width[a, l] = 0.0
        for j in range(dimension):
            for l in range(lane_count(lanes)):
                width[a, l] = fma(offset[j, l], product[j, l], width[a, l])
        for l in range(lane_count(lanes)):
            width[a, l] = radius[l] * math.sqrt(max(width[a, l], 0.0))


@stage
def frobenius(contexts: Array, region: Region, work: Scratch) -> None:
    """A ← β ‖Q‖_F of Q = Σ_a SHARE_a y_a y_aᵀ.

    Its square is the trace of (V⁻¹ Σ_a SHARE_a o_a o_aᵀ)² with o_a = x_a - x̄, x̄ as `half_widths` left it.
    """
    arms = contexts.shape[0]
    dimension, lanes = region.estimate.shape[0], work.lanes
    share, norm, radius = work.arms[SHARE], work.lane[A], region.radius
    centre, offset = work.model[PULL], work.model[GAP_PULL]
    curvature, turned = work.square[CURVATURE], work.square[TURNED]
    for i in range(dimension):
        for j in range(i, dimension):
            for l in range(lane_count(lanes)):
                curvature[i, j, l] = 0.0
    for a in range(arms):
        subtract_row(lanes, contexts, a, centre, offset)
        for i in range(dimension):
            for j in range(i, dimension):
                for l in range(lane_count(lanes)):
                    curvature[i, j, l] = fma(share[a, l] * offset[i, l], offset[j, l], curvature[i, j, l])
    for i in range(dimension):
        for j in range(i):
            for l in range(lane_count(lanes)):
                curvature[i, j, l] = curvature[j, i, l]
    for i in range(dimension):
        multiply(lanes, region.inverse, curvature[i], turned[i])  # row i of (curvature · V⁻¹), both symmetric
    for l in range(lane_count(lanes)):
        norm[l] = 0.0
    for i in range(dimension):
        for j in range(dimension):
            for l in range(lane_count(lanes)):
                norm[l] = fma(turned[i, j, l], turned[j, i, l], norm[l])
    for l in range(lane_count(lanes)):
        norm[l] = radius[l] * radius[l] * math.sqrt(max(norm[l], 0.0))


@stage
def certify(
    contexts: Array, region: Region, merit: MeritTable, work: Scratch, distance: float, sharp: bool
) -> int:
    """PROVED ← `distance` where no point within it, in u, has a larger objective. Returns how many lanes.

    For the exponential merit of steepness c, at a fixed point u with ∇g = √β n u. Take any v of the ball,
    s = v - u, ε_a = √β y_a · s (so Σ π_a ε_a = 0 and |ε_a| ≤ R_a ‖s‖) and Δ_a = μ_a - g. The policy at v is
    π_a e^{cε_a} / D with D = Σ π_a e^{cε_a} ≥ 1, and because u·s ≤ -‖s‖²/2 on the ball,

        g(v) - g(u) ≤ -½ √β n ‖s‖² + Σ π_a e^{cε_a} (Δ_a + ε_a) / D - c Σ π_a Δ_a ε_a.

    With x_a = c R_a ‖s‖, e^x - 1 ≤ x χ and e^x - 1 - x ≤ x² φ, the last two terms are at most
    ‖s‖² [ c Σ π R² χ + c² Σ π R² φ |Δ| + c³ ‖s‖ (Σ π R |Δ|)(Σ π R² φ) ]. Where the bracket is at most ½ √β n
    with x taken at `distance`, u is the best within it; a distance of 2 is the whole ball.
    The first two sums are β‖s‖² times a trace, of Q = Σ_a π_a (χ_a + c φ_a |Δ_a|) y_a y_aᵀ. `sharp` takes the
    Frobenius norm of Q instead, which bounds what any one direction s can feel, and is dearer by Kd² + d³.
    χ = ∫₀¹ e^{sx} ds and φ = ∫₀¹ (1 - s) e^{sx} ds are bounded by the chords of the convex e^{sx} over
    [0, ½] and [½, 1].
    """
    arms, lanes = work.arms[MEANS].shape[0], work.lanes
    policy, means = work.arms[POLICY], work.arms[MEANS]
    width, share = work.arms[WIDTH], work.arms[SHARE]
    objective, norm, proved = work.lane[OBJECTIVE], work.lane[NORM], work.lane[PROVED]
    done, steepness, kind, radius = work.lane[DONE], merit.first, merit.kind, region.radius
    bound, skew, square = work.lane[A], work.lane[B], work.lane[BEFORE]
    for l in range(lane_count(lanes)):
        bound[l] = 0.0
        skew[l] = 0.0
        square[l] = 0.0
    for a in range(arms):
        for l in range(lane_count(lanes)):
            half = exp(min(0.5 * steepness[l] * width[a, l] * distance, 300.0))  # e^{x/2}
            chi = 0.25 * (1.0 + half) * (1.0 + half)
            phi = (5.0 + half * (6.0 + half)) / 24.0
            gap = abs(means[a, l] - objective[l])
            mass = policy[a, l] * width[a, l]
            share[a, l] = policy[a, l] * (chi + steepness[l] * phi * gap)
            bound[l] = fma(share[a, l], width[a, l] * width[a, l], bound[l])
            skew[l] += mass * gap
            square[l] += mass * width[a, l] * phi
    if sharp:
        # ‖Q‖_F is at least tr Q / √d: where that is too much already, the dearer norm can't help.
        least = 1.0 / math.sqrt(region.estimate.shape[0])
        hopeful = False
        for l in range(lane_count(lanes)):
            limit = 0.5 * radius[l] * norm[l]
            extra = steepness[l] ** 3 * distance * skew[l] * square[l]
            open_question = steepness[l] * bound[l] + extra > limit and proved[l] < distance
            hopeful = hopeful or (open_question and least * steepness[l] * bound[l] + extra <= limit)
        if hopeful:
            frobenius(contexts, region, work)
    found = 0
    for l in range(lane_count(lanes)):
        c = steepness[l]
        bracket = c * bound[l] + c * c * c * distance * skew[l] * square[l]
        if (
            bracket <= 0.5 * radius[l] * norm[l]
            and done[l] > 0.0
            and kind[l] == EXPONENTIAL
            and proved[l] < distance
        ):
            proved[l] = distance
            found += 1
    return found
