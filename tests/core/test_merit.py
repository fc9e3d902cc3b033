"""Merit functions: γ and L on a range, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfairx.core import merit as kinds
from fedfairx.errors import InvalidInput
from instances import merits

KINDS = ("exponential", "affine", "power", "logistic", "custom")


@pytest.mark.parametrize("kind", KINDS)
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


@given(difference=st.floats(1e-6, 1e6), mean=st.floats(-1, 1))
def test_the_difference_that_doubles_the_share(difference: float, mean: float) -> None:
    merit = kinds.Exponential.doubling(difference)
    assert merit.doubles_at == pytest.approx(difference)
    logs = merit.steepness * np.array([mean * difference, (mean + 1.0) * difference])
    assert math.exp(logs[1] - logs[0]) == pytest.approx(2.0)


def test_an_exponential_merit_says_what_doubles_the_share() -> None:
    assert repr(kinds.Exponential()) == "Exponential(steepness=10, 0.0693 better doubles the share)"
    assert kinds.Exponential.doubling(0.1) == kinds.Exponential(math.log(2) / 0.1)
    assert kinds.Exponential.for_range(0, 1) == kinds.Exponential()
    assert kinds.Exponential.for_range(1, 5).doubles_at == pytest.approx(0.0693 * 4, rel=1e-3)
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InvalidInput, match="difference must be"):
            kinds.Exponential.doubling(wrong)
