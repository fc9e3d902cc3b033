"""Steps: all that can happen to an agent. They are the one vocabulary of its log.

An agent changes only by steps (`agent.core`), whether they happen now or are replayed from the log. A step is
written before its effect is acknowledged, whole or not at all. Some steps change how earlier ones are read:
`Replaced`, `Dropped`, `Deleted` and `RolledBack` have no effect of their own when a log is replayed.

Decisions and outcomes have tables of their own (`storage.rows`). Every other step is an event: `kind_of` and
`pack` say how it is stored, and `UNPACK` reads it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from msgspec import Struct
from msgspec.json import decode, encode

from fedfairx.decision import REWARDED, Decision, DecisionNote
from fedfairx.features import Schema
from fedfairx.privacy import Release
from fedfairx.util.arrays import Array


class Decided(Struct, frozen=True, gc=False):
    """A decision was made among actions with these contexts (K, d).

    names: of all actions, if they have any. `contexts` is None in a step that was read: an agent needs only
    those of the actions that were shown, which are in the decision.
    """

    decision: Decision
    contexts: Array | None = None
    names: Sequence[str] | None = None
    note: DecisionNote | None = None


class Ended(Struct, frozen=True, gc=False):
    """Slots of a decision, by number from 0 on, got these rewards. It has ended once no slot waits.

    A slot without a reward was withdrawn, if `status` is "rewarded"; else it has this status too. In a log
    each slot of several has a row, and the sum of their rewards another one: a step without rewards.
    """

    decision: int
    rewards: Mapping[int, float | None]
    status: str = REWARDED
    person: str | int | None = None


class Replaced(Struct, frozen=True):
    """Another reward takes the place of an earlier one: that of row `slot` of a decision's outcomes."""

    decision: int
    reward: float | None  # None once it was deleted
    person: str | None
    slot: int
    turn: int  # 1 for the first that replaces another


class _Fields(Struct, frozen=True):
    """An event whose fields are stored as JSON."""

    def pack(self) -> bytes:
        return encode(self)

    @classmethod
    def unpack(cls, body: bytes) -> Self:
        return decode(body, type=cls)


class _Run(Struct, frozen=True):
    """An event of which the number of a private agent's budget is stored."""

    run: int

    def pack(self) -> bytes:
        return str(self.run).encode()

    @classmethod
    def unpack(cls, body: bytes) -> Self:
        return cls(int(body))


class Learnt(Struct, frozen=True):
    """Records of actions that were shown elsewhere: contexts (n, d), rewards, and names, if they have any."""

    rows: Array
    rewards: Sequence[float]
    weights: Array | None = None  # of their slots; 1 by default
    names: Sequence[str] | None = None

    kind: ClassVar[str] = "learn"
    weighted: ClassVar[str] = "learn weighted"
    named: ClassVar[str] = "learn named"

    def pack(self) -> bytes:
        body: Any = self.rows
        weights = np.ones(len(self.rows)) if self.weights is None and self.names is not None else self.weights
        if weights is not None:
            body = np.column_stack([body, weights])
        head, rewards = len(self.rows).to_bytes(8, "little"), np.array(self.rewards, "<f8")
        numbers = b"".join((head, body.astype("<f8").tobytes(), rewards.tobytes()))
        if self.names is None:
            return numbers
        return len(numbers).to_bytes(8, "little") + numbers + encode(list(self.names))

    @classmethod
    def unpack(cls, body: bytes) -> Self:
        if not body:  # dropped by age
            return cls(np.empty((0, 0)), ())
        count = int.from_bytes(body[:8], "little")
        numbers = np.frombuffer(body[8:], dtype="<f8").astype(np.float64)
        return cls(numbers[:-count].reshape(count, -1), numbers[-count:].tolist())

    @classmethod
    def unpack_weighted(cls, body: bytes) -> Self:
        step = cls.unpack(body)
        if not body:
            return step
        weights = np.asarray(step.rows[:, -1], dtype=np.float64)
        return cls(step.rows[:, :-1].copy(), step.rewards, weights)

    @classmethod
    def unpack_named(cls, body: bytes) -> Self:
        if not body:
            return cls.unpack(body)
        end = 8 + int.from_bytes(body[:8], "little")
        step = cls.unpack_weighted(body[8:end])
        return cls(step.rows, step.rewards, step.weights, decode(body[end:]))


class Aged(Struct, frozen=True):
    """All sums decayed to the time of the step."""

    kind: ClassVar[str] = "age"

    def pack(self) -> bytes:
        return b""

    @classmethod
    def unpack(cls, _body: bytes) -> Self:
        return cls()


class Released(Struct, frozen=True):
    """The agent made the release of this number, of its first `records` records since the last one.

    A step that was read has no `release`, since the privatizer has it, and is of all records.
    """

    number: int
    records: int | None = None
    release: Release | None = None

    kind: ClassVar[str] = "release"

    def pack(self) -> bytes:
        return str(self.number).encode()

    @classmethod
    def unpack(cls, body: bytes) -> Self:
        return cls(int(body))


