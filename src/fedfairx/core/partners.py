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
from typing import NamedTuple

import numpy as np

from fedfairx.core.pooling import gram_of
from fedfairx.core.weighing import place
from fedfairx.lanes.compile import compiled, layout, stage
from fedfairx.lanes.eigen import jacobi
from fedfairx.lanes.rows import Rows, cut

#: What may be taken for granted of the others: that θ is one for all, as in the paper, or nothing.
PARTNERS = ALIKE, DIFFER = "alike", "differ"
#: q that are looked at: how far the others' θ may be from one's own, in the prior's sds.
DIFFERENCES = np.array([0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0])
#: What q = 0 is held to be worth before any reward; the rest is for the others alike.
SAME = 0.3


class Room(NamedTuple):
    """Room to work in; the first three hold what `likeliest` has found of the others."""

    basis: Rows  # (d, d) eigenvectors of Ṽ, in columns
    values: Rows  # (d,) its eigenvalues
    theirs: Rows  # (d,) the others' θ̂ less the prior's mean, in that basis
    gram: Rows  # (d, d)
    factor: Rows  # (d, d)
    moment: Rows  # (d,)
    solved: Rows  # (d,)


@layout
def room_in(memory: Rows, dimension: int) -> Room:
    """The room, in flat rows."""
    basis, rest = cut(memory, dimension, dimension)
    values, rest = cut(rest, dimension)
    theirs, rest = cut(rest, dimension)
    gram, rest = cut(rest, dimension, dimension)
    factor, rest = cut(rest, dimension, dimension)
    moment, rest = cut(rest, dimension)
    solved, rest = cut(rest, dimension)
    return Room(basis, values, theirs, gram, factor, moment, solved)


@stage
def decompose(others: Rows, ridge: float, mean: Rows, room: Room) -> None:
    """In the eigenbasis of Ṽ = λI + Gram of the others: its eigenvalues, and their θ̂ less `mean`."""
    dimension = mean.shape[0]
    first = others.shape[0] - dimension
    gram_of(others, room.gram)
    jacobi(room.gram, room.basis)
    for k in range(dimension):
        value, s = ridge + max(room.gram[k, k], 0.0), 0.0
        for i in range(dimension):  # Ṽ⁻¹(b + λ·mean) - mean, along an eigenvector
            s += room.basis[i, k] * (others[first + i] + (ridge - value) * mean[i])
        room.values[k] = value
        room.theirs[k] = s / value


@stage
def turn_own(own: Rows, mean: Rows, room: Room) -> None:
    """gram ← Uᵀ G U and moment ← Uᵀ(b - G·mean) of one's own packed statistics."""
    dimension = mean.shape[0]
    first = own.shape[0] - dimension
    for i in range(dimension):
        pulled = own[first + i]
        for j in range(dimension):
            pulled -= own[place(dimension, i, j)] * mean[j]
        room.solved[i] = pulled
        for k in range(dimension):
            s = 0.0
            for j in range(dimension):
                s += own[place(dimension, i, j)] * room.basis[j, k]
            room.factor[i, k] = s
    for k in range(dimension):
        s = 0.0
        for i in range(dimension):
            s += room.basis[i, k] * room.solved[i]
        room.moment[k] = s
        for c in range(dimension):
            s = 0.0
            for i in range(dimension):
                s += room.basis[i, k] * room.factor[i, c]
            room.gram[k, c] = s


@stage
def precision(value: float, difference: float, ridge: float) -> float:
    """A along an eigenvector of Ṽ."""
    square = difference * difference
    return value / (1.0 - square + square * value / ridge)


@stage
def log_evidence(difference: float, ridge: float, variance: float, room: Room) -> float:
    """ln p of one's own rewards, all in the eigenbasis."""
    dimension = room.values.shape[0]
    keep = math.sqrt(max(1.0 - difference * difference, 0.0))
    told, square = 0.0, 0.0
    for i in range(dimension):
        known = precision(room.values[i], difference, ridge)
        centre = keep * room.theirs[i]
        h = known * centre + room.moment[i]
        square += centre * known * centre
        for j in range(i + 1):  # Cholesky's factor of A + G, and F⁻¹h as it comes
            s = room.gram[i, j]
            if i == j:
                s += known
            for k in range(j):
                s -= room.factor[i, k] * room.factor[j, k]
            room.factor[i, j] = math.sqrt(max(s, 1e-300)) if i == j else s / room.factor[j, j]
        for k in range(i):
            h -= room.factor[i, k] * room.solved[k]
        room.solved[i] = h / room.factor[i, i]
        told += 0.5 * math.log(known) - math.log(room.factor[i, i])
        square -= room.solved[i] * room.solved[i]
    return told - 0.5 * square / variance


@compiled
def likeliest(own: Rows, others: Rows, ridge: float, variance: float, mean: Rows, room: Room) -> float:
    """q under which one's own rewards are likeliest. own, others (q,) packed; ridge λ, variance σ²."""
    decompose(others, ridge, mean, room)
    turn_own(own, mean, room)
    best, found = -math.inf, 0.0
    count = DIFFERENCES.shape[0]
    for k in range(count):
        before = SAME if k == 0 else (1.0 - SAME) / (count - 1)
        value = math.log(before) + log_evidence(DIFFERENCES[k], ridge, variance, room)
        if value > best:
            best, found = value, DIFFERENCES[k]
    return found


@compiled
def translate(others: Rows, difference: float, ridge: float, mean: Rows, room: Room) -> None:
    """others (q,) ← what they say of one's own θ: Gram A - λI, moment Am - λ·mean. In place.

    `likeliest` has been called. Where they are of one θ, nothing is touched.
    """
    if difference == 0.0:
        return
    dimension = mean.shape[0]
    keep = math.sqrt(max(1.0 - difference * difference, 0.0))
    first = others.shape[0] - dimension
    for i in range(dimension):
        for j in range(i, dimension):
            s = 0.0
            for k in range(dimension):
                known = precision(room.values[k], difference, ridge) - ridge
                s += room.basis[i, k] * known * room.basis[j, k]
            others[place(dimension, i, j)] = s
    for k in range(dimension):
        centre = keep * room.theirs[k]
        for j in range(dimension):
            centre += room.basis[j, k] * mean[j]
        room.solved[k] = precision(room.values[k], difference, ridge) * centre
    for i in range(dimension):
        s = -ridge * mean[i]
        for k in range(dimension):
            s += room.basis[i, k] * room.solved[k]
        others[first + i] = s
