"""The core of an agent: steps taken one by one are those of a log, and a refused one changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
from fedfairx import steps
from fedfairx.agent.core import Core
from fedfairx.errors import AlreadyObserved, InvalidInput

KINDS: dict[str, dict[str, Any]] = {
    "rows": {"dimension": 3},
    "names": {"actions": ["ann", "ben", "cid"]},
    "thompson": {"dimension": 3, "rule": "thompson"},
    "optimism": {"dimension": 3, "rule": "optimism"},
    "half-life": {"dimension": 3, "half_life": 20},
    "slots": {"dimension": 3, "slots": [1.0, 0.6]},
}


class Recorder:
    """A log that keeps steps as a database does, in front of an agent's own."""

    def __init__(self, agent: ffx.Agent) -> None:
        self.steps: list[steps.Step] = []
        self._log = agent._log
        agent._write_to(self)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, step: steps.Step) -> None:
        self._log.append(step)
        if isinstance(step, steps.Released):
            step = steps.Released(step.number)
        self.steps.append(step)

    def append_outcomes(self, step: steps.Ended, decision: ffx.Decision) -> None:
        self._log.append_outcomes(step, decision)
        self.steps.append(step)

    def append_decisions(self, decided: Sequence[steps.Decided]) -> None:
        self.steps += [steps.Decided(copy(step.decision)) for step in decided]


def live(agent: ffx.Agent, seed: int, count: int) -> None:
    """Decide, observe some of it late, forget some, learn a log, release."""
    rng, waiting = np.random.default_rng(seed), []
    for _ in range(count):
        contexts = None if agent.actions else rng.uniform(-1, 1, (4, 3))
        waiting.append(agent.decide(contexts))
        while waiting and rng.random() < 0.5:
            decision = waiting.pop(rng.integers(len(waiting)))
            slots, what = decision.waiting, rng.random()
            if what < 0.2:
                agent.forget(decision)
            elif what < 0.5 and len(slots) > 1:
                agent.observe(decision, rewards={decision.actions[slots[0]]: rng.random()})
                waiting.append(decision)
            else:
                agent.observe(decision, rewards={decision.actions[slot]: rng.random() for slot in slots})
        if rng.random() < 0.05:
            rows = ["ann", "cid"] if agent.actions else rng.uniform(-1, 1, (2, 3))
            agent.learn(rows, rng.random(2), weights=[1.0, 0.5])
        if rng.random() < 0.05:
            agent.release()


@pytest.mark.parametrize("kind", KINDS)
@given(st.integers(0, 2**32 - 1))
def test_steps_that_are_applied_again_give_the_same_bits(kind: str, seed: int) -> None:
    agent, again = (ffx.Agent(**KINDS[kind], name="one", seed=0) for _ in range(2))
    recorder = Recorder(agent)
    live(agent, seed, 40)
    for step in recorder.steps:
        again._core.apply(step)
    assert again._core.state() == agent._core.state()


def test_a_checked_step_that_is_refused_changes_nothing() -> None:
    agent = ffx.Agent(3, slots=2, seed=0)
    decision = agent.decide(np.eye(3))
    agent.observe(decision, rewards={decision.actions[0]: 0.5})
    core: Core = agent._core
    before = agent.state()
    for error, step in (
        (AlreadyObserved, steps.Ended(decision.number, {0: 0.25})),
        (InvalidInput, steps.ActionsChanged("add", ["dora"])),
        (InvalidInput, steps.SchemaExtended(ffx.features.Schema({"x": (0, 1)}))),
    ):
        with pytest.raises(error):
            core.check(step)
    named = ffx.Agent(actions=["ann", "ben"], seed=0)
    for how, names in (("add", ["ann"]), ("retire", ["ann", "ben"]), ("retire", ["cid"])):
        with pytest.raises(InvalidInput):
            named._core.check(steps.ActionsChanged(how, names))
    assert agent.state() == before
    assert named.actions == ("ann", "ben")


