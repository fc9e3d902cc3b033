"""The products of the stages against NumPy, with contexts per lane and shared, for one lane and for many."""

from __future__ import annotations

import numpy as np
import pytest

from fedfairx.core import linear

K, D, N = 5, 3, 4


@pytest.fixture(params=["own", "shared"])
def block(request: pytest.FixtureRequest) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    own = request.param == "own"
    return {
        "contexts": rng.normal(size=(K, D, N) if own else (K, D)),
        "inverse": rng.normal(size=(D, D, N) if own else (D, D)),
        "vector": rng.normal(size=(D, N)),
        "weights": rng.normal(size=(K, N)),
    }


def lane(values: np.ndarray, index: int) -> np.ndarray:
    return values[..., index] if values.ndim == 3 else values


def test_scores(block: dict[str, np.ndarray]) -> None:
    means = np.full((K, N), np.nan)
    linear.scores(N, block["contexts"], block["vector"], means)
    for l in range(N):
        assert np.allclose(means[:, l], lane(block["contexts"], l) @ block["vector"][:, l], rtol=1e-14)


def test_blend(block: dict[str, np.ndarray]) -> None:
    pull = np.full((D, N), np.nan)
    linear.blend(N, block["contexts"], block["weights"], pull)
    for l in range(N):
        assert np.allclose(pull[:, l], block["weights"][:, l] @ lane(block["contexts"], l), rtol=1e-13)


def test_multiply(block: dict[str, np.ndarray]) -> None:
    product = np.full((D, N), np.nan)
    linear.multiply(N, block["inverse"], block["vector"], product)
    for l in range(N):
        assert np.allclose(product[:, l], lane(block["inverse"], l) @ block["vector"][:, l], rtol=1e-13)


def test_rows(block: dict[str, np.ndarray]) -> None:
    offset, taken = np.full((D, N), np.nan), np.full((D, N), np.nan)
    linear.subtract_row(N, block["contexts"], 2, block["vector"], offset)
    linear.take_arm(N, block["contexts"], 2, taken)
    out = np.full((K, D), np.nan)
    for l in range(N):
        row = lane(block["contexts"], l)
        assert (taken[:, l] == row[2]).all()
        assert (offset[:, l] == row[2] - block["vector"][:, l]).all()
        linear.take_lane(block["contexts"], l, out)
        assert (out == row).all()


def test_a_lane_alone_has_the_same_bits(block: dict[str, np.ndarray]) -> None:
    together, alone = np.zeros((K, N)), np.zeros((K, 1))
    linear.scores(N, block["contexts"], block["vector"], together)
    for l in range(N):
        contexts = np.ascontiguousarray(lane(block["contexts"], l))
        linear.scores(None, contexts, block["vector"][:, l : l + 1].copy(), alone)
        assert (alone[:, 0] == together[:, l]).all()
