"""Any sequence of decisions, rewards, deletions, drops, rollbacks and crashes, beside what should be known.

The oracle is an agent in memory that learns, in order, the records that count. It shares no code with replay.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import fedfairx as ffx
from fedfairx.agent import persistence
from fedfairx.errors import InvalidInput, ReplacementRefused
from fedfairx.storage.open_log import open_for_reading
from fedfairx.storage.verification import check_logs

D = 2
START = 4_000_000_000


@dataclass(eq=False)
class Record:
    """A reward that came: the context of its action, whose it is, and the number of its step."""

    identity: str
    context: Any
    reward: float
    person: str
    seq: int
    deleted: bool = False


class Log(RuleBasedStateMachine):
    """A durable agent, and the records that count."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.place = Path(self.folder) / "agent.db"
        self.usual, persistence.SNAPSHOT_EVERY = persistence.SNAPSHOT_EVERY, 7
        self.waiting: list[tuple[str, Any]] = []
        self.counting: list[Record] = []  # in order
        self.marks: list[tuple[float, list[Record], set[str]]] = []  # times, what counted, what was made
        self.made: set[str] = set()
        self.now = START

    @initialize(kind=st.sampled_from([{}, {"rule": "optimism"}, {"half_life": 6.0}]))
    def begin(self, kind: Any) -> None:
        self.kind = kind
        self.agent = ffx.Agent.open(self.place, dimension=D, seed=1, name="a", **kind)
        self.set_clock()
        self.draws = np.random.default_rng(0)

    def set_clock(self) -> None:
        self.agent.journal.log.clock = lambda: self.now * 1_000_000_000

    @rule(count=st.integers(1, 4))
    def decide(self, count: int) -> None:
        self.now += 1
        for _ in range(count):
            x = self.draws.random((3, D)) / 2
            made = self.agent.decide(x)
            self.waiting.append((made.id, x[made.action]))
            self.made.add(made.id)

    @precondition(lambda self: self.waiting)
    @rule(
        which=st.integers(0, 100), reward=st.floats(0, 1), person=st.sampled_from("abc"), all_=st.booleans()
    )
    def observe(self, which: int, reward: float, person: str, all_: bool) -> None:
        self.now += 1
        for _ in range(len(self.waiting) if all_ else 1):
            identity, context = self.waiting.pop(which % len(self.waiting))
            seq = self.agent.journal.log.end
            self.agent.observe(identity, reward=reward, person=person)
            self.counting.append(Record(identity, context, reward, person, seq))

    @precondition(lambda self: self.counting)
    @rule(which=st.integers(0, 100), reward=st.floats(0, 1))
    def replace(self, which: int, reward: float) -> None:
        self.now += 1
        record = self.counting[which % len(self.counting)]
        try:
            self.agent.observe(record.identity, reward=reward, replace=True)
        except ReplacementRefused:
            assert record.deleted or record.seq < self.reach
        else:
            record.reward = reward

    @property
    def reach(self) -> int:
        return self.agent.journal.snapshot_numbers()[0]

    @rule(person=st.sampled_from("abc"))
    def delete(self, person: str) -> None:
        self.now += 1
        reach = self.reach
        known = {
            id(each): each for each in (*self.counting, *(one for mark in self.marks for one in mark[1]))
        }
        theirs = [each for each in known.values() if each.person == person and not each.deleted]
        deleted = self.agent.delete_person(person)
        assert deleted.remaining >= sum(each.seq < reach for each in theirs)
        for each in theirs:
            each.deleted = each.seq >= reach
            each.person = "" if each.seq < reach else person
        assert self.agent.delete_person(person).rewards == 0

    @rule()
    def mark(self) -> None:
        self.now += 1
        self.marks.append((self.now - 0.5, list(self.counting), set(self.made)))

    @precondition(lambda self: self.marks)
    @rule(which=st.integers(0, 100))
    def roll_back(self, which: int) -> None:
        self.now += 1
        time, counted, made = self.marks[which % len(self.marks)]
        try:
            self.agent.roll_back(to=time)
        except InvalidInput:
            assert self.reach > 0  # contexts were dropped
        else:
            self.counting = list(counted)
            self.waiting = [each for each in self.waiting if each[0] in made]

    @precondition(lambda self: self.marks)
    @rule(which=st.integers(0, 100), limit=st.sampled_from([None, 1, 3]))
    def drop(self, which: int, limit: int | None) -> None:
        self.now += 1
        self.agent.drop_contexts(before=self.marks[which % len(self.marks)][0], limit=limit)

    @rule(crash=st.booleans())
    def reopen(self, crash: bool) -> None:
        if crash:
            self.agent.journal.log.closing.clear()
        self.agent.close()
        with open_for_reading(self.place) as database:
            (found,) = check_logs(database)
        assert found.damage is None
        self.agent = ffx.Agent.open(self.place)
        self.set_clock()
        self.agent.verify()

    @invariant()
    def knows_what_counts(self) -> None:
        if not hasattr(self, "agent"):
            return
        oracle = ffx.Agent(D, name="oracle", **self.kind)
        for each in self.counting:
            if not each.deleted:
                oracle.learn([each.context], [each.reward])
        assert self.agent.observed == oracle.observed
        assert self.agent.estimate == pytest.approx(oracle.estimate, abs=1e-9)
        assert self.agent.gram == pytest.approx(oracle.gram, abs=1e-9)
        assert {made.id for made in self.agent._pending.values()} == {each[0] for each in self.waiting}

    def teardown(self) -> None:
        persistence.SNAPSHOT_EVERY = self.usual
        if hasattr(self, "agent"):
            self.agent.verify()
            self.agent.close()
        shutil.rmtree(self.folder)


TestLog = pytest.mark.filterwarnings("ignore::fedfairx.errors.ClockWarning")(pytest.mark.long(Log.TestCase))
TestLog.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    phases=[Phase.explicit, Phase.generate],  # to shrink takes minutes
)
