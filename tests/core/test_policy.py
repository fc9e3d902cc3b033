"""The fair policy: what it is, that it is one, and that actions follow it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
import reference as ref
from fedfairx.core import merit as kinds
from fedfairx.core import policy as exposure
from fedfairx.lanes.decorators import COMPILING
from fedfairx.lanes.rows import floats
from instances import expose, merits

KINDS = ("exponential", "affine", "power", "logistic", "custom")


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32 - 1), arms=st.integers(1, 200))
def test_exposure_is_in_proportion_to_merit(kind: str, seed: int, arms: int) -> None:
    rng = np.random.default_rng(seed)
    ours, theirs = merits(rng)[kind]
    means = rng.normal(size=arms)
    policy, value = expose(ours, means)
    expected = ref.policy_of_means(means, theirs)
    assert np.abs(policy - expected).max() <= 1e-13
    assert abs(policy.sum() - 1.0) <= 1e-12
    assert (policy > 0.0).all()
    assert value == pytest.approx(float(expected @ means), rel=1e-12, abs=1e-13)


@given(seed=st.integers(0, 2**32 - 1), steepness=st.sampled_from([100.0, 1000.0, 1e6]))
def test_a_steep_merit_neither_overflows_nor_loses_an_arm(seed: int, steepness: float) -> None:
    means = np.random.default_rng(seed).normal(size=50) * 3
    policy, value = expose(kinds.Exponential(steepness), means)
    assert np.isfinite(policy).all()
    assert np.isfinite(value)
    assert abs(policy.sum() - 1.0) <= 1e-12
    assert (policy > 0.0).all()


def test_an_agent_of_steepness_a_thousand_decides() -> None:
    rng = np.random.default_rng(0)
    agent = ffx.Agent(4, merit=ffx.merit.Exponential(1000.0), seed=0)
    for _ in range(200):
        contexts = rng.normal(size=(int(rng.integers(1, 30)), 4))
        decision = agent.decide(contexts)
        assert np.isfinite(decision.policy).all()
        assert np.isfinite(decision.theta).all()
        assert (decision.policy > 0.0).all()
        assert abs(decision.policy.sum() - 1.0) <= 1e-12
        agent.observe(decision, reward=float(rng.normal()))


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=8), st.floats(0.0, 1.0, exclude_max=True))
def test_draw_is_the_inverse_distribution_function(weights: list[float], uniform: float) -> None:
    policy = np.array(weights) / sum(weights)
    assert exposure.draw(floats(policy), uniform) == ref.draw(policy, uniform)


def test_draw_when_rounding_leaves_the_sum_below_one() -> None:
    assert exposure.draw(floats(np.array([0.3, 0.3])), 0.9999) == 1
    assert exposure.draw(floats(np.array([0.5, 0.5])), 0.5) == 1
    assert exposure.draw(floats(np.array([0.5, 0.5])), 0.0) == 0


def test_drawn_actions_follow_the_policy() -> None:
    # So many draws from one policy of 6 arms: chi-square with 5 degrees of freedom is above 25.74 with
    # probability 1e-4.
    draws = 20_000 if COMPILING else 1_000
    agent = ffx.Agent(3, seed=12)
    contexts = np.random.default_rng(1).random((6, 3)) / np.sqrt(3)
    decisions = [agent.decide(contexts) for _ in range(draws)]
    policy = decisions[0].policy
    counts = np.bincount([decision.action for decision in decisions], minlength=6)
    assert (decisions[-1].policy == policy).all()
    assert float(((counts - draws * policy) ** 2 / (draws * policy)).sum()) < 25.74
