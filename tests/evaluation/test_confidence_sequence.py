"""The confidence sequence: its martingale by exact enumeration, its limits by simulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfairx.evaluation.confidence_sequence import TILTS, Mixture, lower_limit

#: Values, their probabilities, and a lower bound that the smallest value reaches.
LAWS = {
    "rare and large": ([0.0, 20.0], [0.98, 0.02], 0.0),
    "nearly sure": ([0.0, 1.02], [0.02, 0.98], 0.0),
    "even": ([0.0, 1.0], [0.5, 0.5], 0.0),
    "often above": ([0.0, 1.25], [0.2, 0.8], 0.0),
    "below zero": ([-2.0, 1.2], [0.1, 0.9], -2.0),
    "symmetric": ([-2.0, 3.0], [0.5, 0.5], -2.0),
}


def log_e_value(values: np.ndarray, **bounds: Any) -> Callable[[float], float]:
    """The logarithm of the mixture over these values, by the mean of their conditional means."""
    mixture = Mixture()
    mixture.add(values, **bounds)
    return mixture.log_e_value


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("steps", [1, 2, 5, 9])
def test_the_mixture_has_mean_at_most_one(law: str, steps: int) -> None:
    """An exact sum over all sequences of values: no sampling error, and hardly any slack at small λ."""
    values, chances, least = LAWS[law]
    mean = float(np.dot(values, chances))
    total = 0.0
    for places in itertools.product(range(len(values)), repeat=steps):
        chance = math.prod(chances[place] for place in places)
        total += chance * math.exp(log_e_value(np.array([values[p] for p in places]), least=least)(mean))
    assert 0.5 < total <= 1.0 + 1e-12


def test_at_its_bound_the_inequality_is_an_equation() -> None:
    """A value at its lower bound, guessed to be at the top, multiplies by 1 - λ."""
    found = log_e_value(np.zeros(1), least=0.0, floor=1.0)(1.0)
    assert found == pytest.approx(math.log(np.mean(1.0 - TILTS.clip(max=0.9))))


def test_the_mixture_allows_means_that_change_with_the_past() -> None:
    """The second value's law depends on the first: the mean of conditional means is what counts."""
    total = 0.0
    for first, second in itertools.product((0, 1), repeat=2):
        means = [0.3, 0.9 if first else 0.1]
        scales = [2.0, 1.0 if first else 8.0]
        chance, values = 1.0, []
        for hit, mean, scale in zip((first, second), means, scales, strict=True):
            chance *= mean / scale if hit else 1.0 - mean / scale
            values.append(scale * hit)
        total += chance * math.exp(log_e_value(np.array(values), least=0.0)(float(np.mean(means))))
    assert 0.5 < total <= 1.0 + 1e-12


def test_the_mixture_allows_bounds_that_change() -> None:
    """Where the lower bound of one step is far lower than that of others, its rate is lower too."""
    total, values, chances = 0.0, ((-30.0, 1.2), (0.0, 2.0)), ((0.02, 0.98), (0.6, 0.4))
    mean = 0.5 * sum(float(np.dot(one, two)) for one, two in zip(values, chances, strict=True))
    for places in itertools.product((0, 1), repeat=2):
        chance = chances[0][places[0]] * chances[1][places[1]]
        got = np.array([values[0][places[0]], values[1][places[1]]])
        total += chance * math.exp(log_e_value(got, least=np.array([-30.0, 0.0]))(mean))
    assert 0.5 < total <= 1.0 + 1e-12


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_the_mixture_allows_means_below_zero(steps: int) -> None:
    """Gains: where a rate had to be lower, a mean counts as its least possible value."""
    total, values, chances = 0.0, (-1.0, 0.9), (0.6, 0.4)
    mean = float(np.dot(values, chances))
    for places in itertools.product((0, 1), repeat=steps):
        got = np.array([values[place] for place in places])
        found = log_e_value(got, least=-1.0, floor=np.full(steps, mean), top=0.5)
        total += math.prod(chances[place] for place in places) * math.exp(found(mean))
    assert 0.3 < total <= 1.0 + 1e-12


