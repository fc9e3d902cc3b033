"""exp, log, cosine and powers of two: right, and exp never zero."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfairx.lanes.vector_math import SMALLEST, cosine_of_turn, exp, log, power_of_two


@given(st.floats(SMALLEST, 5.0))
def test_exp_is_right_to_about_one_unit_in_the_last_place(x: float) -> None:
    assert exp(x) == pytest.approx(math.exp(x), rel=4e-16)


def test_exp_at_zero_is_one() -> None:
    assert exp(0.0) == 1.0
    assert exp(-0.0) == 1.0


@pytest.mark.parametrize("x", [-708.1, -745.0, -1e4, -1e300, -math.inf])
def test_exp_is_never_zero(x: float) -> None:
    assert exp(x) == exp(SMALLEST) > 0.0


def test_exp_is_exact_enough_for_the_certificate_far_above_zero() -> None:
    for x in np.linspace(0.0, 600.0, 200):
        assert exp(x) == pytest.approx(math.exp(x), rel=4e-16)


@given(st.floats(1e-300, 1e300))
def test_log(x: float) -> None:
    assert log(x) == pytest.approx(math.log(x), rel=4e-16, abs=2e-16)


@pytest.mark.parametrize("x", [2.0**-53, 2.0**-52, 0.5, math.sqrt(0.5), 1.0 - 2.0**-53, 1.0, math.sqrt(2.0)])
def test_log_at_the_ends_of_its_pieces(x: float) -> None:
    assert log(x) == pytest.approx(math.log(x), rel=4e-16, abs=2e-16)


@given(st.floats(0.0, 1.0))
def test_cosine_of_a_turn(x: float) -> None:
    assert cosine_of_turn(x) == pytest.approx(math.cos(2.0 * math.pi * x), abs=2e-15)


def test_cosine_at_the_quarters() -> None:
    assert [round(cosine_of_turn(x), 14) for x in (0.0, 0.25, 0.5, 0.75, 1.0)] == [1.0, 0.0, -1.0, 0.0, 1.0]


@pytest.mark.parametrize("n", [-1022, -1, 0, 1, 52, 1023])
def testpower_of_two(n: int) -> None:
    assert power_of_two(float(n)) == math.ldexp(1.0, n)
