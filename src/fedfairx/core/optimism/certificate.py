"""A certificate, for one decision, that a point is the best of the region or of a part of it."""

from __future__ import annotations

import math

from fedfairx.core.merit import EXPONENTIAL
from fedfairx.core.merit_kernels import FIRST, KIND, exponential
from fedfairx.core.optimism.problem import (
    CURVATURE,
    DONE,
    GAP_PULL,
    GAP_STEP,
    HALF_WIDTHS,
    MEANS,
    NORM,
    OBJECTIVE,
    POLICY,
    PROVED,
    PULL,
    SHARE,
    TURNED,
    Region,
    Scratch,
)
from fedfairx.lanes.decorators import stage
from fedfairx.lanes.linalg import blend, inner, lane_of, largest_row
from fedfairx.lanes.rows import Rows, by_lane
from fedfairx.lanes.vector import absolute, any_above, fma, larger, smaller, sqrt, where_above
from fedfairx.lanes.vector_math import exp

TINY = 1e-300
STEEPEST = 300.0  # of x/2, so that e^x stays a number; where it is more, nothing is proved


@stage
def _offset(contexts: Rows, arm: int, centre: Rows, offset: Rows) -> None:
    """offset = x_arm - centre. centre and offset (d,)."""
    for j in range(centre.shape[0]):
        offset[j] = contexts[arm, j] - centre[j]


@stage
def half_widths(contexts: Rows, region: Region, work: Scratch) -> None:
    """HALF_WIDTHS ← R_a = √β ‖y_a‖, y_a = z_a - Σ_b π_b z_b: how far a's mean moves against the others'."""
    centre = work.model[PULL]
    offset, product = work.model[GAP_PULL], work.model[GAP_STEP]
    radius = region.radius[0]
    blend(contexts, work.arms[POLICY], centre)
    for a in range(contexts.shape[0]):
        _offset(contexts, a, centre, offset)
        blend(region.inverse, offset, product)
        width = radius * sqrt(larger(0.0, inner(offset, product)))  # in this order NaN stays NaN
        work.arms[HALF_WIDTHS, a] = width


@stage
def frobenius(contexts: Rows, region: Region, work: Scratch) -> float:
    """β ‖Q‖_F of Q = Σ_a SHARE_a y_a y_aᵀ.

    Its square is the trace of (V⁻¹ Σ_a SHARE_a o_a o_aᵀ)² with o_a = x_a - x̄, x̄ as `half_widths` left it.
    """
    arms, dimension = contexts.shape
    share, centre, offset = work.arms[SHARE], work.model[PULL], work.model[GAP_PULL]
    curvature, turned = work.square[CURVATURE], work.square[TURNED]
    for i in range(dimension):
        for j in range(dimension):
            curvature[i, j] = 0.0
    for a in range(arms):
        _offset(contexts, a, centre, offset)
        for i in range(dimension):
            weighted = share[a] * offset[i]
            for j in range(i, dimension):
                curvature[i, j] = fma(weighted, offset[j], curvature[i, j])
    for i in range(dimension):
        for j in range(i):
            curvature[i, j] = curvature[j, i]
    for i in range(dimension):
        blend(region.inverse, curvature[i], turned[i])  # row i of (curvature · V⁻¹), both symmetric
    square = 0.0
    for i in range(dimension):
        for j in range(dimension):
            square = fma(turned[i, j], turned[j, i], square)
    radius = region.radius[0]
    return radius * radius * sqrt(larger(0.0, square))  # NaN, which proves nothing, stays NaN


