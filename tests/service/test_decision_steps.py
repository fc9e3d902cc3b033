"""Requests that are parsed and decided together get what each would get by itself."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
from fedfairx.agent.agent import Agent
from fedfairx.core.slates import ONE
from fedfairx.errors import FedFairXError
from fedfairx.service.decisions import PlainDecisions, decide, parse_plain, parse_request
from fedfairx.service.feature_table import FeatureTable
from fedfairx.service.schemas import Action, DecisionRequest
from fedfairx.service.write_queue import _kind, _take_steps
from service_helpers import CONTEXTS, asking, settings_for

D = 2
SETTINGS = settings_for("unused", dimension=str(D))
FEATURES = FeatureTable(None, dimension=D)
Requests = list[DecisionRequest]


def rows(count: int, width: int = D) -> st.SearchStrategy[list[list[float]]]:
    row = st.lists(st.floats(-1.0, 1.0), min_size=width, max_size=width)
    return st.lists(row, min_size=count, max_size=count)


def requests(count: int, **more: Any) -> st.SearchStrategy[DecisionRequest]:
    return rows(count).map(lambda contexts: DecisionRequest(contexts=contexts, **more))


def named(contexts: list[list[float]]) -> DecisionRequest:
    actions = [Action(f"{place}", [*row], None if place else "first") for place, row in enumerate(contexts)]
    return DecisionRequest(actions=actions)


PLAIN = requests(3)
OTHER = st.one_of(
    requests(2),
    requests(3, excluded=[1]),
    requests(3, baseline=1),
    requests(3, slots=2),
    requests(3, context={"hour": 1.0}),
    rows(3).map(named),
    rows(3, 1).map(lambda contexts: DecisionRequest(contexts=contexts)),
)


def agent() -> Agent:
    made = ffx.Agent(D, seed=0)
    made._origin = "same"  # else the ids of two agents would differ
    for reward in (0.1, 0.9, 0.4):
        made.observe(made.decide([[0.5, 0.1], [0.2, 0.6]]), reward=reward)
    return made


def one_by_one(owner: Agent, some: Requests) -> list[Any]:
    inputs = [parse_request(one, FEATURES, SETTINGS, ONE, fixed=False) for one in some]
    return [decide(owner, [asked], [None], None, SETTINGS) for asked in inputs]


def step(some: Requests) -> PlainDecisions:
    plain = parse_plain(some, FEATURES, SETTINGS, ONE)
    assert plain is not None
    return PlainDecisions(plain.contexts)


def take(owner: Agent, steps: list[PlainDecisions]) -> list[Any]:
    """As the write queue does."""
    found = groupby(steps, lambda each: _kind((owner, each, None, None, True)))  # type: ignore[arg-type]
    return [outcome for _, alike in found for outcome in _take_steps(owner, list(alike))]


@given(st.lists(st.lists(PLAIN, min_size=1, max_size=3), min_size=1, max_size=6), st.data())
def test_steps_taken_together(several: list[Requests], data: st.DataObject) -> None:
    """Whatever their sizes: answers, ids, random numbers and what is pending are those of one by one."""
    place = data.draw(st.integers(0, len(several)))
    several.insert(place, [data.draw(requests(2))])
    one, other = agent(), agent()
    made = [msgspec.json.encode(answer) for answers in take(one, [*map(step, several)]) for answer in answers]
    wanted = one_by_one(other, [request for some in several for request in some])
    assert made == [msgspec.json.encode(answer) for answers in wanted for answer in answers]
    assert one._pending == other._pending
    assert one.decide([[0.5, 0.1], [0.2, 0.6]]) == other.decide([[0.5, 0.1], [0.2, 0.6]])


@given(st.lists(PLAIN, max_size=3), OTHER, st.lists(PLAIN, max_size=3))
def test_requests_with_anything_else_are_not_plain(before: Requests, other: Any, after: Requests) -> None:
    some = [*before, other, *after]
    alone = len(some) == 1 and other.contexts is not None and len(other.contexts) == 2
    assert (parse_plain(some, FEATURES, SETTINGS, ONE) is not None) == alone


@pytest.mark.parametrize("more", [{"mode": "shadow"}, {"control_share": 0.5}, {"max_actions": 2}])
def test_some_settings_have_no_plain_requests(more: dict[str, Any]) -> None:
    settings = settings_for("unused", dimension=str(D), **more)
    request = [DecisionRequest(contexts=[[0.1, 0.2]] * 3)]
    assert parse_plain(request, FEATURES, SETTINGS, ONE) is not None
    assert parse_plain(request, FEATURES, settings, ONE) is None
    assert parse_plain(request, FEATURES, SETTINGS, (1.0, 0.5)) is None
    assert parse_plain(request, None, SETTINGS, ONE) is None


def test_a_row_that_is_too_short_is_named_by_its_own_request(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.db")) as client:
        short = [*CONTEXTS[:2], CONTEXTS[2][:1]]
        body = {"decisions": [{"contexts": CONTEXTS}, {"contexts": short}]}
        answer = client.post("/v1/decisions/batch", json=body)
        assert answer.status_code == 422
        assert answer.json()["detail"] == "contexts[2] must be 3 numbers, got 1 of them"


def test_one_that_is_refused_among_steps(tmp_path: Path) -> None:
    """It fails alone, and uses no random number."""
    request = [DecisionRequest(contexts=[[0.1, 0.2], [0.2, 0.1]])]
    first, wrong, second = (step(request) for _ in range(3))
    wrong.contexts[:] = 1e101
    found = []
    for place, some in enumerate(([first, wrong, second], [first, second])):
        with ffx.Agent.open(tmp_path / f"{place}.db", dimension=D, seed=0, name="a") as durable:
            with durable.transaction():
                outcomes = take(durable, some)
            made = [each[0] for each in outcomes if not isinstance(each, FedFairXError)]
            assert [each.decision_id for each in made] == [each.id for each in durable._pending.values()]
            durable.verify()
            found.append([(each.policy, each.action) for each in made])
            assert len(outcomes) - len(made) == 1 - place
    assert found[0] == found[1]
