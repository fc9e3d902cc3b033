"""One agent's part of a log: writing its steps, and reading them.

Every row is checked against its seal when it is read (`seals`): a damaged one raises a `StateError` that
names its step.
"""

from __future__ import annotations

import heapq
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from msgspec import MsgspecError

from fedfairx import steps
from fedfairx.core.slates import ONE
from fedfairx.decision import REWARDED, Decision, DecisionNote, status_of
from fedfairx.errors import FedFairXError, KeyTaken, StateError, StorageUnavailable, require
from fedfairx.steps import Decided, Ended, Event, Replaced, Step
from fedfairx.storage.amendments import AMENDING, Amendments, amendments, is_blank, marks
from fedfairx.storage.database import Ask, Row, damaged, pages
from fedfairx.storage.decision_ids import IdPrefixes
from fedfairx.storage.records import STATUSES, StoredDecision, StoredSlot
from fedfairx.storage.rows import (
    INSERT_DECISION,
    INSERT_EVENT,
    INSERT_NOTED_DECISION,
    INSERT_OUTCOME,
    INSERT_PLAIN_DECISION,
    INSERT_PLAIN_OUTCOME,
    TABLES,
    DecisionRow,
    EventRow,
    Insertion,
    OutcomeRow,
    Rewarded,
    WholeRow,
    as_json,
    context_of,
    event_body,
    labels_of,
    outcome_rows,
    read_slots,
    slots_text,
    whole_row,
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
from fedfairx.storage.transaction_log import Log

_PREFIXES = "SELECT first, prefix FROM id_prefixes WHERE agent = ? ORDER BY id"
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
#: The seal of a row, by the digest of the row before it and a salt.
Seal = Callable[[bytes, bytes, Row], bytes]
#: An outcome, and the one that replaced it last.
Outcomes = tuple[OutcomeRow, OutcomeRow | None]
Stored = TypeVar("Stored", DecisionRow, OutcomeRow, EventRow)


class Entry(NamedTuple):
    """A row that fits its seal, and its step."""

    number: int
    time: int  # microseconds since 1970
    seal: bytes
    step: Step


class Journal:
    """The steps of one agent in a log. The methods that write must be called inside a transaction of the log.

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
        self._amended: tuple[list[Row], Amendments] = [], Amendments()  # as of this event
        rows = log.database.execute(_PREFIXES, (agent,))
        self.prefixes = IdPrefixes((int(first), str(prefix)) for first, prefix in rows)

    @property
    def place(self) -> str:
        return self.log.database.place

    # --- writing -------------------------------------------------------------------------------------

    def append(self, step: Replaced | Event) -> None:
        """Buffer a step."""
        if isinstance(step, Replaced):
            self._append_outcome(step.decision, REWARDED, step.reward, step.person, step.slot, step.turn)
        else:
            self._append_event(step)

    def append_outcomes(self, step: Ended, decision: Decision) -> None:
        """Buffer outcomes of slots of a decision and, once no slot of several waits, their sum."""
        number, several = step.decision, decision.weights is not ONE
        for slot, reward in step.rewards.items():
            status = status_of(reward, step.status)
            self._append_outcome(number, status, reward, step.person, slot + several)
        if several:
            if decision.waiting:
                return
            status, total = decision.outcome
            self._append_outcome(number, status, total, None)
        self.log.statuses[number] = status

    def append_decisions(self, decided: Sequence[Decided]) -> None:
        """Buffer decisions, whose numbers follow one another."""
        self._require_open()
        log, agent = self.log, self.agent
        head, prefix = log.heads.get(agent) or self.head(), decided[0].decision.origin
        last: Decided | None = None
        for step in decided:
            decision = step.decision
            new = last is None or step.names is not last.names or step.note is not last.note
            if new or decision.weights is not ONE:
                rest, insertion = self._rest_of(step)
                rest_packed = packed_rest(prefix, rest)
                last = step
            values, arms = decision.values, decision.arms
            packed, first = bytearray(values), 8 * arms
            end = first + 8 * ((values.size - arms) // (1 + len(decision.weights)))
            assert step.contexts is not None
            row = (
                decision.number,
                agent,
                decision.time,
                bytearray(step.contexts),
                packed[:first],
                packed[first:end],
                decision.shown[0],
                decision.drawn_actions[0],
                decision.propensity,
            )
            seal = seal_packed_decision(head, next(log.salts), row, rest_packed)
            log.rows[insertion].append((*row, *rest, bytearray(seal)))
            head = seal[DIGEST]
        log.heads[agent] = head
        log.touched.add(agent)
        log.written += len(decided)
        self.unsaved += len(decided)

    def begin_with(self, waiting: Sequence[Decision], prefixes: IdPrefixes, following: int) -> None:
        """Write decisions that wait from before the log, whose first number is `following`, and their ids.

        Of actions that were not shown, nothing but the policy is known any more. So the row is none that has
        content to queries, and only the agent reads it.
        """
        log = self.log
        for first, prefix in prefixes.used(following):
            self._write_prefix(first, prefix)
        self.prefixes.pairs = prefixes.used(following)
        taken = {decision.number for decision in waiting}
        free = (number for number in range(following - 1, -1, -1) if number not in taken)
        rows: list[tuple[int, Decision, int | None]] = [(each.number, each, None) for each in waiting]
        for decision in reversed(waiting):  # numbers above its own: each of its outcomes has taken one
            rows += [(next(free), decision, slot) for slot in reversed(list(decision.outcomes))]
        for number, decision, slot in sorted(rows, key=itemgetter(0)):
            log.numbers.next = number
            if slot is None:
                self._append_waiting(decision)
            else:
                self._append_outcome(
                    decision.number, decision.status_of(slot), decision.outcomes[slot], None, slot + 1
                )
        log.numbers.next = following
        self.begin_incarnation()

    def _append_waiting(self, decision: Decision) -> None:
        values, arms, shown = decision.values, decision.arms, decision.shown
        size = decision.theta.size
        names = None if decision.shown_names is None else as_json(decision.shown_names)
        row = (
            self._next_number(),
            self.agent,
            decision.time or self.log.time,
            bytes(values[arms + size :]) + bytes(values[:arms]),
            b"",
            bytes(values[arms : arms + size]),
            shown[0],
            decision.drawn_actions[0],
            decision.propensity,
            *("live", None, 0.0, 0, names, None, None, None, None, slots_text(decision, None)),
        )
        self._append(INSERT_DECISION, row, self._seal_decision)

    def _rest_of(self, step: Decided) -> tuple[Row, Insertion]:
        """The columns after those of `PLAIN_DECISION`, without those that have their defaults in most."""
        names, note = step.names, step.note
        slots = slots_text(step.decision, note)
        if note is None:
            if names is None and slots is None:
                return (), INSERT_PLAIN_DECISION
            note = DecisionNote()
        share = note.control_share or 0.0  # SQLite stores no -0.0
        baseline = note.baseline if slots is None else None
        if note.key is not None:
            self.log.keys[self.agent, note.key] = step.decision.number
        groups = None if note.groups is None else as_json(note.groups)
        if names is not self._named[0]:
            self._named = names, None if names is None else as_json(names)
        texts = (self._named[1], groups, note.key, note.digest, note.extra, slots)
        if note.mode == "live" and not share and baseline is None and texts == NO_TEXTS:
            return (note.model_version,), INSERT_NOTED_DECISION
        return (note.mode, baseline, share, note.model_version, *texts), INSERT_DECISION

    def _append_outcome(
        self,
        decision: int,
        status: str,
        reward: float | None,
        person: str | int | None,
        slot: int = 0,
        turn: int = 0,
    ) -> None:
        # SQLite stores no NaN and no -0.0.
        value = None if reward is None or reward != reward else reward or 0.0
        row: Row = (self._next_number(), self.agent, decision, self.log.time, value)
        insertion = INSERT_PLAIN_OUTCOME
        if status != REWARDED or person is not None or slot or turn:
            row = (*row, status, None if person is None else str(person), slot, turn)
            insertion = INSERT_OUTCOME
        self._append(insertion, row, seal_outcome)

    def _append_event(self, event: Event) -> None:
        numbers = steps.numbers_of(event)
        body = event_body(event.pack(), numbers)
        row = (self._next_number(numbers), self.agent, self.log.time, steps.kind_of(event), body)
        self._append(INSERT_EVENT, row, seal_event)
        self.log.mark_due |= isinstance(event, steps.Released)

    def _next_number(self, count: int = 1) -> int:
        numbers = self.log.numbers
        numbers.next += count
        self.unsaved += count
        return numbers.next - count

    def _append(self, insertion: Insertion, row: Row, seal: Seal) -> None:
        """Buffer a row under the seal that follows the agent's last row."""
        self._require_open()
        log, agent = self.log, self.agent
        sealed = seal(log.heads.get(agent) or self.head(), next(log.salts), row)
        log.heads[agent] = sealed[DIGEST]
        log.touched.add(agent)
        log.rows[insertion].append((*row, bytearray(sealed)))
        log.written += 1

    def _require_open(self) -> None:
        if self.closed:
            raise StorageUnavailable("this agent is closed")

    def require_new(self, key: str) -> None:
        """Raise `KeyTaken` if a decision was made under this key, in the open transaction or before it."""
        number = self.log.keys.get((self.agent, key))
        if number is None:
            question = "SELECT seq FROM decisions WHERE agent = ? AND key = ?"
            rows = self.log.database.execute(question, (self.agent, key))
            number = rows[0][0] if rows else None
        if number is not None:
            raise KeyTaken(self.id_of(number))

    def begin_incarnation(self) -> str:
        """Draw and store a new prefix of ids: random, so that no other opening of any copy has it."""
        with self.log.transaction as log:
            first = log.numbers.next
            prefix = self.prefixes.begin(first)
            number = self._write_prefix(first, prefix)
            log.note_row("id_prefixes WHERE id = ? AND prefix = ?", (number, prefix))
        return prefix

    def _write_prefix(self, first: int, prefix: str) -> int:
        log = self.log
        (number,) = log.write("SELECT COALESCE(MAX(id), 0) + 1 FROM id_prefixes")[0]
        row = (number, self.agent, prefix, first, log.now())
        log.write("INSERT INTO id_prefixes VALUES (?, ?, ?, ?, ?)", row)
        return int(number)

    # --- snapshots -----------------------------------------------------------------------------------

    def write_snapshot(self, body: dict[str, Any]) -> None:
        """Store the state after all steps so far; of the earlier snapshots, delete the one missed least.

        The first and the last two stay, and up to `MIDDLE` between them, at about equal distances: rewards
        that are replaced or deleted, and rollbacks, replay the log from the snapshot before them.
        """
        content = _as_json(body)
        with self.log.transaction as log:
            self.unsaved = 0
            seq = log.end  # not the next number: a step that failed may have used it
            row = (self.agent, seq, self.head(before=seq), content)
            log.write("DELETE FROM snapshots WHERE agent = ? AND seq = ?", (self.agent, seq))
            log.write("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?)", (*row, seal_other(*row)))
            there = self.snapshot_numbers()
            while len(there) > 3 + min(MIDDLE, MIDDLE_BYTES // len(content)):
                least = min(range(1, len(there) - 2), key=lambda at: there[at + 1] - there[at - 1])
                log.write("DELETE FROM snapshots WHERE agent = ? AND seq = ?", (self.agent, there.pop(least)))

    def delete_snapshots(self, *, after: int) -> None:
        """Inside a transaction: delete the snapshots that contain the step of this number."""
        self.log.write("DELETE FROM snapshots WHERE agent = ? AND seq > ?", (self.agent, after))

    def snapshot_numbers(self, ask: Ask | None = None) -> list[int]:
        """The numbers before which snapshots were taken, in order."""
        question = "SELECT seq FROM snapshots WHERE agent = ? ORDER BY seq"
        return [int(seq) for (seq,) in (ask or self.log.database.execute)(question, (self.agent,))]

    def snapshots(self, *, damaged: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
        """(next number, state), the newest first; a damaged one is skipped or, if `damaged`, an error."""
        for seq in reversed(self.snapshot_numbers()):
            state = self.snapshot(seq, damaged=damaged)
            if state is not None:
                yield seq, state

    def snapshot(self, seq: int, *, damaged: bool = False, ask: Ask | None = None) -> dict[str, Any] | None:
        """The state before this number; None for a damaged one or, if `damaged`, an error."""
        (stored,) = (ask or self.log.database.execute)(
            "SELECT agent, seq, head, body, seal FROM snapshots WHERE agent = ? AND seq = ?",
            (self.agent, seq),
        )
        *row, seal = stored
        _, _, head, content = row
        if not isinstance(content, bytes) or seal_other(*row) != seal:
            if damaged:
                raise self._damaged(f"the snapshot before step {seq} is not as it was written")
            return None
        if head != self.head(before=seq, ask=ask):
            raise self._damaged(f"steps before step {seq} are missing")
        state: dict[str, Any] = json.loads(content)
        return state

    # --- amendments ----------------------------------------------------------------------------------

    def amendments(self, ask: Ask | None = None) -> Amendments:
        """What was dropped, deleted and rolled back; `ask` is the database's `read`, or its `execute`."""
        ask = ask or self.log.database.read
        where = f"FROM events WHERE agent = ? AND {AMENDING}"
        last = ask(f"SELECT seq, seal {where} ORDER BY seq DESC LIMIT 1", (self.agent,))
        if last != self._amended[0]:
            rows = ask(f"SELECT {EVENT}, seal {where} ORDER BY seq", (self.agent,))
            self._amended = last, amendments((row[0], self.event(row)) for row in rows)
        return self._amended[1]

    def _is_amended(self, row: DecisionRow | OutcomeRow | EventRow) -> bool:
        """Whether a row has no content because an amending event says so."""
        if not is_blank(row):
            return False
        by_age = not isinstance(row, OutcomeRow)
        if self._amended[1].covers(row.seq, by_age) or self.amendments().covers(row.seq, by_age):
            return True
        with self.log.lock:  # it may be a step of the open transaction
            return self.amendments(self.log.database.execute).covers(row.seq, by_age)

    # --- steps ---------------------------------------------------------------------------------------

    def head(self, *, before: int = NOW, ask: Ask | None = None) -> bytes:
        """The digest of the last row in the database, or of the last row before a number."""
        ask = ask or self.log.database.execute
        question = "SELECT seq, seal FROM {} WHERE agent = ? AND seq < ? ORDER BY seq DESC LIMIT 1"
        newest = [row for table in TABLES for row in ask(question.format(table), (self.agent, before))]
        return bytes(max(newest)[1])[DIGEST] if newest else START

    def entries(
        self, since: int = 0, *, until: int = NOW, after: bytes | None = None, ask: Ask | None = None
    ) -> Iterator[Entry]:
        """All steps from number `since` on, in order; `StateError` at the first row that breaks the chain.

        An outcome has the newest reward of its slot.

        after: the digest of the row before them, if it is known.
        """
        ask = ask or self.log.database.execute
        previous = after or self.head(before=since, ask=ask)
        tables = (
            map(self._decided, self._pages(ask, _DECISIONS, since, until)),
            self._outcomes(self._pages(ask, _OUTCOMES, since, until, "o.", NOW)),
            map(self._event, self._pages(ask, _EVENTS, since, until)),
        )
        for entry in heapq.merge(*tables, key=itemgetter(0)):
            if entry.seal[PREVIOUS] != previous:
                raise self._damaged(f"what came before step {entry.number} was removed or inserted")
            previous = entry.seal[DIGEST]
            yield entry

    def waiting(self, numbers: Sequence[int], *, before: int, ask: Ask | None = None) -> Iterator[Decision]:
        """The decisions of these numbers, with the outcomes of their slots that came before a number."""
        where = "o.decision = ? AND o.agent = ? AND o.slot > 0 AND o.turn = 0 AND o.seq < ?"
        ask = ask or self.log.database.execute
        for decision in self.decided(numbers, ask):
            if decision.weights is not ONE:
                values = (NOW, decision.number, self.agent, before)
                rows = ask(f"{_OUTCOMES} WHERE {where} ORDER BY o.seq", values)
                for entry in self._outcomes(rows):
                    assert isinstance(entry.step, Ended)
                    decision.end(entry.step.rewards, entry.step.status)
            yield decision

    def decided(self, numbers: Sequence[int], ask: Ask | None = None) -> Iterator[Decision]:
        """The decisions of these numbers; those that have lost their content have no actions."""
        for at in range(0, len(numbers), SOME):
            some = numbers[at : at + SOME]
            question = f"{_DECISIONS} WHERE agent = ? AND seq IN ({marks(some)}) ORDER BY seq"
            rows = (ask or self.log.database.execute)(question, (self.agent, *some))
            if len(rows) != len(some):
                raise self._damaged("decisions that wait for a reward are missing")
            for row in rows:
                step = self._decided(row).step
                assert isinstance(step, Decided)
                yield step.decision

    def outcomes(self, decision: int, slot: int | None = None) -> list[OutcomeRow]:
        """The outcomes of a decision, of all slots or of one: the first, and what replaced it."""
        which, values = ("", ()) if slot is None else (" AND slot = ?", (slot,))
        question = f"SELECT {OUTCOME}, seal FROM outcomes WHERE decision = ? AND agent = ?{which}"
        rows = self.log.database.execute(f"{question} ORDER BY slot, turn", (decision, self.agent, *values))
        return [self._checked(OutcomeRow(*row), seal_outcome) for row in rows]

    def event(self, row: Row) -> Event:
        """The event of a row of `EVENT` and its seal, which is checked."""
        event = self._checked(EventRow(*row), seal_event)
        if event.kind not in steps.UNPACK:
            raise StateError(f"{self.place} holds a step of an unknown kind, {event.kind!r}")
        try:
            return steps.UNPACK[event.kind](event.content)
        except (MsgspecError, FedFairXError, ValueError, TypeError, IndexError) as error:
            kind = type(error).__name__  # the text might contain data
            raise self._damaged(f"step {event.seq} can't be read, {kind}") from None

    def _pages(
        self, ask: Ask, question: str, since: int, until: int, table: str = "", *values: int
    ) -> Iterator[Row]:
        where = f"WHERE {table}agent = ? AND {table}seq < ? AND {table}seq > ? ORDER BY {table}seq LIMIT ?"
        return pages(ask, f"{question} {where}", (*values, self.agent, until), after=since - 1)

    def _decided(self, row: Row) -> Entry:
        decision = self._checked(DecisionRow(*row), self._seal_decision)
        origin = self.prefixes.of(decision.seq) or ""
        return Entry(decision.seq, decision.time, decision.seal, decision.decided(origin))

    def _outcomes(self, rows: Iterable[Row]) -> Iterator[Entry]:
        """The outcomes of rows of `_OUTCOMES` that follow one another."""
        previous = None
        for row in rows:
            first, newest = outcome_rows(row)
            self._checked(first, seal_outcome)
            if newest is not None:
                self._checked(newest, seal_outcome)
            yield Entry(first.seq, first.time, first.seal, first.step(newest, previous))
            previous = first

    def _event(self, row: Row) -> Entry:
        seq, _, when, *_, seal = row
        return Entry(seq, when, seal, self.event(row))

    def _seal_decision(self, previous: bytes, salt: bytes, row: Row) -> bytes:
        return seal_decision(previous, salt, row, self.prefixes.of(row[0]) or "")

    def _checked(self, row: Stored, seal: Seal) -> Stored:
        """The row, if it fits its seal, or has lost its content rightly."""
        try:
            sound = seal(row.seal[PREVIOUS], row.seal[SALT], row) == row.seal
        except (AttributeError, struct.error, TypeError, UnicodeError):  # a value of another type
            sound = False
        if not sound and not self._is_amended(row):
            raise self._damaged(f"step {row.seq} is not as it was written")
        return row

    def _damaged(self, what: str) -> StateError:
        return damaged(self.place, what)

    # --- queries: they see only what is committed ----------------------------------------------------

    def id_of(self, number: int) -> str:
        """The id of the decision with this number."""
        prefix = self.prefixes.of(number)
        if prefix is None:
            raise self._damaged(f"step {number} is of no opening")
        return f"{prefix}-{number}"

    def decision(self, identity: str) -> StoredDecision | None:
        """The decision with this id; None if this agent made none."""
        number = self.prefixes.number_in(identity)
        return None if number is None else self._one(" AND d.seq = ?", number)

    def by_key(self, key: str) -> StoredDecision | None:
        """The decision made under this idempotency key, if any."""
        return self._one(" AND d.key = ?", key)

    def status_of(self, number: int) -> str | None:
        """The status of a decision, as of the open transaction; None if there is no such decision."""
        if number in self.log.statuses:
            return self.log.statuses[number]
        execute = self.log.database.execute
        where = "decision = ? AND agent = ? AND slot = 0"
        statuses = execute(f"SELECT status FROM outcomes WHERE {where}", (number, self.agent))
        if statuses:
            return str(statuses[0][0])
        decisions = execute("SELECT 1 FROM decisions WHERE seq = ? AND agent = ?", (number, self.agent))
        return "pending" if decisions else None

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
    ) -> Iterator[StoredDecision]:
        """Decisions after number `after_seq`, the oldest first; times are in seconds since 1970.

        Those whose content is gone are left out; `amendments` says how many these are.

        action: the row of one that was shown, in whichever slot.
        """
        where, values = self.filters(since, until, status, action, mode, before_seq)
        question = f"{_JOINED}{where} AND d.seq > ? ORDER BY d.seq LIMIT ?"
        after = max(after_seq, self.amendments().dropped.whole_from - 1)
        rows = pages(self.log.database.read, question, (NOW, *values), after=after, limit=limit)
        return self._wholes(rows)

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
        is_status = status is None or status in STATUSES
        require(is_status, "status", f"must be one of {', '.join(STATUSES)}", status)
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

    def _wholes(self, rows: Iterator[Row]) -> Iterator[StoredDecision]:
        """The decisions of rows of `WHOLE`; outcomes of slots are read for many of them at a time."""
        amended = self.amendments()
        while some := [whole_row(row) for row in islice(rows, SOME)]:
            numbers = [row.decision.seq for row in some if row.decision.slots is not None]
            outcomes: dict[int, list[Outcomes]] = {number: [] for number in numbers}
            if numbers:
                where = f"o.slot > 0 AND o.turn = 0 AND o.decision IN ({marks(numbers)})"
                question = f"{_OUTCOMES} WHERE o.agent = ? AND {where}"
                for row in self.log.database.read(question, (NOW, self.agent, *numbers)):
                    first, newest = outcome_rows(row)
                    outcomes[first.decision].append((first, newest))
            for whole in some:
                decision = self._whole(whole, outcomes.get(whole.decision.seq, ()))
                decision.rolled_back = amended.is_undone(decision.seq)
                yield decision

    def counted(self, since: int = 0) -> tuple[int, dict[str, int], int]:
        """From number `since` on: decisions, outcomes by status, and the number to continue from."""
        read, agent = self.log.database.read, self.agent
        end = max(since, self.end("decisions", "outcomes"))
        where = "WHERE agent = ? AND seq >= ? AND seq < ?"
        decisions = read(f"SELECT COUNT(*) FROM decisions {where}", (agent, since, end))[0][0]
        statuses = read(
            f"SELECT status, COUNT(*) FROM outcomes {where} AND slot = 0 AND turn = 0 GROUP BY status",
            (agent, since, end),
        )
        return int(decisions), {str(status): int(count) for status, count in statuses}, end

    def counts(self) -> dict[str, int]:
        """The number of decisions of each status; "deleted" is there if some were."""
        decisions, outcomes, _ = self.counted()
        return dict.fromkeys(STATUSES, 0) | outcomes | {"pending": decisions - sum(outcomes.values())}

    def end(self, *tables: str) -> int:
        """The number after the last step in these tables."""
        newest = "SELECT MAX(seq) FROM {} WHERE agent = ?"
        rows = [self.log.database.read(newest.format(table), (self.agent,))[0] for table in tables or TABLES]
        return max((int(last) + 1 for (last,) in rows if last is not None), default=0)

    def _one(self, where: str, value: Any) -> StoredDecision | None:
        rows = self.log.database.read(_JOINED + where, (NOW, self.agent, value))
        return next(self._wholes(iter(rows)), None)

    def _whole(self, whole: WholeRow, outcomes: Sequence[Outcomes]) -> StoredDecision:
        """The decision of a row and of the outcomes of its slots, all of which is checked."""
        row, first, newest = self._checked_whole(whole)
        status, reward, reward_time, person = "pending", None, None, None
        if first is not None:
            reward = first.reward if newest is None else newest.reward
            reward_time, status, person = first.time / 1e6, first.status, first.person
        # The columns from `contexts` to `slots` are the last fields of a stored decision.
        decision = StoredDecision(
            self.id_of(row.seq), status, reward, reward_time, person, row.seq, row.time / 1e6, *row[3:-1]
        )
        if decision.slots_json is not None and not decision.gone:
            decision.slots = self._slots(decision, outcomes)
        return decision

    def _checked_whole(self, whole: WholeRow) -> WholeRow:
        self._checked(whole.decision, self._seal_decision)
        for outcome in (whole.first, whole.newest):
            if outcome is not None:
                self._checked(outcome, seal_outcome)
        return whole

    def record(self, row: Row) -> Rewarded:
        """What is learnt by a row of `WHOLE`: the context of the action, or of that in a slot."""
        decision, first, newest = self._checked_whole(whole_row(row))
        assert first is not None
        action, weight = decision.action, 1.0
        if first.slot:
            slots = read_slots(decision.slots or "")
            action, weight = slots.shown[first.slot - 1], slots.weights[first.slot - 1]
        context = context_of(decision.contexts, action, len(decision.theta) // 8)
        reward = first.reward if newest is None else newest.reward
        names = labels_of(decision.names)
        return Rewarded(context, reward, weight, None if names is None else names[action])

    def _slots(self, decision: StoredDecision, outcomes: Sequence[Outcomes]) -> list[StoredSlot]:
        column, names, exposure = read_slots(decision.slots_json or ""), decision.names, decision.policy
        shown, weights, baseline = column.shown, column.weights, column.baseline
        own: Sequence[int | None] = baseline or [None] * len(shown)
        note = DecisionNote(mode=decision.mode, baseline=baseline, control_share=decision.control_share)
        slots = [
            StoredSlot(
                action,
                weight,
                note.propensity(action, float(exposure[action]), weights),
                drawn,
                wanted,
                None if names is None else names[action],
            )
            for action, weight, drawn, wanted in zip(shown, weights, column.drawn or shown, own, strict=True)
        ]
        for first, newest in outcomes:
            self._checked(first, seal_outcome)
            if newest is not None:
                self._checked(newest, seal_outcome)
            slot, latest = slots[first.slot - 1], newest or first
            slot.reward, slot.reward_time = latest.reward, first.time / 1e6
            slot.status, slot.person = first.status, first.person
        return slots


def _as_json(body: dict[str, Any]) -> bytes:
    """A snapshot as JSON, by msgspec, in less than half of the time, where it writes what `json` would."""
    from msgspec.json import decode, encode

    with suppress(OverflowError, UnicodeEncodeError):  # integers of more than 64 bits, halves of pairs
        content = encode(body)
        if decode(content) == body:  # NaN and infinity, which it writes as null, differ
            return content
    return json.dumps(body, separators=(",", ":")).encode()
