"""One decision, as its caller sees it."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.decision import DELETED, EXPIRED, REWARDED, WITHDRAWN, Decision


def decision() -> Decision:
    return Decision(7, [1], np.array([0.2, 0.5, 0.3, 1.0, 2.0, 0.25, 0.75]), 3, origin="abc")


def test_its_parts() -> None:
    d = decision()
    assert (d.id, d.action, d.probability) == ("abc-7", 1, 0.5)
    assert d.policy.tolist() == [0.2, 0.5, 0.3]
    assert d.theta.tolist() == [1.0, 2.0]
    assert d.context.tolist() == [0.25, 0.75]


@pytest.mark.parametrize("name", ["policy", "theta", "context"])
def test_nobody_can_change_what_will_be_learnt(name: str) -> None:
    d = decision()
    with pytest.raises(ValueError, match="read-only"):
        getattr(d, name)[0] = 9.0
    assert d == decision()


def test_equal_is_equal_to_the_bit() -> None:
    d = decision()
    assert d == decision()
    assert hash(d) == hash(decision())
    assert d != Decision(8, [1], d.values, 3)
    assert d != Decision(7, [2], d.values, 3)
    assert d != Decision(7, [1], d.values + np.spacing(1.0), 3)
    assert d != 7


def test_its_repr_shows_no_context_and_no_theta() -> None:
    agent = ffx.Agent(2, seed=0)
    text = repr(agent.decide([[0.123456789, 0.25], [0.5, 0.5]]))
    assert text.startswith(f"Decision(id='{agent._log.prefix}-0', action=")
    assert "0.1234" not in text
    assert "theta" not in text


def test_arms_may_have_names() -> None:
    agent = ffx.Agent(3, seed=0)
    made = agent.decide(np.eye(3), names=["ant", "bee", "cat"])
    assert made.name == ("ant", "bee", "cat")[made.action]
    assert f"name={made.name!r}" in repr(made)
    assert agent.decide(np.eye(3)).name is None


def test_a_name_is_saved_with_its_decision(tmp_path) -> None:
    agent = ffx.Agent(3, seed=0)
    named, nameless = agent.decide(np.eye(3), names=["ant", "bee", "cat"]), agent.decide(np.eye(3))
    agent.save(tmp_path / "agent.db")
    again = ffx.Agent.load(tmp_path / "agent.db")
    assert [again._pending[made.number].name for made in (named, nameless)] == [named.name, None]


@pytest.mark.parametrize(
    ("outcomes", "together"),
    [
        ([({0: 0.25, 1: 0.5, 2: 0.0}, REWARDED)], (REWARDED, 0.75)),
        ([({1: None}, REWARDED), ({0: 0.25, 2: None}, REWARDED)], (REWARDED, 0.25)),
        ([({0: None, 1: None, 2: None}, REWARDED)], (WITHDRAWN, None)),
        ([({1: 0.5}, REWARDED), ({0: None, 2: None}, WITHDRAWN)], (REWARDED, 0.5)),
        ([({1: None}, REWARDED), ({0: None, 2: None}, EXPIRED)], (EXPIRED, None)),
        ([({1: None}, WITHDRAWN), ({0: 0.125, 2: 0.125}, EXPIRED)], (EXPIRED, 0.25)),
        ([({1: 0.5}, REWARDED), ({0: 0.125, 2: 0.125}, EXPIRED)], (REWARDED, 0.75)),
        ([({1: None}, DELETED), ({0: None, 2: None}, WITHDRAWN)], (DELETED, None)),
        ([({1: None}, DELETED), ({2: None}, EXPIRED), ({0: 0.5}, REWARDED)], (REWARDED, 0.5)),
    ],
)
def test_outcomes_of_slots_are_one_outcome_once_all_are_there(
    outcomes: list[tuple[dict[int, float | None], str]], together: tuple[str, float | None]
) -> None:
    d = Decision(7, [2, 0, 1], np.zeros(3), 3, (1.0, 0.5, 0.25))
    for rewards, status in outcomes:
        assert not set(rewards) - set(d.waiting)
        d.end(rewards, status)
    assert not d.waiting
    assert d.outcome == together


def test_a_pickled_decision_is_the_same() -> None:
    d = Decision(7, [2, 0, 1, 3], np.zeros(9), 4, (1.0, 0.5, 0.25, 0.125), origin="a", time=5)
    for rewards, status in (({1: math.nan}, REWARDED), ({0: None}, REWARDED), ({3: 0.5}, EXPIRED)):
        d.end(rewards, status)
    for again in (pickle.loads(pickle.dumps(d)), copy.deepcopy(d)):
        assert again == d
        assert (again.id, again.time) == ("a-7", 5)
        assert [again.status_of(slot) for slot in (0, 1, 3)] == [WITHDRAWN, REWARDED, EXPIRED]
        assert again.waiting == [2]
    agent = ffx.Agent(actions=["ann", "ben"], seed=0)
    one = agent.decide()
    again = pickle.loads(pickle.dumps(one))
    assert (again.action, again.name, again.probability) == (one.action, one.name, one.probability)
    assert again.weights is one.weights  # which says that it has one slot
    agent.observe(again, reward=1.0)
    assert agent.pending == 0
