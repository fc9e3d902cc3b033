"""Migration to version 4 of the tables: chained seals on every row, replaced rewards as separate rows.

Version 3 had a checksum over some columns (CRC-32). Each row is checked against it, and sealed (`seals`). In
version 3 a replaced reward was overwritten, and an event of kind "replace" held the earlier one: the outcome
gets its first reward back, and the event becomes the outcome that replaced it. What the service had stored as
JSON moves to columns, and the propensity is computed from it.
"""

from __future__ import annotations

import heapq
import json
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.resources import files
from operator import itemgetter
from typing import Any
from zlib import crc32

from fedfairx.errors import StateError
from fedfairx.storage.database import Database, Row, damaged, pages
from fedfairx.storage.decision_ids import IdPrefixes
from fedfairx.storage.records import DecisionNote
from fedfairx.storage.seals import SIZE, START, seal_decision, seal_event, seal_other, seal_outcome
from fedfairx.storage.transaction_log import TABLES

AGENT_SCHEMA = 6  # of agents in version 3: earlier ones were in no release, and can't be opened
_BATCH = 500

Convert = Callable[[Row], None]


def statements(file: str) -> str:
    """The SQL statements of a file in `schema/`."""
    return (files("fedfairx.storage") / "schema" / file).read_text(encoding="utf-8")


def execute_all(database: Database, text: str) -> None:
    """Execute statements separated by semicolons, with the type names of this database."""
    for statement in text.split(";"):
        database.execute(database.types(statement))


def seal_all(database: Database) -> None:
    """Migrate version 3 to version 4, inside a transaction; `StateError` at the first damaged row."""
    execute_all(database, statements("4.sql"))
    _Sealing(database).run()
    for table in ("agents", *TABLES, "snapshots"):
        database.execute(f"DROP TABLE old_{table}")


