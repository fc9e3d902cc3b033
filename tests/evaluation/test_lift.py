"""The lift of live decisions over controls: its martingales by enumeration, its interval by simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fedfairx.errors import InvalidInput
from fedfairx.evaluation.lift import Lift, LiftSoFar


def lift_of(rewards: np.ndarray, live: np.ndarray, shares: np.ndarray, **more: object) -> Lift:
    so_far = LiftSoFar(**more)  # type: ignore[arg-type]
    so_far.add(rewards, live, shares)
    return so_far.answer()


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("chances", [(0.2, 0.7), (0.9, 0.9), (1.0, 0.0)])
def test_both_martingales_have_mean_at_most_one(share: float, chances: tuple[float, float]) -> None:
    """An exact sum over all coins and rewards of three decisions: no sampling error."""
    mean, sums = chances[1] - chances[0], [0.0, 0.0]  # chances of a reward under control and live
    for leaf in itertools.product(itertools.product((0, 1), repeat=2), repeat=3):
        chance = 1.0
        for live, reward in leaf:
            chance *= (1 - share) if live else share
            chance *= chances[live] if reward else 1 - chances[live]
        if chance == 0.0:
            continue
        live, rewards = (np.array(each) for each in zip(*leaf, strict=True))
        so_far = LiftSoFar()
        so_far.add(rewards.astype(float), live.astype(bool), np.full(3, share))
        sums[0] += chance * math.exp(so_far.more.log_e_value(mean))
        sums[1] += chance * math.exp(so_far.less.log_e_value(-mean))
    assert all(0.2 < total <= 1.0 + 1e-12 for total in sums)


def test_its_value_is_the_weighted_difference() -> None:
    """By hand: guesses of 1/2, 1, 1/2 and 2/3 of the range; the third decision is a control."""
    so_far = LiftSoFar((1.0, 5.0))
    rewards, live = np.array([5.0, 1.0, 5.0, 1.0]), np.array([True, True, False, True])
    for some in (slice(0, 1), slice(1, 4)):  # in parts
        so_far.add(rewards[some], live[some], np.full(4, 0.4)[some])
    found = so_far.answer()
    assert (found.live, found.control, found.decisions, found.outside) == (pytest.approx(7 / 3), 5.0, 4, 0)
    assert found.value == pytest.approx(4.0 * ((0.5 - 1.0 - 2 / 3) / 0.6 - 0.5 / 0.4) / 4)
    assert -4.0 <= found.low <= found.value <= found.high <= 4.0


def test_each_end_has_half_of_the_error() -> None:
    rewards, live, shares = made(np.random.default_rng(7), 2000, 0.1)
    so_far = LiftSoFar(error=0.1)
    so_far.add(rewards, live, shares)
    found = so_far.answer()
    assert so_far.more.log_e_value(found.low) == pytest.approx(math.log(2 / 0.1))
    assert so_far.less.log_e_value(-found.high) == pytest.approx(math.log(2 / 0.1))


def made(rng: np.random.Generator, count: int, lift: float, share: float = 0.1) -> tuple[np.ndarray, ...]:
    """Rewards 0 and 1 whose chance goes up and down, more by `lift` where a decision is live."""
    base = 0.4 + 0.2 * np.sin(np.arange(count) / 200 + rng.uniform(0, 6))
    live = rng.random(count) >= share
    return (rng.random(count) < base + lift * live).astype(float), live, np.full(count, share)


@pytest.mark.long
@pytest.mark.parametrize("lift", [0.0, 0.2])
def test_the_interval_holds_at_all_times(lift: float) -> None:
    """Of 150 logs, at most a share of `error` ever has an interval without the lift.

    With error 0.2, more than 46 misses have probability below 1e-3 if it holds; an interval for one time
    alone, looked at as often, misses in more than 46.
    """
    rng, misses, naive, error = np.random.default_rng(11), 0, 0, 0.2
    looks = np.unique(np.geomspace(30, 1500, 15).astype(int))
    for _ in range(150):
        rewards, live, shares = made(rng, 1500, lift)
        so_far, seen, missed, once = LiftSoFar(error=error), 0, False, False
        for look in looks:
            so_far.add(rewards[seen:look], live[seen:look], shares[seen:look])
            seen, limit = look, math.log(2 / error)
            missed |= so_far.more.log_e_value(lift) >= limit or so_far.less.log_e_value(-lift) >= limit
            one, other = rewards[:look][live[:look]], rewards[:look][~live[:look]]
            if other.size > 1:
                sd = math.sqrt(one.var() / one.size + other.var() / other.size)
                once |= abs(one.mean() - other.mean() - lift) > 1.2816 * sd
        found = so_far.answer()
        assert missed or found.low <= lift <= found.high
        misses, naive = misses + missed, naive + once
    assert misses <= 46 < naive


def test_a_lift_is_found_and_its_interval_is_not_wide() -> None:
    """The half-width is at most three times that of an interval for one time alone."""
    rewards, live, shares = made(np.random.default_rng(3), 20_000, 0.1)
    found = lift_of(rewards, live, shares)
    once = 1.96 * math.sqrt(rewards[live].var() / live.sum() + rewards[~live].var() / (~live).sum())
    assert once < found.value - found.low < 3.0 * once
    assert once < found.high - found.value < 3.0 * once
    assert found.low > 0
    assert str(found).startswith("Live decisions earn more than controls. The difference is 0.")
    worse = lift_of(rewards, ~live, 1.0 - shares)
    assert worse.high < 0
    assert str(worse).startswith("Live decisions earn less than controls. The difference is -0.")
    assert worse.value == pytest.approx(-found.value)


def test_rewards_outside_of_the_range_are_counted() -> None:
    live, shares = np.array([True, False, True]), np.full(3, 0.5)
    found = lift_of(np.array([7.0, 0.5, -1.0]), live, shares)
    assert found.outside == 2
    assert found.live == 0.5  # 1 and 0
    assert "2 rewards lay outside of the reward range." in str(found)
    assert str(found).startswith("It is not known yet")


def test_without_decisions_nothing_is_known() -> None:
    found = LiftSoFar().answer()
    assert (found.low, found.high, found.decisions) == (-math.inf, math.inf, 0)
    assert str(found) == "There are too few rewards to compare live decisions with controls."
    with pytest.raises(InvalidInput, match="reward_range must be"):
        LiftSoFar((1.0, 1.0))
