"""The append-only record of what has been released, and of which record went into which leaf.

Order of a release: freeze the leaf, record the message, send it. Each of these is one durable transaction, so
a crash between any two leaves the agent either before or after it, and continuing from there repeats
nothing:

- frozen but not recorded: the noise is keyed by the frozen leaf, so the same message is made again;
- recorded but not sent: the stored bytes are sent, never new ones.

Each frozen leaf has a place in the world: 32 bytes, chained,

    place_0 = H(0, salt_0, parameters),   place_k = H(place_{k-1}, salt_k, digest of leaf k),

and the base noise of release k is drawn for (k, place_k). The salts are fresh bytes of the operating system,
so the noise of a leaf that is frozen again is independent of all earlier noise, whatever was deleted or
restored and whatever the data are. The digest is for a machine that was cloned with its random numbers: there
the salts are the same, and other data still get other noise.

The ledger holds exact sums (the open leaf and the total) and record ids. Where the records of a person are
bounded, their counts lie beside it. Both belong to the owner of the data and must be kept, protected and
deleted like the data.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedfairx.errors import AlreadyObserved, LedgerMismatch, PrivacyError
from fedfairx.privacy.release import NoCopy
from fedfairx.util.arrays import Array
from fedfairx.util.canonical_json import canonical

SALT_BYTES = 32


@dataclass(frozen=True, eq=False)
class Position:
    """Position of a privatizer: number of `frozen` leaves, their exact `total`, and the open `leaf`.

    Guarantees:
    - Printing one shows no sums.
    """

    frozen: int
    total: Array = field(repr=False)
    total_count: int
    leaf: Array = field(repr=False)
    leaf_count: int
    clipped: int


class Ledger(Protocol):
    """The ledger of a privatizer. Every method returns only when its effect is durable.

    Guarantees:
    - A record id enters one leaf, once.
    - A release number always has the same content.
    - Other parameters than those first bound are refused.
    - No two leaves of any ledgers have the same place, and the place of a frozen leaf never changes.
    """

    def bind(self, parameters: Mapping[str, Any]) -> None:
        """Bind the ledger to a mechanism, bounds, agent and run; `LedgerMismatch` if bound to others."""

    def position(self) -> Position | None:
        """Return the last durable position, or None in a new ledger."""

    def add(self, record: str | None, position: Position) -> None:
        """Store the position after one more record; `AlreadyObserved` if a leaf already has that record."""

    def give_leaf(self, position: Position) -> tuple[str, ...]:
        """Forget the records of the open leaf and return their ids; `position` has an empty one."""

    def take_leaf(self, records: tuple[str, ...], position: Position) -> None:
        """Store the position after these records, from another ledger's open leaf, as for `add`."""

    def freeze(self, number: int, digest: str, position: Position) -> None:
        """Close leaf `number`, whose exact sums hash to `digest`, and open the next."""

    def place(self, number: int) -> bytes:
        """Return the place that the noise of release `number` is drawn for; its leaf must be frozen."""

    def record(self, number: int, message: bytes) -> None:
        """Store the message of release `number`; `LedgerMismatch` if another is stored already."""

    def message(self, number: int) -> bytes | None:
        """Return the message of release `number`; None if it is not recorded."""

    def mark_sent(self, number: int) -> None:
        """Note that release `number` has reached its transport."""

    def unsent(self) -> tuple[int, ...]:
        """Return the numbers recorded but not yet sent, oldest first."""

    def spent(self) -> int:
        """Return the number of releases recorded so far."""

    def leaf_of(self, record: str | int) -> int | None:
        """Return the leaf that a record entered, for the owner only; None if it has entered none."""