class _Sealing:
    """One pass over all rows, in order of their numbers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._heads: defaultdict[int, bytes] = defaultdict(lambda: START)
        self._prefixes: defaultdict[int, IdPrefixes] = defaultdict(IdPrefixes)
        for agent, first, prefix in self._ask("SELECT agent, first, prefix FROM id_prefixes ORDER BY id"):
            self._prefixes[agent].given.append((first, prefix))
        self._replaced: defaultdict[int, list[float | None]] = defaultdict(list)  # decision: earlier rewards
        self._outcomes: dict[int, Row] = {}  # decision: its outcome, where that was replaced
        self._turns: defaultdict[int, int] = defaultdict(int)  # decision: how often it was replaced so far
        self._waiting: dict[str, list[Row]] = {table: [] for table in TABLES}

    def _ask(self, question: str) -> list[Row]:
        return self._database.execute(question)

    def run(self) -> None:
        for agent, name, settings, secret in self._ask("SELECT * FROM old_agents"):
            if json.loads(settings).get("schema") != AGENT_SCHEMA:
                raise StateError(
                    f"{self._database.place} holds an agent of another version of fedfairx, from before the "
                    "first release: open it with that version"
                )
            row = (agent, name, settings, secret, seal_other(agent, name, settings))
            self._database.execute("INSERT INTO agents VALUES (?, ?, ?, ?, ?)", row)
        for body in self._ask("SELECT body FROM old_events WHERE kind = 'replace' ORDER BY seq"):
            change = json.loads(body[0][8:])
            self._replaced[change["decision"]].append(change["reward"])
        each = (  # snapshots first: a snapshot is the state before its number
            ((seq, self._snapshot, (agent, seq, body)) for agent, seq, body in self._snapshots()),
            self._rows("old_decisions", self._decision),
            self._rows("old_outcomes", self._outcome),
            self._rows("old_events", self._event),
        )
        for seq, convert, row in heapq.merge(*each, key=itemgetter(0)):
            try:
                convert(row)
            except (AttributeError, KeyError, OverflowError, struct.error, TypeError, ValueError):
                raise self._damaged(seq) from None
        for table in self._waiting:
            self._write(table)

    def _rows(self, table: str, convert: Convert) -> Iterator[tuple[int, Convert, Row]]:
        question = f"SELECT * FROM {table} WHERE seq > ? ORDER BY seq LIMIT ?"
        return ((row[0], convert, row) for row in pages(self._database.execute, question, (), after=-1))

    def _snapshots(self) -> Iterator[Row]:
        """All intact snapshots, in order of their numbers; each agent must have one."""
        sound = set()
        for agent, seq in self._ask("SELECT agent, seq FROM old_snapshots ORDER BY seq"):
            question = "SELECT body, seal FROM old_snapshots WHERE agent = ? AND seq = ?"
            ((body, stored),) = self._database.execute(question, (agent, seq))
            if isinstance(body, bytes) and crc32(body) == stored:
                sound.add(agent)
                yield agent, seq, body
        for (agent,) in self._ask("SELECT agent FROM agents"):
            if agent not in sound:
                raise damaged(self._database.place, "it has no sound snapshot")

    def _decision(self, row: Row) -> None:
        (seq, agent, time, contexts, policy, theta, action, drawn, _, mode, names, groups, *more) = row
        key, digest, extra, stored = more
        start = crc32(b"%d %d %d" % (seq, action, drawn))
        self._check(seq, crc32(theta, crc32(policy, crc32(contexts, start))) == stored)
        note, extra = _note(mode, action, extra)
        (share,) = struct.unpack_from("<d", policy, 8 * action)
        plain = (seq, agent, time, contexts, policy, theta, action, drawn, note.propensity(action, share))
        columns = (mode, note.baseline, note.control_share, note.model_version)
        prefix = self._prefixes[agent].of(seq)
        self._check(seq, prefix is not None)
        new = (*plain, *columns, names, groups, key, digest, extra, None)
        self._add("decisions", new, seal_decision(self._heads[agent], new, str(prefix)))

    def _outcome(self, row: Row) -> None:
        seq, agent, decision, time, status, reward, person, stored = row
        texts = [f"{seq} {decision} {status} {reward!r}"]
        if reward == 0.0:  # SQLite has made it of -0.0
            texts.append(f"{seq} {decision} {status} -0.0")
        self._check(seq, any(crc32(text.encode()) == stored for text in texts))
        earlier = self._replaced.get(decision)
        if earlier:
            self._outcomes[decision] = row
            reward = earlier.pop(0)
        self._add_outcome(seq, agent, decision, time, reward, status, person, 0, 0)

    def _event(self, row: Row) -> None:
        seq, agent, time, kind, body, stored = row
        value = 0
        for part in (repr(seq).encode(), repr(kind).encode(), body):
            value = crc32(part, value)
        self._check(seq, value == stored)
        if kind != "replace":
            new = (seq, agent, time, kind, body)
            self._add("events", new, seal_event(self._heads[agent], new))
            return
        decision = json.loads(body[8:])["decision"]
        first, later = self._outcomes[decision], self._replaced[decision]
        reward = later.pop(0) if later else first[5]
        self._turns[decision] += 1
        turn = self._turns[decision]
        self._add_outcome(seq, agent, decision, time, reward, "rewarded", first[6], 0, turn)

    def _add_outcome(
        self, seq: int, agent: int, decision: int, time: int, reward: float | None, *rest: Any
    ) -> None:
        row = (seq, agent, decision, time, None if reward is None else reward or 0.0, *rest)
        self._add("outcomes", row, seal_outcome(self._heads[agent], row))

    def _snapshot(self, row: Row) -> None:
        agent, seq, body = row
        new = (agent, seq, self._heads[agent], body)
        self._database.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?)", (*new, seal_other(*new)))

    def _add(self, table: str, row: Row, seal: bytes) -> None:
        self._heads[row[1]] = seal[SIZE:]
        waiting = self._waiting[table]
        waiting.append((*row, seal))
        if len(waiting) >= _BATCH:
            self._write(table)

    def _write(self, table: str) -> None:
        waiting = self._waiting[table]
        if waiting:
            marks = ", ".join("?" * len(waiting[0]))
            self._database.execute_many(f"INSERT INTO {table} VALUES ({marks})", waiting)
            waiting.clear()

    def _check(self, seq: int, sound: bool) -> None:
        if not sound:
            raise self._damaged(seq)

    def _damaged(self, seq: int) -> StateError:
        return damaged(self._database.place, f"step {seq} is not as it was written")


def _note(mode: str, action: int, extra: str | None) -> tuple[DecisionNote, str | None]:
    """What version 3 stored of the request in its text `extra`: as a note, and what is left of the text."""
    found: Any = None
    if extra is not None:
        with suppress(ValueError):
            found = json.loads(extra)
    if isinstance(found, list) and len(found) == 3:  # written by the service
        version, baseline, share = found
        return DecisionNote(
            mode=mode, baseline=baseline, control_share=share or 0.0, model_version=version
        ), None
    return DecisionNote(mode=mode, baseline=None if mode == "live" else action), extra
