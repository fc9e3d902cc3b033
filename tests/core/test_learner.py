"""A block of learners: each lane learns its own observation and no other."""

from __future__ import annotations

import numpy as np
import pytest

from fedfairx.core.learner import learner
from fedfairx.core.statistics import unpack
from fedfairx.lanes.block import BLOCK
from fedfairx.lanes.registers import WIDTH
from instances import learn


@pytest.mark.parametrize("regulariser", [0.3, 1.0, 5.0])
def test_learning_keeps_the_sums_and_the_inverse_together(regulariser: float) -> None:
    rng = np.random.default_rng(0)
    state = learner(3, BLOCK, regulariser)
    for _ in range(500):
        state.chosen[:] = rng.random((3, WIDTH))
        state.reward[:] = rng.normal(size=WIDTH)
        learn(state)
    for l in range(WIDTH):
        gram, _ = unpack(np.ascontiguousarray(state.statistics[:, l]))
        V = gram + regulariser * np.eye(3)
        assert np.abs(state.inverse[:, :, l] @ V - np.eye(3)).max() <= 1e-11


def test_a_lane_that_observes_nothing_is_left_to_the_bit() -> None:
    rng = np.random.default_rng(1)
    state = learner(2, BLOCK, 1.0)
    state.chosen[:] = rng.random((2, WIDTH))
    learn(state)
    inverse, sums = state.inverse[:, :, 1].copy(), state.statistics[:, 1].copy()
    state.chosen[:, 1] = 0.0
    state.reward[:] = 3.0
    learn(state)
    assert (state.inverse[:, :, 1] == inverse).all()
    assert (state.statistics[:, 1] == sums).all()
    assert not (state.statistics[:, 0] == sums).all()


def test_a_lane_learns_the_same_bits_alone() -> None:
    rng = np.random.default_rng(2)
    together, alone = learner(3, BLOCK, 1.0), learner(3, None, 1.0)
    for _ in range(50):
        together.chosen[:] = rng.random((3, WIDTH))
        together.reward[:] = rng.normal(size=WIDTH)
        alone.chosen[:, 0], alone.reward[0] = together.chosen[:, 3], together.reward[3]
        learn(together)
        learn(alone)
    assert (alone.inverse[:, :, 0] == together.inverse[:, :, 3]).all()
    assert (alone.statistics[:, 0] == together.statistics[:, 3]).all()
