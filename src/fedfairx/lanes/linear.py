"""The products that every stage is made of.

A lane may have contexts and an inverse of its own, as in the simulator, or share them with all lanes of its
block, as when the lanes are several starts of one decision: shared rows hold floats, and a float beside a
Vector stands for equal numbers.
"""

from __future__ import annotations

from fedfairx.lanes.compile import stage
from fedfairx.lanes.registers import WIDTH
from fedfairx.lanes.rows import Rows, by_lane, one_lane, put_run, run_at
from fedfairx.lanes.vector import absolute, fma, larger


@stage
def scores(contexts: Rows, theta: Rows, means: Rows) -> None:
    """means[a] = x_a · θ. contexts (K, d), theta (d,), means (K,)."""
    arms, dimension = contexts.shape
    first = arms - arms % 4
    for a in range(0, first, 4):  # while one sum waits, the others go on
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for j in range(dimension):
            t = theta[j]
            s0 = fma(contexts[a, j], t, s0)
            s1 = fma(contexts[a + 1, j], t, s1)
            s2 = fma(contexts[a + 2, j], t, s2)
            s3 = fma(contexts[a + 3, j], t, s3)
        means[a] = s0
        means[a + 1] = s1
        means[a + 2] = s2
        means[a + 3] = s3
    for a in range(first, arms):
        s = 0.0
        for j in range(dimension):
            s = fma(contexts[a, j], theta[j], s)
        means[a] = s


@stage
def blend(contexts: Rows, weights: Rows, pull: Rows) -> None:
    """pull = Σ_a w_a x_a. contexts (K, d), weights (K,), pull (d,)."""
    arms, dimension = contexts.shape
    j = 0
    # The same sums in the same order, many coordinates at a time: while one waits, the others go on.
    if one_lane(pull):
        while j + WIDTH <= dimension:
            run = 0.0
            for a in range(arms):
                run = fma(run_at(contexts, a, j), weights[a], run)
            put_run(run, pull, j)
            j += WIDTH
    while j + 4 <= dimension:
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for a in range(arms):
            w = weights[a]
            s0 = fma(contexts[a, j], w, s0)
            s1 = fma(contexts[a, j + 1], w, s1)
            s2 = fma(contexts[a, j + 2], w, s2)
            s3 = fma(contexts[a, j + 3], w, s3)
        pull[j] = s0
        pull[j + 1] = s1
        pull[j + 2] = s2
        pull[j + 3] = s3
        j += 4
    while j < dimension:
        s = 0.0
        for a in range(arms):
            s = fma(contexts[a, j], weights[a], s)
        pull[j] = s
        j += 1


@stage
def multiply(inverse: Rows, vector: Rows, product: Rows) -> None:
    """product = V⁻¹ · vector. inverse (d, d), vector and product (d,). V⁻¹ is symmetric to the bit, so that
    for one lane `blend` gives the same bits, and faster."""
    for i in range(inverse.shape[0]):
        product[i] = inner(inverse[i], vector)


@stage
def inner(left: Rows, right: Rows) -> float:
    """Σ_j left_j right_j. left and right (d,)."""
    s = 0.0
    for j in range(left.shape[0]):
        s = fma(left[j], right[j], s)
    return s


@stage
def largest_row(inverse: Rows) -> float:
    """max_i Σ_j |V⁻¹_ij| ≥ the largest eigenvalue. inverse (d, d)."""
    largest = 0.0
    for i in range(inverse.shape[0]):
        total = 0.0
        for j in range(inverse.shape[0]):
            total = total + absolute(inverse[i, j])
        largest = larger(largest, total)
    return largest


@stage
def lane_of(rows: Rows, lane: int) -> int:
    """Where what is a lane's stands in `by_lane(rows)`: all lanes of a block may share one."""
    return 0 if one_lane(rows) else lane


@stage
def take_lane(rows: Rows, lane: int, out: Rows) -> None:
    """out (rows, columns), floats, ← one lane of rows that each lane has of its own, or all share."""
    each = by_lane(rows)
    own = lane_of(rows, lane)
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = each[i, j, own]
