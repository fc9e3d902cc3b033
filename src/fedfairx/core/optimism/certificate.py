"""A proof, for one decision, that the point in hand is the best of the region or of a part of it."""

from __future__ import annotations

import math

from fedfairx.arrays import Array
from fedfairx.core.merit import EXPONENTIAL
from fedfairx.core.merit_table import MeritTable
from fedfairx.core.optimism.problem import (
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
    WIDTHS,
    Region,
    Scratch,
)
from fedfairx.lanes.arithmetic import exp
from fedfairx.lanes.block import lane_count
from fedfairx.lanes.compile import leaf
from fedfairx.lanes.linear import blend, inner, largest_row, multiply, subtract_row
from fedfairx.lanes.vector import (
    absolute,
    any_above,
    fma,
    larger,
    load,
    smaller,
    sqrt,
    store,
    where_above,
)

TINY = 1e-300
STEEPEST = 300.0  # of x/2, so that e^x stays a number; where it is more, nothing is proved


@leaf
def coarse_half_widths(contexts: Array, region: Region, work: Scratch) -> None:
    """WIDTHS ← an upper bound on what `half_widths` gives, by ‖y_a‖² ≤ ‖V⁻¹‖_∞ ‖x_a - x̄‖²; costs Kd + d²."""
    lanes, centre, offset = work.lanes, work.model[PULL], work.model[GAP_PULL]
    blend(lanes, contexts, work.arms[POLICY], centre)
    longest = load(lanes, region.radius) * sqrt(largest_row(lanes, region.inverse))
    for a in range(contexts.shape[0]):
        subtract_row(lanes, contexts, a, centre, offset)
        store(longest * sqrt(inner(lanes, offset, offset)), lanes, work.arms[WIDTHS], a)


@leaf
def half_widths(contexts: Array, region: Region, work: Scratch) -> None:
    """WIDTHS ← R_a = √β ‖y_a‖, y_a = z_a - Σ_b π_b z_b: how far arm a's mean moves against the others'."""
    lanes, centre = work.lanes, work.model[PULL]
    offset, product = work.model[GAP_PULL], work.model[GAP_STEP]
    radius = load(lanes, region.radius)
    blend(lanes, contexts, work.arms[POLICY], centre)
    for a in range(contexts.shape[0]):
        subtract_row(lanes, contexts, a, centre, offset)
        multiply(lanes, region.inverse, offset, product)
        width = radius * sqrt(larger(0.0, inner(lanes, offset, product)))  # in this order NaN stays NaN
        store(width, lanes, work.arms[WIDTHS], a)


@leaf
def frobenius(contexts: Array, region: Region, work: Scratch) -> float:
    """β ‖Q‖_F of Q = Σ_a SHARE_a y_a y_aᵀ.

    Its square is the trace of (V⁻¹ Σ_a SHARE_a o_a o_aᵀ)² with o_a = x_a - x̄, x̄ as `half_widths` left it.
    """
    arms, dimension, lanes = contexts.shape[0], region.estimate.shape[0], work.lanes
    share, centre, offset = work.arms[SHARE], work.model[PULL], work.model[GAP_PULL]
    curvature, turned = work.square[CURVATURE], work.square[TURNED]
    for i in range(dimension):
        for j in range(dimension):
            store(0.0, lanes, curvature, i, j)
    for a in range(arms):
        subtract_row(lanes, contexts, a, centre, offset)
        for i in range(dimension):
            weighted = load(lanes, share, a) * load(lanes, offset, i)
            for j in range(i, dimension):
                value = fma(weighted, load(lanes, offset, j), load(lanes, curvature, i, j))
                store(value, lanes, curvature, i, j)
    for i in range(dimension):
        for j in range(i):
            store(load(lanes, curvature, j, i), lanes, curvature, i, j)
    for i in range(dimension):
        multiply(lanes, region.inverse, curvature[i], turned[i])  # row i of (curvature · V⁻¹), both symmetric
    square = 0.0
    for i in range(dimension):
        for j in range(dimension):
            square = fma(load(lanes, turned, i, j), load(lanes, turned, j, i), square)
    radius = load(lanes, region.radius)
    return radius * radius * sqrt(larger(0.0, square))  # NaN, which proves nothing, stays NaN


@leaf
def certify(
    contexts: Array, region: Region, merit: MeritTable, work: Scratch, distance: float, sharp: bool
) -> bool:
    """PROVED ← `distance` where no point within it, in u, has a larger objective; True where all are.

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
    [0, ½] and [½, 1]. Beyond e^{2·STEEPEST} they count as infinite, and nothing is proved.
    """
    arms, lanes = work.arms[MEANS].shape[0], work.lanes
    policy, means = work.arms[POLICY], work.arms[MEANS]
    objective, proved = load(lanes, work.lane, OBJECTIVE), load(lanes, work.lane, PROVED)
    c = load(lanes, merit.first)
    bound, skew, square = 0.0, 0.0, 0.0
    for a in range(arms):
        width, chance = load(lanes, work.arms[WIDTHS], a), load(lanes, policy, a)
        power = 0.5 * distance * c * width  # x/2
        half = where_above(power, STEEPEST, math.inf, exp(smaller(power, STEEPEST)))
        chi = 0.25 * (1.0 + half) * (1.0 + half)
        phi = (5.0 + half * (6.0 + half)) * (1.0 / 24.0)
        gap = absolute(load(lanes, means, a) - objective)
        mass = chance * width
        share = chance * (chi + c * phi * gap)
        store(share, lanes, work.arms[SHARE], a)
        bound = fma(share, width * width, bound)
        skew = fma(mass, gap, skew)
        square = fma(mass * width, phi, square)
    limit = 0.5 * load(lanes, region.radius) * load(lanes, work.lane, NORM)
    extra = c * c * c * distance * skew * square
    if sharp:
        # ‖Q‖_F is at least tr Q / √d: where that is too much already, the dearer norm can't help.
        least = c * bound / math.sqrt(region.estimate.shape[0]) + extra
        hope = where_above(least, limit, 0.0, 1.0) * where_above(c * bound + extra, limit, 1.0, 0.0)
        if any_above(where_above(distance, proved, hope, 0.0), 0.0):
            bound = frobenius(contexts, region, work)
    holds = where_above(limit + TINY, c * bound + extra, load(lanes, work.lane, DONE), 0.0)
    proved = where_above(holds, 0.0, larger(proved, distance), proved)
    store(proved, lanes, work.lane, PROVED)
    if not merit.exponential:  # of other merits nothing is proved
        for l in range(lane_count(lanes)):
            if merit.kind[l] != EXPONENTIAL:
                work.lane[PROVED, l] = 0.0
    return not any_above(distance, load(lanes, work.lane, PROVED))
