"""Intervals that hold at all times: that they do, and how often a fixed one does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfairx.fairness.confidence_sequences import log_mixture, share_interval, spending

RUNS, ROUNDS, FIRST_LOOK = 10_000, 2_000, 30


def counts_inside(chances: np.ndarray, error: float) -> tuple[np.ndarray, np.ndarray]:
    """The least and the most count that the sequence contains, in each round; chances are (rounds,).

    The mixture is convex in the count: in each round it is beyond the limit outside of two counts.
    """
    rounds = np.arange(1.0, chances.size + 1)
    mean = np.cumsum(chances) / rounds

    def last_inside(outside: np.ndarray) -> np.ndarray:
        inside = np.round(rounds * mean)
        for _ in range(12):
            middle = np.round(0.5 * (inside + outside))
            refused = log_mixture(middle, rounds, mean) >= -np.log(error)
            inside, outside = np.where(refused, inside, middle), np.where(refused, middle, outside)
        return inside

    return last_inside(np.full(rounds.size, -1.0)), last_inside(rounds + 1)


@pytest.mark.long
@pytest.mark.parametrize(("chance", "figures"), [(0.2, (49, 0.3, 1.8)), (0.25, (48, 0.7, 1.8))])
def test_a_fixed_interval_that_is_looked_at_every_round_misleads(
    chance: float, figures: tuple[float, float, float]
) -> None:
    """Per cent of honest runs, as in docs/explanation/fairness.md; sds are 0.5, 0.08 and 0.14."""
    rng, rounds = np.random.default_rng(0), np.arange(1, ROUNDS + 1)
    start, variance = 100, 0.25  # Robbins's normal mixture, for steps whose variance is at most a quarter
    width = np.sqrt(variance * (rounds + start) * np.log((rounds + start) / (start * 0.05**2)))
    # The fixed interval of a share p contains the chance c if (p - c)² ≤ s p (1 - p), with s = 1.96² / t.
    s = 1.96**2 / rounds
    middle, root = 2 * chance + s, np.sqrt((2 * chance + s) ** 2 - 4 * (1 + s) * chance**2)
    fixed = [rounds * (middle + side * root) / (2 * (1 + s)) for side in (-1, 1)]
    normal = rounds * chance - width, rounds * chance + width
    ours = counts_inside(np.full(ROUNDS, chance), 0.05)
    last, left = 0.0, np.zeros(3)
    for _ in range(RUNS // 50):  # few at a time, which stay in the cache
        shown = np.cumsum(rng.random((50, ROUNDS)) < chance, axis=1, dtype=np.float64)
        outside = [(shown < low) | (shown > high) for low, high in (fixed, normal, ours)]
        last += outside[0][:, -1].sum()
        outside[0] = outside[0][:, FIRST_LOOK - 1 :]
        left += [each.any(axis=1).sum() for each in outside]
    assert 100 * last / RUNS == pytest.approx(5, abs=0.6)  # looked at once, it is what it says
    measured = left / RUNS
    assert round(100 * measured[0]) == figures[0]
    assert 100 * measured[1:] == pytest.approx(figures[1:], abs=0.06)


def test_chances_that_change_from_round_to_round_are_covered_too() -> None:
    """2 000 runs; a right sequence fails at most 5 %, and 7 % would be seen once in 25 000 tests."""
    rng = np.random.default_rng(1)
    chances = np.where(np.arange(1_000) % 100 < 50, 0.02, 0.6) * np.linspace(1, 0.3, 1_000)
    shown = np.cumsum(rng.random((2_000, 1_000)) < chances, axis=1)
    low, high = counts_inside(chances, 0.05)
    assert ((shown < low) | (shown > high)).any(axis=1).mean() < 0.05


def test_the_interval_is_where_the_mixture_is_below_its_limit() -> None:
    shown, rounds = np.array([0.0, 3.0, 200.0, 1e6, 5.0]), np.array([40.0, 9.0, 1e4, 3e6, 5.0])
    low, high = share_interval(shown, rounds, np.full(5, 0.01))
    grid = np.linspace(0.0, 1.0, 20_001)
    for k in range(5):
        inside = grid[
            log_mixture(np.full(grid.size, shown[k]), np.full(grid.size, rounds[k]), grid) < np.log(100)
        ]
        assert low[k] == pytest.approx(inside.min(), abs=5.1e-5)
        assert high[k] == pytest.approx(inside.max(), abs=5.1e-5)


@given(st.integers(1, 10**7), st.floats(0, 1), st.floats(1e-6, 0.5))
def test_intervals_hold_what_was_seen_and_shrink_with_the_error(
    rounds: int, share: float, error: float
) -> None:
    shown = np.array([float(round(share * rounds))])
    low, high = share_interval(shown, np.array([float(rounds)]), np.array([error]))
    wide_low, wide_high = share_interval(shown, np.array([float(rounds)]), np.array([error / 10]))
    assert 0 <= wide_low[0] <= low[0] <= shown[0] / rounds <= high[0] <= wide_high[0] <= 1


@pytest.mark.parametrize("several", [False, True])
def test_ends_are_where_the_mixture_meets_its_limit(several: bool) -> None:
    """The mixture is above its limit just outside of an end that is not 0 or 1, and below it just inside."""
    rng = np.random.default_rng(0)
    rounds = np.floor(10 ** rng.uniform(0, 6, 500))
    most = 10 ** rng.uniform(-2, 3, 500) if several else np.ones(500)
    shown, error = np.floor(rounds * rng.random(500) ** 3), 10 ** rng.uniform(-6, -0.5, 500)
    ends = share_interval(shown * most, rounds, error, most if several else None)
    for end, edge, outwards in ((ends[0] / most, 0.0, -1e-11), (ends[1] / most, 1.0, 1e-11)):
        outside, inside = (end + outwards).clip(0.0, 1.0), (end - outwards).clip(0.0, 1.0)
        over, under = (
            log_mixture(shown, rounds, at, most if several else None) + np.log(error)
            for at in (outside, inside)
        )
        assert (over[outside != edge] > 0).all()
        assert (under < 0).all()


def test_with_rounds_the_interval_narrows_at_nearly_the_best_rate() -> None:
    for rounds, factor in ((100.0, 3.6), (1e4, 3.7), (1e6, 3.8)):
        low, high = share_interval(np.array([0.2 * rounds]), np.array([rounds]), np.array([0.05]))
        assert (high - low)[0] / 2 < factor * np.sqrt(0.16 / rounds)


def test_an_error_is_shared_out_among_any_number_of_actions() -> None:
    assert spending(1_000_000).sum() < 1
    assert (np.diff(spending(1_000)) <= 0).all()
    assert spending(16).sum() == pytest.approx(0.5)
    assert spending(32).sum() == pytest.approx(0.5 + 1 / 6)


@pytest.mark.parametrize("most", [0.63, 2.0820991375e-05, 1.38212091, 7.1])
def test_an_action_that_is_always_shown_has_an_interval_whatever_rounding_does(most: float) -> None:
    """Weights add up to a little more than all rounds can show."""
    rounds = np.arange(1.0, 400.0)
    shown = np.nextafter(rounds * most, np.inf)
    low, high = share_interval(shown, rounds, np.full(rounds.size, 0.05), np.full(rounds.size, most))
    assert high == pytest.approx(most)
    assert (low >= 0).all()
    assert (low < most).all()