class Absorbed(Struct, frozen=True):
    """Releases of other agents were taken, by name."""

    releases: Mapping[str, Release]

    kind: ClassVar[str] = "absorb"

    def pack(self) -> bytes:
        return encode({name: release.to_bytes().hex() for name, release in self.releases.items()})

    @classmethod
    def unpack(cls, body: bytes) -> Self:
        return cls({name: _release(text) for name, text in decode(body).items()})


class PeersDropped(Struct, frozen=True):
    """What these agents had sent was dropped."""

    names: Sequence[str]

    kind: ClassVar[str] = "part"

    def pack(self) -> bytes:
        return encode(self.names)

    @classmethod
    def unpack(cls, body: bytes) -> Self:
        return cls(decode(body))


class TotalAdded(Struct, frozen=True):
    """With secure aggregation: the last total of an epoch of so many other members was taken."""

    total: Release
    members: int

    kind: ClassVar[str] = "total"

    def pack(self) -> bytes:
        return encode([self.total.to_bytes().hex(), self.members])

    @classmethod
    def unpack(cls, body: bytes) -> Self:
        text, members = decode(body)
        return cls(_release(text), int(members))


class RunBegun(_Run, frozen=True):
    """A private agent continues under its budget of this number."""

    kind: ClassVar[str] = "run"


class EpochBegun(_Run, frozen=True):
    """With secure aggregation: an epoch began, under the budget of this number."""

    kind: ClassVar[str] = "epoch"


class ActionsChanged(_Fields, frozen=True):
    """Declared actions were added or retired (`how` is "add" or "retire")."""

    how: str
    names: Sequence[str]

    kind: ClassVar[str] = "actions"


class NamesForgotten(_Fields, frozen=True):
    """The own records of these names, which were not shown for longest, were forgotten."""

    names: Sequence[str]

    kind: ClassVar[str] = "forget names"


class SchemaExtended(Struct, frozen=True):
    """The schema of features got a later version."""

    schema: Schema

    kind: ClassVar[str] = "schema"

    def pack(self) -> bytes:
        return encode(self.schema.to_dict())

    @classmethod
    def unpack(cls, body: bytes) -> Self:
        return cls(Schema.from_dict(decode(body)))


# --- steps that change how earlier ones are read ----------------------------------------------------------


class Dropped(_Fields, frozen=True):
    """Old rows lost their content, all of them so far: how many, which, and by what rule.

    before: all of them have smaller numbers.
    until: they were made before this time, in microseconds since 1970.
    whole_from: no decision before this number has content.
    """

    dropped: int = 0
    before: int = 0
    until: int = 0
    rule: str = ""
    whole_from: int = 0

    kind: ClassVar[str] = "drop"


class Deleted(_Fields, frozen=True):
    """The rows of these numbers lost their content, with the records of a person."""

    rows: Sequence[int]

    kind: ClassVar[str] = "delete"


class RolledBack(_Fields, frozen=True):
    """What was learnt in step `to` and in later ones was undone: the agent went back to `time`."""

    to: int
    time: int  # microseconds since 1970

    kind: ClassVar[str] = "rollback"


Event = (
    Learnt
    | Aged
    | Released
    | Absorbed
    | PeersDropped
    | TotalAdded
    | RunBegun
    | EpochBegun
    | ActionsChanged
    | NamesForgotten
    | SchemaExtended
    | Dropped
    | Deleted
    | RolledBack
)
Step = Decided | Ended | Replaced | Event

#: How the body of an event of each kind is read.
UNPACK: dict[str, Callable[[bytes], Event]] = {event.kind: event.unpack for event in Event.__args__}
UNPACK[Learnt.weighted] = Learnt.unpack_weighted
UNPACK[Learnt.named] = Learnt.unpack_named
#: Kinds of events that hold records, that change how earlier rows are read, that make rewards final.
LEARNING = (Learnt.kind, Learnt.weighted, Learnt.named)
AMENDING = (Dropped.kind, Deleted.kind, RolledBack.kind)
SEALING = (Released.kind, RunBegun.kind, EpochBegun.kind)


def kind_of(event: Event) -> str:
    """The kind under which an event is stored."""
    if isinstance(event, Learnt) and event.names is not None:
        return Learnt.named
    weighted = isinstance(event, Learnt) and event.weights is not None
    return Learnt.weighted if weighted else event.kind


def numbers_of(event: Event) -> int:
    """How many numbers of the log an event takes: one, or one for each of its records."""
    return len(event.rows) if isinstance(event, Learnt) else 1


def _release(text: str) -> Release:
    return Release.from_bytes(bytes.fromhex(text))
