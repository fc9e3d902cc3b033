"""Records: durable as a whole or not at all, in memory, in a file and in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregation_helpers import Disk, exact, group
from fedfairx.errors import InvalidInput, LedgerMismatch, StateError
from fedfairx.federation.aggregation.agreement import Agreement
from fedfairx.federation.aggregation.records import (
    Accepted,
    FileRecords,
    MemoryRecords,
    Opened,
    Records,
    SqlRecords,
    Stores,
)
from fedfairx.privacy.ledger.sqlite import SqliteLedger


def in_sqlite(path: Path) -> tuple[SqliteLedger, SqlRecords]:
    """Records beside a ledger, in its file."""
    ledger = SqliteLedger(path, create=True)
    with ledger._file.transaction() as access:
        access.write(
            "CREATE TABLE IF NOT EXISTS aggregation (name TEXT PRIMARY KEY, value BLOB NOT NULL)", ()
        )
    return ledger, SqlRecords(ledger._file, "aggregation")


@pytest.fixture(params=["memory", "file", "sqlite"])
def records(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Records]:
    if request.param == "memory":
        yield MemoryRecords()
    elif request.param == "file":
        store = FileRecords(tmp_path / "vault")
        yield store
        store.close()
    else:
        ledger, found = in_sqlite(tmp_path / "ledger.db")
        yield found
        ledger.close()


def test_what_is_put_is_got(records: Records) -> None:
    assert records.get("a") is None
    records.put({"a": b"1", "b": b""})
    records.put({"a": b"2", "c": bytes(range(256))})
    assert [records.get(name) for name in "abcd"] == [b"2", b"", bytes(range(256)), None]
    records.put({"a": None, "z": None, "b": b"3"})
    assert [records.get(name) for name in "abz"] == [None, b"3", None]


def test_a_file_survives_and_is_private_and_open_once(tmp_path: Path) -> None:
    path = tmp_path / "vault"
    first = FileRecords(path)
    first.put({"secret": b"1"})
    with pytest.raises(LedgerMismatch, match="locked"):
        FileRecords(path)
    first.close()
    assert path.stat().st_mode & 0o777 == 0o600
    second = FileRecords(path)
    assert second.get("secret") == b"1"
    second.close()
    path.chmod(0o644)
    with pytest.raises(StateError, match="0600"):
        FileRecords(path)
    path.chmod(0o600)
    path.write_bytes(b"cut short")
    with pytest.raises(StateError, match="damaged"):
        FileRecords(path)


def test_a_file_that_cannot_be_written_keeps_what_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileRecords(tmp_path / "vault")
    store.put({"a": b"1"})

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("fedfairx.federation.aggregation.records.write_atomically", full)
    with pytest.raises(OSError, match="no space"):
        store.put({"a": b"2"})
    assert store.get("a") == b"1"
    store.close()


def test_sqlite_makes_a_change_as_a_whole(tmp_path: Path) -> None:
    ledger, store = in_sqlite(tmp_path / "ledger.db")
    store.put({"a": b"1"})
    with pytest.raises(sqlite3.Error, match="object"):
        store.put({"a": b"2", "b": object()})  # type: ignore[dict-item]
    assert store.get("a") == b"1"
    ledger.close()
    ledger, store = in_sqlite(tmp_path / "ledger.db")
    assert store.get("a") == b"1"
    ledger.close()


def test_the_later_of_the_two_stores_counts() -> None:
    records, vault = MemoryRecords(), MemoryRecords()
    both, epoch = Stores("me", records, vault), bytes(32)
    for late, early in ((records, vault), (vault, records)):
        late.clear()
        early.clear()
        both.open(epoch, Opened(3, b"three", b""))
        old = dict(early)
        both.open(epoch, Opened(5, b"five", b"closed"))
        early.clear()
        early.update(old)
        assert both.opened(epoch) == Opened(5, b"five", b"closed")
        first = Accepted(1, b"1", b"", b"", None, ())
        both.accept("fed", (first,))
        old = dict(early)
        both.accept("fed", (first, Accepted(2, b"2", b"1", b"s", 4, ())))
        early.clear()
        early.update(old)
        assert [each.number for each in both.accepted("fed")] == [1, 2]
    # A closing that one store has counts with the later partial of the other.
    records.clear()
    vault.clear()
    Stores("me", records).open(epoch, Opened(4, b"four", b"closed"))
    Stores("me", vault).open(epoch, Opened(6, b"six", b""))
    assert both.opened(epoch) == Opened(6, b"six", b"closed")


def test_an_opener_needs_a_vault() -> None:
    with pytest.raises(InvalidInput, match="vault"):
        Stores("me", MemoryRecords()).keep_secret("fed", 1, bytes(32))
    assert Stores("me", MemoryRecords()).secret("fed", 1) is None


def test_an_epoch_over_sqlite_and_files_with_restarts(tmp_path: Path) -> None:
    """The same participants over the stores of a service: ledger files, and vaults beside them."""
    here = group()
    rows = {}
    for number in (1, 2, 3):
        files = []
        for name, (records, vault) in here.disks.items():
            ledger, table = in_sqlite(tmp_path / f"{name}.db")
            file = FileRecords(tmp_path / f"{name}.vault")
            table.put(dict(records))  # what the helper has made before
            file.put(dict(vault))
            files += [ledger, file]
            agreement = Agreement(here.epoch, Stores(name, table, file))
            agreement.accept(here.keys[name], confirmed=here.epoch.members)
            here.members[name] = here.participant(agreement)
            here.seen[name] = 0
        here.pump()
        rows = here.round(number)
        for member in here.members.values():
            assert member.total is not None
            assert member.total.values.tolist() == exact(rows)
            assert not member.refusals
        for records, vault in here.disks.values():
            assert isinstance(records, Disk)
            records.clear()  # only the files have the state now
            vault.clear()
        for file in files:
            file.close()
