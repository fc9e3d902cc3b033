"""Stores: one value, durable as a whole or not at all, in memory, in a file and in SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fedfairx.errors import LedgerMismatch, StateError, StorageUnavailable
from fedfairx.federation.aggregation.records import (
    FileStore,
    MemoryStore,
    Opened,
    Part,
    Record,
    SqlStore,
    ValueStore,
    Vault,
    record_in,
    vault_in,
)
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.storage.open_log import open_log
from row_helpers import group


@pytest.fixture(params=["memory", "file", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ValueStore]:
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "file":
        file = FileStore(tmp_path / "vault")
        yield file
        file.close()
    else:
        log = open_log(tmp_path / "agent.db")
        yield SqlStore(log, "a")
        log.close()


def test_what_is_written_is_read(store: ValueStore) -> None:
    assert store.read() is None
    for value in (b"1", b"", bytes(range(256))):
        store.write(value)
        assert store.read() == value


def test_values_of_one_table_are_apart_and_survive(tmp_path: Path) -> None:
    log = open_log(tmp_path / "agent.db")
    one, two = SqlStore(log, "a"), SqlStore(log, "b")
    one.write(b"1")
    two.write(b"2")
    assert (one.read(), two.read()) == (b"1", b"2")
    log.close()
    log = open_log(tmp_path / "agent.db")
    assert SqlStore(log, "a").read() == b"1"
    log.close()


def test_a_file_survives_and_is_private_and_open_once(tmp_path: Path) -> None:
    path = tmp_path / "vault"
    first = FileStore(path)
    first.write(b"1")
    with pytest.raises(LedgerMismatch, match="locked"):
        FileStore(path)
    first.close()
    assert path.stat().st_mode & 0o777 == 0o600
    second = FileStore(path)
    assert second.read() == b"1"
    path.chmod(0o644)
    with pytest.raises(StateError, match="0600"):
        second.read()
    second.close()


def test_a_file_that_cannot_be_written_keeps_what_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path / "vault")
    store.write(b"1")

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("fedfairx.federation.aggregation.records.write_atomically", full)
    with pytest.raises(StorageUnavailable, match="no space"):  # another error would end an exchange's thread
        store.write(b"2")
    assert store.read() == b"1"
    (tmp_path / "vault").unlink()
    (tmp_path / "vault").mkdir(mode=0o700)
    with pytest.raises(StorageUnavailable, match="directory"):
        store.read()
    store.close()


def test_records_and_vaults_come_back_as_they_were() -> None:
    epoch = group().epoch
    opened = Opened(epoch.digest, 3, {"org00": bytes(32)}, b"partial")
    part = Part(epoch, Rounds(begin=5), 2, (None, bytes(32)), b"row", {"org00": b"share"}, opened)
    accepted = (Part(epoch, Rounds(begin=9)),)
    record = Record(b"id", b"last", b"before", part, accepted, (epoch.digest,), (), "why")
    store = MemoryStore(msgspec.msgpack.encode(record))
    again = record_in(store)
    assert again == record
    assert again.part is not None
    assert again.part.epoch.digest == epoch.digest
    assert again.part.rounds.times == Rounds(begin=5).times
    vault = Vault(b"id", "fed", "org00", 2, 3, b"mark", {2: bytes(32)}, opened)
    assert vault_in(MemoryStore(msgspec.msgpack.encode(vault))) == vault
    assert record_in(MemoryStore()) == Record()
    assert vault_in(MemoryStore()) is None
    assert vault_in(MemoryStore(b"cut short")) is None
    no_text = msgspec.msgpack.encode(vault).replace(b"\xa3fed", b"\xa3\xff\xfe\xfd")
    assert vault_in(MemoryStore(no_text)) is None


def test_the_digests_of_rows_are_known_by_round() -> None:
    part = Part(group().epoch, Rounds(begin=5), 3, (b"3", None, b"5"))
    assert part.last == 5
    assert [part.digest_of(number) for number in range(2, 7)] == [None, b"3", None, b"5", None]
    assert Part(group().epoch, Rounds(begin=5)).last == 0
