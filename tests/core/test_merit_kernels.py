"""Merits as compiled code reads them: log f and its slope are the oracle's, and nothing overflows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfairx.core import merit as kinds
from fedfairx.core.merit_kernels import exponential, log_merit, log_merits
from fedfairx.lanes.rows import vectors
from fedfairx.lanes.vector_llvm import WIDTH
from instances import each_merit, merit_rows, merits

KINDS = ("exponential", "affine", "power", "logistic", "custom")


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32 - 1), mean=st.floats(-3, 3))
def test_log_merit_and_slope_are_the_oracles(kind: str, seed: int, mean: float) -> None:
    ours, theirs = merits(np.random.default_rng(seed))[kind]
    value, slope = log_merit(each_merit(ours), 0, mean)
    assert value == pytest.approx(float(theirs.log(mean)), rel=1e-12, abs=1e-12)
    if not any(abs(mean - edge) < 1e-4 for edge in (0.0, 1.0, -2.0, 2.0)):  # kinks
        # A custom merit's slope is a central difference.
        close = {"rel": 1e-6, "abs": 1e-8} if kind == "custom" else {"rel": 1e-9, "abs": 1e-12}
        assert slope == pytest.approx(float(theirs.log_slope(mean)), **close)


@pytest.mark.parametrize("kind", KINDS)
def test_the_slope_is_the_derivative(kind: str) -> None:
    ours, _ = merits(np.random.default_rng(5))[kind]
    rows, h = each_merit(ours), 1e-5
    for mean in (0.11, 0.35, 0.62, 0.93):
        difference = (log_merit(rows, 0, mean + h)[0] - log_merit(rows, 0, mean - h)[0]) / (2 * h)
        assert log_merit(rows, 0, mean)[1] == pytest.approx(difference, rel=1e-5)


def test_a_steepness_of_a_thousand_overflows_nowhere() -> None:
    steep = kinds.Exponential(1000.0)
    assert steep.lipschitz(0.0, 1.0) == math.inf
    assert steep.minimum(-1.0, 1.0) == 0.0 or steep.minimum(-1.0, 1.0) > 0.0
    assert log_merit(each_merit(steep), 0, 1.0) == (1000.0, 1000.0)
    value, slope = log_merit(each_merit(kinds.Logistic(1000.0, 0.5, 0.05)), 0, -50.0)
    assert value == pytest.approx(math.log(0.05))
    assert slope == 0.0
    assert kinds.Power(1000.0, 2.0).lipschitz(0.0, 1.0) == math.inf
    assert log_merit(each_merit(kinds.Power(1000.0, 2.0)), 0, 1.0)[0] == pytest.approx(1000 * math.log(3))


def test_a_logistic_keeps_its_lower_tail() -> None:
    value, slope = log_merit(each_merit(kinds.Logistic(100.0, 0.5, 1e-300)), 0, 0.0)
    assert value == pytest.approx(-50.0, abs=1e-12)
    assert slope == pytest.approx(100.0, rel=1e-12)


def test_a_function_that_numba_can_not_compile_still_works() -> None:
    memo: dict[str, float] = {}

    def remembered(mu: float) -> float:
        return memo.setdefault(f"{mu:.17g}", 2.0 + math.sin(mu))

    custom = kinds.Custom(remembered, minimum_merit=1.0, lipschitz_constant=1.0)
    value, slope = log_merit(each_merit(custom), 0, 0.25)
    assert value == pytest.approx(math.log(2.0 + math.sin(0.25)))
    assert slope == pytest.approx(math.cos(0.25) / (2.0 + math.sin(0.25)), rel=1e-6)


def test_a_table_of_several_merits_keeps_them_apart() -> None:
    pairs = list(merits(np.random.default_rng(2)).values())
    pairs = (pairs * WIDTH)[:WIDTH]
    rows = merit_rows(*(ours for ours, _ in pairs))
    assert not exponential(rows)
    means = np.linspace(0.1, 0.9, 3 * WIDTH).reshape(3, WIDTH)
    logits, slopes = np.zeros_like(means), np.zeros_like(means)
    log_merits(rows, vectors(means), vectors(logits), vectors(slopes))
    for l, (_, theirs) in enumerate(pairs):
        assert logits[:, l] == pytest.approx(theirs.log(means[:, l]), rel=1e-12)
        assert slopes[:, l] == pytest.approx(theirs.log_slope(means[:, l]), rel=1e-6)


def test_merits_are_values() -> None:
    assert kinds.Exponential(3.0) == kinds.Exponential(3.0) != kinds.Exponential(4.0)
    assert all(isinstance(ours, kinds.Merit) for ours, _ in merits(np.random.default_rng(0)).values())
    assert exponential(merit_rows(kinds.Exponential(1.0)))
    assert not exponential(merit_rows(kinds.Affine()))
