"""The compiled end of a round does what federation/aggregate.py does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfairx.core.eigen import jacobi
from fedfairx.core.statistics import pack
from fedfairx.federation import aggregate
from fedfairx.simulation import sharing

seeds = st.integers(0, 2**32 - 1)


def statistics(seed: int, dimension: int, definite: bool) -> np.ndarray:
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(dimension, dimension))
    gram = half @ half.T if definite else half + half.T
    return pack(gram, rng.normal(size=dimension))


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 8), st.floats(0.0, 5.0), st.booleans())
def test_lift(seed: int, dimension: int, shift: float, definite: bool) -> None:
    packed = statistics(seed, dimension, definite)
    ours = packed.copy()
    sharing.lift(ours, dimension, shift)
    assert ours == pytest.approx(aggregate.lift(packed, shift), abs=1e-10)


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 8), st.floats(0.0, 100.0), st.floats(0.0, 50.0))
def test_worth(seed: int, dimension: int, noise_sd: float, ratio: float) -> None:
    packed = statistics(seed, dimension, True)
    theirs = aggregate.worth(
        packed, ratio=ratio, noise_sd=noise_sd, radius=0.8, regulariser=1.0, parameter_norm=1.0
    )
    assert sharing.worth(packed, dimension, ratio, noise_sd, 0.8, 1.0, 1.0) == pytest.approx(theirs)


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 12), st.floats(-8.0, 8.0))
def test_jacobi_diagonalises(seed: int, dimension: int, magnitude: float) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(dimension, dimension)) * 10.0**magnitude
    matrix = matrix + matrix.T
    values, vectors = matrix.copy(), np.empty_like(matrix)
    jacobi(values, vectors)
    scale = np.abs(matrix).max()
    assert vectors @ vectors.T == pytest.approx(np.eye(dimension), abs=1e-12)
    assert (vectors * np.diag(values)) @ vectors.T == pytest.approx(matrix, abs=1e-12 * scale * dimension)
    assert np.sort(np.diag(values)) == pytest.approx(
        np.linalg.eigvalsh(matrix), abs=1e-12 * scale * dimension
    )
