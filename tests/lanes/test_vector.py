"""A block of numbers: every operation is right, and gives each lane what that lane would get alone."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.errors import TypingError

from fedfairx.lanes import arithmetic, vector
from fedfairx.lanes.block import BLOCK, Lanes, lane_count
from fedfairx.lanes.compile import COMPILING, stage
from fedfairx.lanes.registers import WIDTH
from fedfairx.lanes.vector import load, load_words, store
from fedfairx.simulation.draws import normal, uniform

numbers = st.lists(st.floats(-50, 50).filter(lambda x: abs(x) > 1e-3), min_size=WIDTH, max_size=WIDTH)


@stage
def _operators(lanes: Any, x: Any, y: Any, out: Any) -> None:
    a, b = load(lanes, x), load(lanes, y)
    store(a + b, lanes, out, 0)
    store(a - b * 2.0, lanes, out, 1)
    store(-a / b, lanes, out, 2)
    store(1.0 - a, lanes, out, 3)
    store(vector.fma(a, 3.0, b), lanes, out, 4)
    store(vector.larger(a, b), lanes, out, 5)
    store(vector.smaller(a, 0.5), lanes, out, 6)
    store(vector.where_above(a, b, 1.0, b), lanes, out, 7)
    store(vector.sqrt(vector.absolute(a)), lanes, out, 8)
    store(vector.floor(b), lanes, out, 9)
    total = 0.0  # a float that becomes a Vector
    for _ in range(3):
        total = total + a
    store(total, lanes, out, 10)


def _expected(a: Any, b: Any) -> list[Any]:
    return [
        a + b,
        a - b * 2.0,
        -a / b,
        1.0 - a,
        # Rounded once where it is compiled, twice where it is not.
        [float(Fraction(p) * 3 + Fraction(q)) for p, q in zip(a, b, strict=True)] if COMPILING else a * 3 + b,
        np.maximum(a, b),
        np.minimum(a, 0.5),
        np.where(a > b, 1.0, b),
        np.sqrt(np.abs(a)),
        np.floor(b),
        a + a + a,
    ]


@settings(max_examples=100, deadline=None)
@given(numbers, numbers)
def test_operators(x: list[float], y: list[float]) -> None:
    a, b = np.array(x), np.array(y)
    together = np.zeros((11, WIDTH))
    _operators(BLOCK, a, b, together)
    assert (together == np.array(_expected(a, b))).all()
    for lane in range(WIDTH):
        alone = np.zeros((11, 1))
        _operators(None, a[lane : lane + 1].copy(), b[lane : lane + 1].copy(), alone)
        assert (alone[:, 0] == together[:, lane]).all()


@stage
def _functions(lanes: Any, x: Any, out: Any) -> None:
    a = load(lanes, x)
    store(arithmetic.exp(a), lanes, out, 0)
    store(arithmetic.log(vector.absolute(a)), lanes, out, 1)
    store(arithmetic.cosine_of_turn(vector.absolute(a) * 0.02), lanes, out, 2)
    store(arithmetic.power_of_two(vector.floor(a)), lanes, out, 3)


@settings(max_examples=100, deadline=None)
@given(numbers)
def test_functions_of_a_vector_are_those_of_its_numbers(x: list[float]) -> None:
    values, together = np.array(x), np.zeros((4, WIDTH))
    _functions(BLOCK, values, together)
    for lane in range(WIDTH):
        alone = np.zeros((4, 1))
        _functions(None, values[lane : lane + 1].copy(), alone)
        assert (alone[:, 0] == together[:, lane]).all()


@stage
def _draw(lanes: Any, keys: Any, counter: Any, out: Any) -> None:
    store(uniform(load_words(lanes, keys), counter), lanes, out, 0)
    store(normal(load_words(lanes, keys), counter), lanes, out, 1)


def test_random_numbers_of_a_block_are_those_of_its_lanes() -> None:
    keys = np.random.default_rng(0).integers(0, 2**63, WIDTH, dtype=np.uint64)
    for counter in (0, 1, 10**12):
        out = np.zeros((2, WIDTH))
        _draw(BLOCK, keys, np.uint64(counter), out)
        for lane in range(WIDTH):
            assert out[0, lane] == uniform(keys[lane], np.uint64(counter))
            assert out[1, lane] == normal(keys[lane], np.uint64(counter))


@stage
def _tests(lanes: Any, x: Any, bound: Any) -> Any:
    return vector.all_above(load(lanes, x), bound), vector.any_above(load(lanes, x), bound)


@pytest.mark.parametrize(
    ("low", "expected"), [(0, (True, True)), (1, (False, True)), (WIDTH, (False, False))]
)
def test_all_and_any(low: int, expected: tuple[bool, bool]) -> None:
    for shift in range(WIDTH):
        x = np.where(np.arange(WIDTH) < low, -1.0, 1.0)
        assert tuple(_tests(BLOCK, np.roll(x, shift), 0.0)) == expected
    assert tuple(_tests(None, np.array([1.0]), 0.0)) == (True, True)
    assert tuple(_tests(None, np.array([np.nan]), 0.0)) == (False, False)


@stage
def _rows(lanes: Any, block: Any, out: Any) -> None:
    for i in range(block.shape[0]):
        for j in range(block.shape[1]):
            store(load(lanes, block, i, j), lanes, out, j, i)


@pytest.mark.parametrize("lanes", [None, BLOCK])
def test_load_and_store_touch_their_row_alone(lanes: Lanes) -> None:
    block = np.random.default_rng(0).normal(size=(3, 4, lane_count(lanes)))
    out = np.full((4, 3, lane_count(lanes)), np.nan)
    _rows(lanes, block, out)
    assert (out == block.swapaxes(0, 1)).all()


@pytest.mark.parametrize("shape", [(), (3,), (2, 5, WIDTH)])
@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint64])
def test_zeros_begin_where_a_vector_may(shape: tuple[int, ...], dtype: Callable[..., Any]) -> None:
    for _ in range(5):
        made = vector.zeros(*shape, dtype=dtype)
        assert made.shape == shape
        assert made.dtype == dtype
        assert not made.any()
        assert made.ctypes.data % (8 * WIDTH) == 0


@pytest.mark.skipif(not COMPILING, reason="types are checked while compiling")
def test_a_number_of_lanes_is_no_block() -> None:
    with pytest.raises(TypingError, match="lanes must be None or BLOCK"):
        _rows(WIDTH, np.zeros((1, 1, WIDTH)), np.zeros((1, 1, WIDTH)))


@stage
def _runs(values: Any, out: Any) -> None:
    vector.store_run(vector.load_run(values, 1, 2) * 2.0, out, 3)
    out[0] = vector.item(values, 1, 1)


def test_runs_are_neighbours() -> None:
    values, out = np.random.default_rng(0).normal(size=(2, WIDTH + 4)), np.zeros(WIDTH + 5)
    _runs(values, out)
    assert (out[3 : 3 + WIDTH] == 2.0 * values[1, 2 : 2 + WIDTH]).all()
    assert (out[[1, 2, -2, -1]] == 0.0).all()
    assert out[0] == values[1, 1]
