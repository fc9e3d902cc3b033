"""Statistics → V⁻¹ and θ̂ = V⁻¹ b, with V = λI + Gram (Alg. 1 line 5).

V⁻¹ follows the sums by rank-one updates of O(d²) and is derived from them again from time to time, so that
rounding errors can't accumulate.
"""

from __future__ import annotations

from fedfairx.lanes.decorators import stage
from fedfairx.lanes.linalg import cholesky, inner, multiply
from fedfairx.lanes.rows import Rows
from fedfairx.lanes.vector import absolute, any_above, fma, larger, sqrt, where_above

#: Rank-one updates after which V⁻¹ is derived again. At 1e-16 each, errors stay far below 1e-10.
REFRESH_EVERY = 4096
#: An update is split into parts that grow V by at most this factor: along x it leaves a difference of numbers
#: larger by the growth, which loses as many digits; the next part corrects the loss of the last one.
LARGE_GROWTH = 1e3
WIDE = 64  # coordinates above which loops run along rows
MOST_PARTS = 200  # enough for a growth of 1e600, beyond any float


@stage
def diagonal(matrix: Rows) -> bool:
    """Whether the lower half of a matrix (d, d) is diagonal in every lane."""
    for i in range(matrix.shape[0]):
        for j in range(i):
            if any_above(absolute(matrix[i, j]), 0.0):
                return False
    return True


@stage
def derive(packed: Rows, ridge: float, inverse: Rows) -> None:
    """inverse = (λI + Gram)⁻¹ for every lane, by Cholesky. packed (q,), ridge λ, inverse (d, d).

    A Gram matrix is positive semidefinite, so pivots below λ are rounding errors and count as λ.
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
    if diagonal(inverse):  # one-hot contexts: the same bits in O(d²)
        for i in range(dimension):
            root = 1.0 / sqrt(larger(inverse[i, i], ridge))
            inverse[i, i] = root * root
            for j in range(i):
                inverse[j, i] = 0.0
        return
    cholesky(inverse, ridge)
    if dimension > WIDE:
        _square_of_inverse(inverse)
        return
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
def _square_of_inverse(factor: Rows) -> None:
    """factor (d, d) ← F⁻ᵀ F⁻¹ of a Cholesky factor F: the rest of `derive` for many coordinates.

    Each sum is the same, term by term, but the innermost loops run along rows: columns of a matrix that is
    larger than the processor's caches would have to be fetched again and again.
    """
    dimension = factor.shape[0]
    for i in range(dimension):
        for k in range(i):
            pull = factor[i, k]
            factor[i, k] = 0.0 * pull
            for j in range(k + 1):
                factor[i, j] = fma(-pull, factor[k, j], factor[i, j])
        for j in range(i):
            factor[i, j] = factor[i, j] * factor[i, i]
    for i in range(dimension):
        pull = factor[i, i]
        for j in range(i + 1):
            factor[i, j] = pull * factor[i, j]
        for k in range(i + 1, dimension):
            pull = factor[k, i]
            for j in range(i + 1):
                factor[i, j] = fma(pull, factor[k, j], factor[i, j])
        for j in range(i):
            factor[j, i] = factor[i, j]


@stage
def grow(inverse: Rows, chosen: Rows, product: Rows, square: float) -> float:
    """V⁻¹ ← (V + xxᵀ)⁻¹ (Sherman and Morrison), given product = V⁻¹x and square = xᵀV⁻¹x; returns
    1 + xᵀV⁻¹x, the growth of det V. If that is large, which is rare, xxᵀ is added in parts.

    A lane without further parts keeps its bits, so that they do not depend on other lanes.
    """
    total, left = 1.0, 1.0
    for _ in range(MOST_PARTS):
        part = where_above(left * square, LARGE_GROWTH, LARGE_GROWTH / square, left)
        growth = fma(part, square, 1.0)
        gain = where_above(square, 0.0, -part / growth, 0.0)
        for i in range(product.shape[0]):
            scaled = gain * product[i]
            if any_above(absolute(scaled), 0.0):  # for one-hot contexts only one row changes
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
