"""One agent's part of a log: what it writes at each step, and what can be read of it.

Rows are checked when they are read (`seals`): a damaged one is a `StateError` that names its step.
"""

from __future__ import annotations

import heapq
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from fedfairx.errors import KeyTaken, StateError, require
from fedfairx.storage.database import PAGE, Row, pages
from fedfairx.storage.decision_ids import IdPrefixes
from fedfairx.storage.records import (
    STATUSES,
    DecisionNote,
    StoredDecision,
    as_json,
    context_of,
    floats,
    packed_contexts,
)
from fedfairx.storage.seals import (
    DECISION,
    EVENT,
    OUTCOME,
    REWARDED,
    SIZE,
    START,
    columns,
    decision_rest,
    outcome_rest,
    plain_rest,
    seal_decision,
    seal_event,
    seal_other,
    seal_outcome,
)
from fedfairx.storage.transaction_log import Log, event_body, event_content
from fedfairx.util.arrays import Array, Coordinates

PLAIN = DecisionNote()
_PLAIN_REST = ("live", None, 0.0, 0, *6 * (None,))
_REWARDED = ("rewarded", None, 0, 0)

_DECISIONS = f"SELECT {DECISION}, seal FROM decisions"
#: A decision `d`, its outcome `o`, and what has replaced that since, `r`.
WHOLE = f"SELECT {columns(DECISION, 'd')}, {columns(OUTCOME, 'o')}, {columns(OUTCOME, 'r')}"
REPLACED = (
    "LEFT JOIN outcomes r ON r.decision = o.decision AND r.slot = o.slot AND o.turn = 0 AND r.turn > 0 "
    "AND r.turn = (SELECT MAX(turn) FROM outcomes WHERE decision = o.decision AND slot = o.slot)"
)
_JOINED = (
    f"{WHOLE} FROM decisions d LEFT JOIN outcomes o ON o.decision = d.seq AND o.slot = 0 AND o.turn = 0 "
    f"{REPLACED} WHERE d.agent = ?"
)
_OUTCOMES = f"SELECT {columns(OUTCOME, 'o')}, {columns(OUTCOME, 'r')} FROM outcomes o {REPLACED}"
_EVENTS = f"SELECT {EVENT}, seal FROM events"
_D, _O = len(DECISION.split(", ")) + 1, len(OUTCOME.split(", ")) + 1


