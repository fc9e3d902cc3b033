"""V⁻¹ and θ̂ from the sums: derived, followed, and the same thing, at any λ."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfairx.core import estimate, learner, statistics
from fedfairx.core.lanes import BLOCK, Lanes, lane_count
from fedfairx.core.registers import WIDTH

seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(1, 8), st.sampled_from([None, BLOCK]), st.floats(-3, 3))
def test_derive_is_the_inverse(seed: int, dimension: int, block: Lanes, log_regulariser: float) -> None:
    rng, lanes = np.random.default_rng(seed), lane_count(block)
    regulariser = 10**log_regulariser
    packed = np.zeros((statistics.packed_size(dimension), lanes))
    inverse = np.full((dimension, dimension, lanes), np.nan)
    grams = []
    for l in range(lanes):
        root = rng.normal(size=(dimension, 2 * dimension))
        grams.append(root @ root.T)
        packed[:, l] = statistics.pack(grams[l], rng.normal(size=dimension))
    estimate.derive(block, packed, regulariser, inverse)
    theta = np.full((dimension, lanes), np.nan)
    estimate.estimate(block, inverse, packed, theta)
    for l in range(lanes):
        V = grams[l] + regulariser * np.eye(dimension)
        assert np.abs(inverse[:, :, l] @ V - np.eye(dimension)).max() <= 1e-8
        assert (inverse[:, :, l] == inverse[:, :, l].T).all()
        assert np.allclose(V @ theta[:, l], packed[-dimension:, l], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("regulariser", [0.01, 1.0, 7.5])
def test_follow_stays_with_derive(regulariser: float) -> None:
    rng = np.random.default_rng(1)
    dimension, lanes = 4, WIDTH
    packed = np.zeros((statistics.packed_size(dimension), lanes))
    inverse, fresh = np.zeros((dimension, dimension, lanes)), np.zeros((dimension, dimension, lanes))
    estimate.derive(BLOCK, packed, regulariser, inverse)
    state = learner.learner(dimension, BLOCK, regulariser)._replace(statistics=packed, inverse=inverse)
    for _ in range(estimate.REFRESH_EVERY):
        state.chosen[:] = rng.random((dimension, lanes))
        learner.learn(state)
    estimate.derive(BLOCK, packed, regulariser, fresh)
    # As many rank-one updates as are ever made between two derivations.
    assert np.abs(inverse - fresh).max() <= 1e-10 * np.abs(fresh).max()
    assert (inverse == inverse.transpose(1, 0, 2)).all()


def test_a_zero_context_leaves_the_inverse_to_the_bit() -> None:
    inverse = np.random.default_rng(0).normal(size=(3, 3, 1))
    inverse += inverse.transpose(1, 0, 2)
    before = inverse.copy()
    assert estimate.follow(None, inverse, np.zeros((3, 1)), np.zeros((3, 1))) == 1.0
    assert (inverse == before).all()


def test_follow_tells_how_the_determinant_grew() -> None:
    inverse = np.eye(2)[:, :, None].copy()
    growth = estimate.follow(None, inverse, np.array([[1.0], [2.0]]), np.zeros((2, 1)))
    assert growth == pytest.approx(np.linalg.det(np.eye(2) + np.outer([1, 2], [1, 2])))
