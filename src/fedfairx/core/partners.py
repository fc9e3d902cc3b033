"""Partners who may differ: what others' statistics say of one's own θ, and how likely one's rewards are then.

The others' θ and one's own are taken to have the correlation r = √(1 - q²): each is N(mean, sd²I)
beforehand, and given the others' θ one's own is N(mean + r(θ_others - mean), q²sd²I). q = 0 is one θ for all,
as the paper assumes; q = 1 says that the others know nothing. With Ṽ = λI + Gram of the others, what they say
of one's own θ is N(m, σ²A⁻¹),

    A⁻¹ = r²Ṽ⁻¹ + (q²/λ)I,   m = mean + r(Ṽ⁻¹(b + λ·mean) - mean),

and exact statistics of Gram A - λI and moment Am - λ·mean would say just that: they take the others' place,
and an agent goes on with V, b and σ as if all were of one θ.

How likely one's own rewards are then, of Gram G = FFᵀ (F is Cholesky's factor) and z = F⁻¹(b - G·mean):

    ln p = -½ ln|C| - xᵀC⁻¹x/2σ²,   C = r²(I + FᵀṼ⁻¹F) + q²(I + FᵀF/λ),   x = z - Fᵀ(m - mean)

up to what depends neither on q nor on the others: values for different q and different others compare. One's
own statistics are exact and stay where they are, so it costs no privacy.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedfairx.core.pooling import gram_of
from fedfairx.core.weighing import place
from fedfairx.lanes.compile import layout, stage
from fedfairx.lanes.eigen import jacobi
from fedfairx.lanes.rows import Rows, cut

#: What may be taken for granted of the others: that θ is one for all, as in the paper, or nothing.
PARTNERS = ALIKE, DIFFER = "alike", "differ"
#: q that are looked at: how far the others' θ may be from one's own, in the prior's sds.
DIFFERENCES = np.array([0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0])
#: What q = 0 is held to be worth before any reward; the rest is for the others alike.
SAME = 0.9
#: ln p by which something must be less likely than the likeliest to count as contradicted: 20 to 1.
EVIDENCE = 3.0


class Room(NamedTuple):
    """Room to work in. The first two are of one's own rewards, the next two of what others predict."""

    mine: Rows  # (d, d + 1) Fᵀ and z
    alone: Rows  # (d, d) I + FᵀF/λ, its upper half
    spread: Rows  # (d, d) I + FᵀṼ⁻¹F, its upper half
    said: Rows  # (d,) Fᵀ(θ̂ - mean) of the others
    both: Rows  # (d, 2d + 1) Ṽ, F and b - Gram·mean of the others, beside each other
    bent: Rows  # (d, d + 1) C and x
    factor: Rows  # (d, d)
    solved: Rows  # (d,)
    known: Rows  # (d,) A along the eigenvectors of Ṽ


@layout
def room_in(memory: Rows, dimension: int) -> tuple[Room, Rows]:
    """The room at the head of flat rows, and the rows that are left."""
    mine, rest = cut(memory, dimension, dimension + 1)
    alone, rest = cut(rest, dimension, dimension)
    spread, rest = cut(rest, dimension, dimension)
    said, rest = cut(rest, dimension)
    both, rest = cut(rest, dimension, 2 * dimension + 1)
    bent, rest = cut(rest, dimension, dimension + 1)
    factor, rest = cut(rest, dimension, dimension)
    solved, rest = cut(rest, dimension)
    known, rest = cut(rest, dimension)
    return Room(mine, alone, spread, said, both, bent, factor, solved, known), rest


@stage
def less_mean(packed: Rows, mean: Rows, out: Rows) -> None:
    """out (d,) ← b - Gram·mean."""
    dimension = mean.shape[0]
    first = packed.shape[0] - dimension
    for i in range(dimension):
        s = packed[first + i]
        for j in range(dimension):
            s -= packed[place(dimension, i, j)] * mean[j]
        out[i] = s


@stage
def eliminate(matrix: Rows, least: float) -> None:
    """[M, B] (d, d + c) ← [Lᵀ, L⁻¹B], LLᵀ = M: of M the upper half is read, and pivots are at least `least`.

    Row by row, so that the innermost loop runs along neighbours, none of which waits for another.
    """
    dimension, columns = matrix.shape
    for k in range(dimension):
        root = math.sqrt(max(matrix[k, k], least))
        inverse = 1.0 / root
        matrix[k, k] = root
        for c in range(k + 1, columns):
            matrix[k, c] *= inverse
        for i in range(k + 1, dimension):
            pull = matrix[k, i]
            for c in range(i, columns):
                matrix[i, c] -= pull * matrix[k, c]


