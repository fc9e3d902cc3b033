"""An agent as it was before each step of its log: the same to the bit, by replay from a snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent import persistence, replay
from fedfairx.agent.replay import Replay
from fedfairx.privacy import Budget

SHAPES: dict[str, dict[str, Any]] = {
    "features": {"dimension": 2},
    "half-life": {"dimension": 2, "half_life": 20},
    "names": {"actions": ["ann", "ben", "cid"]},
    "slots": {"dimension": 2, "slots": [1.0, 0.5]},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_the_agent_that_decided(shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 40)
    monkeypatch.setattr(persistence, "SHORT", 0)
    given, rng, states, made = SHAPES[shape], np.random.default_rng(0), {}, []
    with ffx.Agent.open(tmp_path / "agent.db", seed=1, **given) as agent:
        peer = ffx.Agent(**given, name="peer")
        for t in range(60):
            labels = [f"n{k}" for k in rng.choice(5, 3, replace=False)]
            contexts = None if shape == "names" else rng.random((3, 2))
            states[agent.journal.end()] = agent.state()
            made.append(agent.decide(contexts, names=None if shape == "names" else labels))
            if t % 3:
                one = made.pop(int(rng.integers(len(made))))
                agent.observe(one, rewards=rng.random(len(one.actions)).tolist())
            if t == 30:
                peer.learn([["ann"], np.ones((1, 2))][shape != "names"], [0.5])
                agent.absorb({"peer": peer.release()})
            if t == 40 and shape == "names":
                agent.add_actions("dan")
        numbers = sorted(states)
        assert len(agent.journal.snapshot_numbers()) > 1
        for first in (0, 20, 50):
            again = Replay(agent, numbers[first])
            for number in numbers[first:]:
                then = again.before(number)
                assert then is not None
                assert then.state() == states[number]
        assert agent.state() == again.before(agent.journal.end() + 1).state()  # type: ignore[union-attr]


def test_what_can_not_be_repeated_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ffx.Agent.open(tmp_path / "agent.db", dimension=2, seed=0) as agent:
        for _ in range(4):
            agent.observe(agent.decide(np.eye(2)), reward=1.0)
        assert Replay(agent, 3).before(3) is not None
        monkeypatch.setattr(replay, "MOST_STEPS", 2)
        again = Replay(agent, 1)
        assert again.before(2) is not None
        assert again.before(4) is None
        assert again.before(5) is None
    budget = Budget(epsilon=2.0, delta=1e-6, releases=2)
    with ffx.Agent.open(tmp_path / "private.db", dimension=2, budget=budget, seed=0) as agent:
        agent.decide(np.eye(2))
        assert Replay(agent, 1).before(1) is None
    assert Replay(ffx.Agent(2), 1).before(1) is None
