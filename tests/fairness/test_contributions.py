"""Contributions to log merit: they add up, and give the shares that an agent really had."""

from __future__ import annotations

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.core.rules import RULES
from fedfairx.core.slates import exposures_of
from fedfairx.fairness.contributions import Contributions, contributions

CONTEXTS = np.random.default_rng(3).random((4, 3)) / 2


def taught(**options) -> ffx.Agent:
    agent, rng = ffx.Agent(3, seed=1, **options), np.random.default_rng(2)
    for _ in range(60):
        made = agent.decide(CONTEXTS, slots=1)
        agent.observe(made, reward=float(rng.random() < CONTEXTS[made.action].sum()))
    return agent


def explained(agent: ffx.Agent, made: ffx.Decision, **more) -> Contributions:
    theta = np.asarray(made.theta)
    found = contributions(
        CONTEXTS * theta,
        made.exposure,
        agent.merit,
        variances=CONTEXTS * (CONTEXTS @ agent.covariance),
        expecting=agent.rule == "expected-merit",
        minimum_share=agent.options.minimum_share,
        weights=tuple(made.weights),
        **more,
    )
    assert found.features.mean(axis=0) == pytest.approx(np.zeros(3), abs=1e-12)
    return found


@pytest.mark.parametrize("minimum_share", [0.0, 0.05])
@pytest.mark.parametrize("rule", RULES)
def test_they_add_up_to_the_log_merit_behind_the_shares(rule: str, minimum_share: float) -> None:
    agent = taught(rule=rule, minimum_share=minimum_share)
    made = agent.decide(CONTEXTS)
    found = explained(agent, made)
    assert found.adding
    total = found.features.sum(axis=1) + (0.0 if found.uncertainty is None else found.uncertainty)
    assert total == pytest.approx(found.log_merit, abs=1e-9)
    shares = np.exp(total) / np.exp(total).sum()
    assert minimum_share + (1 - 4 * minimum_share) * shares == pytest.approx(made.policy, abs=1e-9)
    assert (found.by_feature is not None) == (rule == "expected-merit")
    if found.by_feature is not None:
        assert found.uncertainty == pytest.approx(found.by_feature.sum(axis=1))
        assert np.abs(found.uncertainty).max() > 1e-3


@pytest.mark.parametrize("minimum_share", [0.0, 0.05])
def test_once_the_model_has_moved_on_the_uncertainty_is_known_as_a_whole(minimum_share: float) -> None:
    agent = taught(minimum_share=minimum_share)
    made = agent.decide(CONTEXTS)
    before = explained(agent, made)
    agent.observe(made, reward=1.0)
    after = explained(agent, made)
    assert after.by_feature is None
    assert after.features == pytest.approx(before.features)
    assert after.uncertainty == pytest.approx(before.uncertainty, abs=1e-9)
    assert after.log_merit == pytest.approx(before.log_merit, abs=1e-9)


def test_slots_that_cap_nobody_tell_and_those_that_do_hide_it() -> None:
    agent = taught(merit=ffx.merit.Exponential(1.0))
    made = agent.decide(CONTEXTS, slots=[1.0, 0.9])
    before = explained(agent, made)
    assert before.by_feature is not None
    agent.observe(made, rewards=[0.0, 1.0])
    after = explained(agent, made)
    assert after.by_feature is None
    assert after.log_merit == pytest.approx(before.log_merit, abs=1e-9)
    logs, weights = np.array([4.0, 0.0, 0.1, 0.2]), (1.0, 0.9)
    capped = exposures_of(logs[None], np.array([weights]))[0]
    hidden = contributions(logs[:, None], capped, ffx.merit.Exponential(1.0), weights=weights)
    assert hidden.uncertainty is not None
    assert np.isnan(hidden.log_merit).all()
    assert np.isnan(hidden.uncertainty).all()
    assert np.isfinite(hidden.features).all()


def test_another_merit_adds_up_to_the_reward_alone() -> None:
    agent = taught(merit=ffx.merit.Power())
    made = agent.decide(CONTEXTS)
    found = explained(agent, made)
    assert not found.adding
    means = CONTEXTS @ np.asarray(made.theta)
    assert found.features.sum(axis=1) == pytest.approx(means - means.mean())
    logs = np.log(made.policy)
    assert found.log_merit == pytest.approx(logs - logs.mean())


def test_a_minimum_share_for_all_hides_merit() -> None:
    found = contributions(CONTEXTS, np.full(4, 0.25), ffx.merit.Exponential(), minimum_share=0.25)
    assert np.isnan(found.log_merit).all()
