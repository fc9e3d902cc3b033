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

from fedfairx.arrays import Array
from fedfairx.lanes.block import Lanes
from fedfairx.lanes.compile import leaf, stage
from fedfairx.lanes.vector import fma, larger, load, sqrt, store


@leaf
def size_of_parameter(lanes: Lanes, theta: Array, inverse: Array, variance: float) -> float:
    """E‖θ‖² under N(θ̂, σ²V⁻¹). theta (d, n), inverse (d, d, n)."""
    square, trace = 0.0, 0.0
    for j in range(theta.shape[0]):
        square = fma(load(lanes, theta, j), load(lanes, theta, j), square)
        trace = trace + load(lanes, inverse, j, j)
    return fma(variance, trace, square)


@leaf
def doubt(noise_sd: float, size: float, variance: float, dimension: int) -> float:
    """κ: how large an eigenvalue must be for its direction to be half believed.

    At least what noise alone makes of a zero eigenvalue, with some six sds to spare: G̃ + κI is then positive.
    """
    least = noise_sd * (2.0 * math.sqrt(dimension) + 6.0)
    return larger(noise_sd * noise_sd * (1.0 + size) / variance, least)


@leaf
def place(dimension: int, i: int, j: int) -> int:
    """Where entry (i, j) of the Gram matrix stands in packed statistics."""
    low, high = min(i, j), max(i, j)
    return low * dimension - low * (low - 1) // 2 + high - low


@leaf
def factorise(lanes: Lanes, matrix: Array, least: float) -> None:
    """matrix (d, d, n), symmetric, ← Cholesky's factor F, lower, with 1/F_ii on the diagonal."""
    dimension = matrix.shape[0]
    for i in range(dimension):
        for j in range(i + 1):
            s = load(lanes, matrix, i, j)
            for k in range(j):
                s = fma(-load(lanes, matrix, i, k), load(lanes, matrix, j, k), s)
            if i == j:
                store(1.0 / sqrt(larger(s, least)), lanes, matrix, i, i)
            else:
                store(s * load(lanes, matrix, j, j), lanes, matrix, i, j)


@leaf
def turn(lanes: Lanes, factor: Array, packed: Array, turned: Array) -> None:
    """turned (d, d + 1, n) ← F⁻¹[G̃, b̃]."""
    dimension = factor.shape[0]
    moment = packed.shape[0] - dimension
    for c in range(dimension + 1):
        for i in range(dimension):
            s = load(lanes, packed, moment + i if c == dimension else place(dimension, i, c))
            for k in range(i):
                s = fma(-load(lanes, factor, i, k), load(lanes, turned, k, c), s)
            store(s * load(lanes, factor, i, i), lanes, turned, i, c)


@stage
def quieten(lanes: Lanes, packed: Array, floor: float, factor: Array, turned: Array) -> None:
    """Gram G̃ ← G̃³(G̃² + floor²I)⁻¹, in place: what does not rise above the noise is next to nothing."""
    dimension, trace = factor.shape[0], 1e-280
    for i in range(dimension):
        for j in range(i + 1):
            s = 0.0
            for k in range(dimension):
                left = load(lanes, packed, place(dimension, i, k))
                s = fma(left, load(lanes, packed, place(dimension, k, j)), s)
            if i == j:
                s = s + floor * floor
                trace = trace + s
            store(s, lanes, factor, i, j)
    factorise(lanes, factor, 1e-16 * trace)  # where the floor is lost in rounding, a pivot may be negative
    turn(lanes, factor, packed, turned)
    for i in range(dimension):  # factor ← G̃(G̃² + floor²I)⁻¹G̃, which commutes with G̃
        for j in range(i + 1):
            s = 0.0
            for k in range(dimension):
                s = fma(load(lanes, turned, k, i), load(lanes, turned, k, j), s)
            store(s, lanes, factor, i, j)
            store(s, lanes, factor, j, i)
    for i in range(dimension):
        for j in range(dimension):
            s = 0.0
            for k in range(dimension):
                s = fma(load(lanes, factor, i, k), load(lanes, packed, place(dimension, k, j)), s)
            store(s, lanes, turned, i, j)
    for i in range(dimension):
        for j in range(i, dimension):
            both = load(lanes, turned, i, j) + load(lanes, turned, j, i)
            store(0.5 * both, lanes, packed, place(dimension, i, j))


@stage
def weigh(lanes: Lanes, packed: Array, kappa: float, factor: Array, turned: Array) -> None:
    """packed ← what is worth believing: Gram G̃(G̃ + κI)⁻¹G̃ and moment G̃(G̃ + κI)⁻¹b̃. In place.

    packed (q, n); factor (d, d, n) and turned (d, d + 1, n) are room. With G̃ + κI = F Fᵀ and T = F⁻¹[G̃, b̃],
    the two are the blocks of TᵀT: no difference of large numbers, and never negative.
    """
    dimension = factor.shape[0]
    moment = packed.shape[0] - dimension
    for i in range(dimension):
        for j in range(i + 1):
            s = load(lanes, packed, place(dimension, i, j))
            store(s + kappa if i == j else s, lanes, factor, i, j)
    factorise(lanes, factor, 1e-3 * kappa)
    turn(lanes, factor, packed, turned)
    for i in range(dimension):
        for j in range(i, dimension + 1):
            s = 0.0
            for k in range(dimension):
                s = fma(load(lanes, turned, k, i), load(lanes, turned, k, j), s)
            store(s, lanes, packed, moment + i if j == dimension else place(dimension, i, j))


@leaf
def noise_floor(noise_sd: float, dimension: int) -> float:
    """What the eigenvalues of noise alone reach: 2s√d (Wigner)."""
    return 2.0 * math.sqrt(dimension) * noise_sd
