"""What can be asked of the decisions that are kept. Questions see what is committed, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fedfairx.errors import StateError, require
from fedfairx.storage.database import PAGE, Row
from fedfairx.storage.log import Log
from fedfairx.storage.origins import Origins
from fedfairx.storage.rows import STATUSES, StoredDecision, floats

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
        self.origins = Origins()
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
