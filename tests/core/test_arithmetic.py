"""exp, fma and powers of two: right, the same everywhere, never zero."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfairx.core.arithmetic import SMALLEST, exp, fma, power_of_two
from fedfairx.core.compile import stage


@stage
def _fma(a: float, b: float, c: float) -> float:
    return fma(a, b, c)


@stage
def _power_of_two(n: float) -> float:
    return power_of_two(n)


@settings(max_examples=400, deadline=None)
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


finite = st.floats(-1e100, 1e100)


@settings(max_examples=200, deadline=None)
@given(finite, finite, finite)
def test_fma_rounds_once(a: float, b: float, c: float) -> None:
    assert _fma(a, b, c) == float(Fraction(a) * Fraction(b) + Fraction(c))


@pytest.mark.parametrize("n", [-1022, -1, 0, 1, 52, 1023])
def test_power_of_two(n: int) -> None:
    assert _power_of_two(float(n)) == math.ldexp(1.0, n)
