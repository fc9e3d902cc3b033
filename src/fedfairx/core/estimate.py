"""Statistics → V⁻¹ and θ̂ = V⁻¹ b, with V = λI + Gram (Alg. 1 line 5).

The sums are the truth; V⁻¹ follows them by rank-one updates of O(d²) and is derived anew from the sums
from time to time, so that rounding can't gather.
"""

from __future__ import annotations

import math

from fedfairx.core.arithmetic import fma
from fedfairx.core.compile import stage
from fedfairx.core.lanes import Lanes, lane_count
from fedfairx.core.statistics import Array

#: Rank-one updates after which V⁻¹ is derived anew. At 1e-16 each they stay far below 1e-10.
REFRESH_EVERY = 4096


@stage
def derive(packed: Array, regulariser: float, inverse: Array) -> None:
    """inverse = (λI + Gram)⁻¹ for every lane, by Cholesky, in place. packed (q, n), inverse (d, d, n)."""
    dimension, lanes = inverse.shape[0], inverse.shape[2]
    for l in range(lanes):
        entry = 0
        for i in range(dimension):
            for j in range(i, dimension):
                inverse[j, i, l] = packed[entry, l]
                entry += 1
            inverse[i, i, l] += regulariser
        for i in range(dimension):  # V = F Fᵀ, F lower
            for j in range(i + 1):
                s = inverse[i, j, l]
                for k in range(j):
                    s = fma(-inverse[i, k, l], inverse[j, k, l], s)
                inverse[i, j, l] = s / inverse[j, j, l] if i != j else math.sqrt(s)
        for i in range(dimension):  # F ← F⁻¹, lower
            inverse[i, i, l] = 1.0 / inverse[i, i, l]
            for j in range(i):
                s = 0.0
                for k in range(j, i):
                    s = fma(-inverse[i, k, l], inverse[k, j, l], s)
                inverse[i, j, l] = s * inverse[i, i, l]
        for i in range(dimension):  # V⁻¹ = F⁻ᵀ F⁻¹: row i needs the rows below it and itself, no row above
            for j in range(i + 1):
                s = 0.0
                for k in range(i, dimension):
                    s = fma(inverse[k, i, l], inverse[k, j, l], s)
                inverse[i, j, l] = s
        for i in range(dimension):
            for j in range(i):
                inverse[j, i, l] = inverse[i, j, l]


@stage
def follow(lanes: Lanes, inverse: Array, chosen: Array, product: Array, gain: Array) -> None:
    """V⁻¹ after one more context per lane (Sherman and Morrison): V⁻¹ - (V⁻¹x)(V⁻¹x)ᵀ / (1 + xᵀV⁻¹x).

    inverse (d, d, n), chosen (d, n); product (d, n) and gain (n,) are room to work in. A zero context
    leaves a lane's inverse as it is, bit for bit.
    """
    dimension = chosen.shape[0]
    for l in range(lane_count(lanes)):
        gain[l] = 1.0
    for i in range(dimension):
        for l in range(lane_count(lanes)):
            product[i, l] = 0.0
        for j in range(dimension):
            for l in range(lane_count(lanes)):
                product[i, l] = fma(inverse[i, j, l], chosen[j, l], product[i, l])
        for l in range(lane_count(lanes)):
            gain[l] = fma(product[i, l], chosen[i, l], gain[l])
    for l in range(lane_count(lanes)):
        gain[l] = -1.0 / gain[l]
    for i in range(dimension):
        for j in range(i, dimension):
            for l in range(lane_count(lanes)):
                value = fma(gain[l] * product[i, l], product[j, l], inverse[i, j, l])
                inverse[i, j, l] = value
            for l in range(lane_count(lanes)):
                inverse[j, i, l] = inverse[i, j, l]


@stage
def estimate(lanes: Lanes, inverse: Array, packed: Array, theta: Array) -> None:
    """θ̂ = V⁻¹ b for every lane. inverse (d, d, n), packed (q, n), theta (d, n)."""
    dimension = theta.shape[0]
    moment = packed.shape[0] - dimension
    for i in range(dimension):
        for l in range(lane_count(lanes)):
            theta[i, l] = 0.0
        for j in range(dimension):
            for l in range(lane_count(lanes)):
                theta[i, l] = fma(inverse[i, j, l], packed[moment + j, l], theta[i, l])
