"""One decision, as its caller sees it."""

from __future__ import annotations

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.decision import Decision


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
    agent.save(tmp_path / "agent.json")
    again = ffx.Agent.load(tmp_path / "agent.json")
    assert [again._pending[made.number].name for made in (named, nameless)] == [named.name, None]
