"""Statistics → V⁻¹ and θ̂ = V⁻¹ b, with V = λI + Gram (Alg. 1 line 5).

The sums are the truth; V⁻¹ follows them by rank-one updates of O(d²) and is derived anew from the sums
from time to time, so that rounding can't gather.
"""

from __future__ import annotations

from fedfairx.core.compile import leaf, stage
from fedfairx.core.lanes import Lanes
from fedfairx.core.linear import inner, multiply
from fedfairx.core.statistics import Array
from fedfairx.core.vector import fma, load, sqrt, store

#: Rank-one updates after which V⁻¹ is derived anew. At 1e-16 each they stay far below 1e-10.
REFRESH_EVERY = 4096


@stage
def derive(lanes: Lanes, packed: Array, regulariser: float, inverse: Array) -> None:
    """inverse = (λI + Gram)⁻¹ for every lane, by Cholesky, in place. packed (q, n), inverse (d, d, n)."""
    dimension = inverse.shape[0]
    entry = 0
    for i in range(dimension):
        for j in range(i, dimension):
            extra = regulariser if i == j else 0.0
            store(load(lanes, packed, entry) + extra, lanes, inverse, j, i)
            entry += 1
    for i in range(dimension):  # V = F Fᵀ, F lower; the diagonal holds 1 / F_ii
        for j in range(i + 1):
            s = load(lanes, inverse, i, j)
            for k in range(j):
                s = fma(-load(lanes, inverse, i, k), load(lanes, inverse, j, k), s)
            if i == j:
                store(1.0 / sqrt(s), lanes, inverse, i, i)
            else:
                store(s * load(lanes, inverse, j, j), lanes, inverse, i, j)
    for i in range(dimension):  # F ← F⁻¹, lower
        for j in range(i):
            s = 0.0
            for k in range(j, i):
                s = fma(-load(lanes, inverse, i, k), load(lanes, inverse, k, j), s)
            store(s * load(lanes, inverse, i, i), lanes, inverse, i, j)
    for i in range(dimension):  # V⁻¹ = F⁻ᵀ F⁻¹: row i needs the rows below it and itself, no row above
        for j in range(i + 1):
            s = 0.0
            for k in range(i, dimension):
                s = fma(load(lanes, inverse, k, i), load(lanes, inverse, k, j), s)
            store(s, lanes, inverse, i, j)
    for i in range(dimension):
        for j in range(i):
            store(load(lanes, inverse, i, j), lanes, inverse, j, i)


@leaf
def follow(lanes: Lanes, inverse: Array, chosen: Array, product: Array) -> float:
    """V⁻¹ after one more context per lane (Sherman and Morrison): V⁻¹ - (V⁻¹x)(V⁻¹x)ᵀ / (1 + xᵀV⁻¹x).

    inverse (d, d, n), chosen (d, n); product (d, n) is room to work in. A zero context leaves a lane's
    inverse as it is, bit for bit. Returns 1 + xᵀV⁻¹x, by which det V has grown.
    """
    dimension = chosen.shape[0]
    multiply(lanes, inverse, chosen, product)
    growth = inner(lanes, product, chosen) + 1.0
    gain = -1.0 / growth
    for i in range(dimension):
        scaled = gain * load(lanes, product, i)
        for j in range(i, dimension):
            value = fma(scaled, load(lanes, product, j), load(lanes, inverse, i, j))
            store(value, lanes, inverse, i, j)
            store(value, lanes, inverse, j, i)
    return growth


@leaf
def estimate(lanes: Lanes, inverse: Array, packed: Array, theta: Array) -> None:
    """θ̂ = V⁻¹ b for every lane. inverse (d, d, n), packed (q, n), theta (d, n)."""
    dimension = theta.shape[0]
    moment = packed.shape[0] - dimension
    for i in range(dimension):
        s = 0.0
        for j in range(dimension):
            s = fma(load(lanes, inverse, i, j), load(lanes, packed, moment + j), s)
        store(s, lanes, theta, i)
