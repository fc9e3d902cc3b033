"""Pooling in compiled code, held against LAPACK and a plain formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfairx.core import pooling
from fedfairx.core.statistics import pack, unpack
from fedfairx.federation import aggregate
from fedfairx.lanes.eigen import jacobi
from fedfairx.lanes.rows import floats
from instances import worth

seeds = st.integers(0, 2**32 - 1)


def statistics(seed: int, dimension: int, definite: bool) -> np.ndarray:
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(dimension, dimension))
    gram = half @ half.T if definite else half + half.T
    return pack(gram, rng.normal(size=dimension))


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 8), st.floats(0.0, 5.0), st.booleans())
def test_lift_shifts_and_floors_as_lapack_would(
    seed: int, dimension: int, shift: float, definite: bool
) -> None:
    packed = statistics(seed, dimension, definite)
    before = packed.copy()
    gram, moment = unpack(aggregate.lift(packed, shift))
    values, vectors = np.linalg.eigh(unpack(packed)[0] + shift * np.eye(dimension))
    assert gram == pytest.approx((vectors * np.maximum(values, 0.0)) @ vectors.T, abs=1e-10)
    assert moment.tolist() == packed[-dimension:].tolist()
    assert packed.tolist() == before.tolist()


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 8), st.floats(0.0, 100.0), st.floats(0.0, 50.0))
def test_worth_is_the_least_cost_on_a_grid(seed: int, dimension: int, noise_sd: float, ratio: float) -> None:
    packed = statistics(seed, dimension, True)
    values = np.maximum(np.linalg.eigvalsh(unpack(packed)[0]), 0.0)

    def cost(weight: float) -> float:
        known = 1.0 + values * (1.0 + weight * ratio)
        return float(
            (pooling.OPTIMISM * 0.8 / np.sqrt(known) + weight * noise_sd * np.sqrt(3.0) / known).sum()
        )

    found = worth(packed, ratio=ratio, noise_sd=noise_sd, radius=0.8, regulariser=1.0, parameter_norm=1.0)
    assert 0.0 <= found <= 1.0
    assert cost(found) <= min(cost(w) for w in np.linspace(0.0, 1.0, pooling.STEPS)) * (1 + 1e-12)


def test_noise_makes_others_worthless_and_its_absence_makes_them_worth_all() -> None:
    packed = statistics(1, 4, True)
    common = {"ratio": 9.0, "radius": 0.8, "regulariser": 1.0, "parameter_norm": 1.0}
    assert worth(packed, noise_sd=0.0, **common) == 1.0
    assert worth(packed, noise_sd=1e6, **common) == 0.0


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 12), st.floats(-8.0, 8.0))
def test_jacobi_diagonalises(seed: int, dimension: int, magnitude: float) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(dimension, dimension)) * 10.0**magnitude
    matrix = matrix + matrix.T
    values, vectors = matrix.copy(), np.empty_like(matrix)
    jacobi(floats(values), floats(vectors))
    scale = np.abs(matrix).max()
    assert vectors @ vectors.T == pytest.approx(np.eye(dimension), abs=1e-12)
    assert (vectors * np.diag(values)) @ vectors.T == pytest.approx(matrix, abs=1e-12 * scale * dimension)
    assert np.sort(np.diag(values)) == pytest.approx(
        np.linalg.eigvalsh(matrix), abs=1e-12 * scale * dimension
    )
