"""Merit functions: log f, its slope, γ and L; what is refused; nothing overflows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfairx.core import merit as kinds
from fedfairx.core.lanes import BLOCK
from fedfairx.core.registers import WIDTH
from fedfairx.errors import InvalidInput
from instances import merits

KINDS = ("exponential", "affine", "power", "logistic", "custom")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), mean=st.floats(-3, 3))
def test_log_merit_and_slope_are_the_oracles(kind: str, seed: int, mean: float) -> None:
    ours, theirs = merits(np.random.default_rng(seed))[kind]
    value, slope = kinds.log_merit(kinds.table([ours]), 0, mean)
    assert value == pytest.approx(float(theirs.log(mean)), rel=1e-12, abs=1e-12)
    if not any(abs(mean - edge) < 1e-4 for edge in (0.0, 1.0, -2.0, 2.0)):  # kinks
        # A custom merit's slope is a central difference.
        close = {"rel": 1e-6, "abs": 1e-8} if kind == "custom" else {"rel": 1e-9, "abs": 1e-12}
        assert slope == pytest.approx(float(theirs.log_slope(mean)), **close)


@pytest.mark.parametrize("kind", KINDS)
def test_the_slope_is_the_derivative(kind: str) -> None:
    ours, _ = merits(np.random.default_rng(5))[kind]
    table, h = kinds.table([ours]), 1e-5
    for mean in (0.11, 0.35, 0.62, 0.93):
        difference = (kinds.log_merit(table, 0, mean + h)[0] - kinds.log_merit(table, 0, mean - h)[0]) / (
            2 * h
        )
        assert kinds.log_merit(table, 0, mean)[1] == pytest.approx(difference, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_minimum_and_lipschitz_hold_on_the_range(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ours, theirs = merits(rng)[kind]
    low = float(rng.uniform(-1.5, 1.4))
    high = float(rng.uniform(low, 1.5))
    values = np.exp(theirs.log(np.linspace(low, high, 400)))
    assert ours.minimum(low, high) <= values.min() * (1 + 1e-9)
    slopes = np.abs(np.diff(values)) / (max(high - low, 1e-9) / 399)
    assert slopes.max() <= ours.lipschitz(low, high) * (1 + 1e-6) + 1e-9


def test_the_papers_constants_by_hand() -> None:
    assert kinds.Exponential(10.0).minimum(0.0, 1.0) == 1.0
    assert kinds.Exponential(10.0).lipschitz(0.0, 1.0) == pytest.approx(10 * math.exp(10))
    assert kinds.Affine(0.5, 2.0).minimum(0.0, 1.0) == 0.5
    assert kinds.Affine(0.5, 2.0).minimum(3.0, 4.0) == 2.5  # held at the end of its range
    assert kinds.Power(2.0, 0.1).lipschitz(0.0, 1.0) == pytest.approx(2.2)
    assert kinds.Logistic(4.0, 0.5, 0.1).lipschitz(0.0, 1.0) == pytest.approx(1.0)


def test_a_steepness_of_a_thousand_overflows_nowhere() -> None:
    steep = kinds.Exponential(1000.0)
    assert steep.lipschitz(0.0, 1.0) == math.inf
    assert steep.minimum(-1.0, 1.0) == 0.0 or steep.minimum(-1.0, 1.0) > 0.0
    assert kinds.log_merit(kinds.table([steep]), 0, 1.0) == (1000.0, 1000.0)
    value, slope = kinds.log_merit(kinds.table([kinds.Logistic(1000.0, 0.5, 0.05)]), 0, -50.0)
    assert value == pytest.approx(math.log(0.05))
    assert slope == 0.0


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: kinds.Exponential(0.0), "steepness"),
        (lambda: kinds.Exponential(math.nan), "steepness"),
        (lambda: kinds.Exponential(math.inf), "steepness"),
        (lambda: kinds.Affine(0.0, 1.0), "offset"),
        (lambda: kinds.Affine(math.nan, 1.0), "offset"),
        (lambda: kinds.Affine(0.1, -1.0), "slope"),
        (lambda: kinds.Affine(0.1, 1.0, (1.0, 0.0)), "reward_range"),
        (lambda: kinds.Power(-1.0), "exponent"),
        (lambda: kinds.Power(2.0, 0.0), "offset"),
        (lambda: kinds.Logistic(10.0, 0.5, 0.0), "floor"),
        (lambda: kinds.Logistic(10.0, math.inf), "midpoint"),
        (lambda: kinds.Custom(math.exp, minimum_merit=0.0, lipschitz_constant=3.0), "minimum_merit"),
        (lambda: kinds.Custom(math.exp, minimum_merit=0.5, lipschitz_constant=3.0), "minimum_merit"),
        (lambda: kinds.Custom(math.exp, minimum_merit=0.1, lipschitz_constant=1.0), "lipschitz_constant"),
        (lambda: kinds.Custom(lambda _: math.nan, minimum_merit=0.1, lipschitz_constant=1.0), "function"),
        (lambda: kinds.Custom(lambda mu: [mu], minimum_merit=0.1, lipschitz_constant=1.0), "function"),  # type: ignore[arg-type,return-value]
    ],
)
def test_what_is_no_merit_is_refused(make: Any, name: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{name} "):
        make()


def test_a_function_that_numba_can_not_compile_still_works() -> None:
    memo: dict[str, float] = {}

    def remembered(mu: float) -> float:
        return memo.setdefault(f"{mu:.17g}", 2.0 + math.sin(mu))

    custom = kinds.Custom(remembered, minimum_merit=1.0, lipschitz_constant=1.0)
    value, slope = kinds.log_merit(kinds.table([custom]), 0, 0.25)
    assert value == pytest.approx(math.log(2.0 + math.sin(0.25)))
    assert slope == pytest.approx(math.cos(0.25) / (2.0 + math.sin(0.25)), rel=1e-6)


def test_a_table_of_several_merits_keeps_them_apart() -> None:
    pairs = list(merits(np.random.default_rng(2)).values())
    pairs = (pairs * WIDTH)[:WIDTH]
    table = kinds.table([ours for ours, _ in pairs])
    assert not table.exponential
    means = np.linspace(0.1, 0.9, 3 * WIDTH).reshape(3, WIDTH)
    logits, slopes = np.zeros_like(means), np.zeros_like(means)
    kinds.log_merits(BLOCK, table, means, logits, slopes)
    for l, (_, theirs) in enumerate(pairs):
        assert logits[:, l] == pytest.approx(theirs.log(means[:, l]), rel=1e-12)
        assert slopes[:, l] == pytest.approx(theirs.log_slope(means[:, l]), rel=1e-6)


def test_merits_are_values() -> None:
    assert kinds.Exponential(3.0) == kinds.Exponential(3.0) != kinds.Exponential(4.0)
    assert all(isinstance(ours, kinds.Merit) for ours, _ in merits(np.random.default_rng(0)).values())
    assert kinds.table([kinds.Exponential(1.0), kinds.Exponential(2.0)]).exponential
