"""The three products that every stage is made of, over a block of lanes (the lane is the last axis).

Contexts and inverses come in two forms: one per lane (a further, last axis), as in the simulator, or one
that all lanes share, as when the lanes are several starts of one decision. The number of dimensions is
known at compile time, so each form compiles to its own loop.
"""

from __future__ import annotations

from fedfairx.core.arithmetic import fma
from fedfairx.core.compile import stage
from fedfairx.core.lanes import Lanes, lane_count
from fedfairx.core.statistics import Array


@stage
def _scores_of_one(contexts: Array, theta: Array, means: Array) -> None:
    """`scores` of one lane: the same sums in the same order, with the arms innermost."""
    arms, dimension = contexts.shape
    row, means_row = theta.reshape(dimension), means.reshape(arms)
    for a in range(arms):
        means_row[a] = 0.0
    for j in range(dimension):
        t = row[j]
        for a in range(arms):
            means_row[a] = fma(contexts[a, j], t, means_row[a])


@stage
def _blend_of_one(contexts: Array, weights: Array, pull: Array) -> None:
    """`blend` of one lane: the same sums in the same order, with the coordinates innermost."""
    arms, dimension = contexts.shape
    row, pull_row = weights.reshape(arms), pull.reshape(dimension)
    for j in range(dimension):
        pull_row[j] = 0.0
    for a in range(arms):
        w = row[a]
        for j in range(dimension):
            pull_row[j] = fma(contexts[a, j], w, pull_row[j])


@stage
def scores(lanes: Lanes, contexts: Array, theta: Array, means: Array) -> None:
    """means[a] = x_a · θ. contexts (K, d[, n]), theta (d, n), means (K, n)."""
    arms, dimension = contexts.shape[0], contexts.shape[1]
    whole = dimension - dimension % 4
    if lanes is None and contexts.ndim == 2:
        _scores_of_one(contexts, theta, means)
        return
    for a in range(arms):
        for l in range(lane_count(lanes)):
            means[a, l] = 0.0
        if contexts.ndim == 2:
            for j in range(dimension):
                x = contexts[a, j]
                for l in range(lane_count(lanes)):
                    means[a, l] = fma(x, theta[j, l], means[a, l])
        else:
            for j in range(0, whole, 4):  # four at a time: means[a, l] = means[a, l] + Σ_j x_aj θ_j
                for l in range(lane_count(lanes)):
                    s = fma(contexts[a, j, l], theta[j, l], means[a, l])
                    s = fma(contexts[a, j + 1, l], theta[j + 1, l], s)
                    s = fma(contexts[a, j + 2, l], theta[j + 2, l], s)
                    means[a, l] = fma(contexts[a, j + 3, l], theta[j + 3, l], s)
            for j in range(whole, dimension):
                for l in range(lane_count(lanes)):
                    means[a, l] = fma(contexts[a, j, l], theta[j, l], means[a, l])


@stage
def blend(lanes: Lanes, contexts: Array, weights: Array, pull: Array) -> None:
    """pull = Σ_a w_a x_a. contexts (K, d[, n]), weights (K, n), pull (d, n)."""
    arms, dimension = contexts.shape[0], contexts.shape[1]
    whole = arms - arms % 4
    if lanes is None and contexts.ndim == 2:
        _blend_of_one(contexts, weights, pull)
        return
    for j in range(dimension):
        for l in range(lane_count(lanes)):
            pull[j, l] = 0.0
        if contexts.ndim == 2:
            for a in range(arms):
                x = contexts[a, j]
                for l in range(lane_count(lanes)):
                    pull[j, l] = fma(x, weights[a, l], pull[j, l])
        else:
            for a in range(0, whole, 4):  # four at a time: pull[j, l] = pull[j, l] + Σ_a x_aj w_a
                for l in range(lane_count(lanes)):
                    s = fma(contexts[a, j, l], weights[a, l], pull[j, l])
                    s = fma(contexts[a + 1, j, l], weights[a + 1, l], s)
                    s = fma(contexts[a + 2, j, l], weights[a + 2, l], s)
                    pull[j, l] = fma(contexts[a + 3, j, l], weights[a + 3, l], s)
            for a in range(whole, arms):
                for l in range(lane_count(lanes)):
                    pull[j, l] = fma(contexts[a, j, l], weights[a, l], pull[j, l])


@stage
def multiply(lanes: Lanes, inverse: Array, vector: Array, product: Array) -> None:
    """product = V⁻¹ · vector. inverse (d, d[, n]), vector and product (d, n)."""
    scores(lanes, inverse, vector, product)


@stage
def largest_row(lanes: Lanes, inverse: Array, largest: Array, total: Array) -> None:
    """largest = max_i Σ_j |V⁻¹_ij| ≥ the largest eigenvalue. inverse (d, d[, n]), largest and total (n,)."""
    dimension = inverse.shape[0]
    for l in range(lane_count(lanes)):
        largest[l] = 0.0
    for i in range(dimension):
        for l in range(lane_count(lanes)):
            total[l] = 0.0
        for j in range(dimension):
            if inverse.ndim == 2:
                for l in range(lane_count(lanes)):
                    total[l] += abs(inverse[i, j])
            else:
                for l in range(lane_count(lanes)):
                    total[l] += abs(inverse[i, j, l])
        for l in range(lane_count(lanes)):
            largest[l] = max(largest[l], total[l])


@stage
def subtract_row(lanes: Lanes, contexts: Array, arm: int, centre: Array, offset: Array) -> None:
    """offset = x_arm - centre. contexts (K, d[, n]), centre and offset (d, n)."""
    dimension = centre.shape[0]
    for j in range(dimension):
        if contexts.ndim == 2:
            x = contexts[arm, j]
            for l in range(lane_count(lanes)):
                offset[j, l] = x - centre[j, l]
        else:
            for l in range(lane_count(lanes)):
                offset[j, l] = contexts[arm, j, l] - centre[j, l]


@stage
def take_lane(block: Array, lane: int, out: Array) -> None:
    """out (rows, columns) = one lane of a block, which is either (rows, columns, n) or shared."""
    rows, columns = out.shape
    for i in range(rows):
        if block.ndim == 2:
            for j in range(columns):
                out[i, j] = block[i, j]
        else:
            for j in range(columns):
                out[i, j] = block[i, j, lane]


@stage
def take_arm(lanes: Lanes, contexts: Array, arm: int, out: Array) -> None:
    """out (d, n) = the context of one arm, in every lane."""
    dimension = out.shape[0]
    for j in range(dimension):
        if contexts.ndim == 2:
            x = contexts[arm, j]
            for l in range(lane_count(lanes)):
                out[j, l] = x
        else:
            for l in range(lane_count(lanes)):
                out[j, l] = contexts[arm, j, l]
