"""Scenarios: how many arms there are, how long rewards take, and where the laws put rewards."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fedfairx.privacy import Bounds, Centring
from fedfairx.simulation import Scenario, simulate

DEFAULT = Scenario()
PRIVATE = {"algorithm": "priv-fairx-linucb", "epsilon": 10.0, "delta": 0.1}


@pytest.mark.parametrize("presence", [0.1, 0.8])
def test_presence_is_the_chance_that_an_arm_is_there(presence: float) -> None:
    counts = Scenario(arms=21, presence=presence, horizon=10_000).arms_per_round()
    assert 1 <= counts.min() <= counts.max() <= 21
    # The first is always there; the numbers are fixed, and the mean of 10 000 has an sd below 0.02.
    assert counts.mean() == pytest.approx(1 + 20 * presence, abs=0.1)
    assert (Scenario(arms=21, horizon=10).arms_per_round() == 21).all()


@pytest.mark.parametrize("delay", [1.0, 10.0, 300.0])
def test_hardly_a_reward_would_take_longer_than_the_longest_delay(delay: float) -> None:
    scenario = Scenario(delay=delay)
    longer = (delay / (1.0 + delay)) ** scenario.longest_delay  # of a geometric law
    assert 1e-7 < longer < 3e-4
    assert Scenario(delay=delay, horizon=5).longest_delay == 5


def test_rewards_come_after_the_mean_delay() -> None:
    scenario = Scenario(delay=20.0)
    stay = 20.0 / 21.0
    cut = sum(stay**k for k in range(1, scenario.longest_delay + 1))  # E min(delay, longest)
    assert cut == pytest.approx(20.0, rel=1e-4)


def test_newcomers_join_one_by_one_at_even_intervals() -> None:
    world = Scenario(arms=5, newcomers=3, dimension=5, contexts="one-hot", horizon=40)
    assert world.arms_per_round().tolist() == [2] * 10 + [3] * 10 + [4] * 10 + [5] * 10


def test_a_fixed_delay_is_the_longest() -> None:
    assert Scenario(delay=300.0, delays="fixed").longest_delay == 300
    assert Scenario(delay=300.0, delays="fixed", horizon=5).longest_delay == 5


# --- where rewards lie ------------------------------------------------------------------------------------


def test_the_papers_world_has_rewards_in_the_unit_interval() -> None:
    """On which every figure of the report rests."""
    assert DEFAULT.bounds == Bounds()
    assert DEFAULT.centring == Centring.unit_box(5)
    assert DEFAULT.centring.inner_bounds().sensitivity == pytest.approx(0.5625)
    for changed in (replace(DEFAULT, agents=40, horizon=120), replace(DEFAULT, arms=5)):
        assert changed.bounds == Bounds()


WORLDS = [
    {},
    {"contexts": "unit-norm"},
    {"contexts": "raw"},
    {"noise_sd": 0.5},
    {"theta": "sphere"},
    {"theta": (2.0, -1.0, 0.0, 0.0, 0.0)},
    {"dimension": 1},
    {"arms": 100},
    {"noise": "bounded", "noise_sd": 0.3},
    {"noise": "heteroscedastic", "noise_sd": 0.5},
]


@pytest.mark.parametrize("change", WORLDS, ids=str)
def test_all_means_and_nearly_all_rewards_lie_inside(change: dict) -> None:
    scenario = replace(DEFAULT, **change)
    low, high = scenario.reward_range
    rng = np.random.default_rng(1)
    K, d, seeds, rounds = scenario.arms, scenario.dimension, 200, 20
    x = rng.random((seeds, rounds, K, d))
    if scenario.contexts == "unit-norm":
        x /= np.linalg.norm(x, axis=3, keepdims=True)
    x *= 1.0 / math.sqrt(d) if scenario.contexts == "unit-ball" else 1.0
    means = np.einsum("srkd,sd->srk", x, [scenario.parameter(seed) for seed in range(seeds)])
    assert low <= means.min()
    assert means.max() <= high
    z = rng.normal(size=means.shape)
    if scenario.noise == "bounded":
        z = math.sqrt(3.0) * rng.uniform(-1.0, 1.0, means.shape)
    if scenario.noise == "heteroscedastic":
        z *= 0.5 + np.abs(means)
    rewards = means + scenario.noise_sd * z
    best = np.take_along_axis(rewards, means.argmax(axis=2)[..., None], axis=2)
    # One in a hundred by the law; 200 draws of θ* tell it to within about as much again.
    assert (best > high).mean() < 0.02
    assert (rewards < low).mean() < 0.02
    # What the simulator clips to: not a multiple of what is needed either.
    assert scenario.bounds.reward == max(-low, high)
    assert high - low <= 3.0 * (np.quantile(best, 0.999) - np.quantile(rewards, 0.001))


def test_the_range_does_not_know_the_parameter() -> None:
    ours, theirs = (replace(DEFAULT, theta=theta) for theta in ((0.6, 0.8, 0, 0, 0), (0, 0, 0, 0, 1.0)))
    assert ours.reward_range == theirs.reward_range == DEFAULT.reward_range


def test_raw_contexts_are_the_unit_balls_in_other_units() -> None:
    # But for the noise, which here is small in both.
    raw, ball = (replace(DEFAULT, contexts=kind, noise_sd=0.01).centring for kind in ("raw", "unit-ball"))
    assert raw is not None
    assert ball is not None
    for name in ("context_radius", "reward", "reward_radius", "constant"):
        assert getattr(raw, name) == pytest.approx(math.sqrt(5.0) * getattr(ball, name))
    assert raw.context == pytest.approx(math.sqrt(5.0) * np.array(ball.context))


@pytest.mark.parametrize(
    ("change", "gain"),
    [({"contexts": "unit-norm", "horizon": 20_000}, 0.7), ({"contexts": "raw", "horizon": 5_000}, 0.3)],
)
@pytest.mark.long
def test_a_private_run_uses_them(change: dict, gain: float) -> None:
    """Of what is clipped to 1 it has 0.57 and 0.14, and would have 1 if it did not use them."""
    scenario = Scenario(agents=10, **change)
    ours = simulate(scenario, seeds=2, **PRIVATE)
    assert ours.options["bounds"] == repr(scenario.bounds)
    assert ours.options["centring"] == repr(scenario.centring)
    one = replace(scenario.centring, reward=0.5, reward_radius=0.5) if scenario.centring else None
    clipped = simulate(
        scenario, seeds=2, **PRIVATE, bounds=replace(scenario.bounds, reward=1.0), centring=one
    )
    assert ours.fairness_regret[:, -1].mean() < gain * clipped.fairness_regret[:, -1].mean()
