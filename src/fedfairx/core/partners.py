"""Partners who may differ: how far others' statistics speak of one's own θ, learnt from one's own rewards.

The others' θ and one's own are taken to have the correlation r = √(1 - q²): each is N(mean, sd²I)
beforehand, and given the others' θ one's own is N(mean + r(θ_others - mean), q²sd²I). q = 0 is one θ for all,
as the paper assumes; q = 1 says that the others know nothing. With Ṽ = λI + Gram of the others, what they say
of one's own θ is N(m, σ²A⁻¹),

    A = Ṽ(r²I + (q²/λ)Ṽ)⁻¹,   m = mean + r(Ṽ⁻¹(b + λ·mean) - mean),

and exact statistics of Gram A - λI and moment Am - λ·mean would say just that: they take the others' place,
and an agent goes on with V, b and σ as if all were of one θ. q is the one of `DIFFERENCES` under which one's
own rewards are likeliest, `SAME` being the weight of q = 0 beforehand:

    ln p = ½ ln|A| - ½ ln|A + G| - (mᵀAm - hᵀ(A + G)⁻¹h)/2σ²,   h = Am + b_own

(up to what does not depend on q). One's own statistics are exact and stay where they are, so it costs no
privacy.
"""

from __future__ import annotations

import math

import numpy as np

from fedfairx.arrays import Array
from fedfairx.lanes.compile import leaf, stage
from fedfairx.lanes.eigen import jacobi

#: q that are looked at: how far the others' θ may be from one's own, in the prior's sds.
DIFFERENCES = np.array([0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0])
#: What q = 0 is held to be worth before any reward; the rest is for the others alike.
SAME = 0.3
#: One's own records must have grown by this factor before q is looked at again.
LOOK_AGAIN = 1.1
ROWS = 4  # of `lines`: eigenvalues, the others' mean, one's own moment, and room


@leaf
def _turn(packed: Array, dimension: int, vectors: Array, gram: Array, half: Array, moment: Array) -> None:
    """gram ← Uᵀ G U and moment ← Uᵀ b of packed statistics, `vectors` being U; half (d, d) is room."""
    first = packed.shape[0] - dimension
    for i in range(dimension):
        for k in range(dimension):
            s = 0.0
            for j in range(dimension):
                low, high = min(i, j), max(i, j)
                s += packed[low * dimension - low * (low - 1) // 2 + high - low] * vectors[j, k]
            half[i, k] = s
    for k in range(dimension):
        moment[k] = 0.0
        for i in range(dimension):
            moment[k] += vectors[i, k] * packed[first + i]
        for c in range(dimension):
            s = 0.0
            for i in range(dimension):
                s += vectors[i, k] * half[i, c]
            gram[k, c] = s


@stage
def decompose(others: Array, ridge: float, mean: Array, vectors: Array, square: Array, lines: Array) -> None:
    """In the eigenbasis of Ṽ = λI + Gram of the others: its eigenvalues, and their θ̂ less `mean`.

    others (q,) packed; vectors, square (d, d); lines (ROWS, d), of which the first two are written.
    """
    dimension = mean.shape[0]
    entry, first = 0, others.shape[0] - dimension
    for i in range(dimension):
        for j in range(i, dimension):
            square[i, j] = others[entry]
            square[j, i] = others[entry]
            entry += 1
    jacobi(square, vectors)
    for k in range(dimension):
        lines[0, k] = ridge + max(square[k, k], 0.0)
        s = 0.0
        for i in range(dimension):
            s += vectors[i, k] * (others[first + i] + ridge * mean[i])
        lines[1, k] = s / lines[0, k]
        for i in range(dimension):
            lines[1, k] -= vectors[i, k] * mean[i]


@leaf
def _precision(value: float, difference: float, ridge: float) -> float:
    """A along an eigenvector of Ṽ."""
    square = difference * difference
    return value / (1.0 - square + square * value / ridge)


@leaf
def _log_evidence(
    difference: float, ridge: float, variance: float, gram: Array, factor: Array, lines: Array
) -> float:
    """ln p of one's own rewards, all in the eigenbasis; lines[2] is b_own less G·mean; factor is room."""
    dimension = gram.shape[0]
    keep = math.sqrt(max(1.0 - difference * difference, 0.0))
    told, square = 0.0, 0.0
    for i in range(dimension):
        precision = _precision(lines[0, i], difference, ridge)
        centre = keep * lines[1, i]
        told += 0.5 * math.log(precision)
        square += centre * precision * centre
        h = precision * centre + lines[2, i]
        for j in range(i + 1):  # Cholesky's factor of A + G, and F⁻¹h as it comes
            s = gram[i, j] + (precision if i == j else 0.0)
            for k in range(j):
                s -= factor[i, k] * factor[j, k]
            factor[i, j] = math.sqrt(max(s, 1e-300)) if i == j else s / factor[j, j]
        for k in range(i):
            h -= factor[i, k] * lines[3, k]
        lines[3, i] = h / factor[i, i]
        told -= math.log(factor[i, i])
        square -= lines[3, i] * lines[3, i]
    return told - 0.5 * square / variance


@stage
def likeliest(
    own: Array,
    ridge: float,
    variance: float,
    mean: Array,
    vectors: Array,
    square: Array,
    factor: Array,
    lines: Array,
) -> float:
    """q under which one's own rewards are likeliest; `decompose` has been called.

    own (q,) packed; square, factor (d, d) and lines[2:] are room.
    """
    dimension = mean.shape[0]
    _turn(own, dimension, vectors, square, factor, lines[2])
    for k in range(dimension):  # one's own moment as if `mean` were zero
        for c in range(dimension):
            pulled = 0.0
            for i in range(dimension):
                pulled += vectors[i, c] * mean[i]
            lines[2, k] -= square[k, c] * pulled
    best, found = -math.inf, 0.0
    count = DIFFERENCES.shape[0]
    for k in range(count):
        before = SAME if k == 0 else (1.0 - SAME) / (count - 1)
        value = math.log(before) + _log_evidence(DIFFERENCES[k], ridge, variance, square, factor, lines)
        if value > best:
            best, found = value, DIFFERENCES[k]
    return found


@stage
def translate(
    others: Array, difference: float, ridge: float, mean: Array, vectors: Array, lines: Array
) -> None:
    """others (q,) ← what they say of one's own θ: Gram A - λI, moment Am - λ·mean. In place.

    `decompose` has been called.
    """
    dimension = mean.shape[0]
    keep = math.sqrt(max(1.0 - difference * difference, 0.0))
    entry, first = 0, others.shape[0] - dimension
    for i in range(dimension):
        for j in range(i, dimension):
            s = 0.0
            for k in range(dimension):
                s += vectors[i, k] * (_precision(lines[0, k], difference, ridge) - ridge) * vectors[j, k]
            others[entry] = s
            entry += 1
    for i in range(dimension):
        s = -ridge * mean[i]
        for k in range(dimension):
            centre = keep * lines[1, k]
            for j in range(dimension):
                centre += vectors[j, k] * mean[j]
            s += vectors[i, k] * _precision(lines[0, k], difference, ridge) * centre
        others[first + i] = s
