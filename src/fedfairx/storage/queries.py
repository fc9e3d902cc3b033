"""Queries of a journal that the service needs. They see only what is committed."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from fedfairx import steps
from fedfairx.storage.amendments import LEARNT
from fedfairx.storage.database import PAGE, Row, pages
from fedfairx.storage.journal import CHOSEN, REPLACED, WHOLE, WITH_CONTENT, Journal
from fedfairx.storage.records import StoredDecision
from fedfairx.storage.rows import HEAD, TABLES, shown_in
from fedfairx.storage.seals import DIGEST, EVENT
from fedfairx.util.arrays import Array

_RECORDS = (
    f"SELECT o.seq, {WHOLE.removeprefix('SELECT ')} FROM outcomes o JOIN decisions d ON d.seq = o.decision "
    f"{REPLACED} WHERE o.agent = ? AND (o.slot > 0 OR d.slots IS NULL) AND o.turn = 0 "
    f"AND o.status <> 'withdrawn' AND {WITH_CONTENT} "
    "AND o.seq < ? AND o.seq > ? ORDER BY o.seq LIMIT ?"
)
_CHOICES = f"SELECT d.seq, d.action, d.names, d.groups, d.slots {CHOSEN}"
SEARCHED = 20_000  # decisions that are looked at in one search for a name or a group
_LEARNT = (
    f"SELECT {EVENT}, seal FROM events WHERE agent = ? AND {LEARNT} AND LENGTH(body) > {HEAD} "
    "AND seq < ? AND seq > ? ORDER BY seq LIMIT ?"
)


def latest(journal: Journal, *, limit: int, before: int | None = None) -> list[StoredDecision]:
    """The latest decisions, or the latest before a number; the newest first."""
    numbers = journal.log.database.read(
        f"SELECT d.seq FROM decisions d WHERE d.agent = ? AND d.seq < ? AND {WITH_CONTENT} "
        "ORDER BY d.seq DESC LIMIT ?",
        (journal.agent, journal.end("decisions") if before is None else before, limit),
    )
    first = numbers[-1][0] if numbers else 0
    return list(journal.decisions(after_seq=first - 1, limit=len(numbers)))[::-1]


def matching(
    journal: Journal,
    *,
    name: str | None = None,
    group: str | None = None,
    newest: bool = False,
    after: int = -1,
    before: int | None = None,
    limit: int,
    **more: Any,
) -> tuple[list[StoredDecision], int | None]:
    """Decisions that showed an action of this name, of this group, and more as `Journal.decisions` takes it.

    They are the first `limit` after a number or, the newest first, before one. The second value is the number
    to continue from; None at the end. At most `SEARCHED` decisions are looked at for a name or a group.
    """
    where, values = journal.filters(**more)
    compared, order = ("<", "DESC") if newest else (">", "")
    question = f"{_CHOICES}{where} AND d.seq {compared} ? ORDER BY d.seq {order} LIMIT ?"
    at = (journal.end("decisions") if before is None else before) if newest else after
    plain, matches, looked, over = name is None and group is None, list[int](), 0, False
    page = min(PAGE, limit + 1) if plain else PAGE
    while len(matches) <= limit and looked < SEARCHED and not over:
        rows = journal.log.database.read(question, (*values, at, page))
        matches += [row[0] for row in rows if plain or _shows(row, name, group)]
        looked, over = looked + len(rows), len(rows) < page
        at = rows[-1][0] if rows else at
    numbers = matches[:limit]
    if len(matches) > limit:
        at, over = numbers[-1], False
    wholes = {decision.seq: decision for decision in journal.of_numbers(sorted(numbers))}
    return [wholes[number] for number in numbers], None if over else at


def _shows(row: Row, name: str | None, group: str | None) -> bool:
    """Whether an action shown, of a row of `_CHOICES`, has this name and this group."""
    _, action, names, groups, slots = row
    labels, labels_of_groups = _texts(names), _texts(groups)
    return any(
        (name is None or (labels is not None and labels[place] == name))
        and (group is None or (labels_of_groups is not None and labels_of_groups[place] == group))
        for place in shown_in(action, slots)
    )


@functools.lru_cache(256)
def _texts(text: str | None) -> list[str | None] | None:
    return None if text is None else json.loads(text)


def length_and_head(journal: Journal, *, before: int) -> tuple[int, str]:
    """How many rows the log has before a number, and the digest of the last of them, as `fedfairx verify`."""
    read, length, last = journal.log.database.read, 0, (-1, b"")
    for table in TABLES:
        values = (journal.agent, before)
        length += int(read(f"SELECT COUNT(*) FROM {table} WHERE agent = ? AND seq < ?", values)[0][0])
        newest = f"SELECT seq, seal FROM {table} WHERE agent = ? AND seq < ? ORDER BY seq DESC LIMIT 1"
        last = max([last, *((int(seq), bytes(seal)) for seq, seal in read(newest, values))])
    return length, last[1][DIGEST].hex()


class Choice(NamedTuple):
    """What a decision showed: rows of its actions, in several slots or one, and the JSON of their labels."""

    seq: int
    time: float  # seconds since 1970
    shown: list[int]
    several: bool
    names: str | None
    groups: str | None


def choices(journal: Journal, *, first: int, end: int) -> Iterator[Choice]:
    """What each decision from number `first` on and before `end` showed, without contexts and policies."""
    question = (
        "SELECT d.seq, d.time, d.action, d.names, d.groups, d.slots FROM decisions d "
        f"WHERE d.agent = ? AND {WITH_CONTENT} AND d.seq < ? AND d.seq > ? ORDER BY d.seq LIMIT ?"
    )
    rows = pages(journal.log.database.read, question, (journal.agent, end), after=first - 1)
    for seq, time, action, names, groups, slots in rows:
        yield Choice(seq, time / 1e6, shown_in(action, slots), slots is not None, names, groups)


def outcomes(journal: Journal, *, first: int, end: int) -> Iterator[tuple[int, int, str, float]]:
    """First outcomes from number `first` on and before `end`: decision, slot, status and time."""
    question = (
        "SELECT seq, decision, slot, status, time FROM outcomes WHERE agent = ? AND turn = 0 AND seq < ? "
        "AND seq > ? ORDER BY seq LIMIT ?"
    )
    rows = pages(journal.log.database.read, question, (journal.agent, end), after=first - 1)
    return ((int(number), int(slot), str(status), when / 1e6) for _, number, slot, status, when in rows)


def last_of(journal: Journal, count: int, *, first: int, end: int) -> int:
    """The number of the first of the last `count` decisions from `first` on and before `end`."""
    rows = journal.log.database.read(
        f"SELECT d.seq FROM decisions d WHERE d.agent = ? AND d.seq >= ? AND d.seq < ? AND {WITH_CONTENT} "
        "ORDER BY d.seq DESC LIMIT 1 OFFSET ?",
        (journal.agent, first, end, count - 1),
    )
    return int(rows[0][0]) if rows else first


def any_made(journal: Journal, *, first: int, end: int) -> bool:
    """Whether there is a decision from number `first` on and before `end`."""
    rows = journal.log.database.read(
        f"SELECT d.seq FROM decisions d WHERE d.agent = ? AND d.seq >= ? AND d.seq < ? AND {WITH_CONTENT} "
        "LIMIT 1",
        (journal.agent, first, end),
    )
    return bool(rows)


def number_at(journal: Journal, time: float | None) -> int:
    """The first number of the steps made at `time` or later; without a time, the number after the last."""
    low, high = 0, journal.end("decisions")
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


class Records(NamedTuple):
    """Rewards in the order of their arrival.

    last: the number of the last step.
    contexts: (n, d) of the actions taken, times the weights (n,) of their slots.
    """

    last: int
    contexts: Array
    rewards: Array
    weights: Array
    names: list[str | None]


def records(journal: Journal, dimension: int, *, first: int, end: int, page: int = PAGE) -> Iterator[Records]:
    """Rewards from number `first` on, as of `end`, in parts of `page`.

    A reward that replaces another counts if it came before `end` too. Those of decisions whose content is
    gone, and those that a rollback has undone, are left out.
    """
    amended = journal.amendments()
    rows = pages(journal.log.database.read, _RECORDS, (end, journal.agent, end), after=first - 1)
    learnt_records = (
        (seq, journal.record(tuple(columns))) for seq, *columns in rows if not amended.is_undone(seq)
    )
    rewarded = ((seq, record) for seq, record in learnt_records if record.reward is not None)
    while some := list(islice(rewarded, page)):
        contexts = np.zeros((len(some), dimension))
        for row, (_, record) in zip(contexts, some, strict=True):
            row[: record.context.size] = record.context  # shorter, if features were added since
        rewards, weights = (
            np.array([getattr(record, what) for _, record in some]) for what in ("reward", "weight")
        )
        names = [record.name for _, record in some]
        yield Records(some[-1][0], weights[:, None] * contexts, rewards, weights, names)


def learnt(journal: Journal, *, first: int, end: int) -> Iterator[Records]:
    """The same for records learnt without a decision; contexts as they were given then."""
    amended = journal.amendments()
    for row in pages(journal.log.database.read, _LEARNT, (journal.agent, end), after=first - 1):
        if amended.is_undone(row[0]):
            continue
        step = journal.event(row)
        assert isinstance(step, steps.Learnt)
        weights = np.ones(len(step.rows)) if step.weights is None else step.weights
        names: list[str | None] = [None] * len(step.rows) if step.names is None else list(step.names)
        contexts = weights[:, None] * np.asarray(step.rows, dtype=np.float64)
        yield Records(row[0], contexts, np.array(step.rewards), weights, names)


def by_time(journal: Journal, *, since: float, width: float, count: int) -> tuple[list[int], list[int]]:
    """Numbers of decisions and of rewards in each of `count` intervals of `width` seconds from `since` on."""
    start, interval, counts_of = int(since * 1e6), max(1, int(width * 1e6)), []
    values = (start, interval, journal.agent, number_at(journal, since), start)
    for source in ("decisions WHERE", "outcomes WHERE status = 'rewarded' AND slot = 0 AND turn = 0 AND"):
        counts = [0] * count
        for place, many in journal.log.database.read(
            f"SELECT (time - ?) / ?, COUNT(*) FROM {source} agent = ? AND seq >= ? AND time >= ? GROUP BY 1",
            values,
        ):
            counts[min(int(place), count - 1)] += int(many)
        counts_of.append(counts)
    return counts_of[0], counts_of[1]


def first_time(journal: Journal) -> float | None:
    """The time of the first decision; None before it."""
    return next((decision.time for decision in journal.decisions(limit=1)), None)
