"""Statistics → V⁻¹ and θ̂ = V⁻¹ b, with V = λI + Gram (Alg. 1 line 5).

The sums are the truth; V⁻¹ follows them by rank-one updates of O(d²) and is derived anew from the sums
from time to time, so that rounding can't gather.
"""

from __future__ import annotations

from fedfairx.lanes.decorators import stage
from fedfairx.lanes.linalg import inner, multiply
from fedfairx.lanes.rows import Rows
from fedfairx.lanes.vector import absolute, any_above, fma, larger, sqrt, where_above

#: Rank-one updates after which V⁻¹ is derived anew. At 1e-16 each they stay far below 1e-10.
REFRESH_EVERY = 4096
#: An update is taken in parts that grow V by no more than this. Along x it leaves the difference of numbers
#: that are larger by its growth, which loses as many digits; the next part makes up for the last one's loss.
LARGE_GROWTH = 1e3
MOST_PARTS = 200  # enough for a growth of 1e600, which is more than there is


@stage
def diagonal(matrix: Rows) -> bool:
    """Whether the lower half of a matrix (d, d) holds nothing beside its diagonal, in every lane."""
    for i in range(matrix.shape[0]):
        for j in range(i):
            if any_above(absolute(matrix[i, j]), 0.0):
                return False
    return True


@stage
def derive(packed: Rows, ridge: float, inverse: Rows) -> None:
    """inverse = (λI + Gram)⁻¹ for every lane, by Cholesky. packed (q,), ridge λ, inverse (d, d).

    No pivot is below λ, since a Gram is not negative; where rounding says otherwise, it is λ.
    """
    dimension = inverse.shape[0]
    entry = 0
    for i in range(dimension):
        for j in range(i, dimension):
            value = packed[entry]
            if i == j:
                value = value + ridge
            inverse[j, i] = value
            entry += 1
    if diagonal(inverse):  # arms of their own: the same bits, without the cube
        for i in range(dimension):
            root = 1.0 / sqrt(larger(inverse[i, i], ridge))
            inverse[i, i] = root * root
            for j in range(i):
                inverse[j, i] = 0.0
        return
    for i in range(dimension):  # V = F Fᵀ, F lower; the diagonal holds 1 / F_ii
        for j in range(i + 1):
            s = inverse[i, j]
            for k in range(j):
                s = fma(-inverse[i, k], inverse[j, k], s)
            if i == j:
                inverse[i, i] = 1.0 / sqrt(larger(s, ridge))
            else:
                inverse[i, j] = s * inverse[j, j]
    for i in range(dimension):  # F ← F⁻¹, lower
        for j in range(i):
            s = 0.0
            for k in range(j, i):
                s = fma(-inverse[i, k], inverse[k, j], s)
            inverse[i, j] = s * inverse[i, i]
    for i in range(dimension):  # V⁻¹ = F⁻ᵀ F⁻¹: row i needs the rows below it and itself, no row above
        for j in range(i + 1):
            s = 0.0
            for k in range(i, dimension):
                s = fma(inverse[k, i], inverse[k, j], s)
            inverse[i, j] = s
    for i in range(dimension):
        for j in range(i):
            inverse[j, i] = inverse[i, j]


@stage
def grow(inverse: Rows, chosen: Rows, product: Rows, square: float) -> float:
    """V⁻¹ ← (V + xxᵀ)⁻¹ (Sherman and Morrison), with product = V⁻¹x and square = xᵀV⁻¹x at hand; returns
    1 + xᵀV⁻¹x, by which det V grows. Where that is large, xxᵀ is added in parts, which is rare.

    A lane that has no part left, or had none, keeps the bits that it has by itself.
    """
    total, left = 1.0, 1.0
    for _ in range(MOST_PARTS):
        part = where_above(left * square, LARGE_GROWTH, LARGE_GROWTH / square, left)
        growth = fma(part, square, 1.0)
        gain = where_above(square, 0.0, -part / growth, 0.0)
        for i in range(product.shape[0]):
            scaled = gain * product[i]
            if any_above(absolute(scaled), 0.0):  # of arms of their own it is in one row
                for j in range(i, product.shape[0]):
                    value = fma(scaled, product[j], inverse[i, j])
                    inverse[i, j] = value
                    inverse[j, i] = value
        total = total * growth
        left = left - part
        if not any_above(left, 0.0):
            break
        multiply(inverse, chosen, product)
        square = inner(product, chosen)
    return total


@stage
def estimate(inverse: Rows, packed: Rows, theta: Rows) -> None:
    """θ̂ = V⁻¹ b for every lane. inverse (d, d), packed (q,), theta (d,)."""
    dimension = theta.shape[0]
    moment = packed.shape[0] - dimension
    for i in range(dimension):
        s = 0.0
        for j in range(dimension):
            s = fma(inverse[i, j], packed[moment + j], s)
        theta[i] = s