def test_of_an_undone_reward_nothing_is_learnt() -> None:
    agent = ffx.Agent(3, slots=2, seed=0)
    one, two = agent.decide(np.eye(3)), agent.decide(np.eye(3))
    gram, core = agent.gram, agent._core
    core.apply_undone(steps.Ended(one.number, {0: 0.5}))
    assert one.waiting == [1]
    core.apply_undone(steps.Ended(one.number, {1: 0.5}))
    core.apply_undone(steps.Ended(one.number, {}))
    core.apply_undone(steps.Learnt(np.eye(3), [1.0] * 3))
    core.apply_undone(steps.Released(3))
    assert (agent.pending, agent.observed, agent.gram.tolist()) == (1, 0, gram.tolist())
    assert agent.release().number == 4  # a number is not used twice
    core.apply(steps.Ended(two.number, {0: 0.5, 1: 0.25}))
    core.apply(steps.Ended(two.number, {}))
    assert (agent.pending, agent.observed) == (0, 2)


@pytest.mark.parametrize("rule", ["expected-merit", "thompson"])
def test_a_decision_uses_up_its_random_numbers_whether_it_is_made_or_read(rule: Any) -> None:
    agent, again = (ffx.Agent(3, rule=rule, seed=0) for _ in range(2))
    seen = [agent._draws.ahead[-1]]
    for _ in range(100):  # more than are drawn ahead
        decision = agent.decide(np.eye(3))
        again._core.apply(steps.Decided(copy(decision)))
        assert agent._draws.position == again._draws.position
        seen.append(agent._draws.ahead[-1])
    assert len(set(seen)) == len(seen)


PEER = ffx.Agent(3, name="south", seed=1).release()
#: Steps from which nothing is left once they are undone, on an agent that holds a release of this peer.
GONE: tuple[steps.Step, ...] = (
    steps.Learnt(np.eye(3), [1.0] * 3),
    steps.Aged(),
    steps.Absorbed({"west": PEER}),
    steps.TotalAdded(PEER, 3),
    steps.RunBegun(2),
    steps.EpochBegun(2),
    steps.SchemaExtended(ffx.features.Schema({"x": (0, 1)})),
    steps.Replaced(0, 1.0, None, 0, 1),
    steps.Dropped(1, 1),
    steps.Deleted([0]),
    steps.RolledBack(0, 0),
)
STAYS = {steps.Decided, steps.ActionsChanged, steps.NamesForgotten, steps.PeersDropped}
ENDS = {steps.Ended, steps.Released}


def test_it_is_said_of_every_step_what_is_left_once_it_is_undone() -> None:
    assert {type(step) for step in GONE} | STAYS | ENDS == set(steps.Step.__args__)


@pytest.mark.parametrize("step", GONE, ids=lambda step: type(step).__name__)
def test_nothing_is_left_of_most_steps_once_they_are_undone(step: steps.Step) -> None:
    agent = ffx.Agent(3, seed=0, half_life="1h")
    for _ in range(2):
        decision = agent.decide(np.eye(3))
    agent.observe(decision, reward=0.5)
    agent.absorb({"south": PEER})
    before, aging = agent.state(), agent._model.aging
    assert aging is not None
    aging.clock = lambda: 4_000_000_000_000_000  # later
    agent._core.apply_undone(step)
    assert agent.state() == before


def test_actions_that_were_added_and_peers_that_were_dropped_stay_so() -> None:
    agent = ffx.Agent(actions=["ann", "ben"], seed=0)
    south = ffx.Agent(actions=["ann", "ben"], name="south", seed=1)
    agent.absorb({"south": south.release()})
    agent._core.apply_undone(steps.PeersDropped(["south"]))
    agent._core.apply_undone(steps.ActionsChanged("add", ["cid"]))
    assert (list(agent.held), agent.actions) == ([], ("ann", "ben", "cid"))
    decision = agent.decide()
    position = agent._draws.position
    del agent._core.pending[decision.number]
    agent._core.apply_undone(steps.Decided(decision))
    assert agent.pending == 1
    assert agent._draws.position != position
