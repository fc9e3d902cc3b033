"""Packed statistics: where each number is, and one more observation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference as ref
from fedfairx.core import statistics
from fedfairx.lanes.rows import floats
from fedfairx.lanes.vector_llvm import WIDTH
from instances import in_rows

dimensions = st.integers(1, 12)


@given(dimensions, st.integers(0, 2**32 - 1))
def test_unpack_undoes_pack(dimension: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    root, moment = rng.normal(size=(dimension, dimension)), rng.normal(size=dimension)
    gram = root + root.T
    packed = statistics.pack(gram, moment)
    assert packed.shape == (statistics.packed_size(dimension),)
    assert statistics.dimension_of(packed) == dimension
    again = statistics.unpack(packed)
    assert (again[0] == gram).all()
    assert (again[1] == moment).all()
    assert (packed == ref.pack(gram, moment)).all()
    assert (packed[statistics.diagonal_entries(dimension)] == np.diag(gram)).all()


@pytest.mark.parametrize("size", [0, 1, 3, 4, 6, 8, 10])
def test_a_length_that_no_dimension_has_is_known(size: int) -> None:
    assert statistics.dimension_of(np.zeros(size)) == -1


@given(st.integers(1, 6), st.sampled_from([1, WIDTH]), st.integers(0, 2**32 - 1))
def test_add_is_the_outer_product(dimension: int, lanes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    packed = np.zeros((statistics.packed_size(dimension), lanes))
    expected = np.zeros_like(packed)
    for _ in range(3):
        chosen, reward = rng.normal(size=(dimension, lanes)), float(rng.normal())
        statistics.add(in_rows(packed), in_rows(chosen), reward)
        for l in range(lanes):
            x = chosen[:, l]
            expected[:, l] += statistics.pack(np.outer(x, x), x * reward)
    assert (packed == expected).all()


def test_a_zero_context_adds_nothing() -> None:
    packed = np.array([1.5, -2.0])
    statistics.add(floats(packed), floats(np.zeros(1)), 7.0)
    assert (packed == [1.5, -2.0]).all()