class MemoryLedger(NoCopy):
    """A ledger that lives as long as the process: for simulation and tests.

    random: returns n random bytes for the places; only audits and tests replace it.

    >>> MemoryLedger().spent()
    0

    Guarantees:
    - As `Ledger`, but nothing survives the process.
    - It can't be copied.
    """

    def __init__(self, *, random: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._random = random
        self._parameters: dict[str, Any] | None = None
        self._records: dict[str, int] = {}
        self._places: list[bytes] = []  # of the parameters, and of each frozen leaf
        self._messages: dict[int, bytes] = {}
        self._unsent: set[int] = set()
        self._spent = 0
        # The last record and the position after it are set in one assignment, so that an interruption leaves
        # both or neither. The next call files the record among the others.
        self._last: tuple[str | None, Position | None] = (None, None)

    def restore(self, position: Position, places: Sequence[bytes] = ()) -> None:
        """Set a position, and the places of its leaves, whose releases were made and sent."""
        self._last = None, position
        self._places += places
        self._spent = max(self._spent, len(places))

    def _file(self) -> dict[str, int]:
        """File the last record, and return all."""
        record, position = self._last
        if record is not None and position is not None:
            self._records[record] = position.frozen + 1
        return self._records

    def bind(self, parameters: Mapping[str, Any]) -> None:
        if self._parameters is None:
            self._places = [next_place(bytes(32), self._random(SALT_BYTES), canonical(dict(parameters)))]
            self._parameters = dict(parameters)
        refuse_other_parameters(self._parameters, parameters)

    def position(self) -> Position | None:
        return self._last[1]

    def add(self, record: str | None, position: Position) -> None:
        records = self._file()
        if record is not None and record in records:
            raise AlreadyObserved(already_in_leaf(records[record]))
        self._last = record, position

    def give_leaf(self, position: Position) -> tuple[str, ...]:
        records = self._file()
        of_leaf = tuple(record for record, leaf in records.items() if leaf == position.frozen + 1)
        self._last = None, position
        for record in of_leaf:
            del records[record]
        return of_leaf

    def take_leaf(self, records: tuple[str, ...], position: Position) -> None:
        leaves = self._file()
        for record in records:
            if record in leaves:
                raise AlreadyObserved(already_in_leaf(leaves[record]))
        self._last = None, position
        leaves.update(dict.fromkeys(records, position.frozen + 1))

    def freeze(self, number: int, digest: str, position: Position) -> None:
        if not self._places:
            raise LedgerMismatch(UNBOUND)
        if number != self._frozen + 1:
            raise LedgerMismatch(not_next(self._frozen + 1, number))
        self._file()
        place = next_place(self._places[number - 1], self._random(SALT_BYTES), digest.encode())
        self._places[number:] = [place]  # replaces one that an interruption left unused
        self._last = None, position

    @property
    def _frozen(self) -> int:
        position = self.position()
        return 0 if position is None else position.frozen

    def place(self, number: int) -> bytes:
        if not 1 <= number <= self._frozen:
            raise PrivacyError(not_frozen(number))
        return self._places[number]

    def record(self, number: int, message: bytes) -> None:
        if self._messages.setdefault(number, message) != message:
            raise LedgerMismatch(two_contents(number))
        self._unsent.add(number)
        self._spent = max(self._spent, number)

    def message(self, number: int) -> bytes | None:
        return self._messages.get(number)

    def mark_sent(self, number: int) -> None:
        self._unsent.discard(number)

    def unsent(self) -> tuple[int, ...]:
        return tuple(sorted(self._unsent))

    def spent(self) -> int:
        return self._spent

    def leaf_of(self, record: str | int) -> int | None:
        return self._file().get(str(record))


class Persons(Protocol):
    """Number of records of each person. As secret as the ledger.

    Guarantees:
    - Every method returns only when its effect is as durable as the ledger's.
    """

    def bind(self, records: int) -> None:
        """Bind the counts to a limit; `LedgerMismatch` if they are bound to another."""

    def count(self, person: str, change: int) -> int:
        """Add `change` to the number of records of a person, and return the new number."""

    def of(self, person: str) -> int:
        """Return the number of records of one person."""

    def total(self) -> int:
        """Return the number of records of all persons."""


class MemoryPersons:
    """Counts in memory.

    >>> persons = MemoryPersons()
    >>> persons.count("ann", 1), persons.total()
    (1, 1)

    Guarantees:
    - As `Persons`; `repr` shows nobody.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.records: int | None = None

    def bind(self, records: int) -> None:
        if self.records not in (None, records):
            text = f"these persons are counted for records={self.records}, got records={records}"
            raise LedgerMismatch(f"{text}; a run keeps its limit")
        self.records = records

    def count(self, person: str, change: int) -> int:
        self.counts[person] = self.of(person) + change
        return self.counts[person]

    def of(self, person: str) -> int:
        return self.counts.get(person, 0)

    def total(self) -> int:
        return sum(self.counts.values())


UNBOUND = "a ledger must be bound to its parameters before a leaf is frozen"


def next_place(before: bytes, salt: bytes, content: bytes) -> bytes:
    """Return the place after `before` of a leaf, or of the parameters, with this content."""
    return hashlib.sha256(before + salt + content).digest()


def refuse_other_parameters(stored: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
    """Raise `LedgerMismatch`, naming what differs, unless the two agree."""
    differing = sorted(name for name in {*stored, *parameters} if stored.get(name) != parameters.get(name))
    if differing:
        raise LedgerMismatch(
            f"this ledger belongs to another configuration: {', '.join(differing)} differ; "
            "continue with the stored one, or start a new run with a new ledger and a new budget"
        )


def two_contents(number: int) -> str:
    """Error text for a second content of a release."""
    return f"release {number} is recorded with other content; a release number has one content"


def not_next(following: int, number: int) -> str:
    """Error text for a leaf out of turn."""
    return f"leaf {following} is the next to freeze, got leaf {number}"


def not_frozen(number: int) -> str:
    """Error text for the place of a leaf that is not frozen."""
    return f"leaf {number} is not frozen, so there is no noise for release {number}"


def already_in_leaf(leaf: int) -> str:
    """Error text for a record that is added twice. It doesn't show the record's id."""
    return f"this record is already in leaf {leaf}; a record enters one leaf, once"
