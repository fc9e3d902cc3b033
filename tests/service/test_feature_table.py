"""Features by name over HTTP: numbers, categories and booleans, shared ones sent once, later versions."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.client import AsyncClient, Client
from fedfairx.core.statistics import unpack
from fedfairx.errors import InvalidInput
from fedfairx.features import Schema
from fedfairx.service.settings import load, schema_of
from fedfairx.storage.api_keys import ApiKeys
from service_helpers import Running, asking, decide

FEATURES = "price=0:10,new=bool,city=Rome|Oslo"
GIVEN = {"features": FEATURES, "shared": "city"}
SCHEMA = Schema({"price": (0, 10), "new": bool, "city": ["Rome", "Oslo"]}, shared=["city"])
ACTIONS: list[dict[str, Any]] = [
    {"id": "ann", "features": {"price": 5, "new": True}, "group": "small"},
    {"id": "ben", "features": {"price": 2.5, "new": False}},
    {"id": "cat", "features": {"price": 7.5, "new": False}},
]
ROWS = [action["features"] for action in ACTIONS]


def exported(client: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in client.get("/v1/export").text.splitlines()]


def reward(client: Any, made: dict[str, Any], value: float) -> None:
    answer = client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": value})
    assert answer.status_code == 204, answer.text


def test_the_situation_is_sent_once(place: str) -> None:
    with asking(place, **GIVEN) as client:
        made = decide(client, actions=ACTIONS, context={"city": "Oslo"})
        assert made["action_id"] in ("ann", "ben", "cat")
        whole = [each | {"features": each["features"] | {"city": "Oslo"}} for each in ACTIONS]
        decide(client, actions=whole)  # or with every action
        decide(client, actions=ACTIONS, context={"city": "Bonn"}, excluded=["ben"])
        decide(
            client, actions=[{**ACTIONS[0], "features": {"price": 99, "new": True}}], context={"city": None}
        )
        rows = exported(client)
        expected = SCHEMA.encode(ROWS, {"city": "Oslo"}).contexts.tolist()
        assert [row["contexts"] for row in rows[:2]] == [expected, expected]
        assert rows[2]["contexts"] == SCHEMA.encode(ROWS[::2], {"city": "Bonn"}).contexts.tolist()
        told = client.get("/metrics").text
        assert re.search(r"\nfedfairx_features_clipped_total\S* 1\n", told)
        assert re.search(r"\nfedfairx_features_unknown_total\S* 2\n", told)
        batch = {"decisions": [{"actions": ACTIONS, "context": {"city": city}} for city in ("Rome", "Bonn")]}
        assert client.post("/v1/decisions/batch", json=batch).status_code == 201
        assert re.search(r"\nfedfairx_features_unknown_total\S* 3\n", client.get("/metrics").text)


def test_it_is_shown(place: str) -> None:
    with asking(place, **GIVEN) as client:
        reward(client, decide(client, actions=ACTIONS, context={"city": "Bonn"}), 1.0)
        model = client.get("/v1/model").json()
        assert (model["features"], model["columns"]) == (["price", "new", "city"], list(SCHEMA.columns))
        assert len(model["estimate"]) == model["dimension"] == len(SCHEMA.columns)
        price, new, city = model["schema"].pop("features")
        assert model["schema"] == {
            "products": ["price:city", "new:city"],
            "intercept": True,
            "version": 1,
            "digest": SCHEMA.digest,
        }
        counts = {"clipped": 0, "unknown": 0}
        number = {"name": "price", "kind": "number", "range": [0, 10], "levels": None, "shared": False}
        assert price == number | counts
        assert (
            new == {"name": "new", "kind": "boolean", "range": None, "levels": None, "shared": False} | counts
        )
        category = {
            "name": "city",
            "kind": "category",
            "range": None,
            "levels": ["Rome", "Oslo"],
            "shared": True,
        }
        assert city == category | {"clipped": 0, "unknown": 1}
        words = "price (0 to 10), new (yes or no), city (Rome, Oslo, other; the same for all actions)"
        assert f"<dt>Features</dt><dd>{words}</dd>" in client.get("/").text
        assert f"a linear function of {words}" in client.get("/report").text
        service = client.app._app.state.service
        text = ApiKeys(service.log).add("x", "reader")
        service.auth.any_key = True
        seen = client.get("/v1/model", headers={"authorization": f"Bearer {text}"}).json()["schema"]
        assert {(each["clipped"], each["unknown"]) for each in seen["features"]} == {(None, None)}


def test_it_decides_as_the_library_does(tmp_path: Path) -> None:
    agent = ffx.Agent(schema=SCHEMA)
    with asking(str(tmp_path / "agent.db"), **GIVEN) as client:
        for turn in range(20):
            context = {"city": ("Rome", "Oslo", "Bonn")[turn % 3]}
            made = decide(client, actions=ACTIONS, context=context)
            names = [each["id"] for each in ACTIONS]
            policy = agent.policy(actions=ROWS, context=context, names=names)
            assert policy.tolist() == pytest.approx(made["policy"], abs=1e-9)
            reward(client, made, turn / 20)
            agent.learn([ROWS[made["action"]] | context], [turn / 20], names=[made["action_id"]])


@pytest.mark.long
def test_later_versions_append_and_a_restart_keeps_them(place: str, tmp_path: Path) -> None:
    with asking(place, **GIVEN) as client:
        early = [decide(client, actions=ACTIONS, context={"city": "Bonn"}) for _ in range(12)]
        for made in early[1:]:
            reward(client, made, 0.5)
        client.app._app.state.service.default.agent.learn(
            [row | {"city": "Rome"} for row in ROWS], [0.1, 0.2, 0.3], weights=[1.0, 0.5, 0.25]
        )
    later = {"features": FEATURES + "|Bonn,stars=1:5", "shared": "city"}
    richer = [each | {"features": each["features"] | {"stars": 2}} for each in ACTIONS]
    with asking(place, **later) as client:
        for path in ("/v1/exposure", "/", "/exposure", "/report"):
            client.get(path).raise_for_status()  # where all decisions are shorter than the model
        reward(client, early[0], 1.0)
        reward(client, decide(client, actions=richer, context={"city": "Bonn"}), 1.0)
        model = client.get("/v1/model").json()
        assert model["columns"][: SCHEMA.width] == list(SCHEMA.columns)
        assert (model["schema"]["version"], len(model["columns"])) == (2, len(model["estimate"]))
        dimensions = [len(row["contexts"][0]) for row in exported(client)]
        assert dimensions == [SCHEMA.width] * 12 + [len(model["columns"])]
        served = client.app._app.state.service.default
        table = client.get("/v1/exposure?since=1").json()  # not the one from before
        assert sum(row["decisions"] for row in table["actions"]) == 3 * 13
        sums = served.exposures._logged.sums(served.journal, served.agent, served.agent.names)
        gram, moment = unpack(served.agent.own_sums())
        assert np.allclose(sums.gram, gram)
        assert np.allclose(sums.moment, moment)
        for kind in ("jsonl", "csv", "parquet"):
            file = tmp_path / f"log.{kind}"
            file.write_bytes(client.get(f"/v1/export?format={kind}").content)
            found = ffx.evaluate(file, {"uniform": "uniform", "replayed": ffx.Options()})
            assert found.decisions == 13
    for given in ({"dimension": None}, later, {"dimension": 4}):
        with asking(place, **given) as client:
            made = decide(client, actions=richer, context={"city": "Bonn"})
            assert client.get("/v1/model").json()["schema"]["version"] == 2
    for given, words in (
        (GIVEN, "schema must be what the agent has learnt from"),
        ({**later, "shared": ""}, "schema must be"),
        ({"features": "price=0:10"}, "schema must be"),
        ({**later, "intercept": False}, "intercept=true, or append to it, got .*intercept=false"),
        ({"dimension": None, "shared": "city"}, "features must be given with shared"),
        ({"dimension": 9}, "dimension must be 4"),
        ({"actions": ["ann"]}, "actions must be left out"),
    ):
        with pytest.raises(InvalidInput, match=words), asking(place, **given):
            pass


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"actions": ACTIONS}, "context.city must be given, or actions[0].features.city, got none"),
        ({"actions": ACTIONS, "context": {}}, "context.city must be given, got none"),
        (
            {"actions": ACTIONS, "context": {"city": "Rome", "x": 1}},
            "context.x is unknown: features are city",
        ),
        (
            {"actions": ACTIONS, "context": {"city": [1]}},
            "context.city must be a boolean or a number or a string or null, got a list",
        ),
        ({"actions": ACTIONS, "context": "Rome"}, "context must be an object or null, got a string"),
        (
            {"actions": ACTIONS, "context": {"city": "x" * 201}},
            "context.city must be a string of length <= 200",
        ),
        (
            {"actions": [{"id": "a", "features": {"price": 1}}], "context": {"city": "Rome"}},
            "actions[0].features.new must be given",
        ),
        (
            {"actions": [{"id": "a", "features": {"price": "1", "new": True}}], "context": {"city": "x"}},
            "actions[0].features.price must be a finite number of at most 1e+100 in size, got a string",
        ),
        (
            {"actions": [{"id": "a", "features": {"price": 1, "new": "no"}}], "context": {"city": "x"}},
            "actions[0].features.new must be true or false, got a string",
        ),
        (
            {"actions": [{"id": "a", "features": {"price": 1e101, "new": True}}]},
            "actions[0].features.price must be a number <= 1e+100",
        ),
        ({"contexts": [[1.0]], "context": {"city": "Rome"}}, "contexts[0] must be 2 values, got 1"),
    ],
)
def test_what_is_refused(tmp_path: Path, body: dict[str, Any], words: str) -> None:
    with asking(str(tmp_path / "agent.db"), **GIVEN) as client:
        answer = client.post("/v1/decisions", json=body)
        assert answer.status_code == 422, answer.text
        assert words in answer.json()["detail"]
        assert client.get("/v1/model").json()["pending"] == 0


def test_numbers_without_names_have_no_shared_features(tmp_path: Path) -> None:
    for given, body in (({"dimension": 2}, {"contexts": [[1.0, 0.0]]}), ({"actions": ["a", "b"]}, {})):
        with asking(str(tmp_path / str(len(body)) / "agent.db"), **given) as client:
            answer = client.post("/v1/decisions", json={**body, "context": {"city": "Rome"}})
            assert (answer.status_code, "context must be left out" in answer.text) == (422, True)
            if "dimension" in given:
                for features, words in (
                    ({"a": 1.0}, "no named features"),
                    (["x", 1], "actions[0].features[0] must be a number"),
                ):
                    answer = client.post(
                        "/v1/decisions", json={"actions": [{"id": "a", "features": features}]}
                    )
                    assert (answer.status_code, words in answer.text) == (422, True)


def test_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    file.write_text(
        'features = {price = [0, 10], new = "bool", city = ["Rome", "Oslo"]}\nshared = ["city"]\n'
        'products = ["city:price"]\nintercept = false\n'
    )
    found = load({}, environment={}, config=file)
    kinds = {"price": (0, 10), "new": bool, "city": ["Rome", "Oslo"]}
    assert schema_of(found) == Schema(kinds, shared=["city"], products=["price:city"], intercept=False)
    assert schema_of(load(GIVEN, environment={})) == SCHEMA
    environment = {"FEDFAIRX_FEATURES": FEATURES, "FEDFAIRX_SHARED": "city", "FEDFAIRX_PRODUCTS": "new:city"}
    assert schema_of(load({}, environment=environment)).products == ("new:city",)
    assert schema_of(load({**GIVEN, "products": "none"}, environment={})).products == ()
    for given, words in (
        ({"shared": "town"}, "shared must be features, of price, new, city"),
        ({"products": "price"}, "products must be two features each"),
        ({"features": "price=0-10"}, "features must be like"),
        ({"features": "city=a|a"}, "levels that are different"),
    ):
        with pytest.raises(InvalidInput, match=words):
            load({**GIVEN, **given}, environment={})


def test_numbers_by_name_or_in_order_give_the_same_contexts(place: str) -> None:
    """To [-1, 1], divided by the root of their number, bit for bit; also if settings name no features."""
    first = {"features": "a=0:1,b=0:1", "intercept": False}
    rows = np.random.default_rng(0).normal(0.5, 0.6, (20, 2))
    for given in (first, {"dimension": None}, {"features": "a=0:1,b=0:1"}, {"dimension": 2}):
        with asking(place, **given) as client:
            actions = [{"id": str(k), "features": {"a": a, "b": b}} for k, (a, b) in enumerate(rows.tolist())]
            decide(client, actions=actions)
            decide(client, contexts=rows.tolist())
            expected = np.clip(rows + (rows - 1.0), -1.0, 1.0)
            expected /= np.sqrt(2)
            assert [row["contexts"] for row in exported(client)[-2:]] == [expected.tolist()] * 2


def test_private_bounds_follow_from_it(place: str) -> None:
    given: dict[str, Any] = {**GIVEN, "epsilon": 2.0, "releases": 5, "reward_range": "0:1"}
    with asking(place, **given) as client:
        for city in ("Rome", "Bonn"):
            reward(client, decide(client, actions=ACTIONS, context={"city": city}), 1.0)
        agent = client.app._app.state.service.default.agent
        assert not agent.privatizer.stream.bounds.nonnegative  # numbers are centred
        assert client.get("/v1/privacy").json()["clipped"] == 0
    with asking(place, **given):
        pass
    with (
        pytest.raises(InvalidInput, match="shares its statistics"),
        asking(place, **{**given, "features": FEATURES + "|Bonn"}),
    ):
        pass


def test_a_thousand_actions(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [{"price": float(price), "new": bool(price > 5)} for price in rng.uniform(0, 10, 1000)]
    actions = [{"id": f"a{k}", "features": row} for k, row in enumerate(rows)]
    with asking(str(tmp_path / "agent.db"), **GIVEN) as client:
        made = decide(client, actions=actions, context={"city": "Rome"})
        assert sum(made["policy"]) == pytest.approx(1.0)
        (row,) = exported(client)
        assert row["contexts"] == SCHEMA.encode(rows, {"city": "Rome"}).contexts.tolist()


@pytest.mark.process
def test_both_clients(tmp_path: Path) -> None:
    running = Running(str(tmp_path / "agent.db"), "--features", FEATURES, "--shared", "city")
    try:
        with Client(running.url) as client:
            made = client.decide(actions=ACTIONS, context={"city": "Rome"})
            client.observe(made, reward=1.0)
            several = [{"actions": ACTIONS, "context": {"city": city}} for city in ("Rome", "Bonn")]
            assert len(client.decide_many(several)) == 2
            for _ in range(len(ACTIONS) + 1):  # until a name has come again
                client.decide(actions=ACTIONS, context={"city": "Rome"})
            policy = client.decide(actions=ACTIONS, context={"city": "Rome"}).policy
        running.kill()
        running.start()
        assert asyncio.run(_policy(running.url)) == policy
    finally:
        running.stop()


async def _policy(url: str) -> tuple[float, ...]:
    async with AsyncClient(url) as client:
        return (await client.decide(actions=ACTIONS, context={"city": "Rome"})).policy