@dataclass(frozen=True, slots=True)
class Made:
    """A decision in the log, as an agent needs it for going on."""

    seq: int
    time: int
    context: Array  # of the action taken
    policy: Array
    theta: Array
    action: int
    drawn: int
    propensity: float
    names: list[str] | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a decision; `reward` is NaN where one was given that is no number."""

    seq: int
    decision: int
    status: str
    reward: float | None


@dataclass(frozen=True, slots=True)
class Event:
    """Any other step."""

    seq: int
    kind: str
    body: bytes


Step = Made | Outcome | Event


class Checked(NamedTuple):
    """A row that fits its seal, and the step that it tells of; None where it replaces an earlier one."""

    seq: int
    seal: bytes
    step: Step | None


class Journal:
    """What one agent keeps in a log. The writing methods are called inside a step of the log."""

    def __init__(self, log: Log, agent: int) -> None:
        self.log = log
        self.agent = agent
        self.snapshot_at = 0  # where the newest one is
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
    ) -> int:
        """Keep a decision; `values` are policy (K), θ (d) and chosen context (d). Gives its time.

        rows: contexts (K, d), or coordinates (K,) of actions without features.
        slots: JSON of all actions shown, their weights and propensities, where there are several.
        """
        log, agent, arms = self.log, self.agent, len(rows)
        shares, end = values.tobytes(), 4 * (values.size + arms)
        prefix, when = self.origins.given[-1][1], log.time
        row: Row = (
            number,
            agent,
            when,
            packed_contexts(rows),
            shares[: 8 * arms],
            shares[8 * arms : end],
            action,
            drawn,
            propensity,
        )
        previous = log.heads.get(agent) or self.head()
        if note is None and names is None and slots is None:
            seal = seal_decision(previous, row, plain_rest(prefix))
        else:
            note = note or PLAIN
            if note.key is not None:
                log.keys[agent, note.key] = number
            rest = (
                note.mode,
                note.baseline,
                note.control_share or 0.0,  # SQLite keeps no -0.0
                note.model_version,
                None if names is None else as_json(names),
                None if note.groups is None else as_json(note.groups),
                note.key,
                note.digest,
                note.extra,
                slots,
            )
            seal = seal_decision(previous, row, decision_rest(prefix, *rest))
            row = (*row, *rest)
        log.heads[agent] = seal[SIZE:]
        log.decisions.append((*row, seal))
        log.written += 1
        return when

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
        """Keep what became of a decision or of one of its slots; a `turn` above 0 replaces one."""
        log, agent = self.log, self.agent
        number = log.numbers.next
        log.numbers.next = number + 1
        # SQLite keeps no NaN and no -0.0.
        kept = None if reward is None or reward != reward else reward or 0.0
        row: Row = (number, agent, decision, log.time, kept)
        previous = log.heads.get(agent) or self.head()
        if status == "rewarded" and person is None and slot == turn == 0:
            seal = seal_outcome(previous, row, REWARDED)
        else:
            rest = (status, None if person is None else str(person), slot, turn)
            seal = seal_outcome(previous, row, outcome_rest(*rest))
            row = (*row, *rest)
        log.heads[agent] = seal[SIZE:]
        log.outcomes.append((*row, seal))
        log.written += 1

    def append_event(self, kind: str, body: bytes = b"", steps: int = 1) -> None:
        """Keep another step; it takes `steps` numbers, from the next on."""
        log, agent = self.log, self.agent
        number = log.numbers.next
        log.numbers.next = number + steps
        row = (number, agent, log.time, kind, event_body(body, steps))
        seal = seal_event(log.heads.get(agent) or self.head(), row)
        log.heads[agent] = seal[SIZE:]
        log.events.append((*row, seal))
        log.written += 1
        log.mark_due |= kind == "release"

    def require_new(self, key: str) -> None:
        """`KeyTaken` if a decision was made under this key, in this step's transaction or before."""
        taken = self.log.keys.get((self.agent, key))
        if taken is None:
            question = "SELECT seq FROM decisions WHERE agent = ? AND key = ?"
            rows = self.log.database.execute(question, (self.agent, key))
            taken = rows[0][0] if rows else None
        if taken is not None:
            raise KeyTaken(self.id_of(taken))

    def begin_incarnation(self) -> str:
        """A new prefix for ids, random, so that no other opening of any copy has it."""
        with self.log.step() as log:
            first = log.numbers.next
            prefix = self.origins.begin(first)
            (number,) = log.write("SELECT COALESCE(MAX(id), 0) + 1 FROM id_prefixes")[0]
            log.write(
                "INSERT INTO id_prefixes VALUES (?, ?, ?, ?, ?)",
                (number, self.agent, prefix, first, log.now()),
            )
        return prefix

    # --- snapshots -----------------------------------------------------------------------------------

    def write_snapshot(self, body: dict[str, Any]) -> None:
        """Keep the state after all steps so far; of earlier ones the first stays, and the last but one."""
        content = json.dumps(body, separators=(",", ":")).encode()
        with self.log.step() as log:
            seq = self.snapshot_at = log.end  # not the next number: one that failed may be given anew later
            row = (self.agent, seq, self.head(before=seq), content)
            log.write("DELETE FROM snapshots WHERE agent = ? AND seq = ?", (self.agent, seq))
            log.write("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?)", (*row, seal_other(*row)))
            log.write(
                "DELETE FROM snapshots WHERE agent = ? AND seq < ? AND seq > "
                "(SELECT MIN(seq) FROM snapshots WHERE agent = ?) AND seq < "
                "(SELECT MAX(seq) FROM snapshots WHERE agent = ? AND seq < ?)",
                (self.agent, seq, self.agent, self.agent, seq),
            )

    def snapshots(self, *, damaged: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
        """(next number, state), the newest first; a damaged one is left out, or, if `damaged`, an error."""
        for *row, seal in self.log.database.execute(
            "SELECT agent, seq, head, body, seal FROM snapshots WHERE agent = ? ORDER BY seq DESC",
            (self.agent,),
        ):
            _, seq, head, content = row
            if not isinstance(content, bytes) or seal_other(*row) != seal:
                if damaged:
                    raise self._damaged(f"the snapshot before step {seq} is not as it was written")
            elif head != self.head(before=seq):
                raise self._damaged(f"steps before step {seq} are missing")
            else:
                yield seq, json.loads(content)

    # --- steps ---------------------------------------------------------------------------------------

    def head(self, *, before: int | None = None) -> bytes:
        """The digest of the last row that is in the database, or of the last before a number."""
        bound = 2**62 if before is None else before
        question = "SELECT seq, seal FROM {} WHERE agent = ? AND seq < ? ORDER BY seq DESC LIMIT 1"
        newest = [
            row
            for table in ("decisions", "outcomes", "events")
            for row in self.log.database.execute(question.format(table), (self.agent, bound))
        ]
        return bytes(max(newest)[1])[SIZE:] if newest else START

    def steps(self, since: int = 0) -> Iterator[Step]:
        """All steps from number `since` on, in order; a reward that was replaced is the newest one."""
        return (checked.step for checked in self.checked(since) if checked.step is not None)

    def checked(self, since: int = 0) -> Iterator[Checked]:
        """All rows from number `since` on, in order: a `StateError` at the first that breaks the chain."""
        previous = self.head(before=since)
        each = (
            map(self._made, self._pages(_DECISIONS, since)),
            map(self._ended, self._pages(_OUTCOMES, since, "o.")),
            map(self._happened, self._pages(_EVENTS, since)),
        )
        for found in heapq.merge(*each, key=itemgetter(0)):
            if found.seal[:SIZE] != previous:
                raise self._damaged(f"what came before step {found.seq} was removed or inserted")
            previous = found.seal[SIZE:]
            yield found

    def made(self, numbers: Sequence[int]) -> Iterator[Made]:
        """The decisions of these numbers."""
        for at in range(0, len(numbers), 500):
            some = numbers[at : at + 500]
            marks = ", ".join("?" * len(some))
            question = f"{_DECISIONS} WHERE agent = ? AND seq IN ({marks}) ORDER BY seq"
            rows = self.log.database.execute(question, (self.agent, *some))
            if len(rows) != len(some):
                raise StateError(f"{self.place} is damaged: decisions that wait for a reward are missing")
            for row in rows:
                step = self._made(row).step
                assert isinstance(step, Made)
                yield step

    def outcomes(self, decision: int) -> list[Row]:
        """The rows of `OUTCOME` of a decision: its outcome, and what has replaced it since."""
        question = (
            f"SELECT {OUTCOME}, seal FROM outcomes "
            "WHERE decision = ? AND agent = ? AND slot = 0 ORDER BY turn"
        )
        rows = self.log.database.execute(question, (decision, self.agent))
        for row in rows:
            self._check(row, _seal_of_outcome)
        return rows

    def event(self, row: Row) -> Event:
        """The event of a row of `EVENT` and its seal, if it is as it was written."""
        self._check(row, seal_event)
        return Event(row[0], row[3], event_content(row[4]))

    def _pages(self, question: str, since: int, table: str = "") -> Iterator[Row]:
        where = f"{question} WHERE {table}agent = ? AND {table}seq > ? ORDER BY {table}seq LIMIT ?"
        return pages(self.log.database.execute, where, (self.agent,), after=since - 1)

    def _made(self, row: Row) -> Checked:
        self._check(row, self._seal_decision)
        seq, _, when, contexts, shares, parameter, action, drawn, propensity, *_ = row
        policy, theta, names = floats(shares), floats(parameter), row[13]
        context = context_of(contexts, action, policy.size, theta.size)
        called = None if names is None else json.loads(names)
        made = Made(seq, when, context, policy, theta, action, drawn, propensity, called)
        return Checked(seq, row[-1], made)

    def _ended(self, row: Row) -> Checked:
        first, newest = row[:_O], row[_O:]
        self._check(first, _seal_of_outcome)
        seq, _, decision, _, reward, status, _, _, turn, seal = first
        if turn:
            return Checked(seq, seal, None)
        if newest[0] is not None:
            self._check(newest, _seal_of_outcome)
            reward = newest[4]
        learnt = float("nan") if reward is None and status == "rewarded" else reward
        return Checked(seq, seal, Outcome(seq, decision, status, learnt))

    def _happened(self, row: Row) -> Checked:
        event = self.event(row)
        return Checked(event.seq, row[-1], event)

    def _seal_decision(self, previous: bytes, row: Row) -> bytes:
        prefix, rest = self.origins.of(row[0]) or "", row[9:]
        packed = plain_rest(prefix) if rest == _PLAIN_REST else decision_rest(prefix, *rest)
        return seal_decision(previous, row[:9], packed)

    def _check(self, row: Row, seal: Callable[[bytes, Row], bytes]) -> None:
        """Raise unless a row fits its seal, its last column."""
        try:
            sound = seal(row[-1][:SIZE], row[:-1]) == row[-1]
        except (AttributeError, struct.error, TypeError, UnicodeError):  # a value of another type
            sound = False
        if not sound:
            raise self._damaged(f"step {row[0]} is not as it was written")

    def _damaged(self, what: str) -> StateError:
        return StateError(f"{self.place} is damaged: {what}; restore a backup")

    # --- questions -----------------------------------------------------------------------------------
    # They see what is committed, and nothing else.

    def id_of(self, number: int) -> str:
        """The id of the decision with this number."""
        prefix = self.origins.of(number)
        if prefix is None:
            raise StateError(f"{self.place} is damaged: step {number} is of no opening")
        return f"{prefix}-{number}"

    def decision(self, identity: str) -> StoredDecision | None:
        """The decision of this id, if this agent made one."""
        number = self.origins.number_in(identity)
        return None if number is None else self._one(" AND d.seq = ?", number)

    def by_key(self, key: str) -> StoredDecision | None:
        """The decision that was made under this key."""
        return self._one(" AND d.key = ?", key)

    def status_of(self, number: int) -> str | None:
        """What has become of a decision, also in an open step; None where there is none of this number."""
        for row in self.log.outcomes:
            if row[2] == number:
                return str(row[5]) if len(row) == _O else "rewarded"
        execute = self.log.database.execute
        ended = execute("SELECT status FROM outcomes WHERE decision = ? AND agent = ?", (number, self.agent))
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
    ) -> Iterator[StoredDecision]:
        """Oldest first, from after `after_seq` on; `since` and `until` are seconds since 1970."""
        where, values = [""], [self.agent]
        if status is not None:
            require(status in STATUSES, "status", f"must be one of {', '.join(STATUSES)}", status)
            where.append("o.status IS NULL" if status == "pending" else "o.status = ?")
            values += [] if status == "pending" else [status]  # type: ignore[list-item]
        for text, value in (
            ("d.time >= ?", None if since is None else int(since * 1e6)),
            ("d.time < ?", None if until is None else int(until * 1e6)),
            ("d.action = ?", action),
            ("d.mode = ?", mode),
            ("d.seq < ?", before_seq),
        ):
            if value is not None:
                where.append(text)
                values.append(value)  # type: ignore[arg-type]
        question = _JOINED + " AND ".join(where) + " AND d.seq > ? ORDER BY d.seq LIMIT ?"
        left = limit
        while left is None or left > 0:
            page = PAGE if left is None else min(PAGE, left)
            rows = self.log.database.read(question, (*values, after_seq, page))
            yield from map(self.whole, rows)
            if len(rows) < page:
                return
            after_seq = rows[-1][0]
            left = None if left is None else left - page

    def counts(self) -> dict[str, int]:
        """How many decisions there are of each status."""
        read = self.log.database.read
        total = read("SELECT COUNT(*) FROM decisions WHERE agent = ?", (self.agent,))[0][0]
        ended = read(
            "SELECT status, COUNT(*) FROM outcomes WHERE agent = ? AND slot = 0 AND turn = 0 GROUP BY status",
            (self.agent,),
        )
        counts = dict.fromkeys(STATUSES, 0) | {str(status): int(count) for status, count in ended}
        counts["pending"] = int(total) - sum(counts.values())
        return counts

    def _one(self, where: str, value: Any) -> StoredDecision | None:
        rows = self.log.database.read(_JOINED + where, (self.agent, value))
        return self.whole(rows[0]) if rows else None

    def whole(self, row: Row) -> StoredDecision:
        """The decision of a row of `WHOLE`, if all of it is as it was written."""
        made, first, newest = row[:_D], row[_D : _D + _O], row[_D + _O :]
        self._check(made, self._seal_decision)
        status, reward, reward_time, person = "pending", None, None, None
        if first[0] is not None:
            self._check(first, _seal_of_outcome)
            _, _, _, when, reward, status, person, *_ = first
            reward_time = when / 1e6
            if newest[0] is not None:
                self._check(newest, _seal_of_outcome)
                reward = newest[4]
        seq, _, time, *rest = made[:-2]  # without slots and seal
        return StoredDecision(self.id_of(seq), status, reward, reward_time, person, seq, time / 1e6, *rest)


def _seal_of_outcome(previous: bytes, row: Row) -> bytes:
    rest = row[5:]
    return seal_outcome(previous, row[:5], REWARDED if rest == _REWARDED else outcome_rest(*rest))
