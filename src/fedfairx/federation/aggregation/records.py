"""What a member stores, and where: small named records in memory, in a file, or in a table.

A member has up to two stores. `records` lie in its database, with its privacy ledger. An opener also has a
`vault`: a file outside of the database that is in no backup. It alone holds the secret keys. What an opener
has accepted, opened and closed is written to both stores, and the later of the two counts. So a restored
database does not make an opener open a round again. An opener that has lost its vault has lost its key, and
opens nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from fedfairx.errors import InvalidInput, StateError
from fedfairx.privacy.ledger.sql import LedgerDatabase
from fedfairx.util.file_lock import FileLock
from fedfairx.util.files import require_private, write_atomically

#: What is left for a member that has lost its record of what it sent.
CANNOT_CONTINUE = (
    "it can't continue under its name: ask the convener to remove it and to add it under a new name"
)


class Records(Protocol):
    """Values by name."""

    def get(self, name: str, /) -> bytes | None:
        """The value of a record; None if there is none."""
        ...

    def put(self, changes: Mapping[str, bytes | None]) -> None:
        """Write records, or remove them (None). It returns when all are durable, or raises and none is.

        So it may not be called inside of a transaction that can still be rolled back.
        """
        ...


class MemoryRecords(dict[str, bytes]):
    """Records that live as long as the process: for simulation and tests."""

    def put(self, changes: Mapping[str, bytes | None]) -> None:
        kept = {**self, **changes}
        self.clear()
        self.update({name: value for name, value in kept.items() if value is not None})


class FileRecords:
    """Records in one small file that only its owner may read, open in one process at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._lock = FileLock(self._path.with_name(self._path.name + ".lock"))
        try:
            self._values = read_file(self._path)
        except BaseException:
            self._lock.free()
            raise

    def get(self, name: str) -> bytes | None:
        return self._values.get(name)

    def put(self, changes: Mapping[str, bytes | None]) -> None:
        self._lock.check()
        kept = MemoryRecords(self._values)
        kept.put(changes)
        write_atomically(self._path, msgspec.msgpack.encode(dict(kept)))
        self._values = kept

    def close(self) -> None:
        """Release the lock."""
        self._lock.free()


def read_file(path: Path) -> MemoryRecords:
    """The records in a file, which another process may have open; none if there is no file."""
    if not path.exists():
        return MemoryRecords()
    require_private(path)
    try:
        return MemoryRecords(msgspec.msgpack.decode(path.read_bytes(), type=dict[str, bytes]))
    except msgspec.MsgspecError:
        raise StateError(f"{path} is damaged: this opener can't open anything more") from None


