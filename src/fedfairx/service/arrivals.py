"""Whether rewards arrive: for each action and group, counts, and whether more are missing than of the others.

They are read from the log, what is new since the last time, and say nothing of the rewards themselves.
"""

from __future__ import annotations

import bisect
import functools
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedfairx.fairness import Logged
from fedfairx.fairness.decision_log import range_names
from fedfairx.fairness.missing_test import BATCH, ERROR, Missing, MissingTest
from fedfairx.service.schemas import ArrivalRow, ArrivalTable
from fedfairx.storage.journal import Journal
from fedfairx.storage.queries import choices, last_of, number_at, outcomes
from fedfairx.storage.records import StoredDecision

KINDS = ("action", "group")
LEAST_AGE = 60.0  # seconds; younger decisions are not tested
EVERY = 32  # batches after which the table is new, while a long log is tested
COUNTING, TESTING = (f"Decisions are still being {what}." for what in ("counted", "tested"))
ENOUGH = 20  # rewards, before anything is said of how late they are
MOST = 0.95  # of the rewards have come at half of the age at which a decision is tested
#: Ends of intervals of delays, in seconds: from 1/64 to 2²⁶, which is two years.
_EDGES: list[float] = [2.0 ** (k / 2) for k in range(-12, 53)]
NOTHING = ArrivalTable((), (), (), 0, None, ERROR, COUNTING, read=False)
Labels = tuple[Any, ...]  # texts; None for an action without a group


@dataclass
class Arrived:
    """An action or a group: how often it was shown and not withdrawn, and what became of that.

    waiting: the times of decisions that still wait, by their numbers, in order.
    """

    name: str
    decisions: int = 0
    rewards: int = 0
    expired: int = 0
    waiting: dict[tuple[int, int], float] = field(default_factory=dict)

    def shown(self, missing: Missing | None) -> ArrivalRow:
        oldest = next(iter(self.waiting.values()), None)
        waiting = len(self.waiting)
        return ArrivalRow(self.name, self.decisions, self.rewards, waiting, self.expired, oldest, missing)


class Arrivals:
    """Reads the arrival of rewards from the log, from its last `most` decisions on.

    A decision is tested at an age by which rewards come, as a rule: twice that by which 95 % have come, also
    of the action that is slowest, and at most the `window`. What comes later counts as missing in the test,
    and as a reward in the table. With a `default_reward` nothing is tested: no reward then means that one.
    """

    def __init__(self, journal: Journal, *, most: int, window: float | None, default_reward: bool) -> None:
        self._journal, self._window = journal, window
        self._next = self._tested = last_of(journal, most, first=0, end=number_at(journal, None))
        self._rows: dict[str, dict[str, Arrived]] = {kind: {} for kind in KINDS}
        self._open: dict[int, tuple[float, dict[int, tuple[Arrived, ...]]]] = {}  # by number and slot
        self._delays: Counter[int] = Counter()  # of all rewards, by interval
        self._slow: dict[str, Counter[int]] = {}  # of tested decisions, by action
        self._test = None if default_reward else MissingTest()
        self._count = 0
        self.table = NOTHING  # what was found so far; threads may read it while it is updated

    def update(self) -> ArrivalTable:
        """Read what is new."""
        self._count_new()
        age, batches = self.age(), 0
        if self._test is not None and age is not None:
            while age is not None and self._test_batch(self._test, age):
                if batches % EVERY == 0:
                    self.table = self._tabulate(age, TESTING)
                age, batches = self.age(), batches + 1
        self.table = self._tabulate(age)
        return self.table

    def _tabulate(self, age: float | None, going_on: str = "") -> ArrivalTable:
        alarms = {} if self._test is None else {(each.kind, each.name): each for each in self._test.found()}
        actions, groups = (
            tuple(
                row.shown(alarms.get((kind, name))) for name, row in self._rows[kind].items() if row.decisions
            )
            for kind in KINDS
        )
        missing = tuple(str(row.missing) for row in (*actions, *groups) if row.missing is not None)
        untested = going_on or self._untested(age)
        return ArrivalTable(actions, groups, missing, self._count, age, ERROR, untested, read=not going_on)

    def _untested(self, age: float | None) -> str:
        if self._test is None:
            return "Nothing is tested: with a default_reward, a decision without a reward gets that one."
        if age is None:
            return f"Nothing is tested before {ENOUGH} rewards have come."
        return "" if self._count else f"Nothing is tested before {BATCH} decisions are old enough."

    def _count_new(self) -> None:
        end = self._journal.end("decisions", "outcomes")
        for decision in choices(self._journal, first=self._next, end=end):
            at, slots = decision.time, {}
            for slot, names in enumerate(
                _shown(decision.names, decision.groups, decision.shown), int(decision.several)
            ):
                rows = tuple(
                    self._rows[kind].setdefault(name, Arrived(name))
                    for kind, name in zip(KINDS, names, strict=True)
                    if name
                )
                slots[slot] = rows
                for row in rows:
                    row.decisions += 1
                    row.waiting[decision.seq, slot] = at
            self._open[decision.seq] = at, slots
        for number, slot, status, when in outcomes(self._journal, first=self._next, end=end):
            at, slots = self._open.get(number, (0.0, {}))
            for row in slots.pop(slot, ()):
                row.waiting.pop((number, slot), None)
                row.decisions -= status == "withdrawn"
                row.rewards += status == "rewarded"
                row.expired += status == "expired"
                if status == "rewarded" and row is self._rows["action"].get(row.name):
                    self._delays[_interval(when - at)] += 1
                    if number < self._tested:  # it was late
                        self._slow.setdefault(row.name, Counter())[_interval(when - at)] += 1
            if not slots:
                self._open.pop(number, None)
        self._next = end

    def age(self) -> float | None:
        """The age at which the next decisions are tested; None while too few rewards have come.

        It may not depend on what came for these decisions' actions, so that of each action only what came for
        earlier decisions counts. Delays of all together do not depend on actions if there is no difference.
        """
        if self._delays.total() < ENOUGH:
            return None
        slow = (each for each in self._slow.values() if each.total() >= ENOUGH)
        age = max(LEAST_AGE, 2.0 * max(_quantile(each) for each in (self._delays, *slow)))
        return age if self._window is None else min(age, self._window)

    def _test_batch(self, test: MissingTest, age: float) -> bool:
        """Test the next batch of decisions, if all of them are old enough."""
        batch = list(self._journal.decisions(after_seq=self._tested - 1, before_seq=self._next, limit=BATCH))
        if len(batch) < BATCH or batch[-1].time > time.time() - age:
            return False
        drawn = [decision for decision in batch if decision.mode == "live"]  # the caller chose the others
        if drawn:
            test.add([_logged(decision, age) for decision in drawn])
        for decision in batch:
            for name, delay in _came(decision):
                self._slow.setdefault(name, Counter())[_interval(delay)] += 1
        self._tested, self._count = batch[-1].seq + 1, self._count + len(drawn)
        return True


