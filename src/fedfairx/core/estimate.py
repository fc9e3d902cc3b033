"""Statistics → V⁻¹ and θ̂ = V⁻¹ b, with V = λI + Gram (Alg. 1 line 5).

The sums are the truth; V⁻¹ follows them by rank-one updates of O(d²) and is derived anew from the sums
from time to time, so that rounding can't gather.
"""

from __future__ import annotations

import math

import numpy as np

from fedfairx.core.arithmetic import fma
from fedfairx.core.compile import stage
from fedfairx.core.lanes import Lanes, lane_count
from fedfairx.core.statistics import Array

#: Rank-one updates after which V⁻¹ is derived anew. At 1e-16 each they stay far below 1e-10.
REFRESH_EVERY = 4096


@stage
def derive(packed: Array, regulariser: float, inverse: Array) -> None:
    """inverse = (λI + Gram)⁻¹ for every lane, by Cholesky. packed (q, n), inverse (d, d, n)."""
    dimension, lanes = inverse.shape[0], inverse.shape[2]
    factor = np.empty((dimension, dimension))
    for l in range(lanes):
        entry = 0
        for i in range(dimension):
            for j in range(i, dimension):
                factor[j, i] = packed[entry, l]
                entry += 1
            factor[i, i] += regulariser
        for i in range(dimension):  # V = F Fᵀ, F lower
            for j in range(i + 1):
                s = factor[i, j]
                for k in range(j):
                    s = fma(-factor[i, k], factor[j, k], s)
                factor[i, j] = s / factor[j, j] if i != j else math.sqrt(s)
        for i in range(dimension):  # F ← F⁻¹, lower
            factor[i, i] = 1.0 / factor[i, i]
            for j in range(i):
                s = 0.0
                for k in range(j, i):
                    s = fma(-factor[i, k], factor[k, j], s)
                factor[i, j] = s * factor[i, i]
        for i in range(dimension):  # V⁻¹ = F⁻ᵀ F⁻¹
            for j in range(i + 1):
                s = 0.0
                for k in range(i, dimension):
                    s = fma(factor[k, i], factor[k, j], s)
                inverse[i, j, l] = s
                inverse[j, i, l] = s


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
