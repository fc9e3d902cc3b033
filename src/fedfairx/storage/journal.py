"""One agent's part of a log: what it writes at each step, and what it reads when it is opened again."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fedfairx.errors import KeyTaken, StateError
from fedfairx.storage.database import Row, pages
from fedfairx.storage.queries import COLUMNS, Queries
from fedfairx.storage.records import (
    DecisionNote,
    as_json,
    context_of,
    floats,
    packed_contexts,
    seal,
    seal_decision,
    seal_outcome,
)
from fedfairx.storage.transaction_log import Log, event_body, event_content
from fedfairx.util.arrays import Array, Coordinates

PLAIN = DecisionNote()


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


class Journal(Queries):
    """What one agent keeps in a log. The writing methods are called inside a step of the log."""

    def __init__(self, log: Log, agent: int) -> None:
        super().__init__(log, agent)
        self.snapshot_at = 0  # where the newest one is

    # --- writing -------------------------------------------------------------------------------------

    def decided(
        self,
        number: int,
        rows: Array | Coordinates,
        values: Array,
        action: int,
        drawn: int,
        names: Sequence[str] | None,
        note: DecisionNote | None,
    ) -> int:
        """Keep a decision; `values` are policy (K), θ (d) and chosen context (d). Gives its time.

        rows: contexts (K, d), or coordinates (K,) of actions without features.
        """
        log, arms = self.log, len(rows)
        dimension = (values.size - arms) // 2
        if note is None:
            note = PLAIN
        elif note.key is not None:
            log.keys[self.agent, note.key] = number
        contexts, shares = packed_contexts(rows), values.tobytes()
        policy, theta = shares[: 8 * arms], shares[8 * arms : 8 * (arms + dimension)]
        when = log.time
        log.decisions.append(
            (
                number,
                self.agent,
                when,
                contexts,
                policy,
                theta,
                action,
                drawn,
                float(values[action]),
                note.mode,
                None if names is None else as_json(names),
                None if note.groups is None else as_json(note.groups),
                note.key,
                note.digest,
                note.extra,
                seal_decision(number, action, drawn, contexts, policy, theta),
            )
        )
        log.written += 1
        return when

    def require_new(self, key: str) -> None:
        """`KeyTaken` if a decision was made under this key, in this step's transaction or before."""
        taken = self.log.keys.get((self.agent, key))
        if taken is None:
            question = "SELECT seq FROM decisions WHERE agent = ? AND key = ?"
            rows = self.log.database.execute(question, (self.agent, key))
            taken = rows[0][0] if rows else None
        if taken is not None:
            raise KeyTaken(self.id_of(taken))

    def ended(
        self, decision: int, status: str, reward: float | None, person: str | int | None = None
    ) -> None:
        """Keep what became of a decision."""
        log = self.log
        number = log.numbers.next
        log.numbers.next = number + 1
        kept = None if reward is None or reward != reward else reward
        log.outcomes.append(
            (
                number,
                self.agent,
                decision,
                log.time,
                status,
                kept,
                None if person is None else str(person),
                seal_outcome(number, decision, status, kept),
            )
        )
        log.written += 1

    def happened(self, kind: str, body: bytes = b"", steps: int = 1) -> None:
        """Keep another step; it takes `steps` numbers, from the next on."""
        log = self.log
        number = log.numbers.next
        log.numbers.next = number + steps
        whole = event_body(body, steps)
        log.events.append((number, self.agent, log.time, kind, whole, seal(number, kind, whole)))
        log.written += 1
        log.mark_due |= kind == "release"

    # --- incarnations --------------------------------------------------------------------------------

    def begin_incarnation(self) -> str:
        """A new prefix for ids, random, so that no other opening of any copy has it."""
        with self.log.step() as log:
            first = log.numbers.next
            origin = self.origins.begin(first)
            (life,) = log.write("SELECT COALESCE(MAX(life), 0) + 1 FROM incarnations")[0]
            log.write(
                "INSERT INTO incarnations VALUES (?, ?, ?, ?, ?)",
                (life, self.agent, origin, first, log.now()),
            )
        return origin

    # --- snapshots -----------------------------------------------------------------------------------

    def write_snapshot(self, body: dict[str, Any]) -> None:
        """Keep the state after all steps so far; of earlier ones the first stays, and the last but one."""
        content = json.dumps(body, separators=(",", ":")).encode()
        with self.log.step() as log:
            seq = self.snapshot_at = log.end  # not the next number: one that failed may be given anew later
            log.write("DELETE FROM snapshots WHERE agent = ? AND seq = ?", (self.agent, seq))
            log.write("INSERT INTO snapshots VALUES (?, ?, ?, ?)", (self.agent, seq, content, seal(content)))
            log.write(
                "DELETE FROM snapshots WHERE agent = ? AND seq < ? AND seq > "
                "(SELECT MIN(seq) FROM snapshots WHERE agent = ?) AND seq < "
                "(SELECT MAX(seq) FROM snapshots WHERE agent = ? AND seq < ?)",
                (self.agent, seq, self.agent, self.agent, seq),
            )

    def snapshots(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(next number, state), the newest first; those that are damaged are left out."""
        for seq, content, stored in self.log.database.execute(
            "SELECT seq, body, seal FROM snapshots WHERE agent = ? ORDER BY seq DESC", (self.agent,)
        ):
            if not isinstance(content, str) and seal(bytes(content)) == stored:
                yield seq, json.loads(bytes(content))

    # --- reading -------------------------------------------------------------------------------------

    def steps(self, since: int = 0) -> Iterator[Made | Outcome | Event]:
        """All steps from number `since` on, in order."""
        each: list[Iterable[tuple[int, Made | Outcome | Event]]] = [
            ((row[0], self._made(row)) for row in self._pages(f"SELECT {COLUMNS} FROM decisions", since)),
            (
                (row[0], self.outcome(row))
                for row in self._pages("SELECT seq, decision, status, reward, seal FROM outcomes", since)
            ),
            (
                (row[0], self._event(row))
                for row in self._pages("SELECT seq, kind, body, seal FROM events", since)
            ),
        ]
        for _, step in heapq.merge(*each, key=lambda pair: pair[0]):
            yield step

    def made(self, numbers: Sequence[int]) -> Iterator[Made]:
        """The decisions of these numbers."""
        for at in range(0, len(numbers), 500):
            some = numbers[at : at + 500]
            marks = ", ".join("?" * len(some))
            question = f"SELECT {COLUMNS} FROM decisions WHERE seq IN ({marks}) ORDER BY seq"
            rows = self.log.database.execute(question, some)
            if len(rows) != len(some):
                raise StateError(f"{self.place} is damaged: decisions that wait for a reward are missing")
            yield from map(self._made, rows)

    def _pages(self, question: str, since: int) -> Iterator[Row]:
        where = f"{question} WHERE agent = ? AND seq > ? ORDER BY seq LIMIT ?"
        return pages(self.log.database.execute, where, (self.agent,), after=since - 1)

    def _made(self, row: Row) -> Made:
        seq, when, contexts, policy, theta, action, drawn, stored, names = row
        sealed = seal_decision(seq, action, drawn, bytes(contexts), bytes(policy), bytes(theta))
        self._check(seq, sealed == stored)
        shares, parameter = floats(policy), floats(theta)
        context = context_of(bytes(contexts), action, shares.size, parameter.size)
        called = None if names is None else json.loads(names)
        return Made(seq, when, context, shares, parameter, action, drawn, called)

    def outcome(self, row: Row) -> Outcome:
        """A row of (seq, decision, status, reward, seal), if it is as it was written."""
        seq, decision, status, reward, stored = row
        self._check(seq, seal_outcome(seq, decision, status, reward) == stored)
        learnt = float("nan") if reward is None and status == "rewarded" else reward
        return Outcome(seq, decision, status, learnt)

    def _event(self, row: Row) -> Event:
        seq, kind, body, stored = row
        self._check(seq, seal(seq, kind, bytes(body)) == stored)
        return Event(seq, kind, event_content(bytes(body)))

    def _check(self, seq: int, sound: bool) -> None:
        if not sound:
            raise StateError(
                f"{self.place} is damaged: step {seq} is not as it was written; restore a backup"
            )
