"""Steps that wait for nobody: for no thread and no server, and only briefly for another process."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent import persistence
from fedfairx.errors import InvalidInput, StorageUnavailable
from fedfairx.storage.database import Busy
from fedfairx.storage.transaction_log import Log
from servers import Postgres
from states import told

X = np.eye(2)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[ffx.Agent]:
    with ffx.Agent.open(tmp_path / "agent.db", dimension=2, seed=0) as made:
        yield made


@pytest.fixture
def log(agent: ffx.Agent) -> Log:
    return agent.journal.log


def others_can_write(agent: ffx.Agent) -> bool:
    with sqlite3.connect(agent.journal.place, isolation_level=None, timeout=0.0) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        finally:
            other.rollback()
    return True


def test_a_step_that_begins_at_once(agent: ffx.Agent, log: Log) -> None:
    for _ in range(3):
        assert log.take_at_once()
        made = agent.decide(X)
        log.let_go()
        assert others_can_write(agent)
        assert agent.journal.decision(made.id) is not None
    agent.verify()


def test_a_step_that_writes_nothing_leaves_nothing_open(agent: ffx.Agent, log: Log) -> None:
    assert log.take_at_once()
    with pytest.raises(InvalidInput):
        agent.decide(X * np.nan)
    log.let_go()
    assert log.take_at_once()
    log.let_go()  # without any step
    assert others_can_write(agent)
    agent.decide(X)


def test_another_process_writes(agent: ffx.Agent, log: Log) -> None:
    """Then a step is soon undone; one that is taken in the ordinary way waits longer."""
    assert log.take_at_once()
    made = agent.decide(X)
    log.let_go()
    before = told(agent)
    other = sqlite3.connect(agent.journal.place, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    for step in (lambda: agent.decide(X), lambda: agent.observe(made, reward=0.5), lambda: two_of(agent)):
        began = time.monotonic()
        assert log.take_at_once()
        with pytest.raises(Busy, match="nothing has changed"):
            step()
        log.let_go()
        assert time.monotonic() - began < 1.0  # it is 2 s until an ordinary one gives up
        assert told(agent) == before
    for step in (lambda: agent.decide(X), lambda: two_of(agent)):
        waiting = threading.Timer(0.3, other.rollback)
        waiting.start()
        step()
        waiting.join()
        other.execute("BEGIN IMMEDIATE")
    other.close()
    assert agent.pending == 4
    agent.verify()


def two_of(agent: ffx.Agent) -> None:
    """Two rows in one transaction."""
    with agent.transaction():
        agent.decide(X)
        agent.decide(X)


def test_another_thread_writes(agent: ffx.Agent, log: Log) -> None:
    found: list[bool] = []
    with agent.transaction():
        thread = threading.Thread(target=lambda: found.append(log.take_at_once()))
        thread.start()
        thread.join()
        assert not log.take_at_once()  # nor inside of a step
    assert found == [False]
    assert log.take_at_once()
    log.let_go()


def test_no_snapshot_follows_it(agent: ffx.Agent, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot may take seconds, if there are many actions."""
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", persistence.SHORT + 20)
    begun = []
    for _ in range(2 * persistence.SNAPSHOT_EVERY):
        begun.append(not agent.journal.long_after() and log.take_at_once())
        before = agent.journal.snapshot_numbers()
        agent.observe(agent.decide(X), reward=0.5)
        if begun[-1]:
            assert agent.journal.snapshot_numbers() == before
            log.let_go()
    assert len(agent.journal.snapshot_numbers()) >= 3
    assert begun.count(True) >= 30  # the first twenty steps after each


def test_a_log_that_is_closed(tmp_path: Path) -> None:
    agent = ffx.Agent.open(tmp_path / "agent.db", dimension=2)
    log = agent.journal.log
    agent.close()
    assert not log.take_at_once()
    with pytest.raises(StorageUnavailable):
        agent.decide(X)


def test_a_server_is_waited_for(postgres: Postgres) -> None:
    with ffx.Agent.open(postgres.schema(), dimension=2, seed=0) as agent:
        assert not agent.journal.log.take_at_once()
        agent.decide(X)
