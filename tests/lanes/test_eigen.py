"""Eigenvalues in compiled code, held against LAPACK; and lanes that do not know of each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfairx.lanes.linalg import jacobi
from fedfairx.lanes.rows import floats, vectors, zeros
from fedfairx.lanes.vector_llvm import WIDTH

seeds = st.integers(0, 2**32 - 1)


def symmetric(rng: np.random.Generator, dimension: int, magnitude: float) -> np.ndarray:
    matrix = rng.normal(size=(dimension, dimension)) * 10.0**magnitude
    return matrix + matrix.T


@given(seeds, st.integers(1, 12), st.floats(-8.0, 8.0))
def test_jacobi_diagonalises(seed: int, dimension: int, magnitude: float) -> None:
    matrix = symmetric(np.random.default_rng(seed), dimension, magnitude)
    values, vectors = matrix.copy(), np.empty_like(matrix)
    jacobi(floats(values), floats(vectors))
    scale = np.abs(matrix).max()
    assert vectors @ vectors.T == pytest.approx(np.eye(dimension), abs=1e-12)
    assert (vectors * np.diag(values)) @ vectors.T == pytest.approx(matrix, abs=1e-12 * scale * dimension)
    assert np.sort(np.diag(values)) == pytest.approx(
        np.linalg.eigvalsh(matrix), abs=1e-12 * scale * dimension
    )


@given(seeds, st.integers(1, 12), st.floats(-8.0, 8.0), st.floats(0.0, 12.0))
def test_values_alone_have_nine_digits_of_the_largest(
    seed: int, dimension: int, magnitude: float, spread: float
) -> None:
    """Whether they lie apart, where all digits are right, or nearly coincide."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(dimension, dimension)))[0]
    chosen = 10.0 ** (magnitude - spread * rng.uniform(size=dimension))
    chosen[rng.uniform(size=dimension) < 0.3] *= -1.0
    matrix = (basis * chosen) @ basis.T
    values = (matrix + matrix.T) / 2.0
    wanted = np.linalg.eigvalsh(values)
    jacobi(floats(values), None)
    assert np.sort(np.diag(values)) == pytest.approx(wanted, rel=0.0, abs=1e-9 * np.abs(chosen).max())


@given(seeds, st.integers(1, 7))
def test_a_lane_has_the_bits_that_it_has_alone(seed: int, dimension: int) -> None:
    """Lanes that are diagonal from the start, or zero, or nearly diagonal, end earlier than the others."""
    rng = np.random.default_rng(seed)
    block, basis = zeros(dimension, dimension, WIDTH), zeros(dimension, dimension, WIDTH)
    for lane in range(WIDTH):
        off = rng.choice([0.0, 1e-12, 1.0])
        matrix = symmetric(rng, dimension, rng.uniform(-5.0, 5.0)) * rng.choice([0.0, 1.0], p=[0.1, 0.9])
        block[:, :, lane] = np.where(np.eye(dimension) > 0, matrix, off * matrix)
    alone = []
    for lane in range(WIDTH):
        values, columns = block[:, :, lane].copy(), np.empty((dimension, dimension))
        jacobi(floats(values), floats(columns))
        only = block[:, :, lane].copy()
        jacobi(floats(only), None)
        alone.append((values.tolist(), columns.tolist(), only.tolist()))
    only = block.copy()
    jacobi(vectors(block), vectors(basis))
    jacobi(vectors(only), None)
    lanes = [tuple(rows[:, :, lane].tolist() for rows in (block, basis, only)) for lane in range(WIDTH)]
    assert lanes == alone