@pytest.mark.parametrize("far", [10.0, 100.0, 1000.0])
def test_a_later_bound_can_t_choose_an_earlier_rate(far: float) -> None:
    """The second bound depends on the first value, as it does where a policy learns."""
    total, down, chance = 0.0, far - 1.0, 0.9
    for value, part, bound in ((down * (1 - chance) / chance, chance, -2.0), (-down, 1 - chance, -down)):
        found = log_e_value(np.array([value, 0.0]), least=np.array([-down, bound]))
        total += part * math.exp(found(0.0))
    assert 0.5 < total <= 1.0 + 1e-12


def test_the_mixture_is_the_formula() -> None:
    """A literal sum, value by value: each guess is the mean of the values before, and 0 at first."""
    values, least, mean = [0.3, 4.0, 0.0, 1.1], [0.0, -0.5, -2.0, 0.0], 0.35
    products = []
    for tilt in TILTS:
        log, past = 0.0, []
        for value, bound in zip(values, least, strict=True):
            guess = min(max(sum(past) / max(len(past), 1), 0.0), 1.0)
            reach = max(guess - bound, 1e-3)
            rate = min(tilt, 0.9 / reach)
            psi = -math.log(1 - rate * reach) - rate * reach
            log += rate * value - psi * ((value - guess) / reach) ** 2 - tilt * mean
            past.append(value)
        products.append(math.exp(log))
    found = log_e_value(np.array(values), least=np.array(least))(mean)
    assert found == pytest.approx(math.log(sum(products) / len(products)), rel=1e-12)


@given(st.lists(st.floats(0.0, 50.0), min_size=2, max_size=40), st.data())
def test_values_may_come_in_parts(values: list[float], data: st.DataObject) -> None:
    array, cut = np.array(values), data.draw(st.integers(1, len(values) - 1))
    bounds = np.linspace(-3.0, 0.0, array.size)
    whole, parts = Mixture(), Mixture()
    whole.add(array, least=bounds)
    parts.add(array[:cut], least=bounds[:cut])
    parts.add(array[cut:], least=bounds[cut:])
    for mean in (0.0, 0.4, 1.0):
        assert parts.log_e_value(mean) == pytest.approx(whole.log_e_value(mean), rel=1e-9, abs=1e-9)


@given(st.lists(st.floats(0.0, 50.0), min_size=1, max_size=40), st.floats(0.001, 0.5))
def test_a_lower_limit_is_within_range_and_falls_with_the_error(values: list[float], error: float) -> None:
    array = np.array(values)
    limit = lower_limit(array, least=0.0, error=error)
    assert 0.0 <= limit <= 1.0
    assert lower_limit(array, least=0.0, error=0.5 * error) <= limit + 1e-12
    mixture = log_e_value(array, least=0.0)
    assert mixture(0.2) >= mixture(0.8)


def test_a_limit_comes_close_to_the_mean_of_a_long_log() -> None:
    """The half-width is at most 2.5 times that of an interval for one time alone."""
    rng = np.random.default_rng(5)
    values = 4.0 * (rng.random(20_000) < 0.15)
    once = 1.96 * values.std() / math.sqrt(values.size)
    limit = lower_limit(values, least=0.0, error=0.025)
    assert once < values.mean() - limit < 2.5 * once


@pytest.mark.long
def test_limits_hold_at_all_times() -> None:
    """Of 150 logs of changing means, at most a share of `error` ever has a limit above the mean.

    With error 0.2, more than 46 misses have probability below 1e-3 if the limit holds; an interval for one
    time alone, looked at as often, misses in more than 46.
    """
    rng = np.random.default_rng(2)
    error, misses, naive = 0.2, 0, 0
    looks = np.unique(np.geomspace(20, 1000, 15).astype(int))
    for _ in range(150):
        means = 0.5 + 0.3 * np.sin(np.arange(1000) / 100 + rng.uniform(0, 6))
        values = 2.0 * (rng.random(1000) < 0.5 * means)
        truth = np.cumsum(means) / np.arange(1, 1001)
        mixture, seen, missed = Mixture(), 0, False
        for n in looks:
            mixture.add(values[seen:n], least=0.0)
            seen, missed = n, missed or mixture.log_e_value(truth[n - 1]) >= -math.log(error)
        assert missed or lower_limit(values, least=0.0, error=error) <= truth[-1]
        misses += missed
        naive += any(
            values[:n].mean() - 0.8416 * values[:n].std() / math.sqrt(n) > truth[n - 1] for n in looks
        )
    assert misses <= 46 < naive
