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
from fedfairx.core.slates import ONE
from fedfairx.errors import FedFairXError
from fedfairx.service.decisions import Deciding, parse_request, parse_requests
from fedfairx.service.feature_table import FeatureTable
from fedfairx.service.schemas import Action, DecisionRequest
from fedfairx.service.write_queue import _kind, _take_steps
from fedfairx.storage.decision_ids import IdPrefixes
from service_helpers import settings_for

D = 2
SETTINGS = settings_for("unused", dimension=str(D))
number = st.floats(-1.0, 1.0)


def rows(count: int, width: int = D) -> st.SearchStrategy[list[list[float]]]:
    return st.lists(st.lists(number, min_size=width, max_size=width), min_size=count, max_size=count)


def named(contexts: list[list[float]]) -> list[Action]:
    return [Action(f"{place}", [*row], None if place else "first") for place, row in enumerate(contexts)]


PLAIN = rows(3).map(lambda given: DecisionRequest(contexts=given))
REQUESTS = st.one_of(
    PLAIN,
    PLAIN,
    rows(2).map(lambda given: DecisionRequest(contexts=given)),
    rows(3).map(lambda given: DecisionRequest(contexts=given, excluded=[1])),
    rows(3).map(lambda given: DecisionRequest(contexts=given, baseline=1)),
    rows(3).map(lambda given: DecisionRequest(contexts=given, slots=2)),
    rows(3).map(lambda given: DecisionRequest(actions=named(given))),
)
WRONG = st.one_of(
    rows(3, 1).map(lambda given: DecisionRequest(contexts=given)),
    rows(3).map(lambda given: DecisionRequest(contexts=given, excluded=[7])),
)


def agent() -> ffx.Agent:
    made = ffx.Agent(D, seed=0)
    made._origins = IdPrefixes()
    made._origin = "same"
    for reward in (0.1, 0.9, 0.4):
        made.observe(made.decide([[0.5, 0.1], [0.2, 0.6]]), reward=reward)
    return made


def outcome(call: Any) -> Any:
    try:
        return call()
    except FedFairXError as error:
        return type(error), str(error)


def parse(requests: list[DecisionRequest], *, together: bool) -> Any:
    features, given = FeatureTable(None, dimension=D), {"fixed": False}
    if together:
        return parse_requests(requests, features, SETTINGS, ONE, **given)
    return [parse_request(one, features, SETTINGS, ONE, **given) for one in requests]


def plain(value: Any) -> Any:
    """A value with lists in the place of arrays, without what is only counted."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, msgspec.Struct):
        found = msgspec.structs.asdict(value) | {"encoded": None}
        return found | {"contexts": value.contexts.tolist()} if "contexts" in found else found
    return value


@given(st.lists(st.one_of(REQUESTS, WRONG), min_size=1, max_size=6), st.lists(PLAIN, min_size=2, max_size=5))
def test_requests_parsed_together(mixed: list[DecisionRequest], alike: list[DecisionRequest]) -> None:
    for requests in (mixed, alike, [*alike, *mixed[:1]]):
        one, other = (outcome(lambda: plain(parse(requests, together=way))) for way in (True, False))  # noqa: B023
        assert one == other


def test_a_row_that_is_too_short_is_named_by_its_own_request() -> None:
    short = DecisionRequest(contexts=[[0.1, 0.2], [0.1]])
    with pytest.raises(ffx.errors.InvalidInput, match=r"contexts\[1\] must be 2 numbers, got 1"):
        parse([DecisionRequest(contexts=[[0.1, 0.2]] * 2), short], together=True)


def steps(requests: list[list[DecisionRequest]]) -> list[Deciding]:
    return [Deciding(parse(some, together=True), [None] * len(some), None, SETTINGS) for some in requests]


def take(owner: ffx.Agent, given: list[Deciding]) -> list[Any]:
    """As the write queue does."""
    found = groupby(given, lambda step: _kind((owner, step, None, None, True)))  # type: ignore[arg-type]
    return [each for _, alike in found for each in _take_steps(owner, list(alike))]


def answers(made: list[Any]) -> list[Any]:
    return [
        str(one) if isinstance(one, Exception) else [msgspec.json.encode(each) for each in one]
        for one in made
    ]


@given(st.lists(st.lists(REQUESTS, min_size=1, max_size=3), min_size=2, max_size=6))
def test_steps_taken_together(requests: list[list[DecisionRequest]]) -> None:
    """Whatever their sizes: answers, ids, random numbers, and what is pending are those of one by one."""
    one, other = agent(), agent()
    made = take(one, steps(requests))
    assert answers(made) == answers([step(other) for step in steps(requests)])
    assert one.decide([[0.5, 0.1], [0.2, 0.6]]) == other.decide([[0.5, 0.1], [0.2, 0.6]])
    assert one._pending == other._pending


def test_one_that_is_refused_among_steps(tmp_path: Path) -> None:
    """It fails alone, and uses no random number."""
    request = [DecisionRequest(contexts=[[0.1, 0.2], [0.2, 0.1]])]
    first, wrong, second = steps([request] * 3)
    wrong.inputs[0].contexts[:] = 1e101  # type: ignore[union-attr,index]
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
