"""The three products that every stage is made of, for one lane or a block (the lane is the last axis).

Contexts and inverses come in two forms: one per lane (a further, last axis), as in the simulator, or one
that all lanes share, as when the lanes are several starts of one decision. The number of dimensions is
known at compile time, so each form compiles to its own loop.
"""

from __future__ import annotations

from fedfairx.arrays import Array
from fedfairx.lanes.block import Lanes
from fedfairx.lanes.compile import leaf, stage
from fedfairx.lanes.registers import WIDTH
from fedfairx.lanes.vector import absolute, fma, item, larger, load, load_run, store, store_run


@leaf
def entry(lanes: Lanes, block: Array, i: int, j: int) -> float:
    """block[i, j], of every lane or shared by all."""
    return item(block, i, j) if block.ndim == 2 else load(lanes, block, i, j)


@leaf
def _blend_of_one(rows: Array, weights: Array, pull: Array) -> None:
    """`blend` of one lane: the same sums in the same order, WIDTH or four coordinates at a time."""
    count, dimension = rows.shape
    weight, out = weights.reshape(count), pull.reshape(dimension)
    j = 0
    while j + WIDTH <= dimension:
        run = 0.0
        for a in range(count):
            run = fma(load_run(rows, a, j), item(weight, a), run)
        store_run(run, out, j)
        j += WIDTH
    while j + 4 <= dimension:
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for a in range(count):
            w = item(weight, a)
            s0 = fma(item(rows, a, j), w, s0)
            s1 = fma(item(rows, a, j + 1), w, s1)
            s2 = fma(item(rows, a, j + 2), w, s2)
            s3 = fma(item(rows, a, j + 3), w, s3)
        out[j], out[j + 1], out[j + 2], out[j + 3] = s0, s1, s2, s3
        j += 4
    while j < dimension:
        s = 0.0
        for a in range(count):
            s = fma(item(rows, a, j), item(weight, a), s)
        out[j] = s
        j += 1


@leaf
def _scores_of_one(contexts: Array, theta: Array, means: Array) -> None:
    """`scores` of one lane: the same sums in the same order, four arms at a time."""
    arms, dimension = contexts.shape
    row, out = theta.reshape(dimension), means.reshape(arms)
    whole = arms - arms % 4
    for a in range(0, whole, 4):
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for j in range(dimension):
            t = item(row, j)
            s0 = fma(item(contexts, a, j), t, s0)
            s1 = fma(item(contexts, a + 1, j), t, s1)
            s2 = fma(item(contexts, a + 2, j), t, s2)
            s3 = fma(item(contexts, a + 3, j), t, s3)
        out[a], out[a + 1], out[a + 2], out[a + 3] = s0, s1, s2, s3
    for a in range(whole, arms):
        s = 0.0
        for j in range(dimension):
            s = fma(item(contexts, a, j), item(row, j), s)
        out[a] = s


@leaf
def scores(lanes: Lanes, contexts: Array, theta: Array, means: Array) -> None:
    """means[a] = x_a · θ. contexts (K, d[, n]), theta (d, n), means (K, n)."""
    if lanes is None and contexts.ndim == 2:
        _scores_of_one(contexts, theta, means)
        return
    for a in range(contexts.shape[0]):
        s = 0.0
        for j in range(contexts.shape[1]):
            s = fma(entry(lanes, contexts, a, j), load(lanes, theta, j), s)
        store(s, lanes, means, a)


@leaf
def blend(lanes: Lanes, contexts: Array, weights: Array, pull: Array) -> None:
    """pull = Σ_a w_a x_a. contexts (K, d[, n]), weights (K, n), pull (d, n)."""
    if lanes is None and contexts.ndim == 2:
        _blend_of_one(contexts, weights, pull)
        return
    for j in range(contexts.shape[1]):
        s = 0.0
        for a in range(contexts.shape[0]):
            s = fma(entry(lanes, contexts, a, j), load(lanes, weights, a), s)
        store(s, lanes, pull, j)


@leaf
def multiply(lanes: Lanes, inverse: Array, vector: Array, product: Array) -> None:
    """product = V⁻¹ · vector. inverse (d, d[, n]), symmetric; vector and product (d, n)."""
    if lanes is None and inverse.ndim == 2:
        _blend_of_one(inverse, vector, product)
        return
    for i in range(inverse.shape[0]):
        s = 0.0
        for j in range(inverse.shape[0]):
            s = fma(entry(lanes, inverse, i, j), load(lanes, vector, j), s)
        store(s, lanes, product, i)


@leaf
def inner(lanes: Lanes, left: Array, right: Array) -> float:
    """Σ_j left_j right_j. left and right (d, n)."""
    s = 0.0
    for j in range(left.shape[0]):
        s = fma(load(lanes, left, j), load(lanes, right, j), s)
    return s


@leaf
def largest_row(lanes: Lanes, inverse: Array) -> float:
    """max_i Σ_j |V⁻¹_ij| ≥ the largest eigenvalue. inverse (d, d[, n])."""
    largest = 0.0
    for i in range(inverse.shape[0]):
        total = 0.0
        for j in range(inverse.shape[0]):
            total = total + absolute(entry(lanes, inverse, i, j))
        largest = larger(largest, total)
    return largest


@leaf
def subtract_row(lanes: Lanes, contexts: Array, arm: int, centre: Array, offset: Array) -> None:
    """offset = x_arm - centre. contexts (K, d[, n]), centre and offset (d, n)."""
    for j in range(centre.shape[0]):
        store(entry(lanes, contexts, arm, j) - load(lanes, centre, j), lanes, offset, j)


@stage
def take_lane(block: Array, lane: int, out: Array) -> None:
    """out (rows, columns) = one lane of a block, which is either (rows, columns, n) or shared."""
    rows, columns = out.shape
    for i in range(rows):
        for j in range(columns):
            out[i, j] = block[i, j] if block.ndim == 2 else block[i, j, lane]


@leaf
def take_arm(lanes: Lanes, contexts: Array, arm: int, out: Array) -> None:
    """out (d, n) = the context of one arm, in every lane."""
    for j in range(out.shape[0]):
        store(entry(lanes, contexts, arm, j), lanes, out, j)
