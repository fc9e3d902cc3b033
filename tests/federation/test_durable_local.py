"""A federation that is closed and opened: its agents, its rounds, its synchronisations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent import state
from fedfairx.errors import InvalidInput, StateError

D = 2
PRIVATE = {"algorithm": "priv-fairx-bayes", "epsilon": 4.0, "delta": 0.1, "schedule": "every-round"}


def told(fed: ffx.Federation) -> list[Any]:
    return [fed._progress(), *(state.describe_progress(agent) | {"marks": []} for agent in fed.agents)]


def rounds(fed: ffx.Federation, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        for agent in fed.agents:
            agent.observe(agent.decide(rng.random((3, D)) / 2), reward=float(rng.random()))
        fed.end_round()


def test_one_that_was_stopped_is_the_same_as_one_that_never_was(place: str) -> None:
    never = ffx.Federation(agents=3, dimension=D, horizon=40, seed=5)
    ffx.Federation.open(place, agents=3, dimension=D, horizon=40, seed=5).close()
    for life in range(3):
        with ffx.Federation.open(place) as fed:
            for each in (fed, never):
                rounds(each, 7, life)
            assert told(fed) == told(never)
    with ffx.Federation.open(place, agents=3) as fed:
        assert told(fed) == told(never)
        assert (fed.round, fed.syncs) == (never.round, never.syncs)
        for agent in fed.agents:
            agent.verify()
        fed.new_run(10)
    with ffx.Federation.open(place) as fed:
        assert (fed.plan.horizon, fed._began) == (10, 21)
    with pytest.raises(
        InvalidInput, match="horizon must be the one that is kept, horizon=40, got horizon=41"
    ):
        ffx.Federation.open(place, horizon=41)
    with pytest.raises(StateError, match=r"holds 3 agents: open it with Federation.open"):
        ffx.Agent.open(place)


def test_a_private_one_goes_on_with_its_budget(place: str) -> None:
    with pytest.raises(InvalidInput, match="seed must be left out"):
        ffx.Federation.open(place, agents=2, dimension=D, horizon=6, seed=0, **PRIVATE)
    with ffx.Federation.open(place, agents=2, dimension=D, horizon=6, **PRIVATE) as fed:
        rounds(fed, 4, 0)
        claimed, before = fed.privacy, told(fed)
        assert (claimed.spent, claimed.is_private) == (4, True)
    with ffx.Federation.open(place) as fed:
        assert (fed.privacy, told(fed)) == (claimed, before)
        rounds(fed, 2, 1)
        fed.new_run(3, epsilon=1.0)
        rounds(fed, 1, 2)
        claimed, before = fed.privacy, told(fed)
    with ffx.Federation.open(place) as fed:
        assert (fed.privacy, told(fed)) == (claimed, before)
        assert fed.options.epsilon == 1.0
        for agent in fed.agents:
            agent.verify()


def test_a_synchronisation_is_whole_or_not_at_all(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ffx.Federation.open(place, agents=2, dimension=D, horizon=6, **PRIVATE) as fed:
        rounds(fed, 2, 0)
        before = told(fed)

        def fails(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(fed.agents[1], "absorb", fails)
        with pytest.raises(KeyboardInterrupt):
            fed.end_round()
        assert told(fed) == before
        assert fed.privacy.spent == 2
        monkeypatch.undo()
        assert fed.end_round()
        assert (fed.round, fed.syncs, fed.privacy.spent) == (3, 3, 3)


def test_what_can_not_be_kept_is_refused(place: str) -> None:
    ffx.Agent.open(place, dimension=D).close()
    with pytest.raises(StateError, match=r"holds an agent: open it with Agent.open"):
        ffx.Federation.open(place, agents=2, dimension=D, horizon=6)
