"""At most k records of a person: what turns the promise for a record into one for a person.

k records of one person lie in at most k leaves and change each by at most Δ, so the transcript is kμ-GDP
for changing all of them. A record beyond the k-th is blanked: it adds nothing and still counts, because the
number of records is public and must not tell whose they are.

Who has how many is counted before the record enters. A crash in between costs the person a record and never
gives one too many.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from fedfairx.errors import (
    AlreadyObserved,
    InvalidInput,
    LedgerMismatch,
    ReplacementRefused,
    StateError,
    require,
)
from fedfairx.privacy.guarantee import Guarantee
from fedfairx.privacy.ledger.ledger import MemoryLedger
from fedfairx.privacy.mechanisms.gaussian import PublicMechanism
from fedfairx.privacy.privatizers.consecutive import stream_of
from fedfairx.privacy.privatizers.protocol import Amending
from fedfairx.privacy.privatizers.stream import Privatizer
from fedfairx.privacy.release import Release
from fedfairx.util.arrays import Array
from fedfairx.util.file_lock import FileLock

_SCHEMA = """
CREATE TABLE IF NOT EXISTS persons (person TEXT PRIMARY KEY, records INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bound (id INTEGER PRIMARY KEY CHECK (id = 1), records INTEGER NOT NULL);
"""


class Persons(Protocol):
    """How many records each person has brought. The owner's secret, like the ledger.

    Guarantees:
    - Every method returns only when its effect is as durable as the rest.
    """

    def bind(self, records: int) -> None:
        """Tie it to a limit; `LedgerMismatch` if it is tied to another."""
        ...

    def count(self, person: str, change: int) -> int:
        """Count a record more, or less, and say how many that makes."""
        ...

    def of(self, person: str) -> int:
        """Records of one person."""
        ...

    def total(self) -> int:
        """Records of all persons."""
        ...


class MemoryPersons:
    """Counts that live as long as the process and `PersonBound.state`.

    Guarantees:
    - As `Persons`; `repr` shows nobody.
    """

    def __init__(self, counts: Mapping[str, int] | None = None, *, records: int | None = None) -> None:
        self.counts = dict(counts or {})
        self.records = records

    def bind(self, records: int) -> None:
        if self.records not in (None, records):
            raise LedgerMismatch(_another_limit(self.records, records))
        self.records = records

    def count(self, person: str, change: int) -> int:
        self.counts[person] = self.counts.get(person, 0) + change
        return self.counts[person]

    def of(self, person: str) -> int:
        return self.counts.get(person, 0)

    def total(self) -> int:
        return sum(self.counts.values())


class SqlitePersons:
    """Counts in a file of the owner's, for a privatizer whose ledger is a file.

    Guarantees:
    - As `Persons`; what was counted survives kill -9 and power failure.
    - Only its owner may read the file: it holds the persons' ids.
    - Only one process at a time has it open; another is refused, and so is a forked child.
    """

    def __init__(self, path: str | Path) -> None:
        file = Path(path).resolve()  # however it is called, it is one file
        self._lock = FileLock(file.with_name(file.name + ".lock"))
        try:
            if not file.exists():
                os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            elif os.stat(file).st_mode & 0o077:
                os.chmod(file, 0o600)
            self._connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.executescript(_SCHEMA)
        except BaseException:
            self._lock.free()
            raise

    def bind(self, records: int) -> None:
        self._lock.check()
        self._connection.execute("INSERT OR IGNORE INTO bound VALUES (1, ?)", (records,))
        stored = self._connection.execute("SELECT records FROM bound").fetchone()[0]
        if stored != records:
            raise LedgerMismatch(_another_limit(stored, records))

    def count(self, person: str, change: int) -> int:
        self._lock.check()
        row = self._connection.execute(
            "INSERT INTO persons VALUES (?, ?) ON CONFLICT (person) DO UPDATE SET records = records + ? "
            "RETURNING records",
            (person, change, change),
        ).fetchone()
        return int(row[0])

    def of(self, person: str) -> int:
        self._lock.check()
        row = self._connection.execute("SELECT records FROM persons WHERE person = ?", (person,)).fetchone()
        return 0 if row is None else int(row[0])

    def total(self) -> int:
        self._lock.check()
        return int(self._connection.execute("SELECT COALESCE(SUM(records), 0) FROM persons").fetchone()[0])

    def close(self) -> None:
        """Close the file and release its lock."""
        self._connection.close()
        self._lock.free()


class PersonBound:
    """A privatizer that lets at most `records` records of one person into the sums.

    `dropped` counts the records beyond that since it was made: for the owner only, never sent.

    Guarantees:
    - Of one person at most `records` records enter, over all leaves, crashes and restarts.
    - All messages together are kμ-GDP, k = `records`, for changing all records of one person.
    - A record beyond the limit is taken, counts, and adds nothing; `amend` leaves it so.
    - A record without a person is refused; so are another limit and counts that miss records of the ledger.
    - No error and no `repr` shows a person.
    """

    takes_persons = True

    def __init__(self, inner: Privatizer, *, records: int, persons: Persons | None = None) -> None:
        require(records >= 1, "records", "must be >= 1", records)
        stream = stream_of(inner)
        ledger = None if stream is None else stream.ledger
        durable = ledger is not None and not isinstance(ledger, MemoryLedger)
        require(
            not durable or persons is not None,
            "persons",
            "must be given with a durable ledger, such as SqlitePersons",
            persons,
        )
        self.inner = inner
        self.records = records
        self.persons: Persons = MemoryPersons() if persons is None else persons
        self.persons.bind(records)
        here = None if ledger is None else ledger.position()
        held = int(getattr(inner, "count_before", 0))  # of the run that a `ContinuedPrivatizer` goes on from
        if here is not None:
            held += here.total_count + here.leaf_count
        if self.persons.total() < held:
            raise LedgerMismatch(
                "the ledger holds records whose persons were not counted; start a new run with a new ledger"
            )
        self._blank: tuple[Array, float] = getattr(inner, "blank", (np.zeros(inner.dimension), 0.0))
        self.dropped = 0

    @property
    def dimension(self) -> int:
        return self.inner.dimension

    @property
    def mechanism(self) -> PublicMechanism:
        return self.inner.mechanism

    @property
    def guarantee(self) -> Guarantee:
        """The inner one, and what it makes of the promise to a person."""
        return replace(self.inner.guarantee, person_records=self.records)

    def add(
        self,
        context: Array,
        reward: float,
        record: str | int | None = None,
        person: str | int | None = None,
    ) -> None:
        """Take one record of `person` into the open leaf, blank if there were `records` of them before."""
        if person is None:
            raise InvalidInput("person must be given: this privatizer lets a number of records of each enter")
        known = str(person)
        within = self.persons.count(known, 1) <= self.records
        x, y = (context, reward) if within else self._blank
        try:
            self.inner.add(x, y, record)
        except (AlreadyObserved, InvalidInput):  # nothing has entered
            self.persons.count(known, -1)
            raise
        self.dropped += not within

    def amend(
        self,
        context: Array,
        old: float,
        new: float,
        record: str | int,
        *,
        person: str | None = None,
        turn: tuple[int, int] = (1, 1),
    ) -> None:
        """Put the reward `new` into the place of `old`, in a record of the open leaf. A blank one stays so.

        turn: which of how many records of the person it is.
        """
        place, of = turn
        held = 0 if person is None else self.persons.of(person)
        if held > self.records and held != of:
            raise ReplacementRefused(
                f"this record's person has brought more than {self.records}, some of them without a decision "
                "(`learn`), and which of them have entered is not kept"
            )
        if held <= self.records or place <= self.records:
            cast("Amending", self.inner).amend(context, old, new, record)

    def release(self, number: int | None = None) -> Release:
        return self.inner.release(number)

    def state(self) -> dict[str, Any]:
        """All it needs to go on; as secret as the data."""
        if not isinstance(self.persons, MemoryPersons):
            raise StateError("persons that are counted in a file stay there; open it again instead")
        return {
            "schema": 1,
            "records": self.records,
            "dropped": self.dropped,
            "persons": dict(self.persons.counts),
            "inner": self.inner.state(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], *, inner: Privatizer) -> PersonBound:
        """The privatizer that `state` described; `inner` is what `state["inner"]` describes."""
        if state.get("schema") != 1:
            raise StateError(f"schema must be 1, got schema={state.get('schema')!r}")
        counts = {str(person): int(count) for person, count in state["persons"].items()}
        bound = cls(inner, records=int(state["records"]), persons=MemoryPersons(counts))
        bound.dropped = int(state["dropped"])
        return bound

    def __getattr__(self, name: str) -> Any:
        """What else a privatizer tells of itself: `spent`, `clipped` and the like."""
        if name == "inner":  # not made yet
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        return f"PersonBound(records={self.records})"


def _another_limit(stored: int | None, given: int) -> str:
    return f"these persons are counted for records={stored}, got records={given}; a run keeps its limit"
