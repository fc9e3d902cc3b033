"""σ of the rewards and sd of the prior, learnt from an agent's own records by their marginal likelihood.

Of n own records with Gram G, moment b and Σy², all less the prior's mean, rewards are N(0, σ²(I + XXᵀ/λ))
with λ = σ²/sd². For each λ the best σ² is known in closed form,

    S(λ) = Σy² - bᵀ(G + λI)⁻¹b,   σ²(λ) = (2σ₀² + S)/(2 + n),   sd² = σ²/λ,
    ln p(λ) = -½ ln|I + G/λ| - ½(2 + n) ln σ²(λ) - ½ (ln(sd/sd₀)/LOG_SD)²,

σ₀ and sd₀ being the first guesses: the one counts as two observations, the other is known up to a factor of
e. Of powers of two the λ with the largest ln p is taken. λ has no unit, so rewards of any size give the same.

Only own, exact records are used: others' estimates may be of another θ, and what they fail to predict is not
noise. Both are learnt again when own observations are 1, 2, 4, 8, …
"""

from __future__ import annotations

from fedfairx.core.learner import (
    ASSUMED_NOISE,
    ASSUMED_VARIANCE,
    OBSERVED,
    SQUARES,
    Learner,
)
from fedfairx.core.statistics import place
from fedfairx.lanes.decorators import stage
from fedfairx.lanes.rows import Rows
from fedfairx.lanes.vector import absolute, any_above, fma, larger, where_above
from fedfairx.lanes.vector_math import log

#: Observations that σ₀ counts as.
ASSUMED_WEIGHT = 2.0
#: Of ln sd around ln sd₀.
LOG_SD = 1.0
SMALLEST, POINTS = 2.0**-20, 41  # λ from 1e-6 to 1e6, each twice the one before


def next_refit(observed: int) -> int:
    """The number of own observations at which both are learnt again: the next power of two."""
    return 1 << observed.bit_length()


@stage
def less_mean(packed: Rows, mean: Rows, out: Rows) -> None:
    """out (d,) ← b - G·mean, of packed statistics (q,)."""
    dimension = mean.shape[0]
    first = packed.shape[0] - dimension
    for i in range(dimension):
        s = packed[first + i]
        for j in range(dimension):
            s = fma(-packed[place(dimension, i, j)], mean[j], s)
        out[i] = s


@stage
def solve(packed: Rows, ridge: float, moment: Rows, matrix: Rows) -> tuple[float, float]:
    """bᵀ(G + λI)⁻¹b and ln|I + G/λ|, of the Gram matrix in packed statistics (q,) and a moment b (d,).

    By elimination in matrix (d, d + 1), which is room: row by row, so that no step of the innermost loop
    waits for the one before. No pivot is below λ, since a Gram is not negative; where rounding says
    otherwise, it is λ.
    """
    dimension, entry = moment.shape[0], 0
    for i in range(dimension):
        for j in range(i, dimension):
            matrix[i, j] = packed[entry]
            entry += 1
        matrix[i, i] = matrix[i, i] + ridge
        matrix[i, dimension] = moment[i]
    explained, volume = 0.0, 0.0
    for k in range(dimension):
        pivot = larger(matrix[k, k], ridge)
        volume = volume + log(pivot / ridge)
        inverse = 1.0 / pivot
        explained = fma(matrix[k, dimension] * inverse, matrix[k, dimension], explained)
        for i in range(k + 1, dimension):
            pull = matrix[k, i] * inverse
            if any_above(absolute(pull), 0.0):  # of arms of their own nothing is
                for c in range(i, dimension + 1):
                    matrix[i, c] = fma(-pull, matrix[k, c], matrix[i, c])
    return explained, volume


@stage
def learnt_sizes(state: Learner, own: Rows, matrix: Rows) -> tuple[float, float]:
    """σ² and λ of every lane, by its own packed records (q,). matrix (d, d + 1) and `product` are room."""
    numbers, mean, centred = state.numbers, state.mean, state.product
    first = own.shape[0] - mean.shape[0]
    less_mean(own, mean, centred)
    squares = numbers[SQUARES]  # Σ(y - x·mean)²
    for j in range(mean.shape[0]):
        squares = fma(-mean[j], own[first + j] + centred[j], squares)
    weight = numbers[OBSERVED] + ASSUMED_WEIGHT
    best, variance, found = -1e300, numbers[ASSUMED_NOISE], 1.0
    for k in range(POINTS):
        ridge = SMALLEST * 2.0**k
        explained, volume = solve(own, ridge, centred, matrix)
        noise = fma(ASSUMED_WEIGHT, numbers[ASSUMED_NOISE], larger(squares - explained, 0.0)) / weight
        size = 0.5 * log(noise / (ridge * numbers[ASSUMED_VARIANCE])) / LOG_SD
        likely = -0.5 * fma(size, size, fma(weight, log(noise), volume))
        variance = where_above(likely, best, noise, variance)
        found = where_above(likely, best, ridge, found)
        best = larger(likely, best)
    return variance, found
