"""Steps that change what earlier rows mean: contexts that were dropped, records that were deleted, rollbacks.

Each is an event in the chain. A row without content is sound only if one of these events covers it. Its seal
loses the salt and keeps both digests, so that the chain through it still fits.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Any

from fedfairx.storage.database import Row
from fedfairx.storage.seals import SALT
from fedfairx.util.formatting import counted

KINDS = ("drop", "delete", "rollback")
AMENDING = f"kind IN {KINDS}"  # as the index on events has it, to the letter
LEARNT = ("learn", "learn weighted")
STEPS = 8  # bytes of an event's body that say how many numbers it takes


@dataclass(frozen=True, slots=True)
class Amendments:
    """What all amending events of an agent's log say together.

    dropped: how many decisions and logs of other decisions (`learn`) were to lose their content by age.
    before: all of them have smaller numbers.
    until: they were made before this time, in microseconds since 1970.
    rule: by what rule.
    whole_from: no decision before this number has content.
    deleted: the numbers of rows that were deleted, with those of people.
    deletions: in how many deletions.
    undone: spans of numbers, from and before, that rollbacks have undone; in order.
    """

    dropped: int = 0
    before: int = 0
    until: int = 0
    rule: str = ""
    whole_from: int = 0
    deleted: frozenset[int] = frozenset()
    deletions: int = 0
    undone: tuple[tuple[float, float], ...] = ()

    def covers(self, seq: int, by_age: bool) -> bool:
        """Whether a row was deleted or, if its kind loses content by age, may have been dropped."""
        return seq in self.deleted or (by_age and seq < self.before)

    def is_undone(self, seq: int) -> bool:
        """Whether a rollback has undone what was learnt in this step."""
        at = bisect_right(self.undone, (seq, inf)) - 1
        return at >= 0 and seq < self.undone[at][1]

    def gone(self, since: float | None = None) -> str | None:
        """What is gone of the time from `since` on (seconds since 1970), as a sentence; None for nothing."""
        said = []
        if self.dropped and (since is None or since * 1e6 < self.until):
            rule = f" ({self.rule})" if self.rule else ""
            said.append(f"{counted(self.dropped, 'row')} from before {_day(self.until)} dropped{rule}")
        if self.deletions:
            said.append(
                f"{counted(len(self.deleted), 'row')} deleted in {counted(self.deletions, 'deletion')}"
            )
        return f"Contents that are gone: {', '.join(said)}." if said else None


def amendments(events: Iterable[tuple[int, str, bytes]]) -> Amendments:
    """Combine amending events: their numbers, kinds and bodies, in order."""
    dropped: dict[str, Any] = {}
    deleted: set[int] = set()
    deletions, rollbacks = 0, []
    for seq, kind, body in events:
        said = json.loads(body)
        if kind == "drop":
            dropped = said
        elif kind == "delete":
            deletions += 1
            deleted.update(said["rows"])
        else:
            rollbacks.append((seq, int(said["to"])))
    spans, end = [], inf
    for seq, to in reversed(rollbacks):
        if seq < end:  # else a later rollback has undone this one
            spans.append((float(to), float(seq)))
            end = to
    return Amendments(
        **dropped, deleted=frozenset(deleted), deletions=deletions, undone=tuple(reversed(spans))
    )


def is_blank(table: str, row: Row) -> bool:
    """Whether a row of `DECISION`, `OUTCOME` or `EVENT`, and its seal, has no content and no salt."""
    if not isinstance(row[-1], bytes) or len(row[-1]) != SALT.start:
        return False
    if table == "decisions":
        return not any(row[3:9]) and row[9:18] == ("live", None, 0.0, 0, *5 * (None,))
    if table == "outcomes":
        return row[4] is None and row[6] is None
    return row[3] in LEARNT and len(row[4]) == STEPS


def marks(values: Sequence[Any]) -> str:
    """The marks of a list of values in a statement."""
    return ", ".join("?" * len(values))


def _day(time: int) -> str:
    return (
        datetime.fromtimestamp(time / 1e6, UTC).isoformat(timespec="seconds").removesuffix("+00:00") + " UTC"
    )
