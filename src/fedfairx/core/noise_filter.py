"""What noisy statistics are worth to a posterior, direction by direction: a Wiener filter.

With G̃ = G + N and b̃ = Gθ + (the rewards' noise) + h, N and h of entry sd s, what is seen is b̃ = G̃θ +
error, and along an eigenvector of G̃ of eigenvalue g the error has variance σ²g + s²(1 + ‖θ‖²). So the
direction is known with precision g²/(σ²g + s²(1 + ‖θ‖²)). Exact statistics of Gram g²/(g + κ) and moment
b̃·g/(g + κ) would say just that, with κ = s²(1 + ‖θ‖²)/σ²: they take the noisy ones' place, and an agent
goes on with V, b and σ as if nothing were noisy. Before that, what of G̃ noise alone could have made is taken
off: eigenvalues of noise reach 2s√d, and g becomes g³/(g² + 4ds²). All of it is post-processing of released
values: free under differential privacy.
"""

from __future__ import annotations

import math

from fedfairx.core.statistics import place
from fedfairx.lanes.decorators import stage
from fedfairx.lanes.rows import Rows
from fedfairx.lanes.vector import fma, larger, sqrt


@stage
def size_of_parameter(theta: Rows, inverse: Rows, variance: float) -> float:
    """E‖θ‖² under N(θ̂, σ²V⁻¹). theta (d,), inverse (d, d)."""
    square, trace = 0.0, 0.0
    for j in range(theta.shape[0]):
        square = fma(theta[j], theta[j], square)
        trace = trace + inverse[j, j]
    return fma(variance, trace, square)


@stage
def doubt(noise_sd: float, size: float, variance: float, dimension: int) -> float:
    """κ: how large an eigenvalue must be for its direction to be half believed.

    At least what noise alone makes of a zero eigenvalue, with some six sds to spare: G̃ + κI is then positive.
    """
    least = noise_sd * (2.0 * math.sqrt(dimension) + 6.0)
    return larger(noise_sd * noise_sd * (1.0 + size) / variance, least)


@stage
def factorise(matrix: Rows, least: float) -> None:
    """matrix (d, d), symmetric, ← Cholesky's factor F, lower, with 1/F_ii on the diagonal."""
    dimension = matrix.shape[0]
    for i in range(dimension):
        for j in range(i + 1):
            s = matrix[i, j]
            for k in range(j):
                s = fma(-matrix[i, k], matrix[j, k], s)
            if i == j:
                matrix[i, i] = 1.0 / sqrt(larger(s, least))
            else:
                matrix[i, j] = s * matrix[j, j]


@stage
def turn(factor: Rows, packed: Rows, turned: Rows) -> None:
    """turned (d, d + 1) ← F⁻¹[G̃, b̃]."""
    dimension = factor.shape[0]
    moment = packed.shape[0] - dimension
    for i in range(dimension):
        for c in range(dimension):
            turned[i, c] = packed[place(dimension, i, c)]
        turned[i, dimension] = packed[moment + i]
        for k in range(i):  # columns inside: none waits for another
            for c in range(dimension + 1):
                turned[i, c] = fma(-factor[i, k], turned[k, c], turned[i, c])
        for c in range(dimension + 1):
            turned[i, c] = turned[i, c] * factor[i, i]


@stage
def square_up(turned: Rows, square: Rows) -> None:
    """square (d, d), its lower half, ← TᵀT of the first d columns of turned."""
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
    """Gram G̃ ← G̃³(G̃² + floor²I)⁻¹, in place: what does not rise above the noise is next to nothing."""
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
    factorise(factor, 1e-16 * trace)  # where the floor is lost in rounding, a pivot may be negative
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
    """packed ← what is worth believing: Gram G̃(G̃ + κI)⁻¹G̃ and moment G̃(G̃ + κI)⁻¹b̃. In place.

    packed (q,); factor (d, d) and turned (d, d + 1) are room. With G̃ + κI = F Fᵀ and T = F⁻¹[G̃, b̃],
    the two are the blocks of TᵀT: no difference of large numbers, and never negative.
    """
    dimension = factor.shape[0]
    moment = packed.shape[0] - dimension
    for i in range(dimension):
        for j in range(i + 1):
            s = packed[place(dimension, i, j)]
            factor[i, j] = s + kappa if i == j else s
    factorise(factor, 1e-3 * kappa)
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
def noise_floor(noise_sd: float, dimension: int) -> float:
    """What the eigenvalues of noise alone reach: 2s√d (Wigner)."""
    return 2.0 * math.sqrt(dimension) * noise_sd


@stage
def believe(packed: Rows, noise_sd: float, size: float, variance: float, factor: Rows, turned: Rows) -> None:
    """Noisy sums (q,) ← what is worth believing of them, in every lane. In place; see the head of this file.

    noise_sd: of an entry; size: E‖θ‖²; variance: σ². factor (d, d) and turned (d, d + 1) are room.
    """
    dimension = factor.shape[0]
    quieten(packed, noise_floor(noise_sd, dimension), factor, turned)
    weigh(packed, doubt(noise_sd, size, variance, dimension), factor, turned)
