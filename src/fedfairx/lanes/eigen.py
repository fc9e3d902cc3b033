"""Eigenvalues of small symmetric matrices, without leaving compiled code."""

from __future__ import annotations

from fedfairx.lanes.compile import stage
from fedfairx.lanes.rows import Rows
from fedfairx.lanes.vector import absolute, any_above, fma, sqrt, where_above

MOST_SWEEPS = 30  # convergence is quadratic: six or seven sweeps are usual
DIAGONAL = 1e-30  # squares off the diagonal over squares on it: then rounding is all that is left
NEARLY = 1e-18  # the same where no vectors are wanted: values are off by squares over their distances


@stage
def jacobi(matrix: Rows, vectors: Rows | None) -> None:
    """Diagonalise in place: matrix (d, d) ← diag of eigenvalues, vectors (d, d) ← eigenvectors in columns.

    Jacobi's cyclic rotations: exact to rounding for every symmetric matrix, and at the d of a bandit quicker
    than a call of LAPACK. A lane that is done is turned by nothing while its neighbours go on. Without
    `vectors` the values alone, to at least nine digits of the largest.
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
    """Turn by what makes entry (p, q) zero, where its `size` is not."""
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
