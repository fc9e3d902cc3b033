"""The test for change: a literal version beside it, its rate of false alarms, and what it finds."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar

from fedfairx.fairness import change_test
from fedfairx.fairness.change_test import (
    ERROR,
    MOST_FEATURES,
    Change,
    ChangeTest,
    Stretch,
    log_evidence,
    single_weights,
)

seeds = st.integers(0, 2**32 - 1)


def bernoulli(rng: np.random.Generator, contexts: np.ndarray, theta: np.ndarray) -> np.ndarray:
    return (rng.random(len(contexts)) < contexts @ theta).astype(float)


def ln_martingale(xs: np.ndarray, ys: np.ndarray, theta: np.ndarray, ridge: float, variance: float) -> float:
    """Mixed over θ' ~ N(θ, σ²/λ): the density of residuals N(0, σ²I + XXᵀσ²/λ) over N(0, σ²I)."""
    left, spread = ys - xs @ theta, np.eye(len(ys)) + xs @ xs.T / ridge
    quadratic = left @ left - left @ np.linalg.solve(spread, left)
    return float(0.5 * quadratic / variance - 0.5 * np.linalg.slogdet(spread)[1])


@pytest.mark.long
@settings(max_examples=8)
@given(seeds)
def test_it_is_the_least_over_all_parameters_of_the_mean_over_ridges(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, n, s = int(rng.integers(1, 4)), 12, int(rng.integers(3, 9))
    xs, ys = rng.normal(size=(n, d)), rng.normal(size=n)

    def sums(part: slice) -> Stretch:
        return Stretch((xs[part].T @ xs[part])[None, None], (xs[part].T @ ys[part])[None, None])

    found = float(log_evidence(sums(slice(s)), sums(slice(s, n)), 0.25)[0])
    logs = []
    for ridge, other in product(change_test._BEFORE, change_test._AFTER):

        def both(theta: np.ndarray, ridge: float = float(ridge), other: float = float(other)) -> float:
            early = ln_martingale(xs[:s], ys[:s], theta, ridge, 0.25)
            return early + ln_martingale(xs[s:], ys[s:], theta, other, 0.25)

        logs.append(minimize(both, np.zeros(d), tol=1e-10).fun)
    assert found == pytest.approx(np.logaddexp.reduce(logs) - math.log(len(logs)), rel=1e-4, abs=1e-4)


def test_moments_weigh_a_half_a_sixth_a_twelfth() -> None:
    rng, test = np.random.default_rng(0), ChangeTest(0.5)
    xs, ys = rng.random((4, 10, 2)), rng.random((4, 10))

    def sums(part: slice) -> Stretch:
        x, y = np.concatenate(xs[part]), np.concatenate(ys[part])
        return Stretch((x.T @ x)[None, None], (x.T @ y)[None, None])

    largest = 0.0
    for now in range(1, 5):
        test.add(xs[now - 1], ys[now - 1])
        logs = [float(log_evidence(sums(slice(s)), sums(slice(s, now)), 0.25)[0]) for s in range(1, now)]
        terms = [math.exp(log) / (s * (s + 1)) for s, log in enumerate(logs, 1)]
        largest = max(largest, sum(terms))
        assert test.change.evidence == pytest.approx(largest, rel=1e-7)


def test_a_change_of_one_action_has_half_of_the_weight() -> None:
    """Of three actions, the last of which came later; each alone is a test of one coordinate."""
    rng = np.random.default_rng(0)
    grams, moments = rng.random((2, 1, 3, 1, 1)) * 50, rng.normal(size=(2, 1, 3, 1)) * 10
    before, after = Stretch(grams[0], moments[0]), Stretch(grams[1], moments[1])
    weights = single_weights(2, 3)
    assert weights == pytest.approx([1 / 3, 1 / 3, 1 / 6])
    assert single_weights(2, 5)[:3] == pytest.approx(weights)  # those to come change none
    assert single_weights(3, 1_000).sum() == pytest.approx(1.0, abs=1e-3)
    total = 0.0
    for ridge, other in product(change_test._BEFORE, change_test._AFTER):
        alone = [
            math.exp(
                minimize_scalar(
                    lambda theta, a=a, r=ridge, o=other: sum(
                        0.5 * (m[0, a, 0] - g[0, a, 0, 0] * theta) ** 2 / (g[0, a, 0, 0] + lam) / 0.25
                        - 0.5 * math.log(1 + g[0, a, 0, 0] / lam)
                        for (g, m), lam in ((before, r), (after, o))
                    ),
                    tol=1e-12,
                ).fun
            )
            for a in range(3)
        ]
        total += 0.5 * math.prod(alone) + 0.5 * float(weights @ alone)
    size = change_test._BEFORE.size * change_test._AFTER.size
    assert log_evidence(before, after, 0.25, weights)[0] == pytest.approx(math.log(total / size), rel=1e-6)


def test_one_of_many_actions_is_noticed() -> None:
    """One of 20 falls from 0.8 to 0.3 after 100 rewards of each; a test of all together finds 0 of 10."""
    found = []
    for seed in range(10):
        rng, test, theta = np.random.default_rng(seed), ChangeTest(0.5, separate=True), np.full(20, 0.8)
        for batch in range(60):
            theta[0] = 0.8 if batch < 20 else 0.3
            xs = np.eye(20)[rng.integers(20, size=100)]
            test.add(xs, bernoulli(rng, xs, theta))
        found.append(test.change.alarm)
    assert sum(found) >= 8


def test_coordinates_apart_are_the_same_as_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the weight of a single one, which only coordinates apart have."""
    monkeypatch.setattr(change_test, "single_weights", lambda *_: None)
    rng, one, other = np.random.default_rng(0), ChangeTest(0.5), ChangeTest(0.5, separate=True)
    for batch in range(12):
        xs = np.eye(4)[rng.integers(4, size=40)] * rng.choice([1.0, 0.5], (40, 1))
        ys = bernoulli(
            rng, xs, np.array([0.1, 0.4, 0.6, 0.9]) if batch < 6 else np.array([0.9, 0.6, 0.4, 0.1])
        )
        for test in (one, other):
            test.add(xs, ys)
        assert one.change.evidence == pytest.approx(other.change.evidence, rel=1e-6)
        assert (one.change.rewards, one.change.before) == (other.change.rewards, other.change.before)
    assert one.change.alarm
    assert 160 <= one.change.before <= 320


def test_an_action_that_comes_later_is_no_change() -> None:
    rng, test, chances = np.random.default_rng(0), ChangeTest(0.5, separate=True), np.array([0.2, 0.5, 0.9])
    for batch in range(40):
        known = 2 if batch < 20 else 3
        xs = np.eye(known)[rng.integers(known, size=100)]
        test.add(xs, bernoulli(rng, xs, chances[:known]))
    assert test.change.rewards == 4000
    assert test.change.evidence < 1


@pytest.mark.long
def test_columns_that_come_later_were_zero_before() -> None:
    rng, grown, whole = np.random.default_rng(0), ChangeTest(0.5), ChangeTest(0.5)
    for batch in range(6):
        contexts = np.zeros((50, 3))
        contexts[:, : 2 + batch // 3] = rng.random((50, 2 + batch // 3)) / 2
        rewards = bernoulli(rng, contexts, np.array([0.2, 0.8, 0.5]))
        grown.add(contexts[:, : 2 + batch // 3], rewards)
        whole.add(contexts, rewards)
    assert (grown.change.rewards, whole.change.rewards) == (300, 300)
    assert grown.change.evidence == pytest.approx(whole.change.evidence, rel=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("separate", [False, True])
def test_it_hardly_ever_alarms_where_nothing_changes(separate: bool) -> None:
    """The noise is Gaussian with just the σ that is assumed, and contexts depend on the rewards so far.

    With a rate of 1 % there are more than 5 alarms in 100 runs with probability 0.06 %. A test that assumes
    0.6 of the σ alarms in 9 and 17 of them.
    """
    alarms, largest = 0, []
    for seed in range(100):
        rng, test = np.random.default_rng(seed), ChangeTest(0.5, separate=separate)
        theta, chosen = rng.normal(size=3), np.zeros(3)
        for _ in range(20):
            xs = np.eye(3)[rng.choice(3, 40, p=(chosen + 1) / (chosen + 1).sum())]
            if not separate:
                xs = xs + 0.3 * rng.random((40, 3))
            ys = xs @ theta + 0.5 * rng.normal(size=40)
            chosen += np.maximum(xs.T @ ys, 0.0)  # the more reward, the more often
            test.add(xs, ys)
        alarms += test.change.alarm
        largest.append(test.change.evidence)
    assert alarms <= 5
    assert np.mean(largest) > 0  # it is no constant


@pytest.mark.parametrize("after", [10, 60])
@pytest.mark.parametrize("separate", [False, True])
def test_it_notices_when_the_parameter_turns(after: int, separate: bool) -> None:
    rng, test, theta = np.random.default_rng(1), ChangeTest(0.5, separate=separate), np.array([0.2, 0.8])
    noticed = None
    for batch in range(after + 20):
        xs = np.eye(2)[rng.integers(2, size=100)]
        if not separate:
            xs = 0.5 * xs + 0.5 * rng.random((100, 2))
        test.add(xs, bernoulli(rng, xs, theta if batch < after else theta[::-1]))
        if test.change.alarm and noticed is None:
            noticed = batch
    assert noticed is not None
    assert after <= noticed <= after + (3 if separate else 6)
    assert abs(test.change.before - 100 * after) <= 100 * after / 4
    assert "Rewards contradict a model that never changes, by more than 1 000 000 000 : 1" in str(test.change)


def test_an_alarm_stays() -> None:
    rng, test = np.random.default_rng(1), ChangeTest(0.5, separate=True)
    for batch in range(60):
        xs = np.ones((100, 1))
        test.add(xs, bernoulli(rng, xs, np.array([0.2 if batch % 20 < 10 else 0.8])))
        if batch == 14:
            assert test.change.alarm
            assert test.change.before == 1000
    assert test.change.alarm


def test_old_moments_are_looked_at_the_less_the_older_they_are() -> None:
    test = ChangeTest(0.5, separate=True)
    for _ in range(500):
        test.add(np.ones((1, 1)), np.ones(1))
    assert len(test._moments) <= 8 * math.log2(500)
    assert {500 - at for at in test._moments} >= {1, 2, 3, 4}
    kept = set(test._moments)
    test.add(np.ones((1, 1)), np.ones(1))
    assert set(test._moments) - kept == {500}  # what is no longer looked at does not come back


def test_too_many_features_are_left_alone() -> None:
    test = ChangeTest(0.5)
    for _ in range(3):
        test.add(np.ones((2, MOST_FEATURES + 1)), np.ones(2))
    assert test.change == Change()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Change(), "too few rewards to test whether merit changes.$"),
        (Change(needed=560), "too few rewards to test whether merit changes: it takes 560.$"),
        (Change(needed=0), "not tested with more than 200 columns"),
        (
            Change(0.0, 560, 100),
            "560 rewards fit .*: the evidence against it never reached 1 : 1, and 100 : 1",
        ),
        (Change(3.14159, 12_300, 400), "12 300 rewards fit a model that never changes: .* at most 3.1 : 1"),
        (Change(350.4, 12_300, 4_200), "by 350 : 1: those after the first 4 200 differ"),
    ],
)
def test_it_says_what_it_found(found: Change, words: str) -> None:
    import re

    assert re.search(words, str(found))
    assert found.alarm == (found.evidence >= 1 / ERROR)
