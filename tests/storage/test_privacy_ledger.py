"""The ledger in the agent's own database: what `Ledger` promises, and what is rolled back is gone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fedfairx.errors import AlreadyObserved, LedgerMismatch, PrivacyError
from fedfairx.privacy.ledger.ledger import Position
from fedfairx.storage.open_log import open_database
from fedfairx.storage.privacy_ledger import StoredLedger, StoredPersons
from fedfairx.storage.schema import create_tables
from fedfairx.storage.transaction_log import Log


@pytest.fixture
def log(place: str) -> Iterator[Log]:
    database = open_database(place)
    create_tables(database)
    log = Log(database)
    yield log
    log.close()


def at(frozen: int, count: int = 0) -> Position:
    return Position(frozen, np.full(3, float(frozen)), frozen, np.full(3, float(count)), count, 0)


def test_binding_again_is_no_step(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done while the agent is put back to what is on disk: nothing may be kept of it meanwhile."""
    StoredLedger(log, 1, 1).bind({"epsilon": 1.0})
    commit, commits = log.database.commit, []
    monkeypatch.setattr(log.database, "commit", lambda: commits.append(commit()))
    StoredLedger(log, 1, 1).bind({"epsilon": 1.0})
    assert not commits
    StoredLedger(log, 1, 2).bind({"epsilon": 1.0})
    assert len(commits) == 1


def test_it_keeps_what_a_ledger_must(log: Log) -> None:
    ledger = StoredLedger(log, 1, 1)
    assert (ledger.position(), ledger.spent(), ledger.unsent()) == (None, 0, ())
    with pytest.raises(LedgerMismatch, match="must be bound"):
        ledger.freeze(1, "d", at(1))
    ledger.bind({"epsilon": 1.0, "shape": (1, 2)})
    StoredLedger(log, 1, 1).bind({"epsilon": 1.0, "shape": [1, 2]})
    with pytest.raises(LedgerMismatch, match="epsilon differ"):
        ledger.bind({"epsilon": 2.0, "shape": (1, 2)})
    ledger.add("r1", at(0, 1))
    with pytest.raises(AlreadyObserved, match="already in leaf 1"):
        ledger.add("r1", at(0, 2))
    with pytest.raises(LedgerMismatch, match="leaf 1 is the next to freeze, got leaf 2"):
        ledger.freeze(2, "d", at(2))
    with pytest.raises(PrivacyError, match="leaf 1 is not frozen"):
        ledger.place(1)
    ledger.freeze(1, "d", at(1))
    ledger.record(1, b"message")
    ledger.record(1, b"message")
    with pytest.raises(LedgerMismatch, match="recorded with other content"):
        ledger.record(1, b"another")
    with pytest.raises(LedgerMismatch, match="leaf 2 is not frozen"):
        ledger.record(2, b"x")
    assert (ledger.spent(), ledger.unsent(), ledger.message(1)) == (1, (1,), b"message")
    ledger.mark_sent(1)
    assert ledger.unsent() == ()
    again = StoredLedger(log, 1, 1)
    assert again.place(1) == ledger.place(1)
    here = again.position()
    assert here is not None
    assert (here.frozen, here.total.tolist(), here.leaf_count) == (1, [1.0] * 3, 0)


def test_runs_and_agents_are_apart(log: Log) -> None:
    ledgers = [StoredLedger(log, agent, run) for agent, run in ((1, 1), (1, 2), (2, 1))]
    for ledger in ledgers:
        ledger.bind({"x": 1})
        ledger.add("same", at(0, 1))
        ledger.freeze(1, "d", at(1))
    assert len({ledger.place(1) for ledger in ledgers}) == 3


def test_what_is_rolled_back_is_gone(log: Log) -> None:
    ledger, persons = StoredLedger(log, 1, 1), StoredPersons(log, 1, 1)
    ledger.bind({"x": 1})
    ledger.add("r1", at(0, 1))
    assert persons.count("Ada", 1) == 1
    with pytest.raises(KeyError), log.transaction:
        ledger.add("r2", at(0, 2))
        assert ledger.position().leaf_count == 2  # as this step sees it
        ledger.freeze(1, "d", at(1))
        ledger.record(1, b"m")
        assert persons.count("Ada", 1) == 2
        raise KeyError
    assert (ledger.position().leaf_count, ledger.spent(), persons.total()) == (1, 0, 1)
    ledger.add("r2", at(0, 2))
    ledger.freeze(1, "d", at(1))
