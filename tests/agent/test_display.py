"""What agents and federations say of themselves: short, and nothing of what they were told."""

from __future__ import annotations

import numpy as np
import pytest

import fedfairx as ffx
from federation_helpers import private_agent, taught


def test_an_agent_in_one_line() -> None:
    agent = taught(ffx.Agent(3, seed=0, name="north"), 4)
    agent.decide(np.eye(3))
    assert repr(agent) == (
        "Agent('north', dimension=3, rule='expected-merit', merit=Exponential(steepness=10, 0.0693 better "
        "doubles the share), 4 observed, 1 pending, luck as much as merit before 16)"
    )
    agent.release()
    assert agent.observed == 4
    assert "private, 0 observed" in repr(private_agent())


def test_a_federation_in_one_line() -> None:
    fed = ffx.Federation(agents=2, dimension=3, horizon=5, algorithm="b2", epsilon=1.0, seed=0)
    fed.end_round()
    fed.synchronise()
    assert repr(fed) == "Federation('b2', agents=2, dimension=3, round 1 of 5, 1 sync)"
    fed.new_run(5)
    assert "round 1 of 6" in repr(fed)


def test_tables_for_notebooks_tell_the_privacy() -> None:
    assert "NOT PRIVATE: releases are exact sums" in ffx.Agent(3, name="<north>")._repr_html_()
    assert "Agent &lt;north&gt;" in ffx.Agent(3, name="<north>")._repr_html_()
    fed = ffx.Federation(agents=12, dimension=3, horizon=5, algorithm="b2", epsilon=1.0, seed=0)
    text = fed._repr_html_()
    assert "ε=1, δ=1e-06 for all messages; 0 of" in text
    assert "simulated noise: NOT PRIVATE" in text
    assert "… and 2 more" in text


@pytest.mark.parametrize("show", [repr, lambda agent: agent._repr_html_()])
def test_no_data_is_shown(show) -> None:
    agent = ffx.Agent(2, seed=0)
    agent.observe(agent.decide([[0.73105, 0.0], [0.0, 0.73105]]), reward=0.6457)
    assert "0.731" not in show(agent)
    assert "0.645" not in show(agent)
