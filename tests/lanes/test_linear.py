"""The products of the stages against NumPy, with contexts per lane and shared, for one lane and for many."""

from __future__ import annotations

import numpy as np
import pytest

from fedfairx.lanes import linear
from fedfairx.lanes.block import BLOCK
from fedfairx.lanes.registers import WIDTH

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


def lane(values: np.ndarray, index: int) -> np.ndarray:
    return values[..., index] if values.ndim == 3 else values


def test_scores(block: dict[str, np.ndarray]) -> None:
    means = np.full((K, N), np.nan)
    linear.scores(BLOCK, block["contexts"], block["vector"], means)
    for l in range(N):
        assert np.allclose(means[:, l], lane(block["contexts"], l) @ block["vector"][:, l], rtol=1e-14)


def test_blend(block: dict[str, np.ndarray]) -> None:
    pull = np.full((D, N), np.nan)
    linear.blend(BLOCK, block["contexts"], block["weights"], pull)
    for l in range(N):
        assert np.allclose(pull[:, l], block["weights"][:, l] @ lane(block["contexts"], l), rtol=1e-13)


def test_multiply(block: dict[str, np.ndarray]) -> None:
    product = np.full((D, N), np.nan)
    linear.multiply(BLOCK, block["inverse"], block["vector"], product)
    for l in range(N):
        assert np.allclose(product[:, l], lane(block["inverse"], l) @ block["vector"][:, l], rtol=1e-13)


def test_rows(block: dict[str, np.ndarray]) -> None:
    offset, taken = np.full((D, N), np.nan), np.full((D, N), np.nan)
    linear.subtract_row(BLOCK, block["contexts"], 2, block["vector"], offset)
    linear.take_arm(BLOCK, block["contexts"], 2, taken)
    out = np.full((K, D), np.nan)
    for l in range(N):
        row = lane(block["contexts"], l)
        assert (taken[:, l] == row[2]).all()
        assert (offset[:, l] == row[2] - block["vector"][:, l]).all()
        linear.take_lane(block["contexts"], l, out)
        assert (out == row).all()


@pytest.mark.parametrize(("arms", "dimension"), [(1, 1), (3, 7), (4, 8), (9, 13), (21, 20)])
def test_one_lane_of_any_size(arms: int, dimension: int) -> None:
    rng = np.random.default_rng(arms)
    x, theta, weights = rng.normal(size=(arms, dimension)), rng.normal(size=dimension), rng.normal(size=arms)
    means, pull = np.full((arms, 1), np.nan), np.full((dimension, 1), np.nan)
    linear.scores(None, x, theta[:, None].copy(), means)
    linear.blend(None, x, weights[:, None].copy(), pull)
    assert means[:, 0] == pytest.approx(x @ theta, abs=1e-12)
    assert pull[:, 0] == pytest.approx(weights @ x, abs=1e-12)


def test_a_lane_alone_has_the_same_bits(block: dict[str, np.ndarray]) -> None:
    for product, rows, column, size in (
        (linear.scores, "contexts", "vector", K),
        (linear.blend, "contexts", "weights", D),
        (linear.multiply, "inverse", "vector", D),
    ):
        together, alone = np.zeros((size, N)), np.zeros((size, 1))
        product(BLOCK, block[rows], block[column], together)
        for l in range(N):
            own = np.ascontiguousarray(lane(block[rows], l))
            for form in (own, own[:, :, None]):
                product(None, form, block[column][:, l : l + 1].copy(), alone)
                assert (alone[:, 0] == together[:, l]).all()
