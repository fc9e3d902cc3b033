"""Eigenvalues of a small symmetric matrix, without leaving compiled code."""

from __future__ import annotations

import math

from fedfairx.lanes.compile import compiled
from fedfairx.lanes.rows import Rows

MOST_SWEEPS = 30  # convergence is quadratic: six or seven sweeps are usual


@compiled
def jacobi(matrix: Rows, vectors: Rows) -> None:
    """Diagonalise in place: matrix (d, d) ← diag of eigenvalues, vectors (d, d) ← eigenvectors in columns.

    Jacobi's cyclic rotations: exact to rounding for every symmetric matrix, and at the d of a bandit quicker
    than a call of LAPACK.
    """
    d = matrix.shape[0]
    for i in range(d):
        for j in range(d):
            vectors[i, j] = 1.0 if i == j else 0.0
    for _ in range(MOST_SWEEPS):
        off, on = 0.0, 0.0
        for i in range(d):
            on += matrix[i, i] ** 2
            for j in range(i):
                off += matrix[i, j] ** 2
        if off <= 1e-30 * on:
            return
        for p in range(d - 1):
            for q in range(p + 1, d):
                if matrix[p, q] == 0.0:
                    continue
                # The rotation that makes entry (p, q) zero, in the form that does not cancel.
                ratio = (matrix[q, q] - matrix[p, p]) / (2.0 * matrix[p, q])
                tangent = math.copysign(1.0, ratio) / (abs(ratio) + math.sqrt(1.0 + ratio * ratio))
                cosine = 1.0 / math.sqrt(1.0 + tangent * tangent)
                sine = tangent * cosine
                for k in range(d):
                    kp, kq = matrix[k, p], matrix[k, q]
                    matrix[k, p] = cosine * kp - sine * kq
                    matrix[k, q] = sine * kp + cosine * kq
                for k in range(d):
                    pk, qk = matrix[p, k], matrix[q, k]
                    matrix[p, k] = cosine * pk - sine * qk
                    matrix[q, k] = sine * pk + cosine * qk
                for k in range(d):
                    kp, kq = vectors[k, p], vectors[k, q]
                    vectors[k, p] = cosine * kp - sine * kq
                    vectors[k, q] = sine * kp + cosine * kq
