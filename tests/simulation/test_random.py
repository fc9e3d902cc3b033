"""Counter-based draws: uniform, normal, independent of who asks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedfairx.lanes.decorators import compiled
from fedfairx.lanes.rows import Rows, vectors
from fedfairx.lanes.vector_llvm import WIDTH
from fedfairx.simulation.kernel.random import STREAMS, fill_uniform, generator, normal, stream_key, uniform

N = 20_000


def sample(draw, seed: int = 0, stream: str = "contexts") -> np.ndarray:
    key = np.uint64(stream_key(seed, stream))
    return np.array([draw(key, np.uint64(c)) for c in range(N)])


def test_uniforms_are_uniform_and_normals_are_normal() -> None:
    # Fixed seed; each test would fail a right generator once in a million.
    assert stats.kstest(sample(uniform), "uniform").pvalue > 1e-6
    assert stats.kstest(sample(normal), "norm").pvalue > 1e-6


def test_neighbours_and_streams_are_uncorrelated() -> None:
    first = sample(uniform)
    bound = 5.0 / np.sqrt(N)  # five sigma: one in two million
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < bound
    assert abs(np.corrcoef(first, sample(uniform, seed=1))[0, 1]) < bound
    assert abs(np.corrcoef(first, sample(uniform, stream="rewards"))[0, 1]) < bound


def test_keys_differ() -> None:
    keys = {stream_key(seed, stream) for seed in range(50) for stream in STREAMS}
    assert len(keys) == 50 * len(STREAMS)
    assert generator(0, "privacy", 0).random() != generator(0, "privacy", 1).random()


@compiled
def fill(keys: Rows, base: Rows, block: Rows) -> None:
    fill_uniform(keys[0], base[0], 0.5, block.shape[1], block)


def test_a_block_holds_the_numbers_that_single_calls_give() -> None:
    keys = np.array([stream_key(s, "contexts") for s in range(WIDTH)], dtype=np.uint64)
    base = np.arange(WIDTH, dtype=np.uint64) * np.uint64(1000)
    block = np.zeros((3, 4, WIDTH))
    fill(vectors(keys[None]), vectors(base[None]), vectors(block))
    for i in range(3):
        for j in range(4):
            for lane in range(WIDTH):
                expected = 0.5 * uniform(keys[lane], base[lane] + np.uint64(4 * i + j))
                assert block[i, j, lane] == pytest.approx(expected, abs=0)