def _shown(
    names: str | None, groups: str | None, shown: Sequence[int]
) -> list[tuple[str | None, str | None]]:
    """The name and the group of each action that was shown."""
    called, grouped = _labels(names), _labels(groups)
    return [
        (_position(place) if called is None else called[place], None if grouped is None else grouped[place])
        for place in shown
    ]


def _position(place: int) -> str:
    return range_names(place + 1)[place]


@functools.lru_cache(256)
def _labels(text: str | None) -> Labels | None:
    return None if text is None else tuple(json.loads(text))


def _interval(delay: float) -> int:
    return bisect.bisect_left(_EDGES, delay)


def _quantile(delays: Counter[int]) -> float:
    """The end of the interval by which most of the rewards have come."""
    needed, so_far = MOST * delays.total(), 0
    for place in sorted(delays):
        so_far += delays[place]
        if so_far >= needed:
            break
    return _EDGES[min(place, len(_EDGES) - 1)]


def _in_time(status: str, when: float | None, start: float, age: float) -> float | None:
    """Any number if a reward or a withdrawal came by this age, else None."""
    return 0.0 if status in ("rewarded", "withdrawn") and when is not None and when - start <= age else None


def _logged(decision: StoredDecision, age: float) -> Logged:
    logged = Logged(
        np.frombuffer(decision.packed_policy, "<f8"),
        decision.action,
        names=_labels(decision.names_json),
        groups=_labels(decision.groups_json),
        reward=_in_time(decision.status, decision.reward_time, decision.time, age),
    )
    if decision.slots:
        logged.slots = [slot.weight for slot in decision.slots]
        logged.action = [slot.action for slot in decision.slots]
        logged.reward = [
            _in_time(slot.status, slot.reward_time, decision.time, age) for slot in decision.slots
        ]
    return logged


def _came(decision: StoredDecision) -> list[tuple[str, float]]:
    """The action and the delay of each reward that came."""
    ends = [(slot.action, slot.status, slot.reward_time) for slot in decision.slots]
    ends = ends or [(decision.action, decision.status, decision.reward_time)]
    names = _labels(decision.names_json)
    return [
        (_position(action) if names is None else str(names[action]), when - decision.time)
        for action, status, when in ends
        if status == "rewarded" and when is not None
    ]
