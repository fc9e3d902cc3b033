"""Pooling noisy statistics: a shift, a floor, and what others' data are worth beside one's own.

All of it is post-processing of released values: free under differential privacy.
"""

from __future__ import annotations

import math

import numpy as np

from fedfairx.arrays import Array
from fedfairx.lanes.compile import allocating_stage, stage
from fedfairx.lanes.eigen import jacobi

OPTIMISM = 0.8  # share of the radius that shows in the policy
WEIGHTS = 41  # steps in which a weight is sought


@allocating_stage
def gram_of(packed: Array, dimension: int) -> Array:
    """The (d, d) Gram matrix of packed statistics."""
    gram = np.empty((dimension, dimension))
    entry = 0
    for i in range(dimension):
        for j in range(i, dimension):
            gram[i, j] = packed[entry]
            gram[j, i] = packed[entry]
            entry += 1
    return gram


@allocating_stage
def positive(packed: Array, dimension: int) -> bool:
    """Whether the Gram matrix is positive definite (Cholesky goes through)."""
    factor = gram_of(packed, dimension)
    for i in range(dimension):
        for j in range(i + 1):
            s = factor[i, j]
            for k in range(j):
                s -= factor[i, k] * factor[j, k]
            if i == j:
                if not s > 0.0:
                    return False
                factor[i, i] = np.sqrt(s)
            else:
                factor[i, j] = s / factor[j, j]
    return True


@stage
def set_spectrum(packed: Array, values: Array, vectors: Array) -> None:
    """Write Σ_k values_k v_k v_kᵀ into the Gram part of packed statistics."""
    dimension = values.shape[0]
    entry = 0
    for i in range(dimension):
        for j in range(i, dimension):
            packed[entry] = 0.0
            for k in range(dimension):
                packed[entry] += values[k] * vectors[i, k] * vectors[j, k]
            entry += 1


@stage
def add_to_diagonal(packed: Array, dimension: int, value: float) -> None:
    """Gram += value · I, of packed statistics."""
    entry = 0
    for i in range(dimension):
        packed[entry] += value
        entry += dimension - i


@allocating_stage
def lift(packed: Array, dimension: int, shift: float) -> None:
    """Add `shift` to the Gram diagonal, then raise negative eigenvalues to zero; in place."""
    add_to_diagonal(packed, dimension, shift)
    if positive(packed, dimension):
        return
    gram, vectors, values = gram_of(packed, dimension), np.empty((dimension, dimension)), np.empty(dimension)
    jacobi(gram, vectors)
    for k in range(dimension):
        values[k] = max(gram[k, k], 0.0)
    set_spectrum(packed, values, vectors)


@allocating_stage
def worth(
    own: Array,
    dimension: int,
    ratio: float,
    noise_sd: float,
    radius: float,
    regulariser: float,
    parameter_norm: float,
) -> float:
    """The weight in [0, 1] that the others' noisy statistics deserve beside an agent's own exact ones.

    `own` is the agent's packed statistics; the others are taken to hold `ratio` times as much in every
    direction. In a direction where V = λ + a (1 + w·ratio), optimism costs about `OPTIMISM`·√β/√V, and the
    noise moves θ̂ by about w s √(1 + 2c²) / V: the vector's own noise, and the matrix's times θ. The weight is
    the one that makes the sum of the two, over all directions, least.

    One weight for all directions, and not one for each: what is known much better in one direction turns
    the optimism into the others, where it costs fairness (docs/privacy.md has the figures).
    """
    gram = gram_of(own, dimension)
    jacobi(gram, np.empty((dimension, dimension)))
    spoilt = noise_sd * math.sqrt(1.0 + 2.0 * parameter_norm**2)
    least, weight = math.inf, 0.0
    for step in range(WEIGHTS):
        w = step / (WEIGHTS - 1)
        cost = 0.0
        for k in range(dimension):
            known = regulariser + max(gram[k, k], 0.0) * (1.0 + w * ratio)
            cost += OPTIMISM * radius / math.sqrt(known) + w * spoilt / known
        if cost < least:
            least, weight = cost, w
    return weight
