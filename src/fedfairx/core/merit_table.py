"""Merits as compiled code reads them: rows of a lane's kind and parameters, log f and its slope."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedfairx.arrays import Array
from fedfairx.core.merit import AFFINE, EXPONENTIAL, LOGISTIC, POWER, Custom, Merit
from fedfairx.lanes.compile import stage
from fedfairx.lanes.linear import lane_of
from fedfairx.lanes.pointer import call_pointer
from fedfairx.lanes.rows import Rows, by_lane
from fedfairx.lanes.vector import any_above, bits, fma

# Rows of a merit. The address of a user's own function stands in the bits of a float.
KIND, FIRST, SECOND, THIRD, LOW, HIGH, ADDRESS = range(7)
MERIT_ROWS = 7


def table(merits: Sequence[Merit]) -> Array:
    """(MERIT_ROWS, n) numbers: a column for each lane's merit."""
    columns = []
    for merit in merits:
        address = np.int64(merit.address() if isinstance(merit, Custom) else 0).view(np.float64)
        columns.append((merit.kind, *merit.parameters(), address))
    return np.array(columns, dtype=np.float64).T.copy()


def quadrature_for(merits: Sequence[Merit]) -> bool | None:
    """None where all of these merits are exponential, whose expectation needs no quadrature; else True."""
    return None if all(merit.kind == EXPONENTIAL for merit in merits) else True


@stage
def exponential(merit: Rows) -> bool:
    """Whether the merit of every lane is exponential: then stages have no branches and log f is exact."""
    return not any_above(merit[KIND], EXPONENTIAL + 0.5)


@stage
def log_merit(merit: Rows, lane: int, mean: float) -> tuple[float, float]:
    """log f(μ) and its slope f'(μ)/f(μ), for the merit of one lane. merit (MERIT_ROWS, n) `by_lane`."""
    kind = merit[KIND, lane]
    first, second = merit[FIRST, lane], merit[SECOND, lane]
    if kind == EXPONENTIAL:
        return first * mean, first
    low, high = merit[LOW, lane], merit[HIGH, lane]
    held = min(max(mean, low), high)
    moves = 1.0 if low < mean < high else 0.0  # outside its range a merit is constant
    if kind == AFFINE:
        f = first + second * held
        return math.log(f), moves * second / f
    if kind == POWER:
        base = second + held
        return first * math.log(base), moves * first / base
    if kind == LOGISTIC:
        sigmoid = 0.5 * (1.0 + math.tanh(0.5 * first * (held - second)))
        f = merit[THIRD, lane] + sigmoid
        return math.log(f), first * sigmoid * (1.0 - sigmoid) / f
    address = bits(merit[ADDRESS, lane])
    f = call_pointer(address, held)
    nudge = 6e-6 * (high - low)  # central difference: error of order nudge², noise of order 1e-16/nudge
    above, below = min(held + nudge, high), max(held - nudge, low)
    slope = (call_pointer(address, above) - call_pointer(address, below)) / (above - below)
    return math.log(f), moves * slope / f


@stage
def merit_value(merit: Rows, lane: int, mean: float) -> float:
    """f(μ) for the merit of one lane. merit (MERIT_ROWS, n) `by_lane`."""
    kind = merit[KIND, lane]
    first, second = merit[FIRST, lane], merit[SECOND, lane]
    if kind == EXPONENTIAL:
        return math.exp(first * mean)
    held = min(max(mean, merit[LOW, lane]), merit[HIGH, lane])
    if kind == AFFINE:
        return float(first + second * held)
    if kind == POWER:
        return float((second + held) ** first)
    if kind == LOGISTIC:
        return float(merit[THIRD, lane] + 0.5 * (1.0 + math.tanh(0.5 * first * (held - second))))
    return call_pointer(bits(merit[ADDRESS, lane]), held)


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
                value, rise = log_merit(each, lane_of(merit, l), mean[a, l])
                logit[a, l] = value
                slope[a, l] = rise


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
