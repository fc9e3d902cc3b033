"""Estimates of σ of the rewards, and of the prior's sd and mean, from own records, by marginal likelihood.

For n own records with Gram G, moment b and Σy², all less the prior's mean, rewards are N(0, σ²(I + XXᵀ/λ))
with λ = σ²/sd². For each λ the best σ² has a closed form,

    S(λ) = Σy² - bᵀ(G + λI)⁻¹b,   σ²(λ) = (2σ₀² + S)/(2 + n),   sd² = σ²/λ,
    ln p(λ) = -½ ln|I + G/λ| - ½(2 + n) ln σ²(λ) - ½ (ln(sd/sd₀)/LOG_SD)²,

where σ₀ and sd₀ are the first guesses: the former counts as two observations, the latter is trusted up to a
factor of e. λ is the power of two with the largest ln p; it does not depend on the unit of rewards.

Actions without features are alike before anything is known about one of them, so that the mean of their
expected rewards can be learnt as well; of rows with features, what the constant column is worth. Neither
should count for how far actions differ. If the mean is higher by δ in these coordinates, the ones of u (else
0), S becomes S - 2qδ + pδ² with z = Gu and

    q = uᵀb - zᵀ(G + λI)⁻¹b,   p = uᵀz - zᵀ(G + λI)⁻¹z.

With δ ~ N(e, s²), where e leads back to the first guess, it is δ = (q + ρe)/(p + ρ) with ρ = σ²/s² at q/p,
the δ that fits best, and ln p(λ) gets -½ (δ - e)²/s² - ½ ln(1 + p s²/σ²). Of actions without features, s² is
the likeliest, (q/p - e)², and at least sd₀² + σ₀². A fixed one would hold the mean back where rewards are
around 3 or 50, and whoever is tried first would get everything. Of a constant column s² is so large that the
first guess does not matter (`learner.FAR`): adding a number to all rewards then changes no share. Its
variance is no uncertainty about one action or another, and does not enter V.

Rows with features have more numbers than their first rewards can tell. With ten rewards and forty numbers
some λ explains luck by large differences, and one row gets nearly everything. So while there are fewer than
`FEW` own records for each number beyond `SPARED`, λ is the likeliest of those with an sd of at most `NARROW`
sd₀, or more in proportion where rewards vary by more than σ₀² + sd₀². Intervals do not depend on it. Measured
in docs/paper/measurements.md, "Sizes while little is known".

G is made tridiagonal once, and each λ then takes O(d).

Decisions come from the likeliest λ. Intervals are averaged over all of them (`posterior.Posterior`): where
the first guess of σ counts as two observations, ln p(λ) above is that of a σ² that is not known, and σ² given
λ is (2 + n)σ²(λ)/χ² with 2 + n degrees of freedom. δ given λ and σ² is normal around the value above, with
variance σ²/(p + ρ).

For σ and sd only own, exact records are used: peers may have another θ, and what theirs fails to predict is
not noise. They are estimated again when own observations number 1, 2, 4, 8, … The mean is then that δ for the
sums that decisions come from, peers' among them, and follows them whenever peers' sums come: or a member with
few rewards of its own would take what no member has tried for far better, or worse, than all the rest.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fedfairx.core.learner import (
    ASSUMED_MEAN,
    ASSUMED_NOISE,
    ASSUMED_VARIANCE,
    LEARNING_MEAN,
    MEAN_VARIANCE,
    NOISE_VARIANCE,
    OBSERVED,
    RIDGE,
    SQUARES,
    Learner,
)
from fedfairx.core.statistics import place
from fedfairx.lanes.decorators import stage
from fedfairx.lanes.linalg import tridiagonalize
from fedfairx.lanes.rows import Rows
from fedfairx.lanes.vector import absolute, any_above, fma, larger, where_above
from fedfairx.lanes.vector_math import log

#: Observations that σ₀ counts as.
ASSUMED_WEIGHT = 2.0
#: Of ln sd around ln sd₀.
LOG_SD = 1.0
SMALLEST, POINTS = 2.0**-20, 41  # λ from 1e-6 to 1e6, each twice the one before
FEW, SPARED, NARROW = 2.0, 8.0, 0.7
LOG_NARROW = math.log(NARROW)
REFUSED = 1e9  # of ln p, for each e-fold of a wider sd: if all are wider, the narrowest is taken
NOTHING = 1e-12  # p/λ of sums without a record, but for rounding; of one reward it is at least 1e-10


def next_refit(observed: int) -> int:
    """Number of own observations at which σ and sd are estimated again: the next power of two."""
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

    By elimination in the workspace matrix (d, d + 1), by four pivots at a time, so that the rows below are
    read and written a quarter as often, and steps of the innermost loop are independent. A Gram matrix is
    positive semidefinite, so pivots below λ are rounding errors and count as λ.
    """
    dimension, entry = moment.shape[0], 0
    for i in range(dimension):
        for j in range(i, dimension):
            matrix[i, j] = packed[entry]
            entry += 1
        matrix[i, i] = matrix[i, i] + ridge
        matrix[i, dimension] = moment[i]
    explained, volume = 0.0, 0.0
    for first in range(0, dimension, 4):
        end = min(first + 4, dimension)
        for k in range(first, end):
            pivot = larger(matrix[k, k], ridge)
            volume = volume + log(pivot / ridge)
            inverse = 1.0 / pivot
            explained = fma(matrix[k, dimension] * inverse, matrix[k, dimension], explained)
            matrix[k, k] = inverse
            for i in range(k + 1, end):
                pull = matrix[k, i] * inverse
                for c in range(i, dimension + 1):
                    matrix[i, c] = fma(-pull, matrix[k, c], matrix[i, c])
        second, third, fourth = first + 1, first + 2, first + 3
        for i in range(end, dimension):
            p, q = matrix[first, i] * matrix[first, first], matrix[second, i] * matrix[second, second]
            r, s = matrix[third, i] * matrix[third, third], matrix[fourth, i] * matrix[fourth, fourth]
            size = larger(larger(absolute(p), absolute(q)), larger(absolute(r), absolute(s)))
            if any_above(size, 0.0):  # false for one-hot contexts
                for c in range(i, dimension + 1):
                    x = fma(-q, matrix[second, c], fma(-p, matrix[first, c], matrix[i, c]))
                    matrix[i, c] = fma(-s, matrix[fourth, c], fma(-r, matrix[third, c], x))
    return explained, volume


