"""Parts of log merit: they add up, give the shares that an agent had, and change them as they say."""

from __future__ import annotations

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.core.merit_kernels import most_variance
from fedfairx.core.rules import RULES
from fedfairx.core.slates import exposures_of
from fedfairx.fairness.contributions import Contributions, Spread, changes, contributions, less_others

CONTEXTS = np.random.default_rng(3).random((4, 3)) / 2
EACH = np.arange(3)  # every column is a feature
EVERYTHING = {"rating": (1.0, 5.0), "distance": (0.0, 10.0), "vehicle": ["bike", "car", "van"], "rain": bool}


def taught(**options) -> ffx.Agent:
    agent, rng = ffx.Agent(3, intercept=False, seed=1, **options), np.random.default_rng(2)
    for _ in range(60):
        made = agent.decide(CONTEXTS, slots=1)
        agent.observe(made, reward=float(rng.random() < CONTEXTS[made.action].sum()))
    return agent


def explained(agent: ffx.Agent, made: ffx.Decision, **more) -> Contributions:
    parts = contributions(
        CONTEXTS * np.asarray(made.theta),
        made.exposure,
        agent.merit,
        spread=Spread(CONTEXTS, agent.covariance, EACH),
        expecting=agent.rule == "expected-merit",
        minimum_share=agent.options.minimum_share,
        weights=tuple(made.weights),
        **more,
    )
    assert parts.features.mean(axis=0) == pytest.approx(np.zeros(3), abs=1e-12)
    return parts


@pytest.mark.parametrize("minimum_share", [0.0, 0.05])
@pytest.mark.parametrize("rule", RULES)
def test_they_add_up_to_the_log_merit_behind_the_shares(rule: str, minimum_share: float) -> None:
    agent = taught(rule=rule, minimum_share=minimum_share)
    made = agent.decide(CONTEXTS)
    parts = explained(agent, made)
    assert parts.adding
    total = parts.features.sum(axis=1) + (0.0 if parts.uncertainty is None else parts.uncertainty)
    assert total == pytest.approx(parts.log_merit, abs=1e-9)
    merits = np.exp(0.75 * total)  # less the mean of all four, and not of three others
    assert minimum_share + (1 - 4 * minimum_share) * merits / merits.sum() == pytest.approx(
        made.policy, abs=1e-9
    )
    assert (parts.by_feature is not None) == (rule == "expected-merit")
    if parts.by_feature is not None:
        assert parts.uncertainty == pytest.approx(parts.by_feature.sum(axis=1))
        assert np.abs(parts.uncertainty).max() > 1e-3


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


def bonus(agent: ffx.Agent, context: np.ndarray) -> float:
    """What uncertainty adds to log merit."""
    variance, most = context @ agent.covariance @ context, most_variance(agent.merit)
    return 0.5 * agent.merit.steepness**2 * variance * most / (variance + most)


@pytest.mark.parametrize("rewards", [0, 60])
def test_uncertainty_is_split_along_lines_from_the_others(rewards: int) -> None:
    """The oracle walks from each of the others in a thousand steps, and changes one column at a time."""
    agent = taught() if rewards else ffx.Agent(3, intercept=False)
    parts = explained(agent, agent.decide(CONTEXTS))
    steps = 1000
    for action in range(4):
        split = np.zeros(3)
        for other in set(range(4)) - {action}:
            step = (CONTEXTS[action] - CONTEXTS[other]) / steps
            for k in range(steps):
                middle = CONTEXTS[other] + (k + 0.5) * step
                for column in range(3):
                    half = 0.5 * step * (np.arange(3) == column)
                    split[column] += bonus(agent, middle + half) - bonus(agent, middle - half)
        assert parts.by_feature is not None
        assert parts.by_feature[action] == pytest.approx(split / 3, abs=1e-6)
        assert np.abs(split).max() > 1e-3


def test_what_all_actions_share_has_no_part() -> None:
    contexts = np.column_stack([CONTEXTS, np.full(4, 0.5)])
    agent = ffx.Agent(4, intercept=False)
    policy = agent.policy(contexts)
    spread = Spread(contexts, agent.covariance, np.array([0, 0, 1, 2]))
    parts = contributions(np.zeros((4, 3)), policy, agent.merit, spread=spread)
    assert parts.by_feature is not None
    assert parts.by_feature[:, 2] == pytest.approx(np.zeros(4), abs=1e-12)
    assert np.abs(parts.by_feature[:, :2]).max() > 1e-3


