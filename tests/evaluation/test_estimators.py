"""IPS, DR and SNIPS against closed forms, by exact sums over all that a log could have shown."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fedfairx import Logged
from fedfairx.core.slates import exposures_of
from fedfairx.evaluation.confidence_sequence import lower_limit
from fedfairx.evaluation.estimators import CUT, RewardScale, self_normalised, series_of
from fedfairx.fairness.decision_log import Block, gather

UNIT = RewardScale(0.0, 1.0, 1.0)
POLICY = np.array([0.7, 0.25, 0.05])
OTHER = np.array([0.1, 0.2, 0.7])
MEANS = np.array([0.9, 0.2, 0.6])


def block_of(log: list[Logged]) -> Block:
    (block,) = gather(log).blocks
    return block


def one_slot() -> tuple[Block, np.ndarray]:
    """Every action and reward that one decision can have, with the probability of each."""
    log, chances = [], []
    for action, reward in itertools.product(range(3), (0.0, 1.0)):
        log.append(Logged(POLICY, action, reward=reward))
        chances.append(POLICY[action] * (MEANS[action] if reward else 1.0 - MEANS[action]))
    return block_of(log), np.array(chances)


@pytest.mark.parametrize("guess", [None, 0.0, 0.4, 1.0])
@pytest.mark.parametrize("gain", [False, True])
def test_one_slot_is_unbiased_on_both_sides(guess: float | None, gain: bool) -> None:
    block, chances = one_slot()
    shares = [np.tile(OTHER, (len(chances), 1))]
    guesses = None if guess is None else [np.tile([guess, 0.5, 1.0 - guess], (len(chances), 1))]
    series = series_of([block], shares, UNIT, guesses=guesses, gain=gain)
    value = float((OTHER - (POLICY if gain else 0.0)) @ MEANS)
    assert chances @ series.value == pytest.approx(value, abs=1e-12)
    assert chances @ series.rest == pytest.approx((0.0 if gain else 1.0) - value, abs=1e-12)
    assert (series.value >= series.least_value - 1e-12).all()
    assert (series.rest >= series.least_rest - 1e-12).all()
    assert series.floor[0] - 1e-12 <= value <= series.top[0] + 1e-12


@pytest.mark.parametrize("slots", [1, 2])
def test_what_remains_is_weighed_as_what_was_had_where_slots_weigh_the_same(slots: int) -> None:
    """So a decision that missed nothing says that nothing remains, whatever its weight."""
    exposure, other = np.array([0.5, 0.3, 0.2]) * slots, np.array([0.2, 0.3, 0.5]) * slots
    shown, rewards = [2, 0][:slots], [0.9, 0.4][:slots]
    block = block_of([Logged(exposure, shown, reward=rewards, slots=slots)])
    series = series_of([block], [other[None]], RewardScale(0.0, 1.0, 1.0))
    weights = (other / exposure)[shown]
    assert series.value == pytest.approx(weights @ rewards)
    assert series.rest == pytest.approx(weights @ (1.0 - np.array(rewards)))
    assert series.least_rest == 0.0


@pytest.mark.parametrize("gain", [False, True])
def test_each_end_of_an_interval_has_half_of_the_error(gain: bool) -> None:
    rng = np.random.default_rng(0)
    taken = rng.choice(3, 2_000, p=POLICY)
    block = block_of([Logged(POLICY, int(each), reward=float(rng.random() < MEANS[each])) for each in taken])
    series = series_of([block], [np.tile(OTHER, (2_000, 1))], UNIT, gain=gain)
    found, ends = series.estimate(0.1), {"floor": series.floor, "top": series.top, "error": 0.05}
    low = lower_limit(series.value, least=series.least_value, **ends)
    assert series.floor.mean() < low < found.value
    assert found.low == low
    assert found.high == series.whole - lower_limit(series.rest, least=series.least_rest, **ends)


def test_good_guesses_remove_variance() -> None:
    block, chances = one_slot()
    shares = [np.tile(OTHER, (6, 1))]
    exact = [np.tile(MEANS, (6, 1))]
    variances = []
    for guesses in (None, exact):
        value = series_of([block], shares, UNIT, guesses=guesses).value
        variances.append(chances @ value**2 - (chances @ value) ** 2)
    assert variances[1] < 0.8 * variances[0]
    assert CUT / (OTHER / POLICY).max() < MEANS[2]  # so one guess was cut, which adds no bias


def test_a_guess_is_cut_where_the_log_seldom_shows_an_action() -> None:
    """The second action weighs 9, so its guess counts for 2/9: 0.1 + 0.9 · 2/9 is sure, less 9 · 2/9."""
    block = block_of([Logged(np.array([0.9, 0.1]), 1, reward=0.0)])
    series = series_of([block], [np.array([[0.1, 0.9]])], UNIT, guesses=[np.ones((1, 2))])
    assert series.value == pytest.approx(0.1 + 0.2 - CUT)
    assert series.least_value == pytest.approx(0.1 + 0.2 - CUT)


def test_weight_on_actions_that_the_log_never_shows_widens_the_upper_side_alone() -> None:
    policy = np.array([0.5, 0.5, 0.0])
    log = [Logged(policy, action, reward=reward) for action in (0, 1) for reward in (0.0, 1.0)]
    chances = np.array([0.5 * (1 - MEANS[0]), 0.5 * MEANS[0], 0.5 * (1 - MEANS[1]), 0.5 * MEANS[1]])
    series = series_of([block_of(log)], [np.tile(OTHER, (4, 1))], UNIT)
    seen = float(OTHER[:2] @ MEANS[:2])
    assert chances @ series.value == pytest.approx(seen)
    assert 1.0 - chances @ series.rest == pytest.approx(seen + OTHER[2])


def slate_log(weights: np.ndarray, exposure: np.ndarray) -> tuple[list[Logged], np.ndarray]:
    """Every order of three actions in two slots, with a law whose expected weights are `exposure`."""
    orders = list(itertools.permutations(range(3), 2))
    held = np.array([[weights[order.index(a)] if a in order else 0.0 for order in orders] for a in range(3)])
    law = _law(np.vstack([held, np.ones(len(orders))]), np.append(exposure, 1.0))
    log, chances = [], []
    for order, chance in zip(orders, law, strict=True):
        for rewards in itertools.product((0.0, 1.0), repeat=2):
            hits = [weights[slot] * MEANS[action] for slot, action in enumerate(order)]
            each = [hit if reward else 1.0 - hit for hit, reward in zip(hits, rewards, strict=True)]
            log.append(Logged(exposure, list(order), reward=list(rewards), slots=weights.tolist()))
            chances.append(chance * math.prod(each))
    return log, np.array(chances)


def _law(matrix: np.ndarray, goal: np.ndarray) -> np.ndarray:
    from scipy.optimize import linprog

    # Any law with these expected weights; the objective spreads it over many orders.
    size = matrix.shape[1]
    found = linprog(np.linspace(0, 1, size), A_eq=matrix, b_eq=goal, bounds=(0.0, 1.0))
    other = linprog(-np.linspace(0, 1, size), A_eq=matrix, b_eq=goal, bounds=(0.0, 1.0))
    assert found.success
    assert other.success
    return np.asarray(0.5 * (found.x + other.x))


@pytest.mark.parametrize("weights", [[1.0, 1.0], [1.0, 0.5]])
@pytest.mark.parametrize("guess", [None, 0.8])
@pytest.mark.parametrize("gain", [False, True])
def test_slots_are_unbiased(weights: list[float], guess: float | None, gain: bool) -> None:
    v = np.array(weights)
    logged, other = (
        exposures_of(np.log(np.array([merits])), v[None])[0] for merits in ([3.0, 2.0, 1.0], [1.0, 2.0, 3.5])
    )
    log, chances = slate_log(v, logged)
    block = block_of(log)
    guesses = None if guess is None else [np.full((len(log), 3), guess)]
    scale = RewardScale(0.0, 1.0, float(v.sum()))
    series = series_of([block], [np.tile(other, (len(log), 1))], scale, guesses=guesses, gain=gain)
    value = float((other - (logged if gain else 0.0)) @ MEANS) / v.sum()
    assert chances @ series.value == pytest.approx(value, abs=1e-9)
    assert series.whole - chances @ series.rest == pytest.approx(value, abs=1e-9)
    assert (series.value >= series.least_value - 1e-12).all()
    assert (series.rest >= series.least_rest - 1e-12).all()
    assert series.floor[0] - 1e-12 <= value <= series.top[0] + 1e-12


@pytest.mark.parametrize("guess", [None, 1.0])
def test_a_gain_is_bounded_where_many_slots_weigh_little(guess: float | None) -> None:
    """Rewards of slots are in proportion to weights in the mean only: each may be as high as any."""
    weights, shown = [1.0, 0.1, 0.1, 0.1, 0.1], np.repeat([0.24, 0.04], 5)
    block = block_of([Logged(shown, [0, 1, 2, 3, 4], reward=[1.0] * 5, slots=weights)])
    other = [np.repeat([0.0, 0.28], 5)[None]]
    guesses = None if guess is None else [np.repeat([guess, 0.0], 5)[None]]
    series = series_of([block], other, RewardScale(0.0, 1.0, 1.4), guesses=guesses, gain=True)
    assert series.value[0] < (-3.0 if guess else -1.0)
    assert series.value[0] >= series.least_value[0]
    assert series.rest[0] >= series.least_rest[0]


def test_the_product_over_all_slots_is_biased() -> None:
    """Multiplying the ratios of all slots, as if they were drawn apart, does not estimate the value."""
    v = np.array([1.0, 1.0])
    logged, other = (
        exposures_of(np.log(np.array([merits])), v[None])[0] for merits in ([3.0, 2.0, 1.0], [1.0, 2.0, 3.5])
    )
    log, chances = slate_log(v, logged)
    ratios = other / logged
    product = [math.prod(ratios[each.action]) * sum(each.reward) for each in log]  # type: ignore[arg-type,index]
    value = float(other @ MEANS)
    assert abs(chances @ np.array(product) - value) > 0.1 * value


def test_snips_is_a_weighted_mean_with_its_asymptotic_interval() -> None:
    rng = np.random.default_rng(0)
    weights = rng.choice([0.5, 3.0], 4000)
    rewards = (rng.random(4000) < 0.3).astype(float)
    found = self_normalised(weights * rewards, weights, 0.05)
    assert found.value == pytest.approx(np.average(rewards, weights=weights))
    draws = rng.integers(0, 4000, (400, 4000))
    spread = np.std([np.average(rewards[one], weights=weights[one]) for one in draws])
    assert found.high - found.low == pytest.approx(2 * 1.96 * spread, rel=0.15)  # the bootstrap
    assert math.isnan(self_normalised(np.zeros(3), np.zeros(3), 0.05).value)
