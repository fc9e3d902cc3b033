"""Starting from a log, and asking for a policy without deciding."""

from __future__ import annotations

import numpy as np
import pytest

import fedfairx as ffx
from federation_helpers import D, contexts, private_agent, taught
from fedfairx.core.rules import RULES
from fedfairx.errors import ClippingWarning, InvalidInput
from fedfairx.privacy import SimulatedNoise, private

# --- learn -------------------------------------------------------------------------------------------


def log(count: int = 30) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    return contexts(rng, count), rng.random(count)


@pytest.mark.parametrize("rule", RULES)
def test_a_log_is_learnt_like_decisions_of_ones_own(rule: str) -> None:
    shown, rewards = log()
    ours, theirs = (ffx.Agent(D, rule=rule, seed=0, name="same") for _ in range(2))
    ours.learn(shown, rewards)
    for row, reward in zip(shown, rewards.tolist(), strict=True):
        theirs.observe(theirs.decide(row[None]), reward=reward)
    assert (ours.gram == theirs.gram).all()
    assert (ours.estimate == theirs.estimate).all()
    assert ours.noise_sd == theirs.noise_sd
    assert ours.release() == theirs.release()
    assert (ours.observed, ours.pending) == (30, 0)


@pytest.mark.parametrize("decide_from", ["released", "own+released"])
def test_a_private_agent_gives_them_to_its_privatizer(decide_from: str) -> None:
    shown, rewards = log()
    ours, theirs = (private_agent(decide_from) for _ in range(2))
    ours.learn(shown, rewards)
    for row, reward in zip(shown, rewards.tolist(), strict=True):
        theirs.observe(theirs.decide(row[None]), reward=reward)
    assert ours.release() == theirs.release()
    assert (ours.gram == theirs.gram).all()


def test_a_private_agent_refuses_no_reward_of_a_log() -> None:
    agent = private_agent()
    agent.learn(log(3)[0], [0.5, float("nan"), 7.0])
    assert agent.observed == 3


def test_the_owner_is_told_of_clipping() -> None:
    with pytest.warns(ClippingWarning) as told:
        private_agent().learn(log(200)[0], np.full(200, 9.0))
    assert told[0].filename == __file__


def test_persons_are_bounded() -> None:
    made = private(
        D,
        epsilon=1.0,
        delta=1e-6,
        releases=3,
        noise=SimulatedNoise(0),
        person_records=2,
        intercept=True,
    )
    agent = ffx.Agent(D, privatizer=made, seed=0)
    agent.learn(*log(5), persons=["Ada", "Ada", "Ada", "Bob", "Bob"])
    assert agent.observed == 5
    with pytest.raises(InvalidInput, match="person must be given"):
        agent.learn(*log(5))
    assert (agent.observed, agent.pending, agent.decide(log(2)[0]).number) == (5, 0, 5)


def test_it_goes_on_from_there() -> None:
    agent = ffx.Agent(D, seed=0)
    agent.learn(*log())
    made = agent.decide(log(4)[0])
    agent.observe(made, reward=0.5)
    assert made.number == 30


# --- policy ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_the_policy_is_that_of_the_next_decision_and_nothing_changes(rule: str) -> None:
    agent = taught(ffx.Agent(D, rule=rule, seed=0), 20)
    rows = log(5)[0]
    before, memory = agent.state(), agent._model.learner.memory.copy()
    policy = agent.policy(rows)
    assert agent.state() == before
    assert agent._model.learner.memory.tobytes() == memory.tobytes()
    assert agent.pending == 0
    assert policy.tobytes() == agent.decide(rows).policy.tobytes()


def test_a_policy_is_the_callers_own() -> None:
    agent = ffx.Agent(D, seed=0)
    policy = agent.policy(np.eye(D))
    policy[:] = 0.0
    assert agent.policy(np.eye(D)).sum() == pytest.approx(1.0)