@stage
def certify(contexts: Rows, region: Region, merit: Rows, work: Scratch, distance: float) -> bool:
    """PROVED ← `distance` where no point within it, in u, has a larger objective; True where all are.

    For the exponential merit of steepness c, at a fixed point u with ∇g = √β n u. Take any v of the ball,
    s = v - u, ε_a = √β y_a · s (so Σ π_a ε_a = 0 and |ε_a| ≤ R_a ‖s‖) and Δ_a = μ_a - g. The policy at v is
    π_a e^{cε_a} / D with D = Σ π_a e^{cε_a} ≥ 1, and because u·s ≤ -‖s‖²/2 on the ball,

        g(v) - g(u) ≤ -½ √β n ‖s‖² + Σ π_a e^{cε_a} (Δ_a + ε_a) / D - c Σ π_a Δ_a ε_a.

    With x_a = c R_a ‖s‖, e^x - 1 ≤ x χ and e^x - 1 - x ≤ x² φ, the last two terms are at most
    ‖s‖² [ c Σ π R² χ + c² Σ π R² φ |Δ| + c³ ‖s‖ (Σ π R |Δ|)(Σ π R² φ) ]. Where the bracket is at most ½ √β n
    with x taken at `distance`, u is the best within it; a distance of 2 is the whole ball.
    The first two sums are β‖s‖² times a trace, of Q = Σ_a π_a (χ_a + c φ_a |Δ_a|) y_a y_aᵀ. Where the trace
    is too much, the Frobenius norm of Q, which bounds what any one direction s can feel, may not be.
    """
    arms = contexts.shape[0]
    policy, means = work.arms[POLICY], work.arms[MEANS]
    objective, proved = work.lane[OBJECTIVE], work.lane[PROVED]
    c = merit[FIRST]
    bound, skew, square = 0.0, 0.0, 0.0
    for a in range(arms):
        width, chance = work.arms[HALF_WIDTHS, a], policy[a]
        chi, phi = _chords(0.5 * distance * c * width)
        gap = absolute(means[a] - objective)
        mass = chance * width
        share = chance * (chi + c * phi * gap)
        work.arms[SHARE, a] = share
        bound = fma(share, width * width, bound)
        skew = fma(mass, gap, skew)
        square = fma(mass * width, phi, square)
    limit = _limit(region, work)
    extra = c * c * c * distance * skew * square
    # ‖Q‖_F is at least tr Q / √d: where that is too much already, the more expensive norm can't help.
    least = c * bound / math.sqrt(region.estimate.shape[0]) + extra
    hope = where_above(least, limit, 0.0, 1.0) * where_above(c * bound + extra, limit, 1.0, 0.0)
    if any_above(where_above(distance, proved, hope, 0.0), 0.0):
        bound = frobenius(contexts, region, work)
    return _conclude(region, merit, work, distance, c * bound + extra)


@stage
def certify_coarsely(contexts: Rows, region: Region, merit: Rows, work: Scratch, distance: float) -> bool:
    """`certify` at a cost of Kd + d² and a single exponential; it proves less than `certify`.

    R_a² ≤ r_a² = β ‖V⁻¹‖_∞ ‖x_a - x̄‖², χ and φ are taken at the largest r_a, and
    Σ π r |Δ| ≤ √(Σ π r² · Σ π Δ²).
    """
    policy, means, centre = work.arms[POLICY], work.arms[MEANS], work.model[PULL]
    blend(contexts, policy, centre)
    widest, spread, lean, scatter = 0.0, 0.0, 0.0, 0.0
    for a in range(contexts.shape[0]):
        square = 0.0
        for j in range(centre.shape[0]):
            offset = contexts[a, j] - centre[j]
            square = fma(offset, offset, square)
        gap = absolute(means[a] - work.lane[OBJECTIVE])
        mass = policy[a] * square
        widest = larger(widest, square)
        spread = spread + mass
        lean = fma(mass, gap, lean)
        scatter = fma(policy[a] * gap, gap, scatter)
    c, radius = merit[FIRST], region.radius[0]
    scale = radius * radius * largest_row(region.inverse)
    chi, phi = _chords(0.5 * distance * c * sqrt(scale * widest))
    spread = scale * spread
    bracket = chi * spread + c * phi * scale * lean
    bracket = bracket + c * c * distance * phi * spread * sqrt(spread * scatter)
    return _conclude(region, merit, work, distance, c * bracket)


@stage
def _chords(power: float) -> tuple[float, float]:
    """χ and φ at x = 2 · `power`, at least.

    χ = ∫₀¹ e^{sx} ds and φ = ∫₀¹ (1 - s) e^{sx} ds are bounded by the chords of the convex e^{sx} over
    [0, ½] and [½, 1]. Beyond e^{2·STEEPEST} they count as infinite, and nothing is proved.
    """
    half = where_above(power, STEEPEST, math.inf, exp(smaller(power, STEEPEST)))
    return 0.25 * (1.0 + half) * (1.0 + half), (5.0 + half * (6.0 + half)) * (1.0 / 24.0)


@stage
def _limit(region: Region, work: Scratch) -> float:
    """½ √β n."""
    return 0.5 * region.radius[0] * work.lane[NORM]


@stage
def _conclude(region: Region, merit: Rows, work: Scratch, distance: float, bracket: float) -> bool:
    """PROVED ← `distance` where the bracket allows it; True where all are proved as far."""
    holds = where_above(_limit(region, work) + TINY, bracket, work.lane[DONE], 0.0)
    proved = work.lane[PROVED]
    work.lane[PROVED] = where_above(holds, 0.0, larger(proved, distance), proved)
    if not exponential(merit):  # nothing is proved for other merits
        each, lane = by_lane(merit), by_lane(work.lane)
        for l in range(lane.shape[1]):
            if each[KIND, lane_of(merit, l)] != EXPONENTIAL:
                lane[PROVED, l] = 0.0
    return not any_above(distance, work.lane[PROVED])
