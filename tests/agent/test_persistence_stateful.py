"""A durable agent beside one in memory, through any sequence of calls: they never differ."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import fedfairx as ffx
from fedfairx.errors import AlreadyObserved
from states import told

D = 2
KINDS = [
    *({"rule": rule} for rule in ("expected-merit", "thompson", "optimism")),
    {"half_life": 3.0},
    {"half_life": "1h"},
]
START = 4_000_000_000_000_000  # microseconds: ahead of the real clock, which `Agent.open` looks at first


class Beside(RuleBasedStateMachine):
    """The durable one is closed, crashed, reloaded and its groups fail; the other one just lives."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.place = Path(self.folder) / "agent.db"
        self.pairs: list[tuple[str, Any]] = []  # (id, the other's decision), in order
        self.ended: list[str] = []

    @initialize(kind=st.sampled_from(KINDS))
    def begin(self, kind: Any) -> None:
        self.agent = ffx.Agent.open(self.place, dimension=D, seed=7, name="a", **kind)
        self.other = ffx.Agent(D, seed=7, name="a", **kind)
        self.draws, self.now = np.random.default_rng(0), START
        self.share_a_clock()

    def share_a_clock(self) -> None:
        self.agent.journal.log.clock = lambda: self.now * 1000
        if self.other._model.aging is not None:
            self.other._model.aging.clock = lambda: self.now

    @rule(seconds=st.sampled_from([0.1, 30.0, 4_000.0]))
    def wait(self, seconds: float) -> None:
        self.now += int(seconds * 1e6)

    @rule(arms=st.integers(1, 4), count=st.integers(1, 3))
    def decide(self, arms: int, count: int) -> None:
        with self.agent.transaction():
            for _ in range(count):
                x = self.draws.random((arms, D)) / 2
                ours, theirs = self.agent.decide(x), self.other.decide(x)
                assert ours.values.tobytes() == theirs.values.tobytes()
                self.pairs.append((ours.id, theirs))

    @precondition(lambda self: self.pairs)
    @rule(which=st.integers(0, 100), reward=st.floats(-2, 2))
    def observe(self, which: int, reward: float) -> None:
        identity, theirs = self.pairs.pop(which % len(self.pairs))
        self.agent.observe(identity, reward=reward)
        self.other.observe(theirs, reward=reward)
        self.ended.append(identity)

    @precondition(lambda self: self.pairs)
    @rule(which=st.integers(0, 100))
    def forget(self, which: int) -> None:
        identity, theirs = self.pairs.pop(which % len(self.pairs))
        self.agent.forget(identity)
        self.other.forget(theirs)
        self.ended.append(identity)

    @precondition(lambda self: self.ended)
    @rule()
    def again(self) -> None:
        with pytest.raises(AlreadyObserved):
            self.agent.observe(self.ended[-1], reward=0.5)

    @rule(count=st.integers(1, 3))
    def learn(self, count: int) -> None:
        rows, rewards = self.draws.random((count, D)) / 2, self.draws.random(count)
        for each in (self.agent, self.other):
            each.learn(rows, rewards)

    @rule()
    def share(self) -> None:
        for each in (self.agent, self.other):
            each.absorb({"a": each.release()})

    @rule()
    def fail(self) -> None:
        with pytest.raises(ZeroDivisionError), self.agent.transaction():
            self.agent.decide(np.eye(D))
            self.agent.learn(np.eye(D), [0.5, 0.5])
            self.agent.release()
            raise ZeroDivisionError

    @rule(crash=st.booleans())
    def reopen(self, crash: bool) -> None:
        if crash:
            self.agent.journal.log.closing.clear()
        self.agent.close()
        self.agent = ffx.Agent.open(self.place)
        self.share_a_clock()

    @invariant()
    def same(self) -> None:
        if hasattr(self, "agent"):
            one, other = told(self.agent), told(self.other)
            assert len(one.pop("pending")) == len(other.pop("pending"))  # numbers of a log differ
            assert one == other
            assert self.agent.privatizer.state() == self.other.privatizer.state()
            assert [made.id for made in self.agent._pending.values()] == [
                pair[0] for pair in sorted_pairs(self)
            ]

    def teardown(self) -> None:
        if hasattr(self, "agent"):
            self.agent.verify()
            self.agent.close()
        shutil.rmtree(self.folder)


def sorted_pairs(machine: Beside) -> list[tuple[str, Any]]:
    return sorted(machine.pairs, key=lambda pair: pair[1].number)


TestBeside = pytest.mark.filterwarnings("ignore::fedfairx.errors.ClockWarning")(
    pytest.mark.long(Beside.TestCase)
)
TestBeside.settings = settings(
    max_examples=20,
    stateful_step_count=25,
    phases=[Phase.explicit, Phase.generate],  # to shrink takes minutes
)