class Sizes(NamedTuple):
    """σ², λ, and the mean of the prior, if there is one for all coordinates."""

    variance: float
    ridge: float
    mean: float


@stage
def tridiagonal_forms(matrix: Rows, ridge: float, moment: Rows) -> tuple[float, float, float, float]:
    """bᵀA⁻¹b, bᵀA⁻¹z, zᵀA⁻¹z and ln|A/λ| with A = G + λI, for a tridiagonal G in matrix (d, d + 1), z in its
    last column, and a moment b (d,); O(d).

    A Gram matrix is positive semidefinite, so pivots below λ are rounding errors and count as λ.
    """
    bb, bz, zz, volume = 0.0, 0.0, 0.0, 0.0
    pivot, above, b, z = 1.0, 0.0, 0.0, 0.0
    for i in range(moment.shape[0]):
        pull = above / pivot
        pivot = larger(fma(-pull, above, matrix[i, i] + ridge), ridge)
        b, z = fma(-pull, b, moment[i]), fma(-pull, z, matrix[i, moment.shape[0]])
        bb, bz, zz = fma(b / pivot, b, bb), fma(b / pivot, z, bz), fma(z / pivot, z, zz)
        volume = volume + log(pivot / ridge)
        if i + 1 < moment.shape[0]:
            above = matrix[i, i + 1]
    return bb, bz, zz, volume


