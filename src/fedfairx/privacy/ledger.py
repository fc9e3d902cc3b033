"""The append-only record of what has been released, and of which record went into which leaf.

Order of a release: freeze the leaf, record the message, send it. Each step is one durable transaction, so
a crash between any two leaves the agent either before or after it, and going on from there repeats
nothing:

- frozen but not recorded: the noise is keyed by the release number, so the same message is made again;
- recorded but not sent: the stored bytes are sent, never new ones.

The ledger holds exact sums (the open leaf and the total) and record ids. It belongs to the owner of the
data and must be kept, protected and deleted like the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fedfairx.core.statistics import Array
from fedfairx.errors import AlreadyObserved, LedgerMismatch

__all__ = ["Ledger", "MemoryLedger", "Position"]


@dataclass(frozen=True, eq=False)
class Position:
    """Where a privatizer stands: `frozen` leaves behind it, their exact `total`, and the open `leaf`."""

    frozen: int
    total: Array
    total_count: int
    leaf: Array
    leaf_count: int
    clipped: int


class Ledger(Protocol):
    """What a privatizer asks of its ledger. Every method returns only when its effect is durable.

    Guarantees:
    - A record id enters one leaf, once.
    - A release number has one content, for ever.
    - Other parameters than those first bound are refused.
    """

    def bind(self, parameters: Mapping[str, Any]) -> None:
        """Tie the ledger to a mechanism, bounds, agent and run; `LedgerMismatch` if it is tied to others."""
        ...

    def position(self) -> Position | None:
        """The last durable position, or None in a new ledger."""
        ...

    def add(self, record: str | None, position: Position) -> None:
        """Keep the position after one more record; `AlreadyObserved` if that record is in a leaf already."""
        ...

    def freeze(self, number: int, digest: str, position: Position) -> None:
        """Close leaf `number`, whose exact sums hash to `digest`, and open the next."""
        ...

    def record(self, number: int, message: bytes) -> None:
        """Keep the message of release `number`; `LedgerMismatch` if another is kept already."""
        ...

    def message(self, number: int) -> bytes | None:
        """The message of release `number`, if it has been recorded."""
        ...

    def mark_sent(self, number: int) -> None:
        """Note that release `number` has reached its transport."""
        ...

    def unsent(self) -> tuple[int, ...]:
        """Numbers recorded but not yet sent, oldest first."""
        ...

    def spent(self) -> int:
        """Releases recorded so far."""
        ...


class MemoryLedger:
    """A ledger that lives as long as the process: for simulation, tests and saved agents.

    Guarantees:
    - As `Ledger`, but nothing survives the process unless `state` is saved.
    """

    def __init__(self) -> None:
        self._parameters: dict[str, Any] | None = None
        self._records: dict[str, int] = {}
        self._digests: dict[int, str] = {}
        self._messages: dict[int, bytes] = {}
        self._unsent: set[int] = set()
        self._spent = 0
        self._position: Position | None = None

    def restore(self, position: Position) -> None:
        """Begin at a saved position."""
        self._position = position

    def bind(self, parameters: Mapping[str, Any]) -> None:
        if self._parameters is None:
            self._parameters = dict(parameters)
        refuse_other_parameters(self._parameters, parameters)

    def position(self) -> Position | None:
        return self._position

    def add(self, record: str | None, position: Position) -> None:
        if record is None:
            return
        if record in self._records:
            raise AlreadyObserved(already_in_leaf(self._records[record]))
        self._records[record] = position.frozen + 1

    def freeze(self, number: int, digest: str, position: Position) -> None:  # noqa: ARG002 (held by the owner)
        if number in self._digests:
            raise LedgerMismatch(f"leaf {number} is already frozen")
        self._digests[number] = digest

    def record(self, number: int, message: bytes) -> None:
        if self._messages.setdefault(number, message) != message:
            raise LedgerMismatch(two_contents(number))
        self._spent = max(self._spent, number)
        self._unsent.add(number)

    def message(self, number: int) -> bytes | None:
        return self._messages.get(number)

    def mark_sent(self, number: int) -> None:
        self._unsent.discard(number)

    def unsent(self) -> tuple[int, ...]:
        return tuple(sorted(self._unsent))

    def spent(self) -> int:
        return self._spent

    def state(self) -> dict[str, Any]:
        """Plain values: the parameters, the records and the last message. Earlier messages aren't kept."""
        last = self._messages.get(self._spent)
        return {
            "parameters": self._parameters,
            "records": dict(self._records),
            "spent": self._spent,
            "message": None if last is None else last.hex(),
            "digest": self._digests.get(self._spent),
            "sent": self._spent not in self._unsent,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> MemoryLedger:
        """The ledger that `state` described."""
        ledger = cls()
        ledger._parameters = None if state["parameters"] is None else dict(state["parameters"])
        ledger._records = {str(record): int(leaf) for record, leaf in state["records"].items()}
        ledger._spent = int(state["spent"])
        if state["message"] is not None:
            ledger._messages[ledger._spent] = bytes.fromhex(state["message"])
            ledger._digests[ledger._spent] = str(state["digest"])
            if not state["sent"]:
                ledger._unsent.add(ledger._spent)
        return ledger


def refuse_other_parameters(stored: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """`LedgerMismatch` that names what differs, unless the two agree."""
    differing = sorted(name for name in {*stored, *given} if stored.get(name) != given.get(name))
    if differing:
        raise LedgerMismatch(
            f"this ledger belongs to another configuration: {', '.join(differing)} differ; "
            "go on with the stored one, or start a new run with a new ledger and a budget of its own"
        )


def two_contents(number: int) -> str:
    """Error text for a second content of a release."""
    return f"release {number} is recorded with other content; a release number has one content"


def already_in_leaf(leaf: int) -> str:
    """Error text for a record that comes twice. It doesn't show the record's id."""
    return f"this record is already in leaf {leaf}; a record enters one leaf, once"
