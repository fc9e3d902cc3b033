"""One agent's part of a log: writing its steps, and reading them.

Every row is checked against its seal when it is read (`seals`): a damaged one raises a `StateError` that
names its step.
"""

from __future__ import annotations

import heapq
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from fedfairx.errors import KeyTaken, StateError, StorageUnavailable, require
from fedfairx.storage.amendments import AMENDING, Amendments, amendments, is_blank, marks
from fedfairx.storage.database import Ask, Row, damaged, pages
from fedfairx.storage.decision_ids import IdPrefixes
from fedfairx.storage.records import (
    STATUSES,
    DecisionNote,
    StoredDecision,
    StoredSlot,
    as_json,
    context_of,
    floats,
    packed_contexts,
)
from fedfairx.storage.seals import (
    DECISION,
    DIGEST,
    EVENT,
    NO_TEXTS,
    OUTCOME,
    PREVIOUS,
    SALT,
    START,
    columns,
    packed_rest,
    seal_decision,
    seal_event,
    seal_other,
    seal_outcome,
    seal_packed_decision,
)
from fedfairx.storage.transaction_log import TABLES, Log, event_body, event_content
from fedfairx.util.arrays import Array, Coordinates

_DECISIONS = f"SELECT {DECISION}, seal FROM decisions"
NOW = 2**62  # as of this number, all steps count
#: A decision `d`, its outcome `o`, and the outcome that replaced it last, `r`, as of a number.
WHOLE = f"SELECT {columns(DECISION, 'd')}, {columns(OUTCOME, 'o')}, {columns(OUTCOME, 'r')}"
REPLACED = (
    "LEFT JOIN outcomes r ON r.decision = o.decision AND r.slot = o.slot AND o.turn = 0 AND r.turn > 0 "
    "AND r.turn = (SELECT MAX(turn) FROM outcomes WHERE decision = o.decision AND slot = o.slot AND seq < ?)"
)
_ENDED = "FROM decisions d LEFT JOIN outcomes o ON o.decision = d.seq AND o.slot = 0 AND o.turn = 0"
_JOINED = f"{WHOLE} {_ENDED} {REPLACED} WHERE d.agent = ?"
CHOSEN = f"{_ENDED} WHERE d.agent = ?"  # what `Journal.filters` are for
_OUTCOMES = f"SELECT {columns(OUTCOME, 'o')}, {columns(OUTCOME, 'r')} FROM outcomes o {REPLACED}"
#: Whether an action was shown: in the first slot, or in a later one of the list that ends the JSON of slots.
_SHOWN = "(d.action = ? OR d.slots LIKE ? OR d.slots LIKE ?)"
#: Whether a decision still has its contexts and policy.
WITH_CONTENT = "LENGTH(d.policy) > 0"
_EVENTS = f"SELECT {EVENT}, seal FROM events"
SOME = 500  # decisions that are asked for in one query
MIDDLE = 8  # snapshots between the first and the last two
MIDDLE_BYTES = 1 << 26  # and how much they may take
_D, _O = len(DECISION.split(", ")) + 1, len(OUTCOME.split(", ")) + 1
#: The seal of a row, by the digest of the row before it and a salt.
Seal = Callable[[bytes, bytes, Row], bytes]


