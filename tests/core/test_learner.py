"""A block of learners: each lane learns its own observation and no other."""

from __future__ import annotations

import numpy as np
import pytest

from fedfairx.core.learner import NUMBERS, REWARD, learn, learner
from fedfairx.core.merit_kernels import MERIT_ROWS
from fedfairx.core.statistics import packed_size, unpack
from fedfairx.lanes.rows import floats, size_of
from fedfairx.lanes.vector_llvm import WIDTH
from instances import blank


@pytest.mark.parametrize("regulariser", [0.3, 1.0, 5.0])
def test_learning_keeps_the_sums_and_the_inverse_together(regulariser: float) -> None:
    rng = np.random.default_rng(0)
    state = blank(3, WIDTH, regulariser)
    for _ in range(500):
        state.chosen.array[:] = rng.random((3, WIDTH))
        state.numbers[REWARD] = rng.normal(size=WIDTH)
        learn(state)
    for l in range(WIDTH):
        gram, _ = unpack(np.ascontiguousarray(state.statistics.array[:, l]))
        V = gram + regulariser * np.eye(3)
        assert np.abs(state.inverse.array[:, :, l] @ V - np.eye(3)).max() <= 1e-11


def test_a_lane_that_observes_nothing_is_left_to_the_bit() -> None:
    rng = np.random.default_rng(1)
    state = blank(2, WIDTH, 1.0)
    chosen, inverses, sums = state.chosen.array, state.inverse.array, state.statistics.array
    chosen[:] = rng.random((2, WIDTH))
    learn(state)
    inverse, before = inverses[:, :, 1].copy(), sums[:, 1].copy()
    chosen[:, 1] = 0.0
    state.numbers[REWARD] = 3.0
    learn(state)
    assert (inverses[:, :, 1] == inverse).all()
    assert (sums[:, 1] == before).all()
    assert not (sums[:, 0] == before).all()


def test_a_lane_learns_the_same_bits_alone() -> None:
    rng = np.random.default_rng(2)
    together, alone = blank(3, WIDTH, 1.0), blank(3, 1, 1.0)
    for _ in range(50):
        together.chosen.array[:] = rng.random((3, WIDTH))
        together.numbers[REWARD] = rng.normal(size=WIDTH)
        alone.chosen.array[:], alone.numbers[REWARD] = (
            together.chosen.array[:, 3],
            together.numbers[REWARD][3],
        )
        learn(together)
        learn(alone)
    assert (alone.inverse.array == together.inverse.array[:, :, 3]).all()
    assert (alone.statistics.array == together.statistics.array[:, 3]).all()


@pytest.mark.parametrize("dimension", [1, 4])
def test_the_layout_leaves_no_gap_and_nothing_lies_twice(dimension: int) -> None:
    size = size_of(learner, dimension)
    assert size == NUMBERS + 1 + MERIT_ROWS + packed_size(dimension) + dimension * (dimension + 5)
    state, rest = learner(floats(np.arange(size + 2.0)), dimension)
    assert np.concatenate([part.array.ravel() for part in state]).tolist() == list(range(size))
    assert rest.array.tolist() == [size, size + 1]
