"""Checking a log some steps at a time, while others write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.errors import StateError
from fedfairx.storage.verification import SteadyCheck

X = np.eye(3)


def filled(place: str, *names: str, rewards: int = 4) -> list[ffx.Agent]:
    """Agents of one database, whose steps alternate."""
    agents = [ffx.Agent.open(place, dimension=3, seed=0, name=name) for name in names]
    for _ in range(rewards):
        for agent in agents:
            made = agent.decide(X)
            agent.observe(made, reward=0.5)
    return agents


def whole(check: SteadyCheck, most: int) -> int:
    """Go on to the end of the log; the number of steps."""
    steps = 0
    while some := check.go_on(most):
        assert some <= most
        steps += some
    return steps


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_a_sound_log_is_checked_from_anywhere(place: str, most: int) -> None:
    agents = filled(place, "north", "south")
    agents[0].learn(np.eye(3), np.ones(3))
    made = agents[0].decide(X)
    agents[0].observe(made, reward=0.25)
    agents[0].observe(made, reward=0.75, replace=True)
    agents[1].drop_contexts(before=agents[1].journal.log.now() / 1e6, rule="1s")
    log = agents[0].journal.log
    for begin in range(log.end + 1):
        check = SteadyCheck(log)
        assert 0 <= check._next <= log.end
        check._next = begin
        whole(check, most)
        steps = whole(check, most)
        assert steps == 16 + 5  # learning is one step, of three records
        assert check.damage == {}
    for agent in agents:
        agent.close()


def test_it_goes_on_with_what_was_written_meanwhile(place: str) -> None:
    (agent,) = filled(place, "north")
    check = SteadyCheck(agent.journal.log)
    check._next = 0
    assert check.go_on(5) == 5
    with agent.journal.log.transaction:
        agent.observe(agent.decide(X), reward=1.0)
        assert check.go_on(1000) == 3  # not what is not on disk yet
    assert check.go_on(1000) == 2
    assert (check.go_on(1000), check.steps, check.damage) == (0, 10, {})
    agent.close()


MISTAKES: dict[str, str] = {
    "a reward": "UPDATE outcomes SET reward = 1.0 WHERE seq = 7",
    "a policy": "UPDATE decisions SET policy = contexts WHERE seq = 2",
    "a row that is gone": "DELETE FROM outcomes WHERE seq = 3",
    "a row of another": "UPDATE outcomes SET agent = {north} WHERE seq = 3",
    "a time": "UPDATE outcomes SET time = time + 1 WHERE seq = 15",
}


@pytest.mark.parametrize("most", [1, 4, 1000])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_was_changed_is_found(place: str, mistake: str, most: int) -> None:
    """Whoever owns it: the steps of "south" are 2, 3, 6, 7, 10, 11, 14 and 15."""
    agents = filled(place, "north", "south")
    numbers = {agent.name: agent.journal.agent for agent in agents}
    log = agents[0].journal.log
    log.database.execute(MISTAKES[mistake].format(**numbers))
    check = SteadyCheck(log)
    check._next = 0
    whole(check, most)
    assert "south" in check.damage
    assert ("north" in check.damage) == (mistake == "a row of another")
    assert all("damaged" in text for text in check.damage.values())
    for agent in agents:
        agent.close()


def test_a_database_that_is_damaged_is_so_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agents = filled(str(tmp_path / "agent.db"), "north", "south")
    check = SteadyCheck(agents[0].journal.log)

    def fail(*_: Any) -> None:
        raise StateError("the disk image is malformed")

    monkeypatch.setattr(check, "_after", fail)
    assert check.go_on() == 0
    assert check.damage == dict.fromkeys(("north", "south"), "the disk image is malformed")
    for agent in agents:
        agent.close()