@pytest.mark.parametrize("slots", [1, [1.0, 0.4]])
@pytest.mark.parametrize("minimum_share", [0.0, 0.05])
def test_a_change_is_that_of_a_feature_at_the_mean_of_the_others(minimum_share: float, slots: object) -> None:
    """The oracle asks an agent for the shares of rows in which one number is the others' mean."""
    schema = ffx.features.Schema(EVERYTHING, shared=["rain"], products=["rating:rain"])
    agent = ffx.Agent(
        schema=schema, rule="greedy", minimum_share=minimum_share, merit=ffx.merit.Exponential(2.0), seed=1
    )
    rng = np.random.default_rng(5)
    rows = [
        {"rating": float(rng.uniform(1, 5)), "distance": float(rng.uniform(0, 10)), "vehicle": vehicle}
        for vehicle in ("bike", "car", "van", "bike")
    ]
    rain = {"rain": True}
    for _ in range(80):
        made = agent.decide(rows, context=rain)
        row = rows[made.action]
        agent.observe(made, reward=float(rng.random() < 0.2 * row["rating"] - 0.03 * row["distance"]))
    made = agent.decide(rows, context=rain, slots=slots)
    contexts, names = schema.encode(rows, rain).contexts, ["rating", "distance"]
    owners = np.array(
        [names.index(each[0]) if each and each[0] in names else -1 for each in schema.column_features]
    )
    columns = contexts * np.asarray(made.theta)
    means = np.array([columns[:, owners == number].sum(axis=1) for number in (0, 1)]).T
    logs = less_others(agent.merit.steepness * columns.sum(axis=1))
    parts = less_others(agent.merit.steepness * means)
    for action in range(4):
        found = changes(logs, action, parts[action], minimum_share=minimum_share, weights=tuple(made.weights))
        for name, change in zip(names, found, strict=True):
            others = [row[name] for place, row in enumerate(rows) if place != action]
            changed = [
                {**row, name: np.mean(others)} if place == action else row for place, row in enumerate(rows)
            ]
            without = agent.decide(changed, context=rain, slots=slots).exposure[action]
            assert change == pytest.approx(made.exposure[action] / without - 1, abs=1e-9)
    assert np.abs(parts).max() > 0.05


def test_pairs_of_many_actions_are_not_compared() -> None:
    agent, contexts = ffx.Agent(2, intercept=False), np.random.default_rng(1).random((2_001, 2)) / 2
    policy, owners = agent.policy(contexts), np.array([0, 1])
    parts = contributions(
        np.zeros((2_001, 2)), policy, agent.merit, spread=Spread(contexts, agent.covariance, owners)
    )
    assert parts.by_feature is None
    assert parts.uncertainty == pytest.approx(parts.log_merit)
    one = Spread(contexts, agent.covariance, 0 * owners)
    assert contributions(np.zeros((2_001, 1)), policy, agent.merit, spread=one).by_feature is not None


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
    parts = explained(agent, made)
    assert not parts.adding
    means = CONTEXTS @ np.asarray(made.theta)
    others = np.array([np.delete(means, action).mean() for action in range(4)])
    assert parts.features.sum(axis=1) == pytest.approx(means - others)


def test_a_minimum_share_for_all_hides_merit() -> None:
    parts = contributions(CONTEXTS, np.full(4, 0.25), ffx.merit.Exponential(), minimum_share=0.25)
    assert np.isnan(parts.log_merit).all()


@pytest.mark.parametrize("arms", [1, 3])
def test_actions_that_do_not_differ_have_no_parts(arms: int) -> None:
    agent, contexts = ffx.Agent(3, intercept=False), np.repeat(CONTEXTS[:1], arms, axis=0)
    for count in (0, 1, 2):
        spread = Spread(contexts, agent.covariance, np.minimum(EACH, count - 1))
        parts = contributions(np.zeros((arms, count)), np.full(arms, 1 / arms), agent.merit, spread=spread)
        assert parts.by_feature is not None
        assert parts.by_feature == pytest.approx(np.zeros((arms, count)), abs=1e-12)


def test_a_single_action_has_no_parts() -> None:
    parts = contributions(CONTEXTS[:1], np.ones(1), ffx.merit.Exponential())
    assert np.abs(parts.features).max() == 0.0
    assert changes(parts.log_merit, 0, np.array([1.0])).tolist() == [0.0]
