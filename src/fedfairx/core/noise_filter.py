"""A Wiener filter of noisy statistics: how much a posterior can learn from them in each direction.

With G̃ = G + N and b̃ = Gθ + (the rewards' noise) + h, N and h of entry sd s, the observation is b̃ = G̃θ +
error, and along an eigenvector of G̃ with eigenvalue g the error has variance σ²g + s²(1 + ‖θ‖²). So that
direction is known with precision g²/(σ²g + s²(1 + ‖θ‖²)), the same as from exact statistics with Gram
g²/(g + κ) and moment b̃·g/(g + κ), κ = s²(1 + ‖θ‖²)/σ². These replace the noisy ones, and V, b and σ are used
as for exact statistics. Where rewards are centred before noise is added, an intercept counts in ‖θ‖² by how
far it is from there. Before that, eigenvalues that noise alone could have made are suppressed: those of
noise reach 2s√d, and g becomes g³/(g² + 4ds²). All of it post-processes released values, and so costs no
privacy.
"""

from __future__ import annotations

import math

from fedfairx.core.learner import CENTRE, NOISE_VARIANCE, Learner
from fedfairx.core.statistics import place
from fedfairx.lanes.decorators import stage
from fedfairx.lanes.linalg import cholesky
from fedfairx.lanes.rows import Rows
from fedfairx.lanes.vector import fma, larger


@stage
def size_of_parameter(state: Learner) -> float:
    """E‖θ‖² under the posterior, whose mean is in `estimate`; an intercept counts by how far it is from where
    rewards are centred."""
    numbers, square, trace = state.numbers, 0.0, 0.0
    for j in range(state.mean.shape[0]):
        part = fma(-state.common[j], numbers[CENTRE], state.estimate[j])
        square = fma(part, part, square)
        trace = trace + state.inverse[j, j]
    return fma(numbers[NOISE_VARIANCE], trace, square)


@stage
def doubt(noise_sd: float, size: float, variance: float, dimension: int) -> float:
    """κ: the eigenvalue whose direction gets half of its weight.

    At least what noise alone makes of a zero eigenvalue plus six sds, so that G̃ + κI is positive definite.
    """
    least = noise_sd * (2.0 * math.sqrt(dimension) + 6.0)
    return larger(noise_sd * noise_sd * (1.0 + size) / variance, least)


@stage
def turn(factor: Rows, packed: Rows, turned: Rows) -> None:
    """turned (d, d + 1) ← F⁻¹[G̃, b̃]."""
    dimension = factor.shape[0]
    moment = packed.shape[0] - dimension
    for i in range(dimension):
        for c in range(dimension):
            turned[i, c] = packed[place(dimension, i, c)]
        turned[i, dimension] = packed[moment + i]
        for k in range(i):  # columns innermost: they are independent
            for c in range(dimension + 1):
                turned[i, c] = fma(-factor[i, k], turned[k, c], turned[i, c])
        for c in range(dimension + 1):
            turned[i, c] = turned[i, c] * factor[i, i]


@stage
def square_up(turned: Rows, square: Rows) -> None:
    """square (d, d), lower half, ← TᵀT of the first d columns of turned."""
    dimension = square.shape[0]
    for i in range(dimension):
        for j in range(i + 1):
            square[i, j] = 0.0
    for k in range(dimension):
        for i in range(dimension):
            for j in range(i + 1):
                square[i, j] = fma(turned[k, i], turned[k, j], square[i, j])


@stage
def quieten(packed: Rows, floor: float, factor: Rows, turned: Rows) -> None:
    """Gram G̃ ← G̃³(G̃² + floor²I)⁻¹, in place: suppress eigenvalues below the noise floor."""
    dimension, trace = factor.shape[0], 1e-280
    for i in range(dimension):
        for j in range(dimension):
            turned[i, j] = packed[place(dimension, i, j)]
            factor[i, j] = 0.0
    for i in range(dimension):  # G̃² + floor²I, its lower half
        for k in range(dimension):
            for j in range(i + 1):
                factor[i, j] = fma(turned[i, k], turned[k, j], factor[i, j])
        factor[i, i] = factor[i, i] + floor * floor
        trace = trace + factor[i, i]
    cholesky(factor, 1e-16 * trace)  # rounding may make a pivot negative
    turn(factor, packed, turned)
    square_up(turned, factor)  # G̃(G̃² + floor²I)⁻¹G̃, which commutes with G̃
    for i in range(dimension):
        for j in range(dimension):
            turned[i, j] = 0.0
        for k in range(dimension):
            left = factor[max(i, k), min(i, k)]
            for j in range(dimension):
                turned[i, j] = fma(left, packed[place(dimension, k, j)], turned[i, j])
    for i in range(dimension):
        for j in range(i, dimension):
            both = turned[i, j] + turned[j, i]
            packed[place(dimension, i, j)] = 0.5 * both


@stage
def weigh(packed: Rows, kappa: float, factor: Rows, turned: Rows) -> None:
    """Weight the directions of packed, in place: Gram G̃(G̃ + κI)⁻¹G̃ and moment G̃(G̃ + κI)⁻¹b̃.

    packed (q,); factor (d, d) and turned (d, d + 1) are workspace. With G̃ + κI = F Fᵀ and T = F⁻¹[G̃, b̃],
    the two are the blocks of TᵀT, without cancellation and never negative.
    """
    dimension = factor.shape[0]
    moment = packed.shape[0] - dimension
    for i in range(dimension):
        for j in range(i + 1):
            s = packed[place(dimension, i, j)]
            factor[i, j] = s + kappa if i == j else s
    cholesky(factor, 1e-3 * kappa)
    turn(factor, packed, turned)
    square_up(turned, factor)
    for i in range(dimension):
        for j in range(i, dimension):
            packed[place(dimension, i, j)] = factor[j, i]
        s = 0.0
        for k in range(dimension):
            s = fma(turned[k, i], turned[k, dimension], s)
        packed[moment + i] = s


@stage
def filter_noise(
    packed: Rows, noise_sd: float, size: float, variance: float, factor: Rows, turned: Rows
) -> None:
    """Filter noisy sums (q,) in every lane, in place: see the module's docstring.

    noise_sd: of an entry; size: E‖θ‖²; variance: σ². factor (d, d) and turned (d, d + 1) are workspace.
    """
    dimension = factor.shape[0]
    largest = 2.0 * math.sqrt(dimension) * noise_sd  # eigenvalue of noise alone (Wigner)
    quieten(packed, largest, factor, turned)
    weigh(packed, doubt(noise_sd, size, variance, dimension), factor, turned)
