"""Errors about data have the place of the mistake and the kind of value, over HTTP and in Python."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedfairx as ffx
from fedfairx.errors import InvalidInput
from fedfairx.features import Schema
from service_helpers import asking, decide

SCHEMA = Schema({"price": (0, 10), "new": bool, "city": ["Rome", "Oslo"]}, shared=["city"])
ROW = {"price": 5, "new": True}
GOOD: dict[str, Any] = {"actions": [ROW], "context": {"city": "Rome"}}
SECRET = "73519264"  # is in every wrong value, and in no answer
WRONG = {
    "price": [None, SECRET, True, [73519264], {"x": SECRET}, 7.3519264e107],
    "new": [None, SECRET, 0.73519264, [73519264], {"x": SECRET}],
    "city": [True, [SECRET], {"x": SECRET}, SECRET * 30],
}


@st.composite
def bad_bodies(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """A request for a decision with one mistake, and the place of it."""
    count = draw(st.integers(1, 40))
    row = draw(st.integers(0, count - 1))
    actions = [{"id": f"courier {i}", "features": {"price": i, "new": True}} for i in range(count)]
    body: dict[str, Any] = {"actions": actions, "context": {"city": "Rome"}}
    name = draw(st.sampled_from(["price", "new", "city"]))
    values, where = actions[row]["features"], f"actions[{row}].features"
    if name == "city":
        values, where = body["context"], "context"
    mistake = draw(st.sampled_from(["wrong", "missing", "unknown", "no features", "twice", "excluded"]))
    if mistake == "wrong":
        values[name] = draw(st.sampled_from(WRONG[name]))
    elif mistake == "missing":
        del values[name]
    elif mistake == "unknown":
        values["weather"] = SECRET
        return body, f"{where}.weather is unknown: features are "
    elif mistake == "no features":
        del actions[row]["features"]
        return body, f"actions[{row}].features must be given"
    elif mistake == "twice" and count > 1:
        other = draw(st.integers(0, count - 1).filter(lambda i: i != row))
        actions[row]["id"] = actions[other]["id"]
        first, second = sorted((row, other))
        return body, f"got 'courier {other}' as actions[{first}] and actions[{second}]"
    else:
        body["excluded"] = [*(action["id"] for action in actions[1:]), "nobody"]
        return body, f"excluded[{count - 1}] must be the id of one of the {count} actions"
    return body, f"{where}.{name} must be "


@given(bad_bodies(), st.integers(0, 3), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_error_has_the_place_of_the_mistake(
    tmp_path_factory: pytest.TempPathFactory, bad: tuple[dict[str, Any], str], before: int, batch: bool
) -> None:
    body, where = bad
    good = {"actions": [{"id": "ann", "features": ROW}], "context": {"city": "Rome"}}
    place = str(tmp_path_factory.mktemp("bad") / "agent.db")
    with asking(place, features="price=0:10,new=bool,city=Rome|Oslo", shared="city") as client:
        decide(client, **good)
        known = client.get("/v1/model").json(), client.get("/v1/export").text
        if batch:
            several = {"decisions": [*([good] * before), body, good]}
            answer, where = client.post("/v1/decisions/batch", json=several), f"decisions[{before}].{where}"
            where = where.replace(f"decisions[{before}].got", "got")
        else:
            answer = client.post("/v1/decisions", json=body)
        assert answer.status_code == 422, answer.text
        assert where in answer.json()["detail"]
        assert SECRET not in answer.text
        assert (client.get("/v1/model").json(), client.get("/v1/export").text) == known


@given(bad_bodies().filter(lambda bad: "excluded" not in bad[0] and "features must" not in bad[1]))
def test_python_names_the_same_place(bad: tuple[dict[str, Any], str]) -> None:
    body, where = bad
    agent = ffx.Agent(schema=SCHEMA, seed=0)
    rows = [action["features"] for action in body["actions"]]
    names = [action["id"] for action in body["actions"]]
    if len(set(names)) < len(names):
        with pytest.raises(InvalidInput, match=re.escape(where)):
            ffx.Agent(actions=names)
        return
    if SECRET * 30 in body["context"].values():
        return  # any text is a value of a category; only a request limits its length
    where = where.replace(".features", "")
    for outer, call in (
        ("", lambda: agent.decide(actions=rows, context=body["context"])),
        ("", lambda: agent.policy(actions=rows, context=body["context"])),
        (
            "contexts[1].",
            lambda: agent.decide_many(
                [
                    {"actions": [ROW], "context": {"city": "Rome"}},
                    {"actions": rows, "context": body["context"]},
                ]
            ),
        ),
    ):
        with pytest.raises(InvalidInput) as refused:
            call()
        assert str(refused.value).startswith(outer + where)
        assert SECRET not in str(refused.value)
    assert agent.decide(**GOOD) == ffx.Agent(schema=SCHEMA, seed=0).decide(**GOOD)
