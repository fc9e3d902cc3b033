"""Merit functions in compiled code: rows of each lane's kind and parameters, log f and its slope."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedfairx.core.merit import (
    AFFINE,
    EXPONENTIAL,
    LOGISTIC,
    POWER,
    STEEPNESS_SCALE,
    Custom,
    Exponential,
    Merit,
)
from fedfairx.lanes.callback import call_pointer
from fedfairx.lanes.decorators import stage
from fedfairx.lanes.linalg import lane_of
from fedfairx.lanes.rows import Rows, by_lane, floats
from fedfairx.lanes.vector import any_above, bits, fma
from fedfairx.util.arrays import Array

# Rows of a merit. The address of a user's own function stands in the bits of a float.
KIND, FIRST, SECOND, THIRD, LOW, HIGH, ADDRESS, MOST_VARIANCE = range(8)
MERIT_ROWS = 8
#: κ: the most that uncertainty may add to the logarithm of a merit e^{cμ}: a factor of 55.
MOST_BONUS = 4.0
UNLIMITED = 1e30  # κ in place of ∞, for which v·s²/(v + s²) would be NaN
TINY = 1e-300  # a factor below it would overflow when it is scaled up


def table(merits: Sequence[Merit], most_bonus: float = MOST_BONUS) -> Array:
    """Table (MERIT_ROWS, n) with a column for each lane's merit."""
    columns = []
    for merit in merits:
        address = np.int64(merit.address() if isinstance(merit, Custom) else 0).view(np.float64)
        columns.append((merit.kind, *merit.parameters(), address, most_variance(merit, most_bonus)))
    return np.array(columns, dtype=np.float64).T.copy()


def most_variance(merit: Merit, most_bonus: float = MOST_BONUS) -> float:
    """s², at which the variance of an expected reward saturates: for e^{cμ}, c²s²/2 = κ, `most_bonus`."""
    return 2.0 * min(most_bonus, UNLIMITED) * (merit.reward_scale / STEEPNESS_SCALE) ** 2


def quadrature_for(merits: Sequence[Merit]) -> bool | None:
    """None if all merits are exponential, whose expectation needs no quadrature; else True."""
    return None if all(merit.kind == EXPONENTIAL for merit in merits) else True


@stage
def exponential(merit: Rows) -> bool:
    """Whether the merit of every lane is exponential: then stages have no branches and log f is exact."""
    return not any_above(merit[KIND], EXPONENTIAL + 0.5)


@stage
def _sigmoid(x: float) -> float:
    """1/(1 + e^-x), exact in the lower tail too."""
    small = math.exp(-abs(x))
    return (1.0 if x > 0.0 else small) / (1.0 + small)


@stage
def merit_parts(merit: Rows, lane: int, mean: float) -> tuple[float, float]:
    """(p, q) with f(μ) = q e^p and q of moderate size, for the merit of one lane.

    This avoids logarithms of merits that are not exponentials. merit (MERIT_ROWS, n) `by_lane`.
    """
    kind = merit[KIND, lane]
    first, second = merit[FIRST, lane], merit[SECOND, lane]
    if kind == EXPONENTIAL:
        return first * mean, 1.0
    clipped = min(max(mean, merit[LOW, lane]), merit[HIGH, lane])
    if kind == POWER:
        return first * math.log(second + clipped), 1.0
    if kind == AFFINE:
        value = first + second * clipped
    elif kind == LOGISTIC:
        value = merit[THIRD, lane] + _sigmoid(first * (clipped - second))
    else:
        value = call_pointer(bits(merit[ADDRESS, lane]), clipped)
    if value < TINY:
        return math.log(value), 1.0
    return 0.0, value


@stage
def log_value(merit: Rows, lane: int, mean: float) -> float:
    """log f(μ) for the merit of one lane. merit (MERIT_ROWS, n) `by_lane`."""
    power, factor = merit_parts(merit, lane, mean)
    return power + math.log(factor)


@stage
def log_merit(merit: Rows, lane: int, mean: float) -> tuple[float, float]:
    """log f(μ) and its slope f'(μ)/f(μ), for the merit of one lane. merit (MERIT_ROWS, n) `by_lane`."""
    kind, value = merit[KIND, lane], log_value(merit, lane, mean)
    first, second = merit[FIRST, lane], merit[SECOND, lane]
    if kind == EXPONENTIAL:
        return value, first
    low, high = merit[LOW, lane], merit[HIGH, lane]
    if not low < mean < high:  # outside its range a merit is constant
        return value, 0.0
    if kind == POWER:
        return value, first / (second + mean)
    if kind == AFFINE:
        rise = second
    elif kind == LOGISTIC:
        rise = first * _sigmoid(first * (mean - second)) * _sigmoid(first * (second - mean))
    else:
        address = bits(merit[ADDRESS, lane])
        nudge = 6e-6 * (high - low)  # central difference: error of order nudge², noise of order 1e-16/nudge
        above, below = min(mean + nudge, high), max(mean - nudge, low)
        rise = (call_pointer(address, above) - call_pointer(address, below)) / (above - below)
    return value, rise / math.exp(value)


@stage
def log_merits(merit: Rows, means: Rows, logits: Rows, slopes: Rows) -> None:
    """`log_merit` of every arm, in every lane. Where all are exponential the slope is merit[FIRST]
    everywhere, and `slopes` is left as it is. merit (MERIT_ROWS,), means, logits and slopes (K,)."""
    arms = means.shape[0]
    if exponential(merit):
        first = merit[FIRST]
        for a in range(arms):
            logits[a] = first * means[a]
    else:
        each, mean, logit, slope = by_lane(merit), by_lane(means), by_lane(logits), by_lane(slopes)
        for a in range(arms):
            for l in range(mean.shape[1]):
                logit[a, l], slope[a, l] = log_merit(each, lane_of(merit, l), mean[a, l])


@stage
def tilt(merit: Rows, means: Rows, policy: Rows, objective: float, slopes: Rows) -> None:
    """slopes ← w_a = π_a (1 + ℓ_a (μ_a - g)), the gradient of g in the means; ℓ is read from `slopes`."""
    arms = means.shape[0]
    if exponential(merit):
        slope = merit[FIRST]
        for a in range(arms):
            slopes[a] = policy[a] * fma(slope, means[a] - objective, 1.0)
    else:
        for a in range(arms):
            slopes[a] = policy[a] * fma(slopes[a], means[a] - objective, 1.0)


@stage
def _fill(merit: Array, means: Array, values: Array) -> None:
    rows = floats(merit)
    for k in range(means.shape[0]):
        values[k] = log_value(rows, 0, means[k])


def log_merit_values(merit: Merit, means: Array) -> Array:
    """log f(μ) of every mean, of any shape; f itself could overflow."""
    if isinstance(merit, Exponential):  # nothing to compile
        return merit.steepness * means
    values = np.empty(means.size)
    _fill(table([merit]), np.ascontiguousarray(means).reshape(-1), values)
    return values.reshape(means.shape)
