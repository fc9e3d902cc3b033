"""A block of numbers: every operation is right, and gives each lane what that lane would get alone."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfairx.lanes import vector, vector_math
from fedfairx.lanes.decorators import COMPILING, stage
from fedfairx.lanes.rows import Rows, floats, vectors
from fedfairx.lanes.vector_llvm import WIDTH
from fedfairx.simulation.kernel.random import normal, uniform

numbers = st.lists(st.floats(-50, 50).filter(lambda x: abs(x) > 1e-3), min_size=WIDTH, max_size=WIDTH)


@stage
def _operators(x: Rows, y: Rows, out: Rows) -> None:
    a, b = x[0], y[0]
    out[0] = a + b
    out[1] = a - b * 2.0
    out[2] = -a / b
    out[3] = 1.0 - a
    out[4] = vector.fma(a, 3.0, b)
    out[5] = vector.larger(a, b)
    out[6] = vector.smaller(a, 0.5)
    out[7] = vector.where_above(a, b, 1.0, b)
    out[8] = vector.sqrt(vector.absolute(a))
    out[9] = vector.floor(b)
    total = 0.0  # a float that becomes a Vector
    for _ in range(3):
        total = total + a
    out[10] = total


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


@pytest.mark.long
@given(numbers, numbers)
def test_operators(x: list[float], y: list[float]) -> None:
    a, b = np.array(x), np.array(y)
    together = np.zeros((11, WIDTH))
    _operators(vectors(a[None]), vectors(b[None]), vectors(together))
    assert (together == np.array(_expected(a, b))).all()
    for lane in range(WIDTH):
        alone = np.zeros(11)
        _operators(floats(a[lane : lane + 1]), floats(b[lane : lane + 1]), floats(alone))
        assert (alone == together[:, lane]).all()


@stage
def _functions(x: Rows, out: Rows) -> None:
    a = x[0]
    out[0] = vector_math.exp(a)
    out[1] = vector_math.log(vector.absolute(a))
    out[2] = vector_math.cosine_of_turn(vector.absolute(a) * 0.02)
    out[3] = vector_math.power_of_two(vector.floor(a))


@pytest.mark.long
@given(numbers)
def test_functions_of_a_vector_are_those_of_its_numbers(x: list[float]) -> None:
    values, together = np.array(x), np.zeros((4, WIDTH))
    _functions(vectors(values[None]), vectors(together))
    for lane in range(WIDTH):
        alone = np.zeros(4)
        _functions(floats(values[lane : lane + 1]), floats(alone))
        assert (alone == together[:, lane]).all()


@stage
def _draw(keys: Rows, counter: Any, out: Rows) -> None:
    out[0] = uniform(keys[0], counter)
    out[1] = normal(keys[0], counter)


def test_random_numbers_of_a_block_are_those_of_its_lanes() -> None:
    keys = np.random.default_rng(0).integers(0, 2**63, WIDTH, dtype=np.uint64)
    for counter in (0, 1, 10**12):
        out = np.zeros((2, WIDTH))
        _draw(vectors(keys[None]), np.uint64(counter), vectors(out))
        for lane in range(WIDTH):
            assert out[0, lane] == uniform(keys[lane], np.uint64(counter))
            assert out[1, lane] == normal(keys[lane], np.uint64(counter))


@stage
def _tests(x: Rows, bound: Any) -> Any:
    return vector.all_above(x[0], bound), vector.any_above(x[0], bound)


@pytest.mark.parametrize(
    ("low", "expected"), [(0, (True, True)), (1, (False, True)), (WIDTH, (False, False))]
)
def test_all_and_any(low: int, expected: tuple[bool, bool]) -> None:
    for shift in range(WIDTH):
        x = np.where(np.arange(WIDTH) < low, -1.0, 1.0)
        assert tuple(_tests(vectors(np.roll(x, shift)[None]), 0.0)) == expected
    assert tuple(_tests(floats(np.array([1.0])), 0.0)) == (True, True)
    assert tuple(_tests(floats(np.array([np.nan])), 0.0)) == (False, False)
