"""Rewards of any size: scaled with the merit they change nothing, and a range says what to expect."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedfairx as ffx
from fedfairx.core.merit import Affine, Exponential, Merit


def play(
    agent: ffx.Agent, theta: np.ndarray, *, noise: float, rounds: int, seed: int = 0
) -> list[np.ndarray]:
    """Policies of an agent whose rewards are x·θ and noise."""
    rng, policies = np.random.default_rng(seed), []
    for _ in range(rounds):
        contexts = rng.uniform(-1, 1, (4, theta.size)) / math.sqrt(theta.size)
        decision = agent.decide(contexts)
        policies.append(np.array(decision.policy))
        agent.observe(decision, reward=float(contexts[decision.action] @ theta + noise * rng.normal()))
    return policies


def regret(agent: ffx.Agent, theta: np.ndarray, merit: Exponential, **how: float) -> float:
    """Σ‖π - π*‖₁ of `play`."""
    rng, total = np.random.default_rng(0), 0.0
    for policy in play(agent, theta, **how):  # type: ignore[arg-type]
        contexts = rng.uniform(-1, 1, (4, theta.size)) / math.sqrt(theta.size)
        rng.normal()
        best = np.exp(merit.steepness * (contexts @ theta))
        total += float(np.abs(policy - best / best.sum()).sum())
    return total


@pytest.mark.filterwarnings("ignore:differences of rewards are more than")
@settings(max_examples=20)
@given(
    scale=st.floats(-6, 6).map(lambda power: 10.0**power),
    size=st.floats(0.1, 5),
    noise=st.floats(0.01, 2),
    seed=st.integers(0, 1000),
    kind=st.sampled_from(["exponential", "affine", "range"]),
)
def test_scaling_rewards_and_merit_together_changes_no_decision(
    scale: float, size: float, noise: float, seed: int, kind: str
) -> None:
    theta = size * np.random.default_rng(seed).normal(size=3)

    def agent(unit: float) -> ffx.Agent:
        if kind == "range":
            return ffx.Agent(3, seed=seed, reward_range=(-20 * unit, 20 * unit))
        merit: Merit = Exponential(10 / unit)
        if kind == "affine":
            merit = Affine(1.5, 1 / unit, (-unit, unit))
        return ffx.Agent(3, seed=seed, merit=merit)

    small = play(agent(1.0), theta, noise=noise, rounds=40, seed=seed)
    large = play(agent(scale), scale * theta, noise=scale * noise, rounds=40, seed=seed)
    np.testing.assert_allclose(large, small, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("size", [0.05, 1.0, 20.0])
def test_a_parameter_far_from_the_priors_size_is_learnt(size: float) -> None:
    """Regret where c‖θ‖ = 10 is the same at every size, and a parameter of any size is found."""
    theta, merit = size * np.array([0.6, 0.0, -0.8]), Exponential(10 / size)
    agent = ffx.Agent(3, merit=merit, seed=1)
    found = regret(agent, theta, merit, noise=0.1 * size, rounds=500)
    same = regret(ffx.Agent(3, seed=1), theta / size, Exponential(10), noise=0.1, rounds=500)
    assert found == pytest.approx(same, rel=1e-6)
    assert np.linalg.norm(agent.estimate[:3] - theta) < 0.05 * size


@pytest.mark.filterwarnings("ignore:differences of rewards are more than")
def test_rewards_far_larger_than_expected_are_learnt_all_the_same() -> None:
    """0 to 100 with the default merit: σ and θ are found, where σ was 30 and ‖θ̂‖ 36 of 100."""
    theta = np.array([60.0, 0.0, 80.0])
    agent = ffx.Agent(3, seed=1)
    rng = np.random.default_rng(0)
    contexts = np.abs(rng.normal(size=(2000, 3)))
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    agent.learn(contexts, contexts @ theta + rng.normal(size=2000))
    assert np.linalg.norm(agent.estimate[:3] - theta) < 1.0
    assert agent.noise_sd == pytest.approx(1.0, rel=0.1)


def test_a_range_sets_merit_and_prior() -> None:
    agent = ffx.Agent(3, reward_range=(1, 5))
    assert agent.merit == Exponential(2.5)
    assert (agent.options.prior.sd, agent.options.prior.noise_sd) == (1.2, 2.0)
    named = ffx.Agent(actions=["ann", "ben"], reward_range=(1, 5))
    assert (named.options.prior.mean, named.options.prior.sd) == (3.0, 0.5)
    given = ffx.Agent(3, reward_range=(1, 5), merit=Exponential(7.0), prior=ffx.Prior(sd=3.0))
    assert (given.merit, given.options.prior.sd) == (Exponential(7.0), 3.0)
    assert ffx.Agent(3).merit == Exponential(10.0)


def test_ratings_are_no_winner_takes_all() -> None:
    """The default was per unit of reward: a mean of 4.5 got e⁵ times the share of a mean of 4."""
    agent = ffx.Agent(actions=["good", "better"], reward_range=(1, 5), seed=0)
    agent.learn(["good", "better"] * 5000, [4.0, 4.5] * 5000)
    low, high = agent.policy()
    assert high / low == pytest.approx(math.exp(2.5 * 0.5), rel=0.05)


def test_a_range_is_kept(tmp_path) -> None:
    agent = ffx.Agent(3, reward_range=(1, 5))
    agent.save(tmp_path / "agent")
    assert ffx.Agent.load(tmp_path / "agent").options.reward_range == (1.0, 5.0)
    with ffx.Agent.open(tmp_path / "agent.sqlite", dimension=3, reward_range=(1, 5)) as first:
        assert first.merit == Exponential(2.5)
    with ffx.Agent.open(tmp_path / "agent.sqlite") as again:
        assert (again.options.reward_range, again.merit) == ((1.0, 5.0), Exponential(2.5))
