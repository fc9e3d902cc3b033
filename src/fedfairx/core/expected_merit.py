"""Expected merit E f(μ) of a normally distributed mean, and the policy in proportion to it.

Fairness under uncertainty in the sense of Singh, Kempe and Joachims (2021): an arm is entitled to exposure
in proportion to its merit, averaged over the posterior. Exact for
the exponential merit, E e^{cμ} = e^{c m + c²s²/2}, and for the affine one; by adaptive quadrature for the
others (see `quadrature`). Computed in logarithms, so that merits may be arbitrarily steep.
"""

from __future__ import annotations

import math

from fedfairx.core.merit import AFFINE, CUSTOM, EXPONENTIAL
from fedfairx.core.merit_kernels import FIRST, HIGH, KIND, LOW, MOST_VARIANCE, SECOND, exponential, log_value
from fedfairx.core.policy import normalize
from fedfairx.core.posterior import squared_width
from fedfairx.core.quadrature import LOG_ROOT, log_integral
from fedfairx.lanes.decorators import stage
from fedfairx.lanes.linalg import lane_of
from fedfairx.lanes.rows import Rows, by_lane
from fedfairx.lanes.vector import fma, sqrt

FAR = -30.0  # below it Φ is taken from its asymptotic series, whose error there is 2e-12
NEGLIGIBLE = 38.0  # e^-38 is 3e-17
LARGEST = 710.0  # logarithm of what a float can be
NARROW = 1e-3  # sds: in a narrower range the closed form of an affine merit would cancel


@stage
def log_normal_below(z: float) -> float:
    """ln Φ(z), accurate far below 0."""
    if z > FAR:
        return math.log(0.5 * math.erfc(-z / math.sqrt(2.0)))
    w = 1.0 / (z * z)
    series = math.log1p(-w * (1.0 - w * (3.0 - w * (15.0 - w * 105.0))))
    return series - 0.5 * z * z - math.log(-z) - LOG_ROOT


@stage
def _excess(z: float) -> float:
    """E max(Z - z, 0) of a standard normal Z: φ(z) - z Φ(-z)."""
    return math.exp(-0.5 * z * z - LOG_ROOT) - 0.5 * z * math.erfc(z / math.sqrt(2.0))


@stage
def _log_expected_affine(merit: Rows, lane: int, sd: float, below: float, above: float) -> float:
    """ln E f(μ) of an affine merit whose range ends `below` and `above`, in sds from the mean.

    Computed from the end nearer to the mean, so that nothing cancels.
    """
    rise = merit[SECOND, lane] * sd
    if below + above > 0.0:  # the mean is in the lower half
        more = _excess(below) - _excess(above)
        return math.log(merit[FIRST, lane] + merit[SECOND, lane] * merit[LOW, lane] + rise * more)
    less = _excess(-above) - _excess(-below)
    return math.log(merit[FIRST, lane] + merit[SECOND, lane] * merit[HIGH, lane] - rise * less)


@stage
def _reach(merit: Rows, lane: int, mean: float) -> float:
    """Reach in sds beyond which merit is negligible: e^(-reach²/2) max f is far below min f ≤ E f."""
    low, high = merit[LOW, lane], merit[HIGH, lane]
    if merit[KIND, lane] == CUSTOM:  # as declared: min f, and f's Lipschitz constant
        least = math.log(merit[FIRST, lane])
        most = math.log(math.exp(log_value(merit, lane, mean)) + merit[SECOND, lane] * (high - low))
        most = min(most, LARGEST)
    else:
        least, most = log_value(merit, lane, low), log_value(merit, lane, high)
    return math.sqrt(2.0 * (most - least + NEGLIGIBLE))


@stage
def log_expected_merit(merit: Rows, lane: int, mean: float, sd: float) -> float:
    """ln E f(μ), μ ~ N(mean, sd²), of one lane's merit."""
    if merit[KIND, lane] == EXPONENTIAL:
        c = merit[FIRST, lane]
        return float(c * mean + 0.5 * (c * sd) ** 2)
    if not sd > 0.0:
        return log_value(merit, lane, mean)
    low, high = merit[LOW, lane], merit[HIGH, lane]
    below, above = (low - mean) / sd, (high - mean) / sd
    if merit[KIND, lane] == AFFINE and above - below > NARROW:
        return _log_expected_affine(merit, lane, sd, below, above)
    # Outside its range a merit is constant.
    left = log_normal_below(below) + log_value(merit, lane, low)
    right = log_normal_below(-above) + log_value(merit, lane, high)
    middle, reach = -math.inf, _reach(merit, lane, mean)
    start, end = max(below, -reach), min(above, reach)
    if start < end:
        middle = log_integral(merit, lane, mean, sd, start, end)
    top = max(left, middle, right)
    return top + math.log(math.exp(left - top) + math.exp(middle - top) + math.exp(right - top))


@stage
def saturated(variance: float, most: float) -> float:
    """v·s²/(v + s²): nearly v while it is far below s², and never above s²."""
    return variance * most / (variance + most)


@stage
def put_log_merit(
    a: int,
    mean: float,
    width: float,
    variance: float,
    merit: Rows,
    quadrature: bool | None,
    policy: Rows,
    workspace: Rows,
) -> None:
    """policy[a] ← ln E f(μ), μ ~ N(mean, saturated σ²·width). merit (MERIT_ROWS,), workspace (≥ 1,)."""
    steepness, spread = merit[FIRST], saturated(variance * width, merit[MOST_VARIANCE])
    policy[a] = steepness * fma(0.5 * steepness, spread, mean)  # c m + c²s²/2
    if quadrature is not None and not exponential(merit):
        policy[a] = mean
        workspace[0] = sqrt(spread)
        each, logit, sd = by_lane(merit), by_lane(policy), by_lane(workspace)
        for l in range(logit.shape[1]):
            logit[a, l] = log_expected_merit(each, lane_of(merit, l), logit[a, l], sd[0, l])


@stage
def put_log_merits(
    contexts: Rows,
    theta: Rows,
    inverse: Rows,
    variance: float,
    merit: Rows,
    expecting: bool,
    quadrature: bool | None,
    product: Rows,
    policy: Rows,
    beside: Rows | None,
) -> None:
    """policy ← ln E f(μ_a), μ_a ~ N(x_a·θ, σ² x_aᵀV⁻¹x_a); unless `expecting`, ln f(x_a·θ).

    contexts (K, d), theta (d,), inverse (d, d), merit (MERIT_ROWS,), policy (K,); product (d,) is workspace.
    `quadrature` is None where every merit is exponential: then nothing else is compiled.
    beside (2, K), unless it is None, is added to means and to variances over σ² (`own_record.whiten`).
    """
    for a in range(contexts.shape[0]):
        mean, width = 0.0, 0.0
        for j in range(contexts.shape[1]):
            mean = fma(contexts[a, j], theta[j], mean)
        if expecting:
            width = squared_width(contexts, a, inverse, product)
        if beside is not None:
            mean = mean + beside[0, a]
            if expecting:
                width = width + beside[1, a]
        put_log_merit(a, mean, width, variance, merit, quadrature, policy, product)


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
    """π(a) ∝ E f(μ_a), in log space; the arguments are those of `put_log_merits`."""
    put_log_merits(contexts, theta, inverse, variance, merit, expecting, quadrature, product, policy, None)
    normalize(policy)