@dataclass(frozen=True, slots=True)
class Made:
    """A decision in the log, with what an agent needs to continue from it."""

    seq: int
    time: int
    contexts: list[Array]  # of the action taken, or of those in all slots
    policy: Array
    theta: Array
    action: int
    drawn: int
    propensity: float
    names: list[str] | None
    slots: str | None  # JSON as `append_decision` takes it, where there are several slots

    @property
    def context(self) -> Array:
        """Of the action taken."""
        return self.contexts[0]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a decision; `reward` is NaN if the reward that was given is not a number.

    A decision with several slots has an outcome for each of them, from slot 1 on. The outcome of slot 0 ends
    it; its reward is the sum of theirs.
    """

    seq: int
    time: int
    decision: int
    status: str
    reward: float | None
    slot: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """Any other step: learning, a release, a new run."""

    seq: int
    time: int
    kind: str
    body: bytes


Step = Made | Outcome | Event


class Checked(NamedTuple):
    """A row that fits its seal, with its step; None for an outcome that replaces an earlier one."""

    seq: int
    seal: bytes
    step: Step | None


class Journal:
    """The steps of one agent in a log. The methods that write must be called inside a step of the log.

    They buffer bytes as `bytearray`, which Python's sqlite3 binds in a third of the time: it looks for an
    adapter of every `bytes`, and of every None.

    >>> import fedfairx as ffx
    >>> with ffx.Agent.open("journal.db", actions=["ann", "ben"]) as agent:
    ...     decision = agent.decide()
    ...     [each.id == decision.id for each in agent.journal.decisions(status="pending")]
    [True]
    """

    def __init__(self, log: Log, agent: int) -> None:
        self.log = log
        self.agent = agent
        self.unsaved = 0  # steps since the newest snapshot
        self.long_after: Callable[[], bool] = lambda: False  # whether a snapshot is due soon
        self.closed = False  # set with its agent; it can still be read while the log is open
        self._named: tuple[Sequence[str] | None, str | None] = None, None  # the last names, and as JSON
        self._amended: tuple[int | None, Amendments] = None, Amendments()  # as of this event
        rows = log.database.execute(
            "SELECT first, prefix FROM id_prefixes WHERE agent = ? ORDER BY id", (agent,)
        )
        self.origins = IdPrefixes((int(first), str(prefix)) for first, prefix in rows)

    @property
    def place(self) -> str:
        return self.log.database.place

    # --- writing -------------------------------------------------------------------------------------

    def append_decision(
        self,
        number: int,
        rows: Array | Coordinates,
        values: Array,
        action: int,
        drawn: int,
        propensity: float,
        names: Sequence[str] | None,
        note: DecisionNote | None,
        slots: str | None = None,
        count: int = 1,
    ) -> int:
        """Buffer a decision and return its time; `values` are policy (K), θ (d) and chosen contexts.

        rows: contexts (K, d), or coordinates (K,) of actions without features.
        slots: JSON of all actions shown, their weights and the baseline, and `count` how many, where there
            are several.
        """
        log, agent, arms = self.log, self.agent, len(rows)
        self.unsaved += 1
        packed, end = bytearray(values), 8 * (arms + (values.size - arms) // (1 + count))
        policy, theta = packed[: 8 * arms], packed[8 * arms : end]
        row: Row = (number, agent, log.time, packed_contexts(rows), policy, theta, action, drawn, propensity)
        rest, head = self._note_columns(number, names, note, slots), log.heads.get(agent) or self.head()
        rest_packed = packed_rest(self.origins.of(number) or "", rest)
        seal = seal_packed_decision(head, next(log.salts), row, rest_packed)
        self._buffer("decisions", row + rest, seal)
        return log.time

    def append_decisions(
        self,
        first: int,
        contexts: Array,
        values: Array,
        actions: Sequence[int],
        names: Sequence[Sequence[str] | None],
        notes: Sequence[DecisionNote | None],
    ) -> int:
        """`append_decision` for contexts (B, K, d) and values (B, K + 2 d), numbered from `first`."""
        self._require_open()
        log, agent, now = self.log, self.agent, self.log.time
        count, arms, dimension = contexts.shape
        packed, numbers = bytearray(contexts), bytearray(values)
        size, width, theta, end = (8 * n for n in (contexts[0].size, values[0].size, arms, arms + dimension))
        shares: list[float] = values[np.arange(count), actions].tolist()
        buffer, head = log.rows["decisions"], log.heads.get(agent) or self.head()
        prefix = self.origins.of(first) or ""
        noted, last, rest, rest_packed = None, None, (), b""
        for place, (action, share, called, note) in enumerate(
            zip(actions, shares, names, notes, strict=True)
        ):
            at, seq = place * width, first + place
            if place == 0 or called is not last or note is not noted:
                noted, last, rest = note, called, self._note_columns(seq, called, note, None)
                rest_packed = packed_rest(prefix, rest)
            row = (
                seq,
                agent,
                now,
                packed[place * size : (place + 1) * size],
                numbers[at : at + theta],
                numbers[at + theta : at + end],
                action,
                action,
                share,
            )
            seal = seal_packed_decision(head, next(log.salts), row, rest_packed)
            buffer.append((*row, *rest, bytearray(seal)))
            head = seal[DIGEST]
        self.unsaved += count
        log.heads[agent] = head
        log.touched.add(agent)
        log.written += count
        return now

    def _note_columns(
        self, number: int, names: Sequence[str] | None, note: DecisionNote | None, slots: str | None
    ) -> Row:
        """The columns after those of `PLAIN_DECISION`, without those that have their defaults in most."""
        if note is None:
            if names is None and slots is None:
                return ()
            note = DecisionNote()
        share = note.control_share or 0.0  # SQLite stores no -0.0
        baseline = note.baseline if slots is None else None
        if note.key is not None:
            self.log.keys[self.agent, note.key] = number
        groups = None if note.groups is None else as_json(note.groups)
        if names is not self._named[0]:
            self._named = names, None if names is None else as_json(names)
        texts = (self._named[1], groups, note.key, note.digest, note.extra, slots)
        if note.mode == "live" and not share and baseline is None and texts == NO_TEXTS:
            return (note.model_version,)
        return note.mode, baseline, share, note.model_version, *texts

    def append_outcome(
        self,
        decision: int,
        status: str,
        reward: float | None,
        person: str | int | None = None,
        *,
        slot: int = 0,
        turn: int = 0,
    ) -> None:
        """Buffer the outcome of a decision or of one of its slots; `turn` > 0 replaces an earlier one."""
        # SQLite stores no NaN and no -0.0.
        stored = None if reward is None or reward != reward else reward or 0.0
        row: Row = (self._next_number(), self.agent, decision, self.log.time, stored)
        if status != "rewarded" or person is not None or slot or turn:
            row = (*row, status, None if person is None else str(person), slot, turn)
        self._append("outcomes", row, seal_outcome)

    def append_event(self, kind: str, body: bytes = b"", steps: int = 1) -> None:
        """Buffer any other step, which takes `steps` numbers."""
        number = self._next_number(steps)
        row = (number, self.agent, self.log.time, kind, event_body(body, steps))
        self._append("events", row, seal_event)
        self.log.mark_due |= kind == "release"

    def _next_number(self, steps: int = 1) -> int:
        numbers = self.log.numbers
        numbers.next += steps
        self.unsaved += steps
        return numbers.next - steps

    def _append(self, table: str, row: Row, seal: Seal) -> None:
        """Buffer a row under the seal that follows the agent's last row."""
        head = self.log.heads.get(self.agent) or self.head()
        self._buffer(table, row, seal(head, next(self.log.salts), row))

    def _buffer(self, table: str, row: Row, seal: bytes) -> None:
        """Buffer a row with its seal."""
        self._require_open()
        log, agent = self.log, self.agent
        log.heads[agent] = seal[DIGEST]
        log.touched.add(agent)
        log.rows[table].append((*row, bytearray(seal)))
        log.written += 1

    def _require_open(self) -> None:
        if self.closed:
            raise StorageUnavailable("this agent is closed")

    def require_new(self, key: str) -> None:
        """Raise `KeyTaken` if a decision was made under this key, in the open transaction or before it."""
        taken = self.log.keys.get((self.agent, key))
        if taken is None:
            question = "SELECT seq FROM decisions WHERE agent = ? AND key = ?"
            rows = self.log.database.execute(question, (self.agent, key))
            taken = rows[0][0] if rows else None
        if taken is not None:
            raise KeyTaken(self.id_of(taken))

    def begin_incarnation(self) -> str:
        """Draw and store a new prefix of ids: random, so that no other opening of any copy has it."""
        with self.log.step() as log:
            first = log.numbers.next
            prefix = self.origins.begin(first)
            (number,) = log.write("SELECT COALESCE(MAX(id), 0) + 1 FROM id_prefixes")[0]
            log.write(
                "INSERT INTO id_prefixes VALUES (?, ?, ?, ?, ?)",
                (number, self.agent, prefix, first, log.now()),
            )
            log.note_row("id_prefixes WHERE id = ? AND prefix = ?", (number, prefix))
        return prefix

    # --- snapshots -----------------------------------------------------------------------------------

    def write_snapshot(self, body: dict[str, Any]) -> None:
        """Store the state after all steps so far; of the earlier snapshots, delete the one missed least.

        The first and the last two stay, and up to `MIDDLE` between them, at about equal distances: rewards
        that are replaced or deleted, and rollbacks, replay the log from the snapshot before them.
        """
        content = _as_json(body)
        with self.log.step() as log:
            self.unsaved = 0
            seq = log.end  # not the next number: a step that failed may have used it
            row = (self.agent, seq, self.head(before=seq), content)
            log.write("DELETE FROM snapshots WHERE agent = ? AND seq = ?", (self.agent, seq))
            log.write("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?)", (*row, seal_other(*row)))
            there = self.snapshot_numbers()
            while len(there) > 3 + min(MIDDLE, MIDDLE_BYTES // len(content)):
                least = min(range(1, len(there) - 2), key=lambda at: there[at + 1] - there[at - 1])
                log.write("DELETE FROM snapshots WHERE agent = ? AND seq = ?", (self.agent, there.pop(least)))

    def snapshot_numbers(self) -> list[int]:
        """The numbers before which snapshots were taken, in order."""
        question = "SELECT seq FROM snapshots WHERE agent = ? ORDER BY seq"
        return [int(seq) for (seq,) in self.log.database.execute(question, (self.agent,))]

    def snapshots(self, *, damaged: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
        """(next number, state), the newest first; a damaged one is skipped or, if `damaged`, an error."""
        for seq in reversed(self.snapshot_numbers()):
            found = self.snapshot(seq, damaged=damaged)
            if found is not None:
                yield seq, found

    def snapshot(self, seq: int, *, damaged: bool = False) -> dict[str, Any] | None:
        """The state before this number; None for a damaged one or, if `damaged`, an error."""
        (stored,) = self.log.database.execute(
            "SELECT agent, seq, head, body, seal FROM snapshots WHERE agent = ? AND seq = ?",
            (self.agent, seq),
        )
        *row, seal = stored
        _, _, head, content = row
        if not isinstance(content, bytes) or seal_other(*row) != seal:
            if damaged:
                raise self._damaged(f"the snapshot before step {seq} is not as it was written")
            return None
        if head != self.head(before=seq):
            raise self._damaged(f"steps before step {seq} are missing")
        state: dict[str, Any] = json.loads(content)
        return state

    # --- amendments ----------------------------------------------------------------------------------

    def amendments(self, ask: Ask | None = None) -> Amendments:
        """What was dropped, deleted and rolled back; `ask` is the database's `read`, or its `execute`."""
        ask = ask or self.log.database.read
        where = f"FROM events WHERE agent = ? AND {AMENDING}"
        (last,) = ask(f"SELECT MAX(seq) {where}", (self.agent,))[0]
        if last != self._amended[0]:
            rows = ask(f"SELECT {EVENT}, seal {where} ORDER BY seq", (self.agent,))
            found = [self.event(row) for row in rows]
            self._amended = last, amendments((each.seq, each.kind, each.body) for each in found)
        return self._amended[1]

    def _is_amended(self, table: str, row: Row) -> bool:
        """Whether a row has no content because an amending event says so."""
        if not is_blank(table, row):
            return False
        by_age = table != "outcomes"
        if self._amended[1].covers(row[0], by_age) or self.amendments().covers(row[0], by_age):
            return True
        with self.log.lock:  # it may be a step of the open transaction
            return self.amendments(self.log.database.execute).covers(row[0], by_age)

    # --- steps ---------------------------------------------------------------------------------------

    def head(self, *, before: int | None = None) -> bytes:
        """The digest of the last row in the database, or of the last row before a number."""
        bound = NOW if before is None else before
        question = "SELECT seq, seal FROM {} WHERE agent = ? AND seq < ? ORDER BY seq DESC LIMIT 1"
        newest = [
            row
            for table in TABLES
            for row in self.log.database.execute(question.format(table), (self.agent, bound))
        ]
        return bytes(max(newest)[1])[DIGEST] if newest else START

    def steps(self, since: int = 0) -> Iterator[Step]:
        """All steps from number `since` on, in order; an outcome has the newest reward of its decision."""
        return (checked.step for checked in self.checked(since) if checked.step is not None)

    def checked(self, since: int = 0) -> Iterator[Checked]:
        """All rows from number `since` on, in order; `StateError` at the first that breaks the chain."""
        previous = self.head(before=since)
        outcomes = self._pages(_OUTCOMES, since, "o.", NOW)
        each = (
            (Checked(row[0], row[-1], self._made(row)) for row in self._pages(_DECISIONS, since)),
            (Checked(row[0], row[_O - 1], self._ended(row)) for row in outcomes),
            (Checked(row[0], row[-1], self.event(row)) for row in self._pages(_EVENTS, since)),
        )
        for found in heapq.merge(*each, key=itemgetter(0)):
            if found.seal[PREVIOUS] != previous:
                raise self._damaged(f"what came before step {found.seq} was removed or inserted")
            previous = found.seal[DIGEST]
            yield found

    def made(self, numbers: Sequence[int]) -> Iterator[Made]:
        """The decisions of these numbers."""
        for at in range(0, len(numbers), SOME):
            some = numbers[at : at + SOME]
            question = f"{_DECISIONS} WHERE agent = ? AND seq IN ({marks(some)}) ORDER BY seq"
            rows = self.log.database.execute(question, (self.agent, *some))
            if len(rows) != len(some):
                raise self._damaged("decisions that wait for a reward are missing")
            yield from map(self._made, rows)

    def slot_outcomes(self, decision: int, *, before: int) -> Iterator[Outcome]:
        """The outcomes of a decision's slots that are before a number."""
        where = "o.decision = ? AND o.agent = ? AND o.slot > 0 AND o.turn = 0 AND o.seq < ?"
        question = f"{_OUTCOMES} WHERE {where} ORDER BY o.seq"
        for row in self.log.database.execute(question, (NOW, decision, self.agent, before)):
            outcome = self._ended(row)
            if outcome is not None:
                yield outcome

    def outcomes(self, decision: int, slot: int = 0) -> list[Row]:
        """The rows of `OUTCOME` of a decision, or of a slot from 1 on: the first, and what replaced it."""
        where = "decision = ? AND agent = ? AND slot = ? ORDER BY turn"
        question = f"SELECT {OUTCOME}, seal FROM outcomes WHERE {where}"
        rows = self.log.database.execute(question, (decision, self.agent, slot))
        for row in rows:
            self._check(row, seal_outcome)
        return rows

    def event(self, row: Row) -> Event:
        """The event of a row of `EVENT` and its seal, which is checked."""
        self._check(row, seal_event, "events")
        return Event(row[0], row[2], row[3], event_content(row[4]))

    def _pages(self, question: str, since: int, table: str = "", *values: int) -> Iterator[Row]:
        where = f"{question} WHERE {table}agent = ? AND {table}seq > ? ORDER BY {table}seq LIMIT ?"
        return pages(self.log.database.execute, where, (*values, self.agent), after=since - 1)

    def _made(self, row: Row) -> Made:
        self._check(row, self._seal_decision, "decisions")
        seq, _, when, contexts, shares, parameter, action, drawn, propensity, *_ = row
        policy, theta, names = floats(shares), floats(parameter), row[13]
        slots = row[-2]
        shown = [action] if slots is None else json.loads(slots)["shown"]
        chosen = [context_of(contexts, arm, policy.size, theta.size) if shares else theta for arm in shown]
        called = None if names is None else json.loads(names)
        return Made(seq, when, chosen, policy, theta, action, drawn, propensity, called, slots)

    def _ended(self, row: Row) -> Outcome | None:
        """The outcome with its newest reward; None for a row that replaces another."""
        first, newest = row[:_O], row[_O:]
        self._check(first, seal_outcome)
        seq, _, decision, when, reward, status, _, slot, turn, _ = first
        if turn:
            return None
        if newest[0] is not None:
            self._check(newest, seal_outcome)
            reward = newest[4]
        learnt = float("nan") if reward is None and status == "rewarded" else reward
        return Outcome(seq, when, decision, status, learnt, slot)

    def _seal_decision(self, previous: bytes, salt: bytes, row: Row) -> bytes:
        return seal_decision(previous, salt, row, self.origins.of(row[0]) or "")

    def _check(self, row: Row, seal: Seal, table: str = "outcomes") -> None:
        """Raise unless a row fits its seal, its last column, or has lost its content rightly."""
        try:
            sound = seal(row[-1][PREVIOUS], row[-1][SALT], row) == row[-1]
        except (AttributeError, struct.error, TypeError, UnicodeError):  # a value of another type
            sound = False
        if not sound and not self._is_amended(table, row):
            raise self._damaged(f"step {row[0]} is not as it was written")

    def _damaged(self, what: str) -> StateError:
        return damaged(self.place, what)

    # --- queries: they see only what is committed ----------------------------------------------------

    def id_of(self, number: int) -> str:
        """The id of the decision with this number."""
        prefix = self.origins.of(number)
        if prefix is None:
            raise self._damaged(f"step {number} is of no opening")
        return f"{prefix}-{number}"

    def decision(self, identity: str) -> StoredDecision | None:
        """The decision with this id; None if this agent made none."""
        number = self.origins.number_in(identity)
        return None if number is None else self._one(" AND d.seq = ?", number)

    def by_key(self, key: str) -> StoredDecision | None:
        """The decision made under this idempotency key, if any."""
        return self._one(" AND d.key = ?", key)

    def status_of(self, number: int) -> str | None:
        """The status of a decision, as of the open transaction; None if there is no such decision."""
        for row in self.log.rows["outcomes"]:
            status, _, slot, _ = row[5:9] if len(row) == _O else ("rewarded", None, 0, 0)
            if row[2] == number and slot == 0:
                return str(status)
        execute = self.log.database.execute
        where = "decision = ? AND agent = ? AND slot = 0"
        ended = execute(f"SELECT status FROM outcomes WHERE {where}", (number, self.agent))
        if ended:
            return str(ended[0][0])
        made = execute("SELECT 1 FROM decisions WHERE seq = ? AND agent = ?", (number, self.agent))
        return "pending" if made else None

    def decisions(
        self,
        *,
        since: float | None = None,
        until: float | None = None,
        status: str | None = None,
        action: int | None = None,
        mode: str | None = None,
        after_seq: int = -1,
        before_seq: int | None = None,
        limit: int | None = None,
        as_of: int | None = None,
    ) -> Iterator[StoredDecision]:
        """Decisions after number `after_seq`, the oldest first; times are in seconds since 1970.

        Those whose content is gone are left out; `amendments` says how many these are.

        action: the row of one that was shown, in whichever slot.
        as_of: rewards that came from this number on replace no earlier ones.
        """
        where, values = self.filters(since, until, status, action, mode, before_seq)
        question = f"{_JOINED}{where} AND d.seq > ? ORDER BY d.seq LIMIT ?"
        after = max(after_seq, self.amendments().whole_from - 1)
        bound = NOW if as_of is None else as_of
        rows = pages(self.log.database.read, question, (bound, *values), after=after, limit=limit)
        return self._wholes(rows, bound)

    def filters(
        self,
        since: float | None = None,
        until: float | None = None,
        status: str | None = None,
        action: int | None = None,
        mode: str | None = None,
        before_seq: int | None = None,
    ) -> tuple[str, list[Any]]:
        """The conditions of `decisions` in SQL, and their values, the agent's number first."""
        fits = status is None or status in STATUSES
        require(fits, "status", f"must be one of {', '.join(STATUSES)}", status)
        values: list[Any] = [self.agent]
        where = " AND o.status IS NULL" if status == "pending" else ""
        for column, value in (
            ("o.status =", None if status == "pending" else status),
            ("d.time >=", None if since is None else int(since * 1e6)),
            ("d.time <", None if until is None else int(until * 1e6)),
            ("d.mode =", mode),
            ("d.seq <", before_seq),
        ):
            if value is not None:
                where += f" AND {column} ?"
                values.append(value)
        if action is not None:
            where += f" AND {_SHOWN}"
            values += [action, f'%"shown":[%,{action},%', f"%,{action}]}}"]
        where += f" AND {WITH_CONTENT}"
        return where, values

    def of_numbers(self, numbers: Sequence[int]) -> Iterator[StoredDecision]:
        """The decisions of these numbers, in order."""
        for at in range(0, len(numbers), SOME):
            some = numbers[at : at + SOME]
            question = f"{_JOINED} AND d.seq IN ({marks(some)}) ORDER BY d.seq"
            yield from self._wholes(iter(self.log.database.read(question, (NOW, self.agent, *some))))

    def _wholes(self, rows: Iterator[Row], as_of: int = NOW) -> Iterator[StoredDecision]:
        """The decisions of rows of `WHOLE`; outcomes of slots are read for many of them at a time."""
        said = self.amendments()
        while some := list(islice(rows, SOME)):
            numbers = [row[0] for row in some if row[_D - 2] is not None]
            ended: dict[int, list[Row]] = {number: [] for number in numbers}
            if numbers:
                where = f"o.slot > 0 AND o.turn = 0 AND o.decision IN ({marks(numbers)})"
                question = f"{_OUTCOMES} WHERE o.agent = ? AND {where}"
                for row in self.log.database.read(question, (as_of, self.agent, *numbers)):
                    ended[row[2]].append(row)
            for row in some:
                found = self._whole(row, ended.get(row[0], ()))
                found.rolled_back = said.is_undone(found.seq)
                yield found

    def counted(self, since: int = 0) -> tuple[int, dict[str, int], int]:
        """From number `since` on: decisions, outcomes by status, and the number to continue from."""
        read, agent = self.log.database.read, self.agent
        end = max(since, self.end("decisions", "outcomes"))
        where = "WHERE agent = ? AND seq >= ? AND seq < ?"
        made = read(f"SELECT COUNT(*) FROM decisions {where}", (agent, since, end))[0][0]
        ended = read(
            f"SELECT status, COUNT(*) FROM outcomes {where} AND slot = 0 AND turn = 0 GROUP BY status",
            (agent, since, end),
        )
        return int(made), {str(status): int(count) for status, count in ended}, end

    def counts(self) -> dict[str, int]:
        """The number of decisions of each status; "deleted" is there if some were."""
        made, ended, _ = self.counted()
        return dict.fromkeys(STATUSES, 0) | ended | {"pending": made - sum(ended.values())}

    def end(self, *tables: str) -> int:
        """The number after the last step in these tables."""
        newest = "SELECT MAX(seq) FROM {} WHERE agent = ?"
        rows = [self.log.database.read(newest.format(table), (self.agent,))[0] for table in tables or TABLES]
        return max((int(last) + 1 for (last,) in rows if last is not None), default=0)

    def _one(self, where: str, value: Any) -> StoredDecision | None:
        rows = self.log.database.read(_JOINED + where, (NOW, self.agent, value))
        return next(self._wholes(iter(rows)), None)

    def _whole(self, row: Row, ended: Sequence[Row]) -> StoredDecision:
        """The decision of a row of `WHOLE` and of the outcomes of its slots, all of which is checked."""
        made, first, newest = row[:_D], row[_D : _D + _O], row[_D + _O :]
        self._check(made, self._seal_decision, "decisions")
        status, reward, reward_time, person = "pending", None, None, None
        if first[0] is not None:
            self._check(first, seal_outcome)
            reward, reward_time, status, person = first[4], first[3] / 1e6, first[5], first[6]
            if newest[0] is not None:
                self._check(newest, seal_outcome)
                reward = newest[4]
        seq, identity = row[0], self.id_of(row[0])
        # The columns from `contexts` to `slots` are the last fields of a stored decision.
        found = StoredDecision(identity, status, reward, reward_time, person, seq, row[2] / 1e6, *row[3:19])
        if found.slots_json is not None and not found.gone:
            found.slots = self._slots(found, ended)
        return found

    def record(self, row: Row) -> tuple[Array, float | None]:
        """Context and reward of a row of `WHOLE` as they are learnt: those of a slot, times its weight."""
        made, first, newest = row[:_D], row[_D : _D + _O], row[_D + _O :]
        self._check(made, self._seal_decision, "decisions")
        self._check(first, seal_outcome)
        if newest[0] is not None:
            self._check(newest, seal_outcome)
        contexts, policy, theta, action, slot = *row[3:7], first[7]
        weight = 1.0
        if slot:
            kept = json.loads(row[18])
            action, weight = kept["shown"][slot - 1], kept["weights"][slot - 1]
        context = context_of(contexts, action, len(policy) // 8, len(theta) // 8)
        reward = first[4] if newest[0] is None else newest[4]
        return context if weight == 1.0 else weight * context, reward

    def _slots(self, stored: StoredDecision, ended: Sequence[Row]) -> list[StoredSlot]:
        kept, names, exposure = json.loads(stored.slots_json or ""), stored.names, stored.policy
        shown, weights, baseline = kept["shown"], kept["weights"], kept.get("baseline")
        note = DecisionNote(mode=stored.mode, baseline=baseline, control_share=stored.control_share)
        slots = [
            StoredSlot(
                action,
                weight,
                note.propensity(action, float(exposure[action]), weights),
                drawn,
                wanted,
                None if names is None else names[action],
            )
            for action, weight, drawn, wanted in zip(
                shown, weights, kept.get("drawn", shown), baseline or [None] * len(shown), strict=True
            )
        ]
        for row in ended:
            first, newest = row[:_O], row[_O:]
            self._check(first, seal_outcome)
            if newest[0] is not None:
                self._check(newest, seal_outcome)
            slot, latest = slots[first[7] - 1], first if newest[0] is None else newest
            slot.reward, slot.reward_time = latest[4], first[3] / 1e6
            slot.status, slot.person = first[5], first[6]
        return slots


def _as_json(body: dict[str, Any]) -> bytes:
    """A snapshot as JSON, by msgspec, in less than half of the time, where it writes what `json` would."""
    from msgspec.json import decode, encode

    with suppress(OverflowError, UnicodeEncodeError):  # integers of more than 64 bits, halves of pairs
        content = encode(body)
        if decode(content) == body:  # NaN and infinity, which it writes as null, differ
            return content
    return json.dumps(body, separators=(",", ":")).encode()
