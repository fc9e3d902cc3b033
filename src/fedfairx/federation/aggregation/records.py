"""What a member stores, and where: one record in its database, and one vault outside of it.

The record lies in the member's database, with its privacy ledger, and is written in the same transactions.
The vault is a file outside of the database that is in no backup. It knows the last row that this member has
made and holds an opener's secret keys. So a member whose database was restored from a backup notices it,
whatever the hub shows it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from fedfairx.errors import StorageUnavailable
from fedfairx.federation.aggregation.epoch import Epoch
from fedfairx.federation.aggregation.messages import PastTotal
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.storage.transaction_log import Log
from fedfairx.util.file_lock import FileLock
from fedfairx.util.files import require_private, write_atomically


class Opened(msgspec.Struct, frozen=True, array_like=True):
    """The last round that an opener has opened in an epoch: digests of its rows by sender, its partial."""

    epoch: bytes
    number: int
    rows: Mapping[str, bytes]
    partial: bytes


class Part(msgspec.Struct, frozen=True):
    """A member's part in the epoch that it is in.

    rounds: the times of the epoch's rounds.
    first, digests: the digests of its rows, from round `first` on; None where it has made none.
    row, shares: the last row, signed, and its encrypted shares by opener.
    opened: an opener's last round.
    total: the last plausible total that is known.
    """

    epoch: Epoch
    rounds: Rounds
    first: int = 1
    digests: tuple[bytes | None, ...] = ()
    row: bytes = b""
    shares: Mapping[str, bytes] = {}
    opened: Opened | None = None
    total: PastTotal | None = None

    @property
    def last(self) -> int:
        """The round of the last row; 0 before the first."""
        return self.first + len(self.digests) - 1

    @property
    def total_round(self) -> int:
        """The round of the last total; 0 before the first."""
        return 0 if self.total is None else self.total.round

    def digest_of(self, number: int) -> bytes | None:
        """The digest of the row of a round, if one was made and no later total is known."""
        return self.digests[number - self.first] if self.first <= number <= self.last else None


class Record(msgspec.Struct, frozen=True):
    """All that a member stores in its database.

    vault: the id of the vault that belongs to it.
    mark, mark_before: digests of the last two rows that were made, in any epoch; empty if there are none.
    part: its part in the epoch that it is in; None before its first.
    accepted: epochs that it has accepted and not begun, by number: others may have begun each of them.
    begun: digests of all epochs that it has begun.
    past: the last totals of earlier epochs that its agent learns from, the latest epoch first.
    halted: why it makes no row and opens nothing any more; empty while it does.
    """

    vault: bytes = b""
    mark: bytes = b""
    mark_before: bytes = b""
    part: Part | None = None
    accepted: tuple[Part, ...] = ()
    begun: tuple[bytes, ...] = ()
    past: tuple[PastTotal, ...] = ()
    halted: str = ""


class Vault(msgspec.Struct, frozen=True):
    """What a member keeps outside of its database and of all backups.

    id: made with it, so that no other vault is taken for it.
    mark: the digest of the last row, with `epoch` and `round` for the operator; empty before the first.
    secrets: an opener's X25519 keys, by the number of the epoch.
    opened: the last round that an opener has opened.
    """

    id: bytes
    federation: str
    name: str
    epoch: int = 0
    round: int = 0
    mark: bytes = b""
    secrets: Mapping[int, bytes] = {}
    opened: Opened | None = None


class ValueStore(Protocol):
    """A place for one value."""

    def read(self) -> bytes | None:
        """The value; None if there is none."""
        ...

    def write(self, value: bytes, /) -> None:
        """Replace the value. In a transaction it is durable with it, otherwise when this returns."""
        ...


class MemoryStore:
    """A value that lives as long as the process: for simulation and tests."""

    def __init__(self, value: bytes | None = None) -> None:
        self.value = value

    def read(self) -> bytes | None:
        return self.value

    def write(self, value: bytes) -> None:
        self.value = value


class FileStore:
    """A value in a file that only its owner may read, open in one process at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._lock = FileLock(self._path.with_name(self._path.name + ".lock"))

    def read(self) -> bytes | None:
        with self._available():
            if not self._path.exists():
                return None
            require_private(self._path)
            return self._path.read_bytes()

    def write(self, value: bytes) -> None:
        self._lock.check()
        with self._available():
            write_atomically(self._path, value)

    @contextmanager
    def _available(self) -> Iterator[None]:
        """Make an error of the file system one that an exchange reports, and after which it tries again."""
        try:
            yield
        except OSError as error:
            raise StorageUnavailable(f"{self._path} can't be used: {error.strerror or error}") from error

    def close(self) -> None:
        """Release the lock."""
        self._lock.free()


class SqlStore:
    """A value in the database of a member's agent, in the same transactions."""

    def __init__(self, log: Log, name: str) -> None:
        self._log, self._name = log, name

    def read(self) -> bytes | None:
        with self._log.lock:
            rows = self._log.database.execute("SELECT value FROM aggregation WHERE name = ?", (self._name,))
        return bytes(rows[0][0]) if rows else None

    def write(self, value: bytes) -> None:
        statement = (
            "INSERT INTO aggregation (name, value) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        )
        with self._log.transaction:
            self._log.write(statement, (self._name, value))


def record_in(store: ValueStore) -> Record:
    """The record in a store; a new one if there is none."""
    value = store.read()
    return Record() if value is None else msgspec.msgpack.decode(value, type=Record)


def vault_in(store: ValueStore) -> Vault | None:
    """The vault in a store; None if there is none, or it is damaged."""
    value = store.read()
    try:
        return None if value is None else msgspec.msgpack.decode(value, type=Vault)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
