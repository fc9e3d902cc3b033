"""Sufficient statistics of a linear model: the Gram matrix Σ x xᵀ and the moment Σ x y, packed.

One array of length q = d(d+3)/2 holds the upper triangle of the Gram matrix, row by row, and then the
moment. It is what an agent accumulates, what a mechanism adds noise to, and what a message carries.
The regulariser λ is not part of it, so privatizers never see it.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedfairx.lanes.decorators import compiled, stage
from fedfairx.lanes.rows import Rows, floats
from fedfairx.util.arrays import Array


def packed_size(dimension: int) -> int:
    """Length q of the packed statistics of a `dimension`-dimensional model."""
    return dimension * (dimension + 3) // 2


def dimension_of(packed: Array) -> int:
    """The d with q = d(d+3)/2, from the packed array's first axis; -1 when no d fits."""
    q = packed.shape[0]
    d = (math.isqrt(9 + 8 * q) - 3) // 2
    return d if d >= 1 and packed_size(d) == q else -1


def pack(gram: Array, moment: Array) -> Array:
    """Packed statistics from a symmetric (d, d) Gram matrix and a (d,) moment."""
    return np.concatenate([gram[_triangle(moment.shape[0])], moment])


def unpack(packed: Array) -> tuple[Array, Array]:
    """The (d, d) Gram matrix and the (d,) moment of packed statistics."""
    d = dimension_of(packed)
    gram = np.zeros((d, d))
    rows, cols = _triangle(d)
    gram[rows, cols] = packed[: rows.size]
    gram[cols, rows] = packed[: rows.size]
    return gram, packed[rows.size :].copy()


def embedded(packed: Array, dimension: int) -> Array:
    """The same statistics in a larger dimension, with zeros for the further coordinates."""
    gram, moment = unpack(packed)
    larger = np.zeros((dimension, dimension))
    larger[: moment.size, : moment.size] = gram
    return pack(larger, np.concatenate([moment, np.zeros(dimension - moment.size)]))


@lru_cache(16)  # used for each message: building it takes twice as long as unpacking
def _triangle(dimension: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the upper triangle."""
    rows, cols = np.triu_indices(dimension)
    rows.flags.writeable = cols.flags.writeable = False  # all callers share them
    return rows, cols


def diagonal_entries(dimension: int) -> NDArray[np.intp]:
    """Positions of the Gram diagonal inside the packed array."""
    rows = np.arange(dimension)
    return rows * dimension - rows * (rows - 1) // 2


@stage
def place(dimension: int, i: int, j: int) -> int:
    """Index of entry (i, j) of the Gram matrix in packed statistics."""
    low, high = (i, j) if i < j else (j, i)
    return low * dimension - low * (low - 1) // 2 + high - low


@stage
def add(packed: Rows, chosen: Rows, reward: float) -> None:
    """Add an observation per lane: Gram += x xᵀ, moment += x y (Alg. 1 line 9).

    packed (q,), chosen (d,). A zero context leaves a lane's statistics unchanged.
    """
    dimension = chosen.shape[0]
    entry = 0
    for i in range(dimension):
        x = chosen[i]
        for j in range(i, dimension):
            packed[entry] = packed[entry] + x * chosen[j]
            entry += 1
    for i in range(dimension):
        packed[entry] = packed[entry] + chosen[i] * reward
        entry += 1


@compiled
def add_one(sums: Array, context: Array, reward: float) -> None:
    """`add` for one lane, callable from Python: packed sums (q,), context (d,)."""
    add(floats(sums), floats(context), reward)
