"""Rows: what is read and written where, by compiled code and by plain Python alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba.core.errors import TypingError

from fedfairx.lanes import rows as plain
from fedfairx.lanes.decorators import COMPILING, compiled, layout
from fedfairx.lanes.rows import (
    Rows,
    blocks,
    by_lane,
    cut,
    flat,
    floats,
    one_lane,
    put_run,
    run_at,
    size_of,
    vectors,
)
from fedfairx.lanes.vector_llvm import WIDTH


@pytest.fixture(params=["one lane", "a block"])
def block(request: pytest.FixtureRequest) -> np.ndarray:
    lanes = (WIDTH,) if request.param == "a block" else ()
    return np.random.default_rng(0).normal(size=(3, 4, 5, *lanes))


def rows(array: np.ndarray) -> Rows:
    return vectors(array) if array.shape[-1] == WIDTH else floats(array)


@compiled
def _turn(block: Rows, out: Rows) -> None:
    for i in range(block.shape[0]):
        below = block[i]
        for j in range(block.shape[1]):
            for k in range(block.shape[2]):
                out[k, i, j] = below[j, k] if j % 2 == 0 else block[i, j][k]


def test_an_index_touches_its_row_alone(block: np.ndarray) -> None:
    out = np.full((5, 3, 4, *block.shape[3:]), np.nan)
    _turn(rows(block), rows(out))
    assert (out == np.moveaxis(block, 2, 0)).all()


@compiled
def _swap(values: Rows) -> None:
    first = values[0]
    values[0] = values[1]
    values[1] = first


def test_what_was_read_stays_what_it_was() -> None:
    values = np.arange(2.0 * WIDTH).reshape(2, WIDTH)
    before = values.copy()
    _swap(vectors(values))
    assert (values == before[::-1]).all()


@layout
def _layout(memory: Rows, size: int) -> tuple[Rows, Rows, Rows]:
    first, rest = cut(memory, size)
    second, rest = cut(rest, 2, size)
    return first, second, rest


@compiled
def _fill(memory: Rows, size: int) -> None:
    first, second, rest = _layout(memory, size)
    for i in range(size):
        first[i] = 1.0
        second[0, i] = 2.0
        second[1, i] = 3.0
    for i in range(rest.shape[0]):
        rest[i] = 4.0


@pytest.mark.parametrize("lanes", [(), (WIDTH,)])
def test_memory_is_cut_without_a_gap_and_measured_by_its_layout(lanes: tuple[int, ...]) -> None:
    assert size_of(_layout, 3) == 9
    memory = np.zeros((11, *lanes))
    _fill(rows(memory), 3)
    expected = np.repeat([1.0, 2.0, 3.0, 4.0], [3, 3, 3, 2])
    assert (memory.reshape(11, -1) == expected[:, None]).all()
    assert _layout(rows(memory), 3)[1].array.tolist() == memory[3:9].reshape(2, 3, *lanes).tolist()


@compiled
def _by_lane(values: Rows, out: Rows) -> bool:
    each = by_lane(values)
    for i in range(each.shape[0]):
        for l in range(each.shape[1]):
            out[i, l] = each[i, l]
    return one_lane(values)


def test_lane_by_lane() -> None:
    values, out = np.random.default_rng(1).normal(size=(3, WIDTH)), np.zeros((3, WIDTH))
    assert _by_lane(vectors(values), floats(out)) == False  # noqa: E712 - NumPy's, where nothing is compiled
    assert (out == values).all()
    alone = np.zeros((3, 1))
    assert _by_lane(floats(values[:, 0].copy()), floats(alone))
    assert (alone[:, 0] == values[:, 0]).all()


@compiled
def _fill_blocks(values: Rows) -> int:
    wide = blocks(flat(values))
    for i in range(wide.shape[0]):
        wide[i] = 1.0
    return wide.shape[0]


@pytest.mark.parametrize("first", range(0, WIDTH, 5))
def test_blocks_begin_where_a_vector_may_and_end_before_the_memory_does(first: int) -> None:
    memory = plain.zeros(6 * WIDTH)
    count = _fill_blocks(floats(memory[first : first + 4 * WIDTH]))
    assert count >= 3 or not COMPILING
    assert memory.sum() == count * WIDTH
    assert (memory[:first] == 0.0).all()
    assert (memory[first + 4 * WIDTH :] == 0.0).all()
    if COMPILING:
        assert np.nonzero(memory)[0][0] % WIDTH == 0


@compiled
def _runs(values: Rows, out: Rows) -> None:
    put_run(run_at(values, 1, 2) * 2.0, out, 3)


def test_runs_are_neighbours() -> None:
    values, out = np.random.default_rng(0).normal(size=(2, WIDTH + 4)), np.zeros(WIDTH + 5)
    _runs(floats(values), floats(out))
    assert (out[3 : 3 + WIDTH] == 2.0 * values[1, 2 : 2 + WIDTH]).all()
    assert (out[[0, 1, 2, -2, -1]] == 0.0).all()


@pytest.mark.parametrize("shape", [(), (3,), (2, 5, WIDTH)])
@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint64])
def test_zeros_begin_where_a_vector_may(shape: tuple[int, ...], dtype: Callable[..., Any]) -> None:
    for _ in range(5):
        made = plain.zeros(*shape, dtype=dtype)
        assert made.shape == shape
        assert made.dtype == dtype
        assert not made.any()
        assert made.ctypes.data % (8 * WIDTH) == 0


@pytest.mark.skipif(not COMPILING, reason="types are checked while compiling")
def test_an_array_with_gaps_is_refused() -> None:
    with pytest.raises(TypingError, match="C order"):
        _swap(floats(np.zeros((2, 2)).T[0]))