@stage
def look_at_own(own: Rows, ridge: float, mean: Rows, room: Room) -> None:
    """F, z and I + FᵀF/λ of one's own packed statistics (q,). A direction that no reward has told of yet has
    1e-12 of the largest as its pivot, and zero beside it."""
    dimension, mine, entry, largest = mean.shape[0], room.mine, 0, 1e-280
    less_mean(own, mean, room.solved)
    for i in range(dimension):
        for j in range(i, dimension):
            mine[i, j] = own[entry]
            room.alone[i, j] = 0.0
            entry += 1
        mine[i, dimension] = room.solved[i]
        room.alone[i, i] = 1.0
        largest = max(largest, mine[i, i])
    eliminate(mine, 1e-12 * largest)
    for i in range(dimension):
        for j in range(i, dimension):
            for k in range(j, dimension):
                room.alone[i, j] += mine[i, k] * mine[j, k] / ridge


@stage
def look_at_others(others: Rows, ridge: float, mean: Rows, room: Room) -> None:
    """What others' packed statistics (q,) predict; `look_at_own` has been called."""
    dimension, both, entry = mean.shape[0], room.both, 0
    less_mean(others, mean, room.solved)
    for i in range(dimension):
        for j in range(i, dimension):
            both[i, j] = others[entry]
            room.spread[i, j] = 0.0
            entry += 1
        both[i, i] += ridge
        room.spread[i, i] = 1.0
        room.said[i] = 0.0
        for c in range(dimension):
            both[i, dimension + c] = room.mine[c, i] if c <= i else 0.0
        both[i, 2 * dimension] = room.solved[i]
    eliminate(both, 1e-3 * ridge)
    for i in range(dimension):
        for c in range(dimension):
            pull = both[i, dimension + c]
            room.said[c] += pull * both[i, 2 * dimension]
            for k in range(c, dimension):
                room.spread[c, k] += pull * both[i, dimension + k]


@stage
def log_evidence(difference: float, variance: float, room: Room) -> float:
    """ln p of one's own rewards given what `look_at_others` has found, if their θ are so far apart."""
    dimension, square, bent = room.said.shape[0], difference * difference, room.bent
    keep = math.sqrt(max(1.0 - square, 0.0))
    for i in range(dimension):
        for j in range(i, dimension):
            bent[i, j] = (1.0 - square) * room.spread[i, j] + square * room.alone[i, j]
        bent[i, dimension] = room.mine[i, dimension] - keep * room.said[i]
    eliminate(bent, 0.5)  # C ≥ I
    told, misfit = 0.0, 0.0
    for i in range(dimension):
        told -= math.log(bent[i, i])
        misfit += bent[i, dimension] * bent[i, dimension]
    return told - 0.5 * misfit / variance


@stage
def translate(others: Rows, difference: float, ridge: float, mean: Rows, room: Room) -> float:
    """others (q,) ← what they say of one's own θ: Gram A - λI, moment Am - λ·mean. In place.

    Returns what share of their information that keeps, by the Grams' traces. Where they are of one θ, nothing
    is touched. What the room held is gone.
    """
    if difference == 0.0:
        return 1.0
    dimension, square = mean.shape[0], difference * difference
    keep, first = math.sqrt(max(1.0 - square, 0.0)), others.shape[0] - dimension
    basis, known, kept, whole = room.factor, room.known, 0.0, 0.0
    less_mean(others, mean, room.said)
    gram_of(others, room.spread)
    jacobi(room.spread, basis)
    for k in range(dimension):  # A, and A(m - mean), along the eigenvectors of Ṽ
        value, s = ridge + max(room.spread[k, k], 0.0), 0.0
        known[k] = value / (1.0 - square + square * value / ridge)
        for i in range(dimension):
            s += basis[i, k] * room.said[i]
        room.solved[k] = known[k] * keep * s / value
        kept += known[k] - ridge
        whole += value - ridge
    for i in range(dimension):
        for j in range(i, dimension):
            s = 0.0
            for k in range(dimension):
                s += basis[i, k] * (known[k] - ridge) * basis[j, k]
            others[place(dimension, i, j)] = s
    for i in range(dimension):
        s = 0.0
        for k in range(dimension):
            s += basis[i, k] * room.solved[k]
        for j in range(dimension):  # Am - λ·mean = A(m - mean) + (A - λI)·mean
            s += others[place(dimension, i, j)] * mean[j]
        others[first + i] = s
    return kept / max(whole, 1e-300)
