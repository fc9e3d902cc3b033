"""Linear algebra over lanes.

A lane may have contexts and an inverse of its own, as in the simulator, or share them with all lanes of its
block, as when the lanes are several starts of one decision: shared rows hold floats, and a float beside a
Vector stands for equal numbers.
"""

from __future__ import annotations

from fedfairx.lanes.decorators import stage
from fedfairx.lanes.rows import Rows, by_lane, one_lane, put_run, run_at
from fedfairx.lanes.vector import absolute, any_above, fma, larger, sqrt, where_above
from fedfairx.lanes.vector_llvm import WIDTH


@stage
def scores(contexts: Rows, theta: Rows, means: Rows) -> None:
    """means[a] = x_a · θ. contexts (K, d), theta (d,), means (K,)."""
    arms, dimension = contexts.shape
    first = arms - arms % 4
    for a in range(0, first, 4):  # independent sums hide the latency of each other
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
    # The same sums in the same order, many coordinates at a time, to hide latency.
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
def cholesky(matrix: Rows, least: float) -> None:
    """Replace a symmetric matrix (d, d), its lower half, by its Cholesky factor F, 1/F_ii on the diagonal.

    Pivots below `least` count as `least`.
    """
    for i in range(matrix.shape[0]):
        for j in range(i + 1):
            s = matrix[i, j]
            for k in range(j):
                s = fma(-matrix[i, k], matrix[j, k], s)
            if i == j:
                matrix[i, i] = 1.0 / sqrt(larger(s, least))
            else:
                matrix[i, j] = s * matrix[j, j]


@stage
def lane_of(rows: Rows, lane: int) -> int:
    """Index of a lane in `by_lane(rows)`; 0 if all lanes of a block share the rows."""
    return 0 if one_lane(rows) else lane


@stage
def take_lane(rows: Rows, lane: int, out: Rows) -> None:
    """out (rows, columns), floats, ← one lane of rows, or rows that all lanes share."""
    each = by_lane(rows)
    own = lane_of(rows, lane)
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = each[i, j, own]


@stage
def tridiagonalize(matrix: Rows, vector: Rows, product: Rows) -> None:
    """Rotate a symmetric matrix A (d, d), of which the upper half is used, a vector (d,), and a second one in
    column d of the matrix (d, d + 1), such that A is tridiagonal. Only its diagonal and what is next to it,
    above, are of use afterwards.

    By Householder's reflections I - βvvᵀ, in 4/3·d³ operations; a tridiagonal matrix stays as it is. product
    (d,) is workspace.
    """
    d = vector.shape[0]
    for k in range(d - 2):
        largest = 0.0
        for j in range(k + 2, d):
            largest = larger(absolute(matrix[k, j]), largest)
        if not any_above(largest, 0.0):
            continue
        largest = larger(largest, absolute(matrix[k, k + 1]))
        scale, square = 1.0 / larger(largest, 1e-300), 0.0  # entries may be too large to be squared
        for j in range(k + 1, d):
            matrix[k, j] = matrix[k, j] * scale
            square = fma(matrix[k, j], matrix[k, j], square)
        norm, first = sqrt(square), matrix[k, k + 1]
        above = where_above(first, 0.0, -norm, norm)
        matrix[k, k + 1] = first - above
        beta = where_above(square, 0.0, 1.0 / larger(fma(-first, above, square), 1e-300), 0.0)
        along, second = 0.0, 0.0
        for j in range(k + 1, d):
            along = fma(matrix[k, j], vector[j], along)
            second = fma(matrix[k, j], matrix[j, d], second)
            product[j] = 0.0
        for j in range(k + 1, d):
            vector[j] = fma(-beta * along, matrix[k, j], vector[j])
            matrix[j, d] = fma(-beta * second, matrix[k, j], matrix[j, d])
        for i in range(k + 1, d):  # product ← Av, by rows of the upper half
            v, total = matrix[k, i], fma(matrix[i, i], matrix[k, i], product[i])
            for j in range(i + 1, d):
                total = fma(matrix[i, j], matrix[k, j], total)
                product[j] = fma(matrix[i, j], v, product[j])
            product[i] = total
        half = 0.0
        for i in range(k + 1, d):
            product[i] = beta * product[i]
            half = fma(product[i], matrix[k, i], half)
        half = 0.5 * beta * half
        for i in range(k + 1, d):
            product[i] = fma(-half, matrix[k, i], product[i])
        for i in range(k + 1, d):
            v, w = matrix[k, i], product[i]
            for j in range(i, d):
                matrix[i, j] = fma(-w, matrix[k, j], fma(-v, product[j], matrix[i, j]))
        matrix[k, k + 1] = above * largest


