"""The intercept of agents of arrays: shares do not depend on how high rewards are."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
from fedfairx.features import Schema
from fedfairx.privacy import Bounds, Centring, NonPrivateSums, SimulatedNoise, private

THETA = np.array([0.3, -0.2, 0.1])


def life(
    agent: ffx.Agent, *, shift: float = 0.0, rounds: int = 60, ones: bool = False, noise: float = 0.1
) -> list[np.ndarray]:
    """The shares of an agent whose rewards are higher by `shift`."""
    rng, shares = np.random.default_rng(3), []
    for _ in range(rounds):
        contexts = rng.uniform(-1.0, 1.0, (4, 3)) / np.sqrt(3.0)
        given_contexts = np.column_stack([contexts, np.ones(4)]) if ones else contexts
        decision = agent.decide(given_contexts)
        reward = float(contexts[decision.action] @ THETA + noise * rng.standard_normal())
        agent.observe(decision, reward=shift + reward)
        shares.append(decision.policy.copy())
    return shares


@given(st.floats(-500.0, 500.0), st.sampled_from(["expected-merit", "greedy", "thompson"]))
def test_shares_do_not_change_when_rewards_are_shifted(shift: float, rule: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # and nothing is said of large rewards
        same = life(ffx.Agent(3, rule=rule, seed=0))
        moved = life(ffx.Agent(3, rule=rule, seed=0), shift=shift)
    np.testing.assert_allclose(moved, same, atol=1e-6)


def test_with_a_range_shares_do_not_change_when_both_are_shifted() -> None:
    same = life(ffx.Agent(3, reward_range=(-2.0, 2.0), seed=0))
    moved = life(ffx.Agent(3, reward_range=(-72.0, -68.0), seed=0), shift=-70.0)
    np.testing.assert_allclose(moved, same, atol=1e-6)


def test_a_schemas_constant_does_the_same() -> None:
    schema = Schema({"a": (-1, 1), "b": (-1, 1), "c": (-1, 1)})

    def shares(shift: float) -> list[np.ndarray]:
        agent, rng, found = ffx.Agent(schema=schema, seed=0), np.random.default_rng(3), []
        for _ in range(60):
            rows = rng.uniform(-1.0, 1.0, (4, 3))
            decision = agent.decide(actions=rows.tolist())
            reward = float(rows[decision.action] @ THETA + 0.1 * rng.standard_normal())
            agent.observe(decision, reward=shift + reward)
            found.append(decision.policy.copy())
        return found

    np.testing.assert_allclose(shares(-70.0), shares(0.0), atol=1e-6)


def test_the_intercept_is_the_last_coordinate() -> None:
    agent = ffx.Agent(3, seed=0)
    life(agent, shift=50.0, rounds=300)
    assert (agent.dimension, agent.columns) == (3, 4)
    assert agent.estimate == pytest.approx([*THETA, 50.0], abs=0.1)
    assert agent.gram.shape == (4, 4)
    assert agent.moment.shape == (4,)
    assert agent.decide(np.zeros((2, 3))).context.tolist() == [0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("keywords", "columns"),
    [
        ({"dimension": 3, "intercept": False}, 3),
        ({"dimension": 3, "algorithm": "fed-fairx-linucb"}, 3),  # the paper's
        ({"dimension": 3, "rule": "optimism"}, 3),
        ({"actions": ["ann", "ben"], "rule": "optimism"}, 2),
        ({"schema": Schema({"price": (0, 1)})}, 2),
        ({"schema": Schema({"price": (0, 1)}, intercept=False)}, 1),
    ],
)
def test_who_has_none_or_another(keywords: dict[str, Any], columns: int) -> None:
    agent = ffx.Agent(seed=0, **keywords)
    assert agent.columns == columns
    assert agent.dimension == (0 if "actions" in keywords else columns)
    assert not agent.options.intercept


def test_names_alone_are_the_intercept_and_own_records() -> None:
    agent = ffx.Agent(actions=["ann", "ben"], seed=0)
    assert (agent.dimension, agent.columns, agent.constant) == (0, 1, 1.0)
    assert agent.options.intercept


def test_a_column_of_ones_does_no_harm() -> None:
    one, two = (life(ffx.Agent(3 + k, seed=0), shift=50.0, rounds=400, ones=bool(k)) for k in (0, 1))
    rng = np.random.default_rng(3)
    regrets = np.zeros(2)
    for first, second in zip(one, two, strict=True):
        contexts = rng.uniform(-1.0, 1.0, (4, 3)) / np.sqrt(3.0)
        rng.standard_normal()
        merit = np.exp(10.0 * contexts @ THETA)
        regrets += [np.abs(shares - merit / merit.sum()).sum() for shares in (first, second)]
    assert regrets[1] <= 1.1 * regrets[0]


def test_contexts_come_without_it_or_as_the_log_has_them() -> None:
    agent, rows = ffx.Agent(3, seed=0), np.array([[0.1, 0.2, 0.3], [0.3, 0.1, 0.0]])
    life(agent)
    whole = np.column_stack([rows, np.ones(2)])
    for other in (rows.tolist(), np.asfortranarray(rows), whole):
        assert agent.policy(other).tolist() == agent.policy(rows).tolist()
    for wrong in (rows[:, :2], 2.0 * whole, np.zeros((0, 3))):
        with pytest.raises(ffx.errors.InvalidInput, match=r"shape \(K, 3\)"):
            agent.decide(wrong)


def test_decisions_together_are_those_one_by_one() -> None:
    one, two, rows = ffx.Agent(3, seed=0), ffx.Agent(3, seed=0), np.random.default_rng(0).random((5, 4, 3))
    for agent in (one, two):
        life(agent)
    singly = [one.decide(each) for each in rows]
    assert singly == two.decide_many(rows)
    assert one.decide_many(list(rows)) == two.decide_many(list(rows))
    one.learn(rows[0], [0.5] * 4)
    two.learn(np.column_stack([rows[0], np.ones(4)]), [0.5] * 4)
    assert one.state().learner == two.state().learner


def test_a_durable_agent_keeps_it(tmp_path: Path) -> None:
    with ffx.Agent.open(tmp_path / "agent.db", dimension=3, seed=0) as agent:
        shares = life(agent, shift=50.0)
        agent.verify()
    np.testing.assert_allclose(shares, life(ffx.Agent(3, seed=0)), atol=1e-6)
    with ffx.Agent.open(tmp_path / "agent.db", dimension=3) as again:
        assert (again.dimension, again.columns) == (3, 4)
        assert again.estimate.tolist() == agent.estimate.tolist()
        stored = next(iter(again.journal.decisions()))
        assert np.asarray(stored.contexts)[:, -1].tolist() == [1.0] * 4
    with pytest.raises(ffx.errors.InvalidInput, match="intercept"):
        ffx.Agent.open(tmp_path / "agent.db", intercept=False)


def test_a_file_keeps_it(tmp_path: Path) -> None:
    agent = ffx.Agent(3, seed=0)
    life(agent, shift=50.0)
    agent.save(tmp_path / "agent.json")
    again = ffx.Agent.load(tmp_path / "agent.json")
    assert [each.tolist() for each in life(again)] == [each.tolist() for each in life(agent)]


# --- private -----------------------------------------------------------------------------------------------


@given(
    st.floats(0.1, 3.0), st.floats(0.1, 3.0), st.floats(0.05, 2.0), st.floats(0.1, 3.0), st.integers(0, 2**31)
)
def test_the_sensitivity_covers_records_with_a_constant(
    norm: float, reward: float, constant: float, share: float, seed: int
) -> None:
    bounds = Bounds(context_norm=norm, reward=reward, constant=constant, gram_share=share)
    rng = np.random.default_rng(seed)
    records = [bounds.clip(5.0 * rng.standard_normal(4), 5.0 * rng.standard_normal()) for _ in range(2)]
    assert changed(records[0][:2], records[1][:2], bounds) <= bounds.sensitivity * (1 + 1e-9)
    assert all(record[0][-1] == constant for record in records)
    worst = bounds.worst_pair(4)
    assert changed(*worst, bounds) <= bounds.sensitivity * (1 + 1e-9)
    if constant <= norm and share * reward**2 <= norm**2:
        assert changed(*worst, bounds) == pytest.approx(bounds.sensitivity)


def changed(one: Any, two: Any, bounds: Bounds) -> float:
    """By how much the sums change from one record to another, in sds of the noise off the diagonal."""
    (x, y), (other, second) = one, two
    gram = np.outer(x, x) - np.outer(other, other)
    moment = x * y - other * second
    return float(np.sqrt(0.5 * (gram**2).sum() + bounds.gram_share * (moment**2).sum()))


def test_centred_sums_are_those_of_the_records() -> None:
    centring = Centring(
        context=(0.2, 0.3), context_radius=0.5, reward=50.0, reward_radius=2.0, constant=0.25, intercept=True
    )
    rng = np.random.default_rng(0)
    inner, plain = np.zeros((2, 9)), np.zeros(9)
    for _ in range(20):
        x, y = np.append(rng.uniform(-0.3, 0.3, 2), 0.25), 50.0 + rng.uniform(-1.0, 1.0)
        z, centred, moved = centring.enter(x, y)
        assert not moved
        for sums, row, reward in ((inner[0], z, centred), (plain, x, y)):
            sums += np.append(np.outer(row, row)[np.triu_indices(3)], row * reward)
    np.testing.assert_allclose(centring.leave(inner, 20)[0], plain, rtol=1e-12)


def test_a_privatizer_must_have_what_the_agent_has() -> None:
    noise = SimulatedNoise(0)
    fits = private(3, epsilon=2.0, releases=9, noise=noise, intercept=True)
    assert ffx.Agent(3, privatizer=fits).columns == 4
    with pytest.raises(ffx.errors.InvalidInput, match=r"intercept=True.*intercept=False"):
        ffx.Agent(3, privatizer=private(3, epsilon=2.0, releases=9, noise=noise))
    with pytest.raises(ffx.errors.InvalidInput, match="without an intercept"):
        ffx.Agent(
            3, intercept=False, privatizer=private(2, epsilon=2.0, releases=9, noise=noise, intercept=True)
        )


@pytest.mark.parametrize(
    "how", [{}, {"aggregation": "secure"}, {"decide_from": "released"}, {"reward_range": (49.0, 51.0)}]
)
def test_a_private_federation_learns_how_high_rewards_are(how: dict[str, Any]) -> None:
    shift = 50.0 if "reward_range" in how else 0.5
    fed = ffx.Federation(
        agents=3, dimension=3, horizon=400, algorithm="priv-fairx-bayes", epsilon=200.0, seed=0, **how
    )
    rng = np.random.default_rng(0)
    for _ in range(400):
        for agent in fed.agents:
            contexts = rng.uniform(-1.0, 1.0, (4, 3)) / np.sqrt(3.0)
            decision = agent.decide(contexts)
            agent.observe(decision, reward=float(shift + contexts[decision.action] @ THETA))
        fed.end_round()
    for agent in fed.agents:
        assert agent.estimate[:3] == pytest.approx(THETA, abs=0.15)
        assert 0.25 * agent.estimate[3] == pytest.approx(shift, abs=0.05)


@pytest.mark.parametrize("algorithm", ["fed-fairx-bayes", "priv-fairx-bayes"])
def test_a_federation_takes_a_schema_or_actions(algorithm: str) -> None:
    how: dict[str, Any] = {"agents": 2, "horizon": 40, "algorithm": algorithm, "seed": 0}
    how |= {"epsilon": 20.0} if algorithm.startswith("priv") else {}
    features: dict[str, Any] = {"dimension": 1} if algorithm.startswith("priv") else {}
    named = ffx.Federation(actions=["ann", "ben"], **features, **how)
    described = ffx.Federation(schema=Schema({"price": (0, 10)}), **how)
    for _ in range(40):
        for agent in named.agents:
            agent.observe(agent.decide([[0.1], [0.2]] if features else None), reward=0.5)
        for agent in described.agents:
            agent.observe(agent.decide(actions=[{"price": 1}, {"price": 9}]), reward=0.5)
        for fed in (named, described):
            fed.end_round()
    assert named.agents[0].actions == named.agents[0].names == ("ann", "ben")
    assert described.agents[0].columns == 2
    assert min(named.syncs, described.syncs) > 0


# --- a missing one -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "remedy"),
    [({"intercept": False}, "intercept=True"), ({"algorithm": "fed-fairx-linucb"}, "column of ones")],
)
def test_a_missing_intercept_is_said_once(how: dict[str, Any], remedy: str) -> None:
    agent = ffx.Agent(3, seed=0, **how)
    with pytest.warns(ffx.errors.ScaleWarning, match=remedy) as caught:
        life(agent, shift=0.5, rounds=120)
    assert len(caught) == 1
    assert any(remedy in text for text in agent.warnings)


@pytest.mark.parametrize(("dimension", "after"), [(5, 50), (40, 80), (60, 120)])
def test_wide_contexts_do_not_hide_that_it_is_missing(dimension: int, after: int) -> None:
    rng, agent = np.random.default_rng(0), ffx.Agent(dimension, seed=0, intercept=False)
    rows = rng.uniform(-1.0, 1.0, (after, dimension)) / np.sqrt(dimension)
    rewards = 0.5 + 0.3 * rows[:, 0] + 0.1 * rng.standard_normal(after)
    agent.learn(rows[:-1], rewards[:-1])
    assert not agent.warnings
    with pytest.warns(ffx.errors.ScaleWarning, match=f"first {after} rewards"):
        agent.learn(rows[-1:], rewards[-1:])


def test_a_sound_agent_is_told_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(20):
            life(ffx.Agent(3, seed=seed, intercept=False))
        life(ffx.Agent(4, seed=0, intercept=False), shift=0.5, ones=True)
        life(ffx.Agent(3, seed=0), shift=50.0)


def test_few_tests_for_a_missing_intercept_are_false() -> None:
    from fedfairx.agent.input_warnings import HEIGHT_AFTER, HeightWatch

    rng, fired = np.random.default_rng(0), 0
    for _ in range(2_000):
        watch, rows = HeightWatch(""), rng.uniform(-1.0, 1.0, (HEIGHT_AFTER, 3))
        for row in rows:
            watch.look(row, float(row @ THETA + 0.1 * rng.standard_normal()))
        fired += watch.due
    assert fired <= 3  # more happen by chance in 1 of 600 such tests, where 0.2 are expected


def test_a_private_agent_whose_rewards_have_a_range_learns_as_one_alone():
    """Rewards are centred at the middle of the range for messages only: what it decides from is the same."""
    private = ffx.Federation(
        agents=2,
        dimension=3,
        horizon=10_000,
        algorithm="priv-fairx-bayes",
        epsilon=2.0,
        reward_range=(0, 1),
        seed=0,
    ).agents[0]
    alone = ffx.Agent(3, reward_range=(0, 1), privatizer=NonPrivateSums(4, constant=private.constant), seed=0)
    rng = np.random.default_rng(0)
    for _ in range(40):
        contexts, reward = rng.random((5, 3)) / 2, float(rng.random() < 0.5)
        for agent in (private, alone):
            agent.learn(contexts[:1], [reward])
        np.testing.assert_allclose(private.estimate, alone.estimate, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(private.policy(contexts), alone.policy(contexts), rtol=1e-6)
