"""On how many rewards shares rest: own ones, decayed ones, and those that messages are worth."""

from __future__ import annotations

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent.knowledge import ENOUGH, Knowledge

CONTEXTS = np.array([[0.9, 0.1], [0.2, 0.6]])


def observe(agent: ffx.Agent, times: int) -> None:
    for t in range(times):
        agent.observe(agent.decide(CONTEXTS), reward=float(t % 2))


def test_own_rewards_count_each_and_four_for_each_number_are_enough() -> None:
    agent = ffx.Agent(dimension=2, seed=0)
    for rewards in range(2 * ENOUGH):
        known = agent.knowledge
        assert (known.rewards, known.numbers, known.little) == (rewards, agent.columns, True)
        observe(agent, 1)
    observe(agent, ENOUGH * agent.columns - agent.observed)
    assert not agent.knowledge.little
    assert str(agent.knowledge) == f"Shares rest on {ENOUGH * agent.columns} rewards."


def test_half_of_them_count_after_a_half_life() -> None:
    agent = ffx.Agent(dimension=2, half_life=10, seed=0)
    observe(agent, 200)
    assert agent.knowledge.own == pytest.approx(10 / np.log(2), rel=0.1)


def test_exact_messages_count_as_what_they_hold() -> None:
    together = ffx.Federation(agents=2, dimension=2, horizon=100, algorithm="fed-fairx-bayes", seed=0)
    one, other = together.agents
    for _ in range(30):
        observe(other, 1)
        together.end_round()
    assert one.observed == 0
    assert one.knowledge.rewards > 0
    observe(one, 3)
    assert one.knowledge.own == 3
    assert 20 <= one.knowledge.others <= 40  # about 30, by the lengths of contexts


def test_noise_makes_messages_worth_less() -> None:
    def others(**more: object) -> float:
        federation = ffx.Federation(agents=2, dimension=2, horizon=200, seed=0, **more)  # type: ignore[arg-type]
        one, other = federation.agents
        for _ in range(200):
            observe(other, 1)
            federation.end_round()
        observe(one, 3)
        return one.knowledge.others

    exact = others(algorithm="fed-fairx-bayes")
    some, much = (others(algorithm="priv-fairx-bayes", epsilon=e, delta=1e-6) for e in (20.0, 0.5))
    assert 0.0 <= much < some < exact


def test_of_an_earlier_time_own_rewards_are_fewer() -> None:
    now = Knowledge(own=50, others=20, numbers=3)
    assert (now.when(10).rewards, now.when(90).rewards) == (30, 70)
