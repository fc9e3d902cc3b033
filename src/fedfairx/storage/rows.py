"""Rows of the log: how decisions and outcomes are stored, and the steps that they are.

A decision of one slot of weight 1 has no `slots`, and one outcome, of slot 0. One with several slots has an
outcome for each of them, from slot 1 on, and then that of slot 0, which ends it and has the sum of theirs. An
outcome with a higher `turn` replaces the reward of the first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.json import Decoder

from fedfairx.core.slates import ONE, Weights
from fedfairx.decision import REWARDED, Decision, DecisionNote
from fedfairx.steps import Decided, Ended, Replaced
from fedfairx.storage.database import Row
from fedfairx.storage.seals import (
    DECISION,
    EVENT,
    NOTED_DECISION,
    OUTCOME,
    PLAIN_DECISION,
    PLAIN_OUTCOME,
)
from fedfairx.util.arrays import Array

LONG = 10_000  # characters of names, from which on few decisions' are kept
#: The tables of a log: each row of one of them is a step, or a part of one.
TABLES = ("decisions", "outcomes", "events")


class Insertion(NamedTuple):
    """A statement that inserts a row with its seal. Columns that it leaves out have their defaults."""

    table: str
    statement: str


def _insertion(table: str, columns: str) -> Insertion:
    marks = ", ".join("?" * (columns.count(",") + 2))
    return Insertion(table, f"INSERT INTO {table} ({columns}, seal) VALUES ({marks})")


#: Each value takes time, so rows whose last columns have their defaults leave them out.
INSERT_DECISION = _insertion("decisions", DECISION)
INSERT_NOTED_DECISION = _insertion("decisions", NOTED_DECISION)
INSERT_PLAIN_DECISION = _insertion("decisions", PLAIN_DECISION)
INSERT_OUTCOME = _insertion("outcomes", OUTCOME)
INSERT_PLAIN_OUTCOME = _insertion("outcomes", PLAIN_OUTCOME)
INSERT_EVENT = _insertion("events", EVENT)
INSERTIONS = (
    INSERT_DECISION,
    INSERT_NOTED_DECISION,
    INSERT_PLAIN_DECISION,
    INSERT_OUTCOME,
    INSERT_PLAIN_OUTCOME,
    INSERT_EVENT,
)


class DecisionRow(NamedTuple):
    """A row of `DECISION` and its seal."""

    seq: int
    agent: int
    time: int
    contexts: bytes
    policy: bytes
    theta: bytes
    action: int
    drawn: int
    propensity: float
    mode: str
    baseline: int | None
    control_share: float
    model_version: int
    names: str | None
    groups: str | None
    key: str | None
    digest: str | None
    extra: str | None
    slots: str | None
    seal: bytes

    def decided(self, origin: str) -> Decided:
        """The step. Of a decision that has lost its content only number, time and slots are left.

        One from before the log has no policy: its `contexts` are those that were shown, and then the policy.
        Its `names` are those that were shown.
        """
        slots = (
            SlotsColumn((1.0,), [self.action], [self.drawn]) if self.slots is None else read_slots(self.slots)
        )
        shown, weights = slots.shown, ONE if self.slots is None else slots.weights
        instead = None if slots.drawn in (None, shown) else slots.drawn
        arms, dimension = len(self.policy) // 8, len(self.theta) // 8
        names = None if self.names is None else json.loads(self.names)
        if arms or not self.contexts:
            contexts = [context_bytes(self.contexts, row, dimension) for row in shown] if arms else []
            values = floats(b"".join((self.policy, self.theta, *contexts)))
            labels = None if names is None else [names[row] for row in shown]
        else:
            end = len(self.theta) * len(shown)
            values = floats(b"".join((self.contexts[end:], self.theta, self.contexts[:end])))
            arms, labels = (len(self.contexts) - end) // 8, names
        decision = Decision(
            self.seq, shown, values, arms, weights, labels, origin, self.time, self.propensity, instead
        )
        return Decided(decision, names=names)


class OutcomeRow(NamedTuple):
    """A row of `OUTCOME` and its seal."""

    seq: int
    agent: int
    decision: int
    time: int
    reward: float | None
    status: str
    person: str | None
    slot: int
    turn: int
    seal: bytes

    @property
    def learnt(self) -> float | None:
        """The reward as it was learnt: one that was not a number is stored as NULL."""
        return float("nan") if self.reward is None and self.status == REWARDED else self.reward

    def step(self, newest: OutcomeRow | None, previous: OutcomeRow | None) -> Ended | Replaced:
        """The step, with the reward of the outcome that has replaced it last.

        previous: the outcome before it, which shows whether it is the sum of the rewards of slots.
        """
        reward = self.learnt if newest is None else newest.learnt
        if self.turn:
            return Replaced(self.decision, reward, self.person, self.slot, self.turn)
        if self.slot:
            return Ended(self.decision, {self.slot - 1: reward}, self.status, self.person)
        if previous is not None and previous.slot and previous.decision == self.decision:
            return Ended(self.decision, {}, self.status)
        return Ended(self.decision, {0: reward}, self.status, self.person)


class EventRow(NamedTuple):
    """A row of `EVENT` and its seal."""

    seq: int
    agent: int
    time: int
    kind: str
    body: bytes
    seal: bytes

    @property
    def numbers(self) -> int:
        """How many numbers of the log it takes."""
        return int.from_bytes(self.body[:HEAD], "little")

    @property
    def content(self) -> bytes:
        """The packed event."""
        return self.body[HEAD:]


HEAD = 8  # bytes of an event's body that say how many numbers it takes


def event_body(content: bytes, numbers: int = 1) -> bytes:
    """The stored body of an event: how many numbers it takes, and its content."""
    return numbers.to_bytes(HEAD, "little") + content


_D, _O = len(DecisionRow._fields), len(OutcomeRow._fields)


class WholeRow(NamedTuple):
    """A decision, its outcome or that of a slot, and the outcome that replaced that one last."""

    decision: DecisionRow
    first: OutcomeRow | None
    newest: OutcomeRow | None


def whole_row(row: Row) -> WholeRow:
    """Name the columns of a decision, an outcome and another outcome in one row."""
    return WholeRow(DecisionRow(*row[:_D]), *outcome_rows(row[_D:]))


def outcome_rows(row: Row) -> tuple[Any, OutcomeRow | None]:
    """Name the columns of an outcome and another outcome in one row; None for one that is not there."""
    first, newest = row[:_O], row[_O:]
    return (
        None if first[0] is None else OutcomeRow(*first),
        None if newest[0] is None else OutcomeRow(*newest),
    )


# --- columns ----------------------------------------------------------------------------------------------


class SlotsColumn(Struct, frozen=True, gc=False):
    """The column `slots` of a decision: the weights of its slots, and actions in their order.

    drawn: None if what was drawn was shown.
    baseline: that of the note, if any.
    """

    weights: Weights
    shown: list[int]
    drawn: list[int] | None = None
    baseline: list[int] | None = None


read_slots: Callable[[str], SlotsColumn] = Decoder(SlotsColumn).decode


def shown_in(action: int, slots: str | None) -> list[int]:
    """The actions of a decision, by its columns `action` and `slots`, in the order of slots."""
    return [action] if slots is None else read_slots(slots).shown


def slots_text(decision: Decision, note: DecisionNote | None) -> str | None:
    """A `SlotsColumn` as JSON; None for one slot of weight 1."""
    if decision.weights is ONE:
        return None
    values: dict[str, Any] = {"weights": decision.weights}
    if decision.taken_instead_of is not None:
        values["drawn"] = decision.taken_instead_of
    if note is not None and note.baseline is not None:
        values["baseline"] = note.baseline
    values["shown"] = decision.shown  # the last one, and without spaces: queries find an action in it by LIKE
    return json.dumps(values, separators=(",", ":"))


class Rewarded(NamedTuple):
    """A record as it was stored: of an action in a slot of this weight, and its name, if it has one."""

    context: Array
    reward: float | None
    weight: float
    name: str | None


@lru_cache(4_096)
def _few_labels(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


@lru_cache(8)  # of many actions there are other names in every decision, or the same in all
def _many_labels(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def labels_of(text: str | None) -> tuple[str, ...] | None:
    """The names or groups of a decision's actions, by their column; the same object for the same text."""
    if text is None:
        return None
    return _few_labels(text) if len(text) < LONG else _many_labels(text)


def floats(blob: bytes) -> Array:
    return np.frombuffer(blob, dtype="<f8").astype(np.float64)


def context_of(blob: bytes, row: int, dimension: int) -> Array:
    """One row (d,) of contexts (K, d), without unpacking the others."""
    return floats(context_bytes(blob, row, dimension))


def context_bytes(blob: bytes, row: int, dimension: int) -> bytes:
    """The bytes of `context_of`."""
    return blob[8 * dimension * row : 8 * dimension * (row + 1)]


def as_json(values: Sequence[str | None]) -> str:
    from msgspec.json import encode

    return encode(values, enc_hook=str).decode()