MOST_SWEEPS = 30  # convergence is quadratic: six or seven sweeps are usual
DIAGONAL = 1e-30  # squares off the diagonal over squares on it, below which only rounding is left
NEARLY = 1e-18  # the same where no vectors are wanted: values are off by squares over their distances


@stage
def jacobi(matrix: Rows, vectors: Rows | None) -> None:
    """Diagonalise in place: matrix (d, d) ← diag of eigenvalues, vectors (d, d) ← eigenvectors in columns.

    Jacobi's cyclic rotations are exact to rounding for every symmetric matrix, and for small d faster than a
    call of LAPACK. A converged lane stays unchanged while others go on. Without `vectors` only the
    eigenvalues are computed, to at least nine digits of the largest.
    """
    d, enough = matrix.shape[0], NEARLY
    if vectors is not None:
        enough = DIAGONAL
        for i in range(d):
            for j in range(d):
                vectors[i, j] = 1.0 if i == j else 0.0
    for _ in range(MOST_SWEEPS):
        off, on = 0.0, 0.0
        for i in range(d):
            on = fma(matrix[i, i], matrix[i, i], on)
            for j in range(i):
                off = fma(matrix[i, j], matrix[i, j], off)
        if not any_above(off, enough * on):
            return
        for p in range(d - 1):
            for q in range(p + 1, d):
                size = where_above(off, enough * on, absolute(matrix[p, q]), 0.0)
                if any_above(size, 0.0):
                    rotate(matrix, vectors, p, q, size)


@stage
def rotate(matrix: Rows, vectors: Rows | None, p: int, q: int, size: float) -> None:
    """Rotate so that entry (p, q) becomes zero, where its `size` is not."""
    entry = matrix[p, q]
    # In the form that does not cancel: the tangent of the angle is the smaller root of t² + 2·ratio·t = 1.
    ratio = (matrix[q, q] - matrix[p, p]) / (2.0 * where_above(size, 0.0, entry, 1.0))
    tangent = 1.0 / (absolute(ratio) + sqrt(fma(ratio, ratio, 1.0)))
    tangent = where_above(size, 0.0, where_above(0.0, ratio, -tangent, tangent), 0.0)
    cosine = 1.0 / sqrt(fma(tangent, tangent, 1.0))
    sine = tangent * cosine
    matrix[p, p] = matrix[p, p] - tangent * entry
    matrix[q, q] = matrix[q, q] + tangent * entry
    left = where_above(size, 0.0, 0.0, entry)
    matrix[p, q], matrix[q, p] = left, left
    for k in range(matrix.shape[0]):
        if k not in (p, q):
            kp, kq = matrix[k, p], matrix[k, q]
            new_p, new_q = cosine * kp - sine * kq, sine * kp + cosine * kq
            matrix[k, p], matrix[p, k] = new_p, new_p
            matrix[k, q], matrix[q, k] = new_q, new_q
    if vectors is not None:
        for k in range(matrix.shape[0]):
            kp, kq = vectors[k, p], vectors[k, q]
            vectors[k, p] = cosine * kp - sine * kq
            vectors[k, q] = sine * kp + cosine * kq