@stage
def learnt_sizes(
    state: Learner,
    own: Rows,
    matrix: Rows,
    grid: Rows | None,
    names: Rows | None,
) -> tuple[float, float, float]:
    """σ² and λ of every lane, by its own packed records (q,), and ln p(λ).

    Overwrites matrix (d, d + 1), `product` and `estimate`. grid (POINTS, 3), unless it is None, gets for each
    λ: ln p(λ), σ² and λ. names (3,), unless it is None, says that `own` are whitened sums for some ρ
    (`own_record`): it has Σ k r², Σ ln(1 + n/ρ) and ln(ρ τ₀²). τ₀ is the first guess of τ, trusted as sd₀ is.
    """
    numbers, mean, common, centred = state.numbers, state.mean, state.common, state.product
    dimension = mean.shape[0]
    first, entry = own.shape[0] - dimension, 0
    less_mean(own, mean, centred)
    squares, total, lengths, assumed = numbers[SQUARES], 0.0, 0.0, numbers[ASSUMED_MEAN]
    back, alike = 0.0, 0.0
    for i in range(dimension):
        squares = fma(-mean[i], own[first + i] + centred[i], squares)  # Σ(y - x·mean)²
        total = fma(common[i], centred[i], total)  # uᵀb
        alike = alike + common[i]
        back = where_above(common[i], 0.0, assumed - mean[i], back)
        matrix[i, dimension] = 0.0
        for j in range(i, dimension):
            matrix[i, j] = own[entry]
            entry += 1
    for i in range(dimension):  # z = Gu and uᵀz
        matrix[i, dimension] = fma(matrix[i, i], common[i], matrix[i, dimension])
        for j in range(i + 1, dimension):
            matrix[i, dimension] = fma(matrix[i, j], common[j], matrix[i, dimension])
            matrix[j, dimension] = fma(matrix[i, j], common[i], matrix[j, dimension])
    for i in range(dimension):
        lengths = fma(common[i], matrix[i, dimension], lengths)
    tridiagonalize(matrix, centred, state.estimate)
    if names is not None:
        squares = squares - names[0]
    weight, guess = numbers[OBSERVED] + ASSUMED_WEIGHT, ASSUMED_WEIGHT * numbers[ASSUMED_NOISE]
    learning = numbers[LEARNING_MEAN]  # 1, or 0: then δ is 0
    back = learning * back
    least = numbers[MEAN_VARIANCE]
    usual = numbers[ASSUMED_VARIANCE] + numbers[ASSUMED_NOISE]
    varied = larger(fma(-learning * total, total / larger(lengths, 1e-300), squares), 0.0)
    scale = larger(varied / (larger(numbers[OBSERVED], 1.0) * usual), 1.0)
    widest = 0.5 * log(scale) + LOG_NARROW
    few = where_above(FEW * (dimension - SPARED), numbers[OBSERVED], REFUSED, 0.0)
    refused = where_above(dimension - 0.5, alike, few, 0.0)
    best, variance, best_ridge = -1e300, numbers[ASSUMED_NOISE], 1.0
    for k in range(POINTS):
        ridge = SMALLEST * 2.0**k
        explained, both, two, volume = tridiagonal_forms(matrix, ridge, centred)
        left = larger(squares - explained, 0.0)
        p, q = learning * larger(lengths - two, 0.0), learning * (total - both)
        fit = q / larger(p, 1e-300)  # the δ that fits best
        wide = larger((fit - back) * (fit - back), least)
        flat = fma(-fit, q, left)
        rho = (guess + larger(flat, 0.0)) / (weight * wide)
        shift = fma(rho, back, q) / (p + rho)
        noise = (guess + larger(fma(shift, fma(shift, p, -2.0 * q), left), 0.0)) / weight
        size = 0.5 * log(noise / (ridge * numbers[ASSUMED_VARIANCE])) / LOG_SD
        far = fma((shift - back) / wide, shift - back, log(fma(p, wide / noise, 1.0)))
        likely = -0.5 * fma(size, size, fma(weight, log(noise), volume + far))
        if names is not None:
            apart = 0.5 * (log(noise) - names[2]) / LOG_SD
            likely = fma(-0.5, fma(apart, apart, names[1]), likely)
        if grid is not None:
            grid[k, 0], grid[k, 1], grid[k, 2] = likely, noise, ridge
        likely = fma(-refused, larger(fma(LOG_SD, size, -widest), 0.0), likely)
        variance = where_above(likely, best, noise, variance)
        best_ridge = where_above(likely, best, ridge, best_ridge)
        best = larger(likely, best)
    return variance, best_ridge, best


@stage
def learnt_mean(state: Learner, inverse: Rows) -> float:
    """The mean of the prior in every lane, by the sums that decisions come from and V⁻¹ (d, d) of them.

    Since V - G = λI, q and p are λ·uᵀ(θ̂ - m) and λ(uᵀu - λ·uᵀV⁻¹u), where m is the first guess.
    """
    numbers, dimension = state.numbers, state.mean.shape[0]
    ridge, guess, first = numbers[RIDGE], numbers[ASSUMED_MEAN], state.statistics.shape[0] - dimension
    information, moved = 0.0, 0.0  # p/λ and q/λ
    for i in range(dimension):
        estimate, total = 0.0, 0.0
        for j in range(dimension):
            mean = where_above(state.common[j], 0.0, guess, state.mean[j])  # before it was learnt
            estimate = fma(inverse[i, j], fma(ridge, mean, state.statistics[first + j]), estimate)
            total = fma(inverse[i, j], state.common[j], total)
        information = fma(state.common[i], fma(-ridge, total, 1.0), information)
        moved = fma(state.common[i], estimate - guess, moved)
    information = where_above(information, NOTHING, information, 1.0)
    moved = where_above(information, NOTHING, moved, 0.0)
    fit = moved / information
    wide = larger(fit * fit, numbers[MEAN_VARIANCE])
    return guess + moved / (information + numbers[NOISE_VARIANCE] / (ridge * wide))
