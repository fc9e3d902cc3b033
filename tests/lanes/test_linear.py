"""The products of the stages against NumPy, with contexts per lane and shared, for one lane and for many."""

from __future__ import annotations

import numpy as np
import pytest

from fedfairx.lanes import linalg
from fedfairx.lanes.rows import Rows, floats, vectors
from fedfairx.lanes.vector_llvm import WIDTH

K, D, N = 5, 3, WIDTH


@pytest.fixture(params=["own", "shared"])
def block(request: pytest.FixtureRequest) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    own = request.param == "own"
    square = rng.normal(size=(D, D, N) if own else (D, D))
    return {
        "contexts": rng.normal(size=(K, D, N) if own else (K, D)),
        "inverse": square + square.swapaxes(0, 1),
        "vector": rng.normal(size=(D, N)),
        "weights": rng.normal(size=(K, N)),
    }


def shared_or_own(values: np.ndarray) -> Rows:
    return vectors(values) if values.ndim == 3 else floats(values)


def lane(values: np.ndarray, index: int) -> np.ndarray:
    return values[..., index] if values.ndim == 3 else values


def test_scores(block: dict[str, np.ndarray]) -> None:
    means = np.full((K, N), np.nan)
    linalg.scores(shared_or_own(block["contexts"]), vectors(block["vector"]), vectors(means))
    for l in range(N):
        assert np.allclose(means[:, l], lane(block["contexts"], l) @ block["vector"][:, l], rtol=1e-14)


def test_blend(block: dict[str, np.ndarray]) -> None:
    pull = np.full((D, N), np.nan)
    linalg.blend(shared_or_own(block["contexts"]), vectors(block["weights"]), vectors(pull))
    for l in range(N):
        assert np.allclose(pull[:, l], block["weights"][:, l] @ lane(block["contexts"], l), rtol=1e-13)


def test_multiply(block: dict[str, np.ndarray]) -> None:
    product = np.full((D, N), np.nan)
    linalg.multiply(shared_or_own(block["inverse"]), vectors(block["vector"]), vectors(product))
    for l in range(N):
        assert np.allclose(product[:, l], lane(block["inverse"], l) @ block["vector"][:, l], rtol=1e-13)


def test_one_lane_is_taken(block: dict[str, np.ndarray]) -> None:
    out = np.full((K, D), np.nan)
    for l in range(N):
        linalg.take_lane(shared_or_own(block["contexts"]), l, floats(out))
        assert (out == lane(block["contexts"], l)).all()


@pytest.mark.parametrize(("arms", "dimension"), [(1, 1), (3, 7), (4, 8), (9, 13), (21, 20)])
def test_one_lane_of_any_size(arms: int, dimension: int) -> None:
    rng = np.random.default_rng(arms)
    x, theta, weights = rng.normal(size=(arms, dimension)), rng.normal(size=dimension), rng.normal(size=arms)
    means, pull = np.full(arms, np.nan), np.full(dimension, np.nan)
    linalg.scores(floats(x), floats(theta), floats(means))
    linalg.blend(floats(x), floats(weights), floats(pull))
    assert means == pytest.approx(x @ theta, abs=1e-12)
    assert pull == pytest.approx(weights @ x, abs=1e-12)


def test_a_lane_alone_has_the_same_bits(block: dict[str, np.ndarray]) -> None:
    for product, rows, column, size in (
        (linalg.scores, "contexts", "vector", K),
        (linalg.blend, "contexts", "weights", D),
        (linalg.multiply, "inverse", "vector", D),
    ):
        together, alone = np.zeros((size, N)), np.zeros(size)
        product(shared_or_own(block[rows]), vectors(block[column]), vectors(together))
        for l in range(N):
            own = np.ascontiguousarray(lane(block[rows], l))
            product(floats(own), floats(block[column][:, l].copy()), floats(alone))
            assert (alone == together[:, l]).all()
