"""Noisy sums under optimism: a shift, a floor for eigenvalues, and the weight of peers beside own data.

All of it post-processes released values, and so costs no privacy.
"""

from __future__ import annotations

import math

from fedfairx.lanes.decorators import stage
from fedfairx.lanes.linalg import jacobi
from fedfairx.lanes.rows import Rows
from fedfairx.lanes.vector import all_above, any_above, fma, larger, smaller, sqrt, where_above

OPTIMISM = 0.8  # share of the radius that shows in the policy
STEPS = 41  # grid points of the search for a weight
SURELY = 1.0 + 1e-12  # a factor beyond rounding
SMALLEST = 1e-300  # replaces a pivot that is not positive


@stage
def gram_of(packed: Rows, gram: Rows) -> None:
    """gram (d, d) ← the Gram matrix of packed statistics."""
    entry = 0
    for i in range(gram.shape[0]):
        for j in range(i, gram.shape[0]):
            gram[i, j] = packed[entry]
            gram[j, i] = packed[entry]
            entry += 1


@stage
def least_pivot(matrix: Rows) -> float:
    """The least pivot of a Cholesky factorisation in place; positive if the matrix is positive definite."""
    least = math.inf
    for i in range(matrix.shape[0]):
        for j in range(i + 1):
            s = matrix[i, j]
            for k in range(j):
                s = s - matrix[i, k] * matrix[j, k]
            if i == j:
                least = smaller(s, least)
                matrix[i, i] = sqrt(larger(s, SMALLEST))
            else:
                matrix[i, j] = s / matrix[j, j]
    return least


@stage
def lift(packed: Rows, shift: float, workspace: Rows) -> None:
    """Add `shift` to the Gram diagonal and raise negative eigenvalues to zero. workspace (2, d, d)."""
    gram, vectors = workspace[0], workspace[1]
    dimension, entry = gram.shape[0], 0
    for i in range(dimension):
        packed[entry] = packed[entry] + shift
        entry += dimension - i
    gram_of(packed, gram)
    definite = least_pivot(gram)
    if all_above(definite, 0.0):
        return
    gram_of(packed, gram)
    jacobi(gram, vectors)
    entry = 0
    for i in range(dimension):
        for j in range(i, dimension):
            s = 0.0
            for k in range(dimension):
                s = s + larger(gram[k, k], 0.0) * vectors[i, k] * vectors[j, k]
            packed[entry] = where_above(definite, 0.0, packed[entry], s)
            entry += 1


@stage
def costs(
    gram: Rows, weight: float, ratio: float, spoilt: float, radius: float, regulariser: float
) -> tuple[float, float]:
    """Cost of optimism, which falls with the weight, and of noise, which grows with it.

    gram (d, d) is diagonal.
    """
    roots, inverses = 0.0, 0.0
    for k in range(gram.shape[0]):
        precision = regulariser + larger(gram[k, k], 0.0) * (1.0 + weight * ratio)
        inverse = 1.0 / precision
        roots = fma(sqrt(precision), inverse, roots)
        inverses = inverses + inverse
    return OPTIMISM * radius * roots, weight * spoilt * inverses


@stage
def worth(
    own: Rows,
    ratio: float,
    noise_sd: float,
    radius: float,
    regulariser: float,
    parameter_norm: float,
    workspace: Rows,
) -> float:
    """The weight in [0, 1] of the peers' noisy statistics beside an agent's own exact ones.

    `own` is the agent's packed statistics; peers are assumed to hold `ratio` times as much in every
    direction. In a direction where V = λ + a (1 + w·ratio), optimism costs about `OPTIMISM`·√β/√V, and the
    noise moves θ̂ by about w s √(1 + 2c²) / V: the moment's noise, and the matrix's times θ. The weight
    minimises the sum of the two over all directions. workspace (2, d, d).

    All directions share one weight: knowing one direction much better turns optimism into the others, where
    it costs fairness (docs/paper/cost-of-privacy.md).
    """
    gram = workspace[0]
    gram_of(own, gram)
    jacobi(gram, None)
    spoilt = noise_sd * sqrt(1.0 + 2.0 * parameter_norm * parameter_norm)
    least, weight = math.inf, 0.0
    for step in range(STEPS // 2 + 1):  # from both ends
        low, high = step / (STEPS - 1), (STEPS - 1 - step) / (STEPS - 1)
        optimism, noise = costs(gram, low, ratio, spoilt, radius, regulariser)
        weight, least = where_above(least, optimism + noise, low, weight), smaller(optimism + noise, least)
        less, more = costs(gram, high, ratio, spoilt, radius, regulariser)
        weight, least = where_above(least, less + more, high, weight), smaller(less + more, least)
        if not any_above(least * SURELY, less + noise):  # any weight in between costs more
            break
    return weight


@stage
def add_by_worth(
    own: Rows,
    own_count: float,
    others: Rows,
    others_count: float,
    noise_sd: float,
    shift: float,
    radius: float,
    regulariser: float,
    parameter_norm: float,
    workspace: Rows,
) -> float:
    """others (q,) ← own exact statistics plus the peers' times their `worth`; returns that weight.

    The peers' noisy statistics are first made positive semidefinite. `radius` counts all observations.
    """
    ratio = others_count / larger(own_count, 1.0)
    weight = worth(own, ratio, noise_sd, radius, regulariser, parameter_norm, workspace)
    if any_above(weight, 0.0):
        lift(others, shift, workspace)
    for k in range(own.shape[0]):
        others[k] = own[k] + weight * others[k]
    return weight
