"""Steps that change what earlier rows mean: contexts that were dropped, records that were deleted, rollbacks.

Each is an event in the chain. A row without content is sound only if one of these events covers it. Its seal
loses the salt and keeps both digests, so that the chain through it still fits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Any

from fedfairx import steps
from fedfairx.steps import Deleted, Dropped, Event, RolledBack
from fedfairx.storage.rows import DecisionRow, EventRow, OutcomeRow
from fedfairx.storage.seals import SALT
from fedfairx.util.formatting import counted

AMENDING = f"kind IN {steps.AMENDING}"  # as the index on events has it, to the letter
LEARNT = f"kind IN {steps.LEARNING}"  # likewise
NOTHING_DROPPED = Dropped()


@dataclass(frozen=True, slots=True)
class Amendments:
    """What all amending events of an agent's log say together.

    dropped: the last drop, which covers those before it.
    deleted: the numbers of rows that were deleted, with those of people.
    deletions: in how many deletions.
    undone: spans of numbers, from and before, that rollbacks have undone; in order.
    """

    dropped: Dropped = NOTHING_DROPPED
    deleted: frozenset[int] = frozenset()
    deletions: int = 0
    undone: tuple[tuple[float, float], ...] = ()

    def covers(self, seq: int, by_age: bool) -> bool:
        """Whether a row was deleted or, if its kind loses content by age, may have been dropped."""
        return seq in self.deleted or (by_age and seq < self.dropped.before)

    def is_undone(self, seq: int) -> bool:
        """Whether a rollback has undone what was learnt in this step."""
        at = bisect_right(self.undone, (seq, inf)) - 1
        return at >= 0 and seq < self.undone[at][1]

    def gone(self, since: float | None = None) -> str | None:
        """What is gone of the time from `since` on (seconds since 1970), as a sentence; None for nothing."""
        parts = []
        old = self.dropped
        if old.dropped and (since is None or since * 1e6 < old.until):
            rule = f" ({old.rule})" if old.rule else ""
            parts.append(f"{counted(old.dropped, 'row')} from before {_day(old.until)} dropped{rule}")
        if self.deletions:
            parts.append(
                f"{counted(len(self.deleted), 'row')} deleted in {counted(self.deletions, 'deletion')}"
            )
        return f"Contents that are gone: {', '.join(parts)}." if parts else None


def amendments(events: Iterable[tuple[int, Event]]) -> Amendments:
    """Combine amending events and their numbers, in order."""
    dropped, deleted = NOTHING_DROPPED, set[int]()
    deletions, rollbacks = 0, []
    for seq, event in events:
        if isinstance(event, Dropped):
            dropped = event
        elif isinstance(event, Deleted):
            deletions += 1
            deleted.update(event.rows)
        elif isinstance(event, RolledBack):
            rollbacks.append((seq, event.to))
    spans, end = [], inf
    for seq, to in reversed(rollbacks):
        if seq < end:  # else a later rollback has undone this one
            spans.append((float(to), float(seq)))
            end = to
    return Amendments(dropped, frozenset(deleted), deletions, tuple(reversed(spans)))


def is_blank(row: DecisionRow | OutcomeRow | EventRow) -> bool:
    """Whether a row has no content, and its seal no salt."""
    if not isinstance(row.seal, bytes) or len(row.seal) != SALT.start:
        return False
    if isinstance(row, OutcomeRow):
        return row.reward is None and row.person is None
    if isinstance(row, EventRow):
        return row.kind in steps.LEARNING and not row.content
    content = (row.contexts, row.policy, row.theta, row.action, row.drawn, row.propensity, row.control_share)
    texts = (row.baseline, row.names, row.groups, row.key, row.digest, row.extra)
    return not any(content) and row.mode == "live" and not row.model_version and texts == 6 * (None,)


def marks(values: Sequence[Any]) -> str:
    """The marks of a list of values in a statement."""
    return ", ".join("?" * len(values))


def _day(time: int) -> str:
    return (
        datetime.fromtimestamp(time / 1e6, UTC).isoformat(timespec="seconds").removesuffix("+00:00") + " UTC"
    )
