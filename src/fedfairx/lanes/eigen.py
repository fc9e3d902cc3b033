"""Eigenvalues of small symmetric matrices, without leaving compiled code."""

from __future__ import annotations

from fedfairx.lanes.compile import stage
from fedfairx.lanes.rows import Rows
from fedfairx.lanes.vector import absolute, any_above, fma, sqrt, where_above

MOST_SWEEPS = 30  # convergence is quadratic: six or seven sweeps are usual
DIAGONAL = 1e-30  # squares off the diagonal over squares on it: then rounding is all that is left


@stage
def jacobi(matrix: Rows, vectors: Rows) -> None:
    """Diagonalise in place: matrix (d, d) ← diag of eigenvalues, vectors (d, d) ← eigenvectors in columns.

    Jacobi's cyclic rotations: exact to rounding for every symmetric matrix, and at the d of a bandit quicker
    than a call of LAPACK. A lane that is done is turned by nothing while its neighbours go on.
    """
    d = matrix.shape[0]
    for i in range(d):
        for j in range(d):
            vectors[i, j] = 1.0 if i == j else 0.0
    for _ in range(MOST_SWEEPS):
        off, on = 0.0, 0.0
        for i in range(d):
            on = fma(matrix[i, i], matrix[i, i], on)
            for j in range(i):
                off = fma(matrix[i, j], matrix[i, j], off)
        if not any_above(off, DIAGONAL * on):
            return
        for p in range(d - 1):
            for q in range(p + 1, d):
                size = where_above(off, DIAGONAL * on, absolute(matrix[p, q]), 0.0)
                if any_above(size, 0.0):
                    rotate(matrix, vectors, p, q, size)


@stage
def rotate(matrix: Rows, vectors: Rows, p: int, q: int, size: float) -> None:
    """Turn by what makes entry (p, q) zero, where its `size` is not."""
    # In the form that does not cancel: the tangent of the angle is the smaller root of t² + 2·ratio·t = 1.
    ratio = (matrix[q, q] - matrix[p, p]) / (2.0 * where_above(size, 0.0, matrix[p, q], 1.0))
    tangent = 1.0 / (absolute(ratio) + sqrt(fma(ratio, ratio, 1.0)))
    tangent = where_above(size, 0.0, where_above(0.0, ratio, -tangent, tangent), 0.0)
    cosine = 1.0 / sqrt(fma(tangent, tangent, 1.0))
    sine = tangent * cosine
    for k in range(matrix.shape[0]):
        kp, kq = matrix[k, p], matrix[k, q]
        matrix[k, p] = cosine * kp - sine * kq
        matrix[k, q] = sine * kp + cosine * kq
    for k in range(matrix.shape[0]):
        pk, qk = matrix[p, k], matrix[q, k]
        matrix[p, k] = cosine * pk - sine * qk
        matrix[q, k] = sine * pk + cosine * qk
    for k in range(matrix.shape[0]):
        kp, kq = vectors[k, p], vectors[k, q]
        vectors[k, p] = cosine * kp - sine * kq
        vectors[k, q] = sine * kp + cosine * kq
