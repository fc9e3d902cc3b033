"""Statistics → V⁻¹ and θ̂ = V⁻¹ b, with V = λI + Gram (Alg. 1 line 5).

The sums are the truth; V⁻¹ follows them by rank-one updates of O(d²) and is derived anew from the sums
from time to time, so that rounding can't gather.
"""

from __future__ import annotations

from fedfairx.arrays import Array
from fedfairx.lanes.block import Lanes
from fedfairx.lanes.compile import leaf, stage
from fedfairx.lanes.linear import inner, multiply
from fedfairx.lanes.vector import any_above, fma, larger, load, sqrt, store, where_above

#: Rank-one updates after which V⁻¹ is derived anew. At 1e-16 each they stay far below 1e-10.
REFRESH_EVERY = 4096
#: An update is taken in parts that grow V by no more than this. Along x it leaves the difference of numbers
#: that are larger by its growth, which loses as many digits; the next part makes up for the last one's loss.
LARGE_GROWTH = 1e3
MOST_PARTS = 200  # enough for a growth of 1e600, which is more than there is


@stage
def derive(lanes: Lanes, packed: Array, ridge: Array, inverse: Array) -> None:
    """inverse = (λI + Gram)⁻¹ for every lane, by Cholesky. packed (q, n), ridge λ (n,), inverse (d, d, n).

    No pivot is below λ, since a Gram is not negative; where rounding says otherwise, it is λ.
    """
    dimension = inverse.shape[0]
    entry = 0
    for i in range(dimension):
        for j in range(i, dimension):
            value = load(lanes, packed, entry)
            if i == j:
                value = value + load(lanes, ridge)
            store(value, lanes, inverse, j, i)
            entry += 1
    for i in range(dimension):  # V = F Fᵀ, F lower; the diagonal holds 1 / F_ii
        for j in range(i + 1):
            s = load(lanes, inverse, i, j)
            for k in range(j):
                s = fma(-load(lanes, inverse, i, k), load(lanes, inverse, j, k), s)
            if i == j:
                store(1.0 / sqrt(larger(s, load(lanes, ridge))), lanes, inverse, i, i)
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
def grow(lanes: Lanes, inverse: Array, chosen: Array, product: Array, square: float) -> float:
    """`follow`, with product = V⁻¹x and square = xᵀV⁻¹x at hand; where that is large, xxᵀ is added in
    parts.
    """
    if any_above(square, LARGE_GROWTH):
        return _grow_in_parts(lanes, inverse, chosen, product)
    growth = square + 1.0
    _subtract(lanes, inverse, product, where_above(square, 0.0, -1.0 / growth, 0.0))
    return growth


@leaf
def _subtract(lanes: Lanes, inverse: Array, product: Array, gain: float) -> None:
    """inverse += gain · product productᵀ."""
    dimension = product.shape[0]
    for i in range(dimension):
        scaled = gain * load(lanes, product, i)
        for j in range(i, dimension):
            value = fma(scaled, load(lanes, product, j), load(lanes, inverse, i, j))
            store(value, lanes, inverse, i, j)
            store(value, lanes, inverse, j, i)


@stage
def _grow_in_parts(lanes: Lanes, inverse: Array, chosen: Array, product: Array) -> float:
    """`grow` where some lane grows much: rare. A lane that does not, has the bits that it has by itself."""
    total, left = 1.0, 1.0
    for _ in range(MOST_PARTS):
        multiply(lanes, inverse, chosen, product)
        square = inner(lanes, product, chosen)
        part = where_above(left * square, LARGE_GROWTH, LARGE_GROWTH / square, left)
        growth = fma(part, square, 1.0)
        _subtract(lanes, inverse, product, where_above(square, 0.0, -part / growth, 0.0))
        total = total * growth
        left = left - part
        if not any_above(left, 0.0):
            break
    return total


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
