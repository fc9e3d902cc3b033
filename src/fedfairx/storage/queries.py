"""What can be asked of the decisions that are kept. Questions see what is committed, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from fedfairx.errors import StateError, require
from fedfairx.storage.database import PAGE, Row, pages
from fedfairx.storage.decision_ids import IdPrefixes
from fedfairx.storage.records import STATUSES, StoredDecision, floats, unpacked_contexts, unpacked_log
from fedfairx.storage.transaction_log import Log, event_content
from fedfairx.util.arrays import Array

#: What an agent needs of a decision.
COLUMNS = "seq, time, contexts, policy, theta, action, drawn, seal, names"

_WHOLE = (
    "SELECT d.seq, d.time, d.action, d.drawn, d.probability, d.mode, o.status, d.names, d.groups, d.key, "
    "d.digest, d.extra, d.contexts, d.policy, d.theta, o.reward, o.time, o.person "
    "FROM decisions d LEFT JOIN outcomes o ON o.decision = d.seq WHERE d.agent = ?"
)


class Queries:
    """Of one agent in a log."""

    def __init__(self, log: Log, agent: int) -> None:
        self.log = log
        self.agent = agent
        self.origins = IdPrefixes()
        self.read_origins()

    @property
    def place(self) -> str:
        return self.log.database.place

    # --- ids -----------------------------------------------------------------------------------------

    def read_origins(self) -> None:
        """The prefixes of ids, each from a number on."""
        rows = self.log.database.execute(
            "SELECT first, origin FROM incarnations WHERE agent = ? ORDER BY life", (self.agent,)
        )
        self.origins.given = [(int(first), str(origin)) for first, origin in rows]

    def id_of(self, number: int) -> str:
        """The id of the decision with this number."""
        origin = self.origins.of(number)
        if origin is None:
            raise StateError(f"{self.place} is damaged: step {number} is of no opening")
        return f"{origin}-{number}"

    # --- decisions -----------------------------------------------------------------------------------

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
                return str(row[4])
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
        ):
            if value is not None:
                where.append(text)
                values.append(value)  # type: ignore[arg-type]
        question = _WHOLE + " AND ".join(where) + " AND d.seq > ? ORDER BY d.seq LIMIT ?"
        left = limit
        while left is None or left > 0:
            page = PAGE if left is None else min(PAGE, left)
            rows = self.log.database.read(question, (*values, after_seq, page))
            yield from map(self._whole, rows)
            if len(rows) < page:
                return
            after_seq = rows[-1][0]
            left = None if left is None else left - page

    def exposure_rows(
        self, *, since: float | None = None, until: float | None = None
    ) -> Iterator[StoredDecision]:
        """The decisions that the agent's own policy was followed in."""
        return self.decisions(since=since, until=until, mode="live")

    def counts(self) -> dict[str, int]:
        """How many decisions there are of each status."""
        read = self.log.database.read
        total = read("SELECT COUNT(*) FROM decisions WHERE agent = ?", (self.agent,))[0][0]
        ended = read("SELECT status, COUNT(*) FROM outcomes WHERE agent = ? GROUP BY status", (self.agent,))
        counts = dict.fromkeys(STATUSES, 0) | {str(status): int(count) for status, count in ended}
        counts["pending"] = int(total) - sum(counts.values())
        return counts

    def _one(self, where: str, value: Any) -> StoredDecision | None:
        rows = self.log.database.read(_WHOLE + where, (self.agent, value))
        return self._whole(rows[0]) if rows else None

    def _whole(self, row: Row) -> StoredDecision:
        (seq, when, action, drawn, probability, mode, status, names, groups, *rest) = row
        key, digest, extra, contexts, policy, theta, reward, reward_time, person = rest
        shares, parameter = floats(bytes(policy)), floats(bytes(theta))
        return StoredDecision(
            self.id_of(seq),
            seq,
            when / 1e6,
            action,
            drawn,
            probability,
            mode,
            status or "pending",
            None if names is None else json.loads(names),
            None if groups is None else json.loads(groups),
            key,
            digest,
            extra,
            bytes(contexts),
            shares,
            parameter,
            reward,
            None if reward_time is None else reward_time / 1e6,
            person,
        )


_EXPOSURE = (
    "SELECT d.seq, d.time, d.policy, d.contexts, d.action, d.drawn, d.names, d.groups, "
    "o.status, o.reward, d.mode "
    "FROM decisions d LEFT JOIN outcomes o ON o.decision = d.seq "
    "WHERE d.agent = ? AND d.seq >= ? AND d.seq < ? ORDER BY d.seq LIMIT ?"
)

_SIZE = "CAST(8 * length(d.contexts) / length(d.policy) AS INTEGER)"  # bytes of one action's context
_RECORDS = (
    f"SELECT o.seq, substr(d.contexts, 1 + CAST(d.action AS INTEGER) * {_SIZE}, {_SIZE}), o.reward "
    "FROM outcomes o JOIN decisions d ON d.seq = o.decision "
    "WHERE o.agent = ? AND o.reward IS NOT NULL AND o.seq < ? AND o.seq > ? ORDER BY o.seq LIMIT ?"
)
_LEARNT = (
    "SELECT seq, body FROM events "
    "WHERE agent = ? AND kind = 'learn' AND seq < ? AND seq > ? ORDER BY seq LIMIT ?"
)


