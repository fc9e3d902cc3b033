"""Requests that are parsed and decided together get what each would get by itself."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
from fedfairx.agent.agent import Agent
from fedfairx.core.json_numbers import read_matrices
from fedfairx.core.slates import ONE
from fedfairx.errors import FedFairXError
from fedfairx.service import decisions
from fedfairx.service.decisions import PlainDecisions, decide, parse_request, plain_contexts
from fedfairx.service.fast_path import decode
from fedfairx.service.feature_table import FeatureTable
from fedfairx.service.schemas import Action, DecisionRequest, Rows
from fedfairx.service.write_queue import _calls, _take_tasks
from service_helpers import ACTIONS, CONTEXTS, asking, settings_for

D = 2
JSON = {"content-type": "application/json"}
SETTINGS = settings_for("unused", dimension=str(D))
FEATURES = FeatureTable(None, dimension=D)
Requests = list[DecisionRequest]


def rows(count: int, width: int = D) -> st.SearchStrategy[list[list[float]]]:
    number = st.floats(-1.0, 1.0).map(lambda number: round(number, 9))
    row = st.lists(number, min_size=width, max_size=width)
    return st.lists(row, min_size=count, max_size=count)


def request(contexts: list[list[float]], **more: Any) -> DecisionRequest:
    """As it is read from a body."""
    return msgspec.json.decode(msgspec.json.encode({"contexts": contexts, **more}), type=DecisionRequest)


def requests(count: int, **more: Any) -> st.SearchStrategy[DecisionRequest]:
    return rows(count).map(lambda contexts: request(contexts, **more))


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
    rows(3, 1).map(request),
)


def agent() -> Agent:
    made = ffx.Agent(D, seed=0)
    made._log.prefix = "same"  # else the ids of two agents would differ
    for reward in (0.1, 0.9, 0.4):
        made.observe(made.decide([[0.5, 0.1], [0.2, 0.6]]), reward=reward)
    return made


def one_by_one(owner: Agent, some: Requests) -> list[Any]:
    inputs = [parse_request(one, FEATURES, SETTINGS, ONE, fixed=False) for one in some]
    return [decide(owner, [asked], [None], None, SETTINGS) for asked in inputs]


def step(some: Requests) -> PlainDecisions:
    contexts = plain_contexts(some, FEATURES, SETTINGS, ONE)
    assert contexts is not None
    return PlainDecisions(contexts)


def take(owner: Agent, steps: list[PlainDecisions]) -> list[Any]:
    """As the write queue does."""
    calls = _calls((owner, step, None, None) for step in steps)  # type: ignore[misc]
    return [outcome for _, some in calls for outcome in _take_tasks(owner, some)]


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
    alone = len(some) == 1 and other == request(msgspec.json.decode(other.contexts or b"[[]]")[:2])
    assert (plain_contexts(some, FEATURES, SETTINGS, ONE) is not None) == alone


@pytest.mark.parametrize("more", [{"mode": "shadow"}, {"control_share": 0.5}, {"max_actions": 2}])
def test_some_settings_have_no_plain_requests(more: dict[str, Any]) -> None:
    settings = settings_for("unused", dimension=str(D), **more)
    some = [request([[0.1, 0.2]] * 3)]
    assert plain_contexts(some, FEATURES, SETTINGS, ONE) is not None
    assert plain_contexts(some, FEATURES, settings, ONE) is None
    assert plain_contexts(some, FEATURES, SETTINGS, (1.0, 0.5)) is None
    assert plain_contexts(some, None, SETTINGS, ONE) is None


def test_numbers_that_are_read_by_the_whole_parser(tmp_path: Path) -> None:
    """They get the shares of the same numbers in other words."""
    usual = "[[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]]"
    unusual = usual.replace("0.1", "1" + 30 * "0" + "e-31")
    assert read_matrices([unusual.encode()]) is None
    found = []
    for place, text in enumerate((usual, unusual)):
        with asking(str(tmp_path / f"{place}.db")) as client:
            answer = client.post("/v1/decisions", content=f'{{"contexts": {text}}}', headers=JSON)
            assert answer.status_code == 201
            found.append(answer.json()["policy"])
    assert found[0] == found[1]


def test_a_long_body_is_read_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second of reading features would stop all requests."""
    threads: list[int] = []
    real = decisions.parse_request

    def watched(*given: Any, **more: Any) -> Any:
        threads.append(threading.get_ident())
        return real(*given, **more)

    monkeypatch.setattr(decisions, "parse_request", watched)
    with asking(str(tmp_path / "agent.db")) as client:
        loop = client.portal.call(threading.get_ident)
        for count, here in ((1, True), (700, False)):
            threads.clear()
            body = {"decisions": [{"actions": ACTIONS}] * count}
            assert client.post("/v1/decisions/batch", json=body).status_code == 201
            assert {thread == loop for thread in threads} == {here}


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(
    "contexts", [CONTEXTS, CONTEXTS[:1] * 2 + [[0.5]], [[]], [], "x", [["x"]], [[1e200]], None, 10 * [[0.1]]]
)
def test_a_body_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contexts: Any, batch: bool
) -> None:
    """Whether it is plain, or refused; an error has the place in the body."""
    bodies: list[bytes] = []

    def watched(body: bytes, kind: Any) -> Any:
        bodies.append(body)
        return decode(body, kind)

    monkeypatch.setattr("fedfairx.service.served_agent.decode", watched)
    one, path, where = {"contexts": contexts}, "/v1/decisions", ""
    if batch:
        one, path, where = {"decisions": [{"contexts": CONTEXTS}, one]}, f"{path}/batch", "decisions[1]."
    with asking(str(tmp_path / "agent.db")) as client:
        answer = client.post(path, json=one)
        assert answer.status_code == (201 if contexts is CONTEXTS else 422)
        if contexts is not CONTEXTS:
            which = "actions or " if contexts is None else ""
            assert answer.json()["detail"].startswith(f"{where}{which}contexts")
    assert len(bodies) == 1


def test_rows_are_described_as_they_are_read() -> None:
    (_,), components = msgspec.json.schema_components([DecisionRequest])
    described = components["DecisionRequest"]["properties"]["contexts"]
    assert described == {"anyOf": [msgspec.json.schema(Rows), {"type": "null"}], "default": None}


def test_a_row_that_is_too_short_is_named_by_its_own_request(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.db")) as client:
        short = [*CONTEXTS[:2], CONTEXTS[2][:1]]
        body = {"decisions": [{"contexts": CONTEXTS}, {"contexts": short}]}
        answer = client.post("/v1/decisions/batch", json=body)
        assert answer.status_code == 422
        assert answer.json()["detail"] == "decisions[1].contexts[2] must be 3 numbers, got 1 of them"


def test_one_that_is_refused_among_steps(tmp_path: Path) -> None:
    """It fails alone, and uses no random number."""
    some = [request([[0.1, 0.2], [0.2, 0.1]])]
    first, wrong, second = (step(some) for _ in range(3))
    wrong.contexts[:] = 1e101
    found = []
    for place, steps in enumerate(([first, wrong, second], [first, second])):
        with ffx.Agent.open(tmp_path / f"{place}.db", dimension=D, seed=0, name="a") as durable:
            with durable.transaction():
                outcomes = take(durable, steps)
            made = [each[0] for each in outcomes if not isinstance(each, FedFairXError)]
            assert [each.decision_id for each in made] == [each.id for each in durable._pending.values()]
            durable.verify()
            found.append([(each.policy, each.action) for each in made])
            assert len(outcomes) - len(made) == 1 - place
    assert found[0] == found[1]
