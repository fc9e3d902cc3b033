"""When rewards came: what deletions, rollbacks, replaced rewards and slots leave of them."""

from __future__ import annotations

import time
from pathlib import Path

import fedfairx as ffx
from fedfairx.storage.arrivals import arrivals


def test_they_are_the_rewards_that_an_agent_has_learnt(tmp_path: Path) -> None:
    with ffx.Agent.open(tmp_path / "a.db", actions=["ann", "ben"], seed=0) as agent:

        def came(first: int = 0) -> int:
            return int(arrivals(agent.journal, first=first).size)

        agent.learn(["ann", "ben"], [0.0, 1.0])
        for turn in range(5):
            agent.observe(agent.decide(), reward=1.0, person=f"p{turn}")
        ranked = agent.decide(slots=2)
        agent.observe(ranked, rewards=[1.0, None])
        agent.forget(agent.decide())
        assert came() == agent.observed == 8
        assert came(ranked.number) == 1
        agent.observe(ranked.id, rewards={ranked.actions[0]: 0.5}, replace=True)
        assert came() == agent.observed == 8
        agent.delete_person("p1")
        assert came() == agent.observed == 7
        moment, before = time.time(), agent.decide().number
        agent.observe(agent.decide(), reward=1.0)
        assert (came(before), agent.observed) == (1, 8)
        agent.roll_back(to=moment)
        assert (came(before), agent.observed) == (0, 7)
