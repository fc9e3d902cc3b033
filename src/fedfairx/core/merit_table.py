"""Merits as compiled code reads them: a row for each lane, log f and its slope."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedfairx.arrays import Array
from fedfairx.core.merit import AFFINE, EXPONENTIAL, LOGISTIC, POWER, Custom, Merit
from fedfairx.lanes.block import Lanes, lane_count
from fedfairx.lanes.compile import leaf, stage
from fedfairx.lanes.pointer import call_pointer
from fedfairx.lanes.vector import fma, load, store


class MeritTable(NamedTuple):
    """The merit of every lane, in the form that the compiled stages read."""

    exponential: bool  # every lane is exponential: the loop without branches
    kind: NDArray[np.int64]
    first: Array
    second: Array
    third: Array
    low: Array
    high: Array
    address: NDArray[np.int64]


def table(merits: Sequence[Merit]) -> MeritTable:
    """One row for each lane's merit."""
    first, second, third, low, high = np.array([m.parameters() for m in merits], dtype=np.float64).T.copy()
    kind = np.array([merit.kind for merit in merits], dtype=np.int64)
    address = np.array([m.address() if isinstance(m, Custom) else 0 for m in merits], dtype=np.int64)
    every = bool((kind == EXPONENTIAL).all())
    return MeritTable(every, kind, first, second, third, low, high, address)


@stage
def repeat_merit(merit: MeritTable, lane: int, out: MeritTable) -> None:
    """Give every lane of `out` the merit of one lane."""
    for l in range(out.kind.shape[0]):
        out.kind[l] = merit.kind[lane]
        out.first[l] = merit.first[lane]
        out.second[l] = merit.second[lane]
        out.third[l] = merit.third[lane]
        out.low[l] = merit.low[lane]
        out.high[l] = merit.high[lane]
        out.address[l] = merit.address[lane]


@stage
def log_merit(merit: MeritTable, lane: int, mean: float) -> tuple[float, float]:
    """log f(μ) and its slope f'(μ)/f(μ), for the merit of one lane."""
    kind = merit.kind[lane]
    first, second = merit.first[lane], merit.second[lane]
    if kind == EXPONENTIAL:
        return first * mean, first
    low, high = merit.low[lane], merit.high[lane]
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
        f = merit.third[lane] + sigmoid
        return math.log(f), first * sigmoid * (1.0 - sigmoid) / f
    address = merit.address[lane]
    f = call_pointer(address, held)
    nudge = 6e-6 * (high - low)  # central difference: error of order nudge², noise of order 1e-16/nudge
    above, below = min(held + nudge, high), max(held - nudge, low)
    slope = (call_pointer(address, above) - call_pointer(address, below)) / (above - below)
    return math.log(f), moves * slope / f


@stage
def merit_value(merit: MeritTable, lane: int, mean: float) -> float:
    """f(μ) for the merit of one lane."""
    kind = merit.kind[lane]
    first, second = merit.first[lane], merit.second[lane]
    if kind == EXPONENTIAL:
        return math.exp(first * mean)
    held = min(max(mean, merit.low[lane]), merit.high[lane])
    if kind == AFFINE:
        return float(first + second * held)
    if kind == POWER:
        return float((second + held) ** first)
    if kind == LOGISTIC:
        return float(merit.third[lane] + 0.5 * (1.0 + math.tanh(0.5 * first * (held - second))))
    return call_pointer(merit.address[lane], held)


@leaf
def log_merits(lanes: Lanes, merit: MeritTable, means: Array, logits: Array, slopes: Array) -> None:
    """`log_merit` for every arm (rows) of every lane (columns). A block that is all exponential has the
    slope merit.first everywhere, and `slopes` is left as it is."""
    arms = means.shape[0]
    if merit.exponential:
        first = load(lanes, merit.first)
        for a in range(arms):
            store(first * load(lanes, means, a), lanes, logits, a)
    else:
        for a in range(arms):
            for l in range(lane_count(lanes)):
                logits[a, l], slopes[a, l] = log_merit(merit, l, means[a, l])


@leaf
def tilt(
    lanes: Lanes, merit: MeritTable, means: Array, policy: Array, objective: float, slopes: Array
) -> None:
    """slopes ← w_a = π_a (1 + ℓ_a (μ_a - g)), the gradient of g in the means; ℓ is read from `slopes`."""
    arms = means.shape[0]
    if merit.exponential:
        slope = load(lanes, merit.first)
        for a in range(arms):
            gain = fma(slope, load(lanes, means, a) - objective, 1.0)
            store(load(lanes, policy, a) * gain, lanes, slopes, a)
    else:
        for a in range(arms):
            gain = fma(load(lanes, slopes, a), load(lanes, means, a) - objective, 1.0)
            store(load(lanes, policy, a) * gain, lanes, slopes, a)