class SqlRecords:
    """Records in a table of (name TEXT PRIMARY KEY, value BLOB NOT NULL) of a ledger's database."""

    def __init__(self, database: LedgerDatabase, table: str) -> None:
        self._database = database
        self._get = f"SELECT value FROM {table} WHERE name = ?"
        self._remove = f"DELETE FROM {table} WHERE name = ?"
        self._put = (
            f"INSERT INTO {table} (name, value) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        )

    def get(self, name: str) -> bytes | None:
        with self._database.reading() as access:
            rows = access.read(self._get, (name,))
        return bytes(rows[0][0]) if rows else None

    def put(self, changes: Mapping[str, bytes | None]) -> None:
        with self._database.transaction() as access:
            for name, value in changes.items():
                if value is None:
                    access.write(self._remove, (name,))
                else:
                    access.write(self._put, (name, value))


# --- what is stored ---------------------------------------------------------------------------------------


class Accepted(msgspec.Struct, frozen=True, array_like=True):
    """An epoch that this member has accepted.

    before, settlement: digests of the epoch before and of its closings; empty for one who joins with this.
    limit: the last round of the epoch before that anybody has opened; None if that is not known.
    confirmed: the members that the operator has confirmed.
    """

    number: int
    digest: bytes
    before: bytes
    settlement: bytes
    limit: int | None
    confirmed: tuple[str, ...]


class Sent(msgspec.Struct, frozen=True, array_like=True):
    """What a member has sent in an epoch.

    digests: those of its rows, by round; None where it has sent nothing.
    first: the first round whose row is still recorded.
    stopped: whether it makes no new rows; halted: why it must not, if so.
    """

    digests: tuple[bytes | None, ...] = ()
    first: int = 1
    stopped: bool = False
    halted: str = ""


class Opened(msgspec.Struct, frozen=True, array_like=True):
    """What an opener has signed in an epoch: its last partial, its round, and its closing; empty if none."""

    number: int = 0
    partial: bytes = b""
    closing: bytes = b""


class Stores:
    """The stores of the member `name`. All reading and writing of its state goes through here.

    Members of one process may share a store: the names of records begin with the member's.
    """

    def __init__(self, name: str, records: Records, vault: Records | None = None) -> None:
        self.name = name
        self._records, self._vault = records, vault
        self._both = (records,) if vault is None else (records, vault)

    def _of(self, *parts: object) -> str:
        """The name of a record."""
        return "/".join(
            [self.name, *(each.hex() if isinstance(each, bytes) else str(each) for each in parts)]
        )

    def accepted(self, federation: str) -> tuple[Accepted, ...]:
        """All epochs that this member has accepted, in their order."""
        found = [store.get(self._of(federation, "accepted")) for store in self._both]
        lists = [
            msgspec.msgpack.decode(each, type=tuple[Accepted, ...]) for each in found if each is not None
        ]
        return max(lists, key=lambda each: each[-1].number, default=())

    def accept(self, federation: str, accepted: tuple[Accepted, ...]) -> None:
        """Make both stores hold this, also if one of them had it before a crash."""
        self._put_both(self._of(federation, "accepted"), msgspec.msgpack.encode(accepted))

    def sent(self, epoch: bytes) -> Sent:
        held = self._records.get(self._of(epoch, "sent"))
        return Sent() if held is None else msgspec.msgpack.decode(held, type=Sent)

    def send(self, epoch: bytes, sent: Sent, rows: Mapping[int, bytes | None]) -> None:
        """Write what was sent, and add or remove rows, all or nothing."""
        changes = {self._of(epoch, "row", number): row for number, row in rows.items()}
        self._records.put({**changes, self._of(epoch, "sent"): msgspec.msgpack.encode(sent)})

    def row(self, epoch: bytes, number: int) -> bytes | None:
        """The record of a row."""
        return self._records.get(self._of(epoch, "row", number))

    def total(self, epoch: bytes) -> bytes | None:
        """The record of the last total."""
        return self._records.get(self._of(epoch, "total"))

    def keep_total(self, epoch: bytes, total: bytes) -> None:
        self._records.put({self._of(epoch, "total"): total})

    def opened(self, epoch: bytes) -> Opened:
        """The later of the two: the partial of the later round, and a closing if one of them has it."""
        found = [store.get(self._of(epoch, "opener")) for store in self._both]
        states = [msgspec.msgpack.decode(each, type=Opened) for each in found if each is not None]
        last = max(states, key=lambda state: state.number, default=Opened())
        closing = next((state.closing for state in states if state.closing), b"")
        return Opened(last.number, last.partial, closing)

    def open(self, epoch: bytes, opened: Opened) -> None:
        """Make both stores hold this, also if one of them had it before a crash."""
        self._put_both(self._of(epoch, "opener"), msgspec.msgpack.encode(opened))

    def secret(self, federation: str, number: int) -> bytes | None:
        """The opener's secret key of an epoch; None if there is none, or it was deleted."""
        return None if self._vault is None else self._vault.get(self._of(federation, number, "secret"))

    def keep_secret(self, federation: str, number: int, secret: bytes | None) -> None:
        if self._vault is None:
            raise InvalidInput("vault must be given for an opener: a store outside of all backups")
        self._vault.put({self._of(federation, number, "secret"): secret})

    def _put_both(self, name: str, value: bytes) -> None:
        for store in self._both:
            if store.get(name) != value:
                store.put({name: value})
