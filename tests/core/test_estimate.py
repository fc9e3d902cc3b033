"""V⁻¹ and θ̂ from the sums: derived, followed, and the same thing, at any λ."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfairx.core import estimate, statistics
from fedfairx.core.learner import GROWTH, learn
from fedfairx.core.posterior import posterior_mean, posterior_of, squared_width
from fedfairx.lanes.linalg import cholesky
from fedfairx.lanes.rows import by_lane, floats, vectors
from fedfairx.lanes.vector_llvm import WIDTH
from instances import blank, follow, in_rows

seeds = st.integers(0, 2**32 - 1)


@pytest.mark.long
@given(seeds, st.integers(1, 8), st.sampled_from([1, WIDTH]), st.floats(-3, 3))
def test_derive_is_the_inverse(seed: int, dimension: int, lanes: int, log_regulariser: float) -> None:
    rng = np.random.default_rng(seed)
    regulariser = 10**log_regulariser
    packed = np.zeros((statistics.packed_size(dimension), lanes))
    inverse = np.full((dimension, dimension, lanes), np.nan)
    grams = []
    for l in range(lanes):
        root = rng.normal(size=(dimension, 2 * dimension))
        grams.append(root @ root.T)
        packed[:, l] = statistics.pack(grams[l], rng.normal(size=dimension))
    estimate.derive(in_rows(packed), regulariser, in_rows(inverse))
    theta = np.full((dimension, lanes), np.nan)
    estimate.estimate(in_rows(inverse), in_rows(packed), in_rows(theta))
    for l in range(lanes):
        V = grams[l] + regulariser * np.eye(dimension)
        assert np.abs(inverse[:, :, l] @ V - np.eye(dimension)).max() <= 1e-8
        assert (inverse[:, :, l] == inverse[:, :, l].T).all()
        assert np.allclose(V @ theta[:, l], packed[-dimension:, l], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("lanes", [1, WIDTH])
def test_many_coordinates_get_the_same_bits(lanes: int) -> None:
    """Sums are taken in another order of loops, but each has its terms in the same order."""
    rng, dimension = np.random.default_rng(0), 9
    roots = rng.normal(size=(lanes, dimension, 2 * dimension))
    packed = np.stack([statistics.pack(root @ root.T, np.zeros(dimension)) for root in roots], axis=1)
    derived, squared = np.empty((2, dimension, dimension, lanes))
    estimate.derive(in_rows(packed), 0.1, in_rows(derived))
    for lane, root in enumerate(roots):
        squared[:, :, lane] = root @ root.T + 0.1 * np.eye(dimension)
    cholesky(in_rows(squared), 0.1)
    estimate._square_of_inverse(in_rows(squared))
    assert squared.tobytes() == derived.tobytes()


def test_more_coordinates_than_loops_along_columns_are_for_get_the_inverse() -> None:
    dimension = estimate.WIDE + 1
    root = np.random.default_rng(0).normal(size=(dimension, dimension))
    gram, inverse = root @ root.T, np.full((dimension, dimension), np.nan)
    estimate.derive(floats(statistics.pack(gram, np.zeros(dimension))), 1.0, floats(inverse))
    assert inverse == pytest.approx(np.linalg.inv(gram + np.eye(dimension)), abs=1e-10)


@pytest.mark.parametrize("regulariser", [0.01, 1.0, 7.5])
def test_follow_stays_with_derive(regulariser: float) -> None:
    rng = np.random.default_rng(1)
    dimension, fresh = 4, np.zeros((4, 4, WIDTH))
    state = blank(dimension, WIDTH, regulariser)
    inverse = state.inverse.array
    for _ in range(estimate.REFRESH_EVERY):
        state.chosen.array[:] = rng.random((dimension, WIDTH))
        learn(state)
    estimate.derive(state.statistics, regulariser, vectors(fresh))
    # As many rank-one updates as are ever made between two derivations.
    assert np.abs(inverse - fresh).max() <= 1e-10 * np.abs(fresh).max()
    assert (inverse == inverse.transpose(1, 0, 2)).all()


def test_a_zero_context_leaves_the_inverse_to_the_bit() -> None:
    inverse = np.random.default_rng(0).normal(size=(3, 3))
    inverse += inverse.T
    before = inverse.copy()
    assert follow(inverse, np.zeros(3)) == 1.0
    assert (inverse == before).all()


def test_follow_tells_how_the_determinant_grew() -> None:
    growth = follow(np.eye(2), np.array([1.0, 2.0]))
    assert growth == pytest.approx(np.linalg.det(np.eye(2) + np.outer([1, 2], [1, 2])))


def followed(contexts: np.ndarray, regulariser: float = 1.0) -> np.ndarray:
    """V⁻¹ after these contexts, by updates alone."""
    dimension = contexts.shape[1]
    inverse = np.eye(dimension) / regulariser
    for x in contexts:
        follow(inverse, x.copy())
    return inverse


def exact(contexts: np.ndarray, regulariser: float = 1.0) -> np.ndarray:
    """(λI + Σxxᵀ)⁻¹ in 60 digits, rounded."""
    with mpmath.workdps(60):
        rows = mpmath.matrix(contexts.tolist())
        gram = rows.T * rows + regulariser * mpmath.eye(contexts.shape[1])
        return np.array((gram**-1).tolist(), dtype=float)


@pytest.mark.parametrize("size", [1.0, 1e2, 1e4, 1e6, 1e8, 1e12])
@pytest.mark.parametrize("regulariser", [1.0, 1e-6])
def test_a_large_feature_costs_no_digits(size: float, regulariser: float) -> None:
    # The first update grows V by size²/λ. Taken at once it would lose that many digits of V⁻¹ along it.
    rng = np.random.default_rng(2)
    contexts = rng.normal(size=(40, 4)) * [size, 1.0, 1.0, 1.0]
    for count in (1, 2, 5, 40):
        ours, truth = followed(contexts[:count], regulariser), exact(contexts[:count], regulariser)
        units = np.sqrt(np.diag(truth))
        # While V has hardly seen some direction, its condition (1/λ at most) is lost in any case.
        assert np.abs((ours - truth) / np.outer(units, units)).max() <= 1e-11 / min(1.0, regulariser)


def test_one_context_that_is_far_too_large_spoils_nothing_for_the_others() -> None:
    rng = np.random.default_rng(3)
    contexts = rng.normal(size=(40, 4))
    contexts[2] *= 1e6
    ours, truth = followed(contexts), exact(contexts)
    for x in np.delete(contexts, 2, axis=0):
        assert x @ ours @ x == pytest.approx(x @ truth @ x, rel=1e-6)


@pytest.mark.parametrize("lanes", [1, WIDTH], ids=["one lane", "a block"])
def test_the_growth_of_an_update_in_parts_is_that_of_the_whole(lanes: int) -> None:
    sizes = 10.0 ** np.arange(lanes)
    state = blank(2, lanes, 1.0)
    state.chosen[0] = sizes if lanes > 1 else 1.0
    learn(state)
    growth, inverse = by_lane(state.numbers).array[GROWTH], by_lane(state.inverse).array
    assert growth == pytest.approx(1.0 + sizes**2, rel=1e-12)
    assert inverse[0, 0] == pytest.approx(1.0 / (1.0 + sizes**2), rel=1e-12)
    for l in range(lanes):  # a neighbour that takes more parts changes no bit
        alone = np.eye(2)
        follow(alone, by_lane(state.chosen).array[:, l].copy())
        assert (alone == inverse[:, :, l]).all()


def test_rounding_can_not_make_a_pivot_negative() -> None:
    # Contexts so large that λ is far below the last digit of the sums.
    rng = np.random.default_rng(1)
    for size in (1e7, 1e9, 1e50):
        rows = size * rng.normal(size=(2, 4))
        packed, inverse = statistics.pack(rows.T @ rows, np.zeros(4)), np.zeros((4, 4))
        estimate.derive(floats(packed), 1.0, floats(inverse))
        assert np.isfinite(inverse).all()
        assert np.linalg.eigvalsh(inverse)[0] >= -1e-12


def test_an_update_that_v_would_shrink_by_says_so_and_changes_nothing() -> None:
    inverse = np.diag([1.0, -1e-3])  # what rounding may leave
    before = inverse.copy()
    assert follow(inverse, np.array([0.0, 2.0])) < 1.0
    assert (inverse == before).all()


def test_the_mean_where_the_inverse_is_diagonal() -> None:
    rng, dimension, ridge = np.random.default_rng(0), 5, 0.3
    counts, moment, mean = rng.random((3, dimension))
    packed, inverse = statistics.pack(np.diag(counts), moment), np.diag(1.0 / (counts + ridge))
    theta = np.full(dimension, np.nan)
    posterior_mean(floats(inverse), floats(packed), floats(mean), ridge, floats(theta))
    assert theta == pytest.approx((moment + ridge * mean) / (counts + ridge))


@pytest.mark.parametrize("dimension", [1, 2, WIDTH - 1, WIDTH, 2 * WIDTH + 1])
def test_the_width_of_few_and_of_many_features(dimension: int) -> None:
    rng = np.random.default_rng(dimension)
    root, contexts = rng.normal(size=(dimension, dimension)), rng.normal(size=(3, dimension))
    inverse, product = root @ root.T, np.full(dimension, np.nan)
    for arm, x in enumerate(contexts):
        found = squared_width(floats(contexts), arm, floats(inverse), floats(product))
        assert found == pytest.approx(x @ inverse @ x, rel=1e-10)


@pytest.mark.parametrize("kind", ["dense", "diagonal", "singular"])
def test_the_posterior_of_sums_is_ridge_regression_towards_the_prior(kind: str) -> None:
    """Least squares with d more rows: √λ times the unit vectors, whose rewards are √λ times the mean."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        d, n = 4, 12
        xs = np.eye(d)[rng.integers(d, size=n)] if kind == "diagonal" else rng.normal(size=(n, d))
        if kind == "singular":  # λ is lost beside contexts of this length, which are all of one direction
            xs = 1e9 * np.outer(np.ones(n), np.array([1.0, 1.0, 0.0, 0.0]))
        ys, mean = rng.normal(size=n), rng.normal(3.0, 1.0, d)
        theta, covariance = posterior_of(xs.T @ xs, xs.T @ ys, mean=mean, sd=2.0, noise_sd=0.5)
        if kind == "singular":  # nothing is known of the others, and of the difference of the two
            assert theta[2:] == pytest.approx(mean[2:], rel=1e-4)
            assert theta[0] - theta[1] == pytest.approx(mean[0] - mean[1], rel=1e-4)
            assert theta[0] + theta[1] == pytest.approx(0.0, abs=1e-6)
            continue
        root = 0.5 / 2.0
        rows, rewards = np.vstack([xs, root * np.eye(d)]), np.concatenate([ys, root * mean])
        expected, *_ = np.linalg.lstsq(rows, rewards)
        assert theta == pytest.approx(expected, rel=1e-9)
        assert covariance == pytest.approx(0.25 * np.linalg.inv(rows.T @ rows), rel=1e-9, abs=1e-12)