def latest(journal: Queries, *, limit: int, before: int | None = None) -> list[StoredDecision]:
    """The newest decisions first, or those before one."""
    numbers = journal.log.database.read(
        "SELECT seq FROM decisions WHERE agent = ? AND seq < ? ORDER BY seq DESC LIMIT ?",
        (journal.agent, _after_all(journal) if before is None else before, limit),
    )
    if not numbers:
        return []
    found = list(journal.decisions(after_seq=numbers[-1][0] - 1, limit=len(numbers)))
    return found[::-1]


def last_of(journal: Queries, count: int, *, first: int, end: int) -> int:
    """The number from which on at most `count` decisions are there, at `first` or later and before `end`."""
    rows = journal.log.database.read(
        "SELECT seq FROM decisions WHERE agent = ? AND seq >= ? AND seq < ? "
        "ORDER BY seq DESC LIMIT 1 OFFSET ?",
        (journal.agent, first, end, count - 1),
    )
    return int(rows[0][0]) if rows else first


def number_at(journal: Queries, time: float | None) -> int:
    """The least number from which on all was done at this time or later; without one, past the last."""
    low, high = 0, _after_all(journal)
    if time is None:
        return high
    while low < high:
        middle = (low + high) // 2
        rows = journal.log.database.read(
            "SELECT seq, time FROM decisions WHERE agent = ? AND seq >= ? ORDER BY seq LIMIT 1",
            (journal.agent, middle),
        )
        if not rows or rows[0][1] >= int(time * 1e6):
            high = middle
        else:
            low = rows[0][0] + 1
    return low


def for_exposure(journal: Queries, *, first: int, end: int) -> Iterator[Row]:
    """(seq, time, policy, contexts, action, drawn, names, groups, status, reward, mode), as stored."""
    while True:
        rows = journal.log.database.read(_EXPOSURE, (journal.agent, first, end, PAGE))
        yield from rows
        if len(rows) < PAGE:
            return
        first = rows[-1][0] + 1


def records(
    journal: Queries, dimension: int, *, first: int, end: int, page: int = PAGE
) -> Iterator[tuple[int, Array, Array]]:
    """Rewards from number `first` on and before `end`, in the order in which they came, in parts of `page`.

    Each part: the number of its last step, the contexts (n, d) of the actions taken, and the rewards (n,).
    """
    rows = pages(journal.log.database.read, _RECORDS, (journal.agent, end), after=first - 1)
    while some := list(islice(rows, page)):
        contexts = np.concatenate([unpacked_contexts(bytes(row), 1, dimension) for _, row, _ in some])
        yield some[-1][0], contexts, np.array([reward for _, _, reward in some])


def learnt(journal: Queries, *, first: int, end: int) -> Iterator[tuple[Array, Array]]:
    """Contexts and rewards of records that were learnt without a decision, from a number on, before `end`."""
    for _, body in pages(journal.log.database.read, _LEARNT, (journal.agent, end), after=first - 1):
        yield unpacked_log(event_content(bytes(body)))


def end_of(journal: Queries) -> int:
    """The number after all steps that are kept."""
    newest = [
        journal.log.database.read(f"SELECT MAX(seq) FROM {table} WHERE agent = ?", (journal.agent,))[0][0]
        for table in ("decisions", "outcomes", "events")
    ]
    return max((int(last) + 1 for last in newest if last is not None), default=0)


def counted(journal: Queries, since: int) -> tuple[int, dict[str, int], int]:
    """Decisions made from a number on, what became of decisions from it on, and where to go on from."""
    read, agent = journal.log.database.read, journal.agent
    newest = read(
        "SELECT (SELECT MAX(seq) FROM decisions WHERE agent = ?), "
        "(SELECT MAX(seq) FROM outcomes WHERE agent = ?)",
        (agent, agent),
    )[0]
    end = max([since, *(int(last) + 1 for last in newest if last is not None)])
    where = "WHERE agent = ? AND seq >= ? AND seq < ?"
    made = read(f"SELECT COUNT(*) FROM decisions {where}", (agent, since, end))[0][0]
    ended = read(f"SELECT status, COUNT(*) FROM outcomes {where} GROUP BY status", (agent, since, end))
    return int(made), {str(status): int(many) for status, many in ended}, end


def by_time(journal: Queries, *, since: float, width: float, count: int) -> tuple[list[int], list[int]]:
    """Decisions made, and rewards come, in each of `count` stretches of `width` seconds from `since` on."""
    found = []
    for question in (
        "SELECT (time - ?) / ?, COUNT(*) FROM decisions WHERE agent = ? AND seq >= ? AND time >= ? "
        "GROUP BY 1",
        "SELECT (time - ?) / ?, COUNT(*) FROM outcomes WHERE agent = ? AND seq >= ? AND time >= ? "
        "AND status = 'rewarded' GROUP BY 1",
    ):
        start, step = int(since * 1e6), max(1, int(width * 1e6))
        values: list[Any] = [start, step, journal.agent, number_at(journal, since), start]
        counts = [0] * count
        for place, many in journal.log.database.read(question, values):
            counts[min(int(place), count - 1)] += int(many)
        found.append(counts)
    return found[0], found[1]


def first_time(journal: Queries) -> float | None:
    """When the first decision was made."""
    rows = journal.log.database.read(
        "SELECT time FROM decisions WHERE agent = ? ORDER BY seq LIMIT 1", (journal.agent,)
    )
    return rows[0][0] / 1e6 if rows else None


def _after_all(journal: Queries) -> int:
    rows = journal.log.database.read("SELECT MAX(seq) FROM decisions WHERE agent = ?", (journal.agent,))
    return 0 if rows[0][0] is None else int(rows[0][0]) + 1
