"""Expected merit: E f(μ) for a mean that is known only to be normal, and the policy in proportion to it.

Fairness under uncertainty in the sense of Singh, Kempe and Joachims (2021): an arm is entitled to exposure
in proportion to its merit as it is on average over what the merit may be, given what is known. Exact for
the exponential merit, E e^{cμ} = e^{c m + c²s²/2}, and for the affine one; by quadrature for the others,
whose kinks and bends are made ends of intervals. Those of a user's own function are not known: at a kink it
is a few in 1 000 off.
"""

from __future__ import annotations

import math

import numpy as np

from fedfairx.arrays import Coordinates
from fedfairx.core.exposure import share_out
from fedfairx.core.merit import AFFINE, EXPONENTIAL, LOGISTIC
from fedfairx.core.merit_table import (
    FIRST,
    HIGH,
    KIND,
    LOW,
    SECOND,
    exponential,
    log_merit,
    merit_value,
)
from fedfairx.core.posterior import squared_width
from fedfairx.lanes.compile import stage
from fedfairx.lanes.linear import lane_of
from fedfairx.lanes.rows import Rows, by_lane
from fedfairx.lanes.vector import fma, sqrt

REACH = 8.0  # standard deviations on either side that quadrature looks at; 1e-15 of the mass lies beyond
LEVELS_OFF = 8.0  # in units of a logistic merit's steepness
NODES, WEIGHTS_OF_NODES = (np.ascontiguousarray(part) for part in np.polynomial.legendre.leggauss(20))


@stage
def normal_below(z: float) -> float:
    """Φ(z), exact in the lower tail too."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


@stage
def normal_density(z: float) -> float:
    """φ(z)."""
    return math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)


@stage
def _part(merit: Rows, lane: int, mean: float, sd: float, low: float, high: float) -> float:
    """∫ f(μ) φ((μ - mean)/sd)/sd dμ from low to high, by Gauss and Legendre's rule with 20 nodes."""
    centre, half, total = 0.5 * (low + high), 0.5 * (high - low), 0.0
    for k in range(NODES.shape[0]):
        value = centre + half * NODES[k]
        total += WEIGHTS_OF_NODES[k] * merit_value(merit, lane, value) * normal_density((value - mean) / sd)
    return total * half / sd


@stage
def log_expected_merit(merit: Rows, lane: int, mean: float, sd: float) -> float:
    """ln E f(μ), μ ~ N(mean, sd²), of one lane's merit."""
    if merit[KIND, lane] == EXPONENTIAL:
        c = merit[FIRST, lane]
        return float(c * mean + 0.5 * (c * sd) ** 2)
    if sd > 0.0:
        return math.log(expected_merit(merit, lane, mean, sd))
    value, _ = log_merit(merit, lane, mean)
    return value


@stage
def expected_merit(merit: Rows, lane: int, mean: float, sd: float) -> float:
    """E f(μ), μ ~ N(mean, sd²) with sd > 0, of one lane's merit that is not exponential."""
    low, high = merit[LOW, lane], merit[HIGH, lane]
    below, above = normal_below((low - mean) / sd), normal_below((mean - high) / sd)
    if merit[KIND, lane] == AFFINE:
        # The mean of μ held to [low, high].
        held = low * below + high * above
        held += mean * max(1.0 - below - above, 0.0)
        held += sd * (normal_density((low - mean) / sd) - normal_density((high - mean) / sd))
        return merit_value(merit, lane, held)
    total = 0.0
    if below > 0.0:  # outside its range a merit is constant
        total += below * merit_value(merit, lane, low)
    if above > 0.0:
        total += above * merit_value(merit, lane, high)
    at, last = max(low, mean - REACH * sd), min(high, mean + REACH * sd)
    while at < last:
        end = last
        if at < mean < end:  # the density's peak
            end = mean
        if merit[KIND, lane] == LOGISTIC:  # where it bends: its midpoint, and what it takes to level off
            middle, wing = merit[SECOND, lane], LEVELS_OFF / merit[FIRST, lane]
            for bend in (middle - wing, middle, middle + wing):
                if at < bend < end:
                    end = bend
        total += _part(merit, lane, mean, sd, at, end)
        at = end
    return total


@stage
def put_log_merit(
    a: int,
    mean: float,
    width: float,
    variance: float,
    merit: Rows,
    quadrature: bool | None,
    policy: Rows,
    room: Rows,
) -> None:
    """policy[a] ← ln E f(μ), μ ~ N(mean, σ²·width). merit (MERIT_ROWS,); room holds at least one number."""
    steepness = merit[FIRST]  # c m + c²s²/2 = c (m + (c σ²/2) xᵀV⁻¹x)
    policy[a] = steepness * fma(0.5 * steepness * variance, width, mean)
    if quadrature is not None and not exponential(merit):
        policy[a] = mean
        room[0] = sqrt(variance * width)
        each, logit, sd = by_lane(merit), by_lane(policy), by_lane(room)
        for l in range(logit.shape[1]):
            logit[a, l] = log_expected_merit(each, lane_of(merit, l), logit[a, l], sd[0, l])


@stage
def expose_by_posterior(
    contexts: Rows,
    theta: Rows,
    inverse: Rows,
    variance: float,
    merit: Rows,
    expecting: bool,
    quadrature: bool | None,
    product: Rows,
    policy: Rows,
) -> None:
    """π(a) ∝ E f(μ_a), μ_a ~ N(x_a·θ, σ² x_aᵀV⁻¹x_a), in log space; or, not `expecting`, π(a) ∝ f(x_a·θ).

    contexts (K, d), theta (d,), inverse (d, d), merit (MERIT_ROWS,), policy (K,); product (d,) is room.
    `quadrature` is None where every merit is exponential: then nothing else is compiled.
    """
    for a in range(contexts.shape[0]):
        mean, width = 0.0, 0.0
        for j in range(contexts.shape[1]):
            mean = fma(contexts[a, j], theta[j], mean)
        if expecting:
            width = squared_width(contexts, a, inverse, product)
        put_log_merit(a, mean, width, variance, merit, quadrature, policy, product)
    share_out(policy)


@stage
def expose_arms(
    arms: Coordinates,
    theta: Rows,
    inverse: Rows,
    variance: float,
    merit: Rows,
    expecting: bool,
    quadrature: bool | None,
    product: Rows,
    policy: Rows,
) -> None:
    """`expose_by_posterior` where contexts are unit vectors, of which arms (K,) are the coordinates."""
    for a in range(arms.shape[0]):
        width = 0.0
        if expecting:
            width = inverse[arms[a], arms[a]]
        put_log_merit(a, theta[arms[a]], width, variance, merit, quadrature, policy, product)
    share_out(policy)
