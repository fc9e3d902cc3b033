"""Contexts far outside of what an agent expects are told of: once, at the start, with nothing of the data."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent.input_warnings import LOOKS
from fedfairx.errors import ScaleWarning

LONG = 73.105 * np.eye(3)


def warned(call) -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        call()
    assert all(each.category is ScaleWarning for each in told)
    return [str(each.message) for each in told]


@pytest.mark.parametrize("rule", ["expected-merit", "optimism"])
@pytest.mark.parametrize(
    "start",
    [
        lambda agent: agent.decide(LONG),
        lambda agent: agent.decide_many([LONG]),
        lambda agent: agent.learn(LONG, [0.1, 0.2, 0.3]),
    ],
)
def test_it_is_told_once(rule: str, start) -> None:
    agent = ffx.Agent(3, rule=rule, seed=0)
    told = warned(lambda: start(agent))
    assert len(told) == 1
    assert "longer than 10" in told[0]
    assert "73" not in told[0]
    assert warned(lambda: agent.decide(LONG)) == []


def test_what_an_agent_was_told_to_expect_is_no_surprise() -> None:
    assert warned(lambda: ffx.Agent(3, seed=0).decide(LONG / 10)) == []
    assert warned(lambda: ffx.Agent(3, seed=0, prior=ffx.Prior(sd=0.01)).decide(LONG)) == []
    small = ffx.Confidence(parameter_norm=0.1)
    assert warned(lambda: ffx.Agent(3, seed=0, rule="optimism", confidence=small).decide(LONG)) == []


def test_later_contexts_are_not_looked_at() -> None:
    agent = ffx.Agent(3, seed=0)
    agent.decide_many([np.eye(3)] * LOOKS)
    assert warned(lambda: agent.decide(LONG)) == []


@pytest.mark.parametrize("call", ["decide", "decide_many", "learn"])
def test_as_an_error_it_changes_nothing(call: str) -> None:
    agent, twin = ffx.Agent(3, seed=0), ffx.Agent(3, seed=0)
    calls = {
        "decide": lambda: agent.decide(LONG),
        "decide_many": lambda: agent.decide_many([np.eye(3), LONG]),
        "learn": lambda: agent.learn(LONG, [0.1, 0.2, 0.3]),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ScaleWarning):
            calls[call]()
    assert (agent.pending, agent.observed) == (0, 0)
    assert agent.decide(np.eye(3)) == twin.decide(np.eye(3))


def test_the_warning_points_at_the_caller() -> None:
    with pytest.warns(ScaleWarning) as told:
        ffx.Agent(3, seed=0).decide(LONG)
    assert told[0].filename == __file__
