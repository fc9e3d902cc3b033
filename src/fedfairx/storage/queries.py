"""What services ask of a journal. Questions see what is committed, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from fedfairx.storage.database import PAGE, pages
from fedfairx.storage.journal import REPLACED, WHOLE, Journal
from fedfairx.storage.records import StoredDecision, unpacked_log
from fedfairx.storage.seals import EVENT
from fedfairx.util.arrays import Array

_RECORDS = (
    f"SELECT o.seq, {WHOLE.removeprefix('SELECT ')} FROM outcomes o JOIN decisions d ON d.seq = o.decision "
    f"{REPLACED} WHERE o.agent = ? AND o.slot = 0 AND o.turn = 0 AND o.status <> 'withdrawn' "
    "AND o.seq < ? AND o.seq > ? ORDER BY o.seq LIMIT ?"
)
_LEARNT = (
    f"SELECT {EVENT}, seal FROM events "
    "WHERE agent = ? AND kind = 'learn' AND seq < ? AND seq > ? ORDER BY seq LIMIT ?"
)


def latest(journal: Journal, *, limit: int, before: int | None = None) -> list[StoredDecision]:
    """The newest decisions first, or those before one."""
    numbers = journal.log.database.read(
        "SELECT seq FROM decisions WHERE agent = ? AND seq < ? ORDER BY seq DESC LIMIT ?",
        (journal.agent, _after_all(journal) if before is None else before, limit),
    )
    if not numbers:
        return []
    found = list(journal.decisions(after_seq=numbers[-1][0] - 1, limit=len(numbers)))
    return found[::-1]


def last_of(journal: Journal, count: int, *, first: int, end: int) -> int:
    """The number from which on at most `count` decisions are there, at `first` or later and before `end`."""
    rows = journal.log.database.read(
        "SELECT seq FROM decisions WHERE agent = ? AND seq >= ? AND seq < ? "
        "ORDER BY seq DESC LIMIT 1 OFFSET ?",
        (journal.agent, first, end, count - 1),
    )
    return int(rows[0][0]) if rows else first


def number_at(journal: Journal, time: float | None) -> int:
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


def records(
    journal: Journal, dimension: int, *, first: int, end: int, page: int = PAGE
) -> Iterator[tuple[int, Array, Array]]:
    """Rewards from number `first` on and before `end`, in the order in which they came, in parts of `page`.

    Each part: the number of its last step, the contexts (n, d) of the actions taken, and the rewards (n,).
    """
    rows = pages(journal.log.database.read, _RECORDS, (journal.agent, end), after=first - 1)
    found = ((row[0], journal.whole(row[1:])) for row in rows)
    rewarded = ((seq, made) for seq, made in found if made.reward is not None)
    while some := list(islice(rewarded, page)):
        contexts = np.zeros((len(some), dimension))
        for row, (_, made) in zip(contexts, some, strict=True):
            context = made.context  # shorter, if actions without features were added since
            row[: context.size] = context
        yield some[-1][0], contexts, np.array([made.reward for _, made in some])


def learnt(journal: Journal, *, first: int, end: int) -> Iterator[tuple[Array, Array]]:
    """Contexts and rewards of records that were learnt without a decision, from a number on, before `end`."""
    for row in pages(journal.log.database.read, _LEARNT, (journal.agent, end), after=first - 1):
        yield unpacked_log(journal.event(row).body)


def end_of(journal: Journal) -> int:
    """The number after all steps that are kept."""
    newest = [
        journal.log.database.read(f"SELECT MAX(seq) FROM {table} WHERE agent = ?", (journal.agent,))[0][0]
        for table in ("decisions", "outcomes", "events")
    ]
    return max((int(last) + 1 for last in newest if last is not None), default=0)


def counted(journal: Journal, since: int) -> tuple[int, dict[str, int], int]:
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
    ended = read(
        f"SELECT status, COUNT(*) FROM outcomes {where} AND slot = 0 AND turn = 0 GROUP BY status",
        (agent, since, end),
    )
    return int(made), {str(status): int(many) for status, many in ended}, end


def by_time(journal: Journal, *, since: float, width: float, count: int) -> tuple[list[int], list[int]]:
    """Decisions made, and rewards come, in each of `count` stretches of `width` seconds from `since` on."""
    found = []
    for question in (
        "SELECT (time - ?) / ?, COUNT(*) FROM decisions WHERE agent = ? AND seq >= ? AND time >= ? "
        "GROUP BY 1",
        "SELECT (time - ?) / ?, COUNT(*) FROM outcomes WHERE agent = ? AND seq >= ? AND time >= ? "
        "AND status = 'rewarded' AND slot = 0 AND turn = 0 GROUP BY 1",
    ):
        start, step = int(since * 1e6), max(1, int(width * 1e6))
        values: list[Any] = [start, step, journal.agent, number_at(journal, since), start]
        counts = [0] * count
        for place, many in journal.log.database.read(question, values):
            counts[min(int(place), count - 1)] += int(many)
        found.append(counts)
    return found[0], found[1]


def first_time(journal: Journal) -> float | None:
    """When the first decision was made."""
    return next((made.time for made in journal.decisions(limit=1)), None)


def _after_all(journal: Journal) -> int:
    rows = journal.log.database.read("SELECT MAX(seq) FROM decisions WHERE agent = ?", (journal.agent,))
    return 0 if rows[0][0] is None else int(rows[0][0]) + 1
