"""Actions without features over HTTP: named once, they come and go, and a restart keeps them."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.client import AsyncClient, Client, ServiceError
from fedfairx.errors import InvalidInput
from fedfairx.service.factory import open_service
from fedfairx.service.settings import load
from fedfairx.storage.api_keys import ApiKeys
from service_helpers import Running, asking, decide, settings_for

NAMES = ["ann", "ben", "cid"]
WILD = [
    "=1+1",
    "a/b",
    "a/../b",
    "..",
    ".",
    "Ω 数 🦊",
    " ",
    "x" * 200,
    'quo"te',
    "a,b",
    "<b>?#%",
    "\0",
    "-",
    "two\nlines\n",
]


def ask(client: Any, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/decisions", json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def refused(answer: Any, status: int, kind: str) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == f"urn:fedfairx:problem:{kind}"
    return str(answer.json()["detail"])


def expected(client: Any) -> dict[str, dict[str, float]]:
    """The expected rewards of actions, with their intervals."""
    return {each["name"]: each["expected"] for each in client.get("/v1/model").json()["records"]}


def listed(client: Any) -> dict[str, str]:
    return {each["id"]: each["status"] for each in client.get("/v1/actions").json()["actions"]}


def address(name: str) -> str:
    return "/v1/actions/" + quote(name, safe="").replace(".", "%2E")


def test_nothing_need_be_said(place: str) -> None:
    with asking(place, actions=NAMES) as client:
        made = ask(client)
        assert made["action_ids"] == NAMES
        assert made["action_id"] == NAMES[made["action"]]
        assert made["policy"] == pytest.approx([1 / 3] * 3)
        reward = client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": 1.0})
        assert reward.status_code == 204
        some = ask(client, actions=["cid", "ann"])
        assert some["action_ids"] == ["cid", "ann"]
        assert some["action_id"] == ["cid", "ann"][some["action"]]
        grouped = ask(client, actions=[{"id": "ann", "group": "small"}, "ben"], excluded=["ben"])
        assert (grouped["action_id"], grouped["policy"]) == ("ann", [1.0, 0.0])
        assert grouped["action_ids"] == ["ann", "ben"]
        without = ask(client, excluded=["ann"])
        assert without["action_ids"] == ["ben", "cid"]
        batch = client.post("/v1/decisions/batch", json={"decisions": [{}, {"actions": ["ben"]}]}).json()
        assert [each["action_ids"] for each in batch["decisions"]] == [NAMES, ["ben"]]
        seen = client.get(f"/v1/decisions/{grouped['decision_id']}").json()
        assert (seen["action_id"], seen["group"], seen["action_ids"]) == ("ann", "small", ["ann"])
        model = client.get("/v1/model").json()
        assert (model["actions"], model["features"], model["dimension"]) == (NAMES, [], 0)
        assert (model["columns"], model["names"]) == (["intercept"], 3)
        assert [each["name"] for each in model["records"]] == NAMES


def test_it_decides_as_the_agent_does(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.db"), actions=NAMES) as client:
        answers = []
        for turn in range(30):
            made = ask(client, actions=NAMES[: 2 + turn % 2])
            client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": (turn % 5) / 5})
            answers.append(made)
    other = ffx.Agent(actions=NAMES)
    for turn, made in enumerate(answers):
        assert other.policy(made["action_ids"]).tolist() == pytest.approx(made["policy"], abs=1e-9)
        other.learn([made["action_id"]], [(turn % 5) / 5])


def test_they_come_and_go_and_a_restart_keeps_them(place: str) -> None:
    with asking(place, actions=NAMES) as client:
        before = ask(client, actions=["ben"])
        assert client.put("/v1/actions/dora").status_code == 204
        assert client.put("/v1/actions/dora").status_code == 204  # the same again
        assert client.delete("/v1/actions/ben").status_code == 204
        assert client.delete("/v1/actions/ben").status_code == 204
        assert ask(client)["action_ids"] == ["ann", "cid", "dora"]
        assert listed(client) == {"ann": "active", "ben": "retired", "cid": "active", "dora": "active"}
    for given in ({}, {"actions": NAMES}, {"actions": ["ben", "dora"]}):  # as the first ones, or left out
        with asking(place, **({"dimension": None} | given)) as client:
            assert ask(client)["action_ids"] == ["ann", "cid", "dora"]
    with asking(place, dimension=None) as client:
        late = client.put(f"/v1/decisions/{before['decision_id']}/reward", json={"reward": 1.0})
        assert late.status_code == 204
        assert client.put("/v1/actions/ben").status_code == 204
        assert ask(client)["action_ids"] == ["ann", "ben", "cid", "dora"]
        assert expected(client)["ben"]["value"] > 0.5
    with asking(place, dimension=None) as client:
        assert set(listed(client).values()) == {"active"}
        client.get("/v1/exposure").raise_for_status()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"actions": [*NAMES, "dora"]}, "actions must be ones that it has, got actions=['dora']"),
        ({"dimension": 3}, "dimension must be left out: its actions have names alone"),
        ({"features": "a=0:1"}, "features must be"),
        ({"dimension": None, "intercept": False}, "intercept must be"),
    ],
)
def test_a_start_that_says_otherwise_is_refused(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    place = str(tmp_path / "agent.db")
    with asking(place, actions=NAMES):
        pass
    with pytest.raises(InvalidInput) as caught:
        open_service(settings_for(place, **given))
    assert words in str(caught.value)


def test_a_service_with_features_has_no_actions_of_its_own(tmp_path: Path) -> None:
    place = str(tmp_path / "agent.db")
    with asking(place) as client:
        decide(client)
        assert client.get("/v1/actions").json() == {"actions": []}
        assert client.get("/v1/model").json()["actions"] == []
        refused(client.put("/v1/actions/ann"), 409, "features")
        refused(client.delete("/v1/actions/ann"), 409, "features")
        for body in ({"actions": ["ann"]}, {"actions": [{"id": "ann"}]}):
            assert "actions[0].features must be given" in refused(
                client.post("/v1/decisions", json=body), 422, "invalid"
            )
        assert "actions or contexts must be given" in refused(
            client.post("/v1/decisions", json={}), 422, "invalid"
        )
    with pytest.raises(InvalidInput, match="actions have features"):
        open_service(settings_for(place, actions=NAMES))


def test_what_is_refused(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.db"), actions=NAMES, max_actions=4) as client:
        client.delete("/v1/actions/cid")
        for body, words in (
            ({"contexts": [[1.0, 0.0, 0.0]]}, "contexts must be left out"),
            (
                {"actions": ["ann", "dora"]},
                "actions[1] must be one that this agent has and has not retired, got 'dora'",
            ),
            ({"actions": ["cid"]}, "has not retired"),
            ({"actions": ["ann", "ann"]}, "must have different ids, got 'ann' as actions[0] and actions[1]"),
            ({"actions": []}, ">= 1"),
            ({"actions": [""]}, ">= 1"),
            ({"actions": [1]}, "actions[0] must be a string or an object, got an integer"),
            ({"actions": [{"id": "ann", "features": [1.0]}]}, "features must be left out"),
            ({"actions": list("abcde")}, "at most 4 (max_actions)"),
            ({"excluded": ["ann", "ben"]}, "must leave an action"),
            ({"excluded": ["zoe"]}, "excluded must be"),
            ({"excluded": [0]}, "must be ids of actions"),
            ({"baseline": "zoe"}, "baseline must be"),
            ({"baseline": 1}, "must be ids of actions"),
        ):
            assert words in refused(client.post("/v1/decisions", json=body), 422, "invalid"), body
            batch = {"decisions": [{}, body]}
            assert words in refused(client.post("/v1/decisions/batch", json=batch), 422, "invalid"), body
        assert client.get("/v1/model").json()["pending"] == 0
        assert ask(client, excluded=["cid"])["action_ids"] == ["ann", "ben"]  # retired: excluded already
        refused(client.delete("/v1/actions/zoe"), 404, "unknown-action")
        client.delete("/v1/actions/ben")
        assert "must leave one" in refused(client.delete("/v1/actions/ann"), 409, "conflict")
        for name in ("ben", "cid", "dora"):
            assert client.put(f"/v1/actions/{name}").status_code == 204
        assert "at most 4 (max_actions)" in refused(client.put("/v1/actions/eve"), 409, "conflict")
        assert "200 characters" in refused(client.put("/v1/actions/" + 201 * "x"), 422, "invalid")
        refused(client.put("/v1/actions/"), 422, "invalid")
        refused(client.put("/v1/actions/%FF"), 422, "invalid")
        refused(client.post("/v1/actions/ann"), 405, "method")


def test_more_than_may_be_are_not_decided_about(tmp_path: Path) -> None:
    """Where the limit was lowered since they were named."""
    place = str(tmp_path / "agent.sqlite")
    with asking(place, actions=["ann", "ben", "cid"]):
        pass
    with asking(place, dimension=None, max_actions=2) as client:
        answer = client.post("/v1/decisions", json={})
        assert answer.status_code == 422
        assert "must be at most 2 (max_actions)" in answer.json()["detail"]
        assert client.post("/v1/decisions", json={"excluded": ["cid"]}).status_code == 201


def test_a_retry_is_answered_as_then(place: str) -> None:
    key = {"idempotency-key": "k"}
    with asking(place, actions=NAMES) as client:
        first = client.post("/v1/decisions", json={}, headers=key).json()
        some = {"actions": ["cid", "ben"], "excluded": ["cid"]}
        second = client.post("/v1/decisions", json=some, headers={"idempotency-key": "l"}).json()
        client.put("/v1/actions/dora")
        client.delete("/v1/actions/ben")
    with asking(place, dimension=None) as client:
        assert client.post("/v1/decisions", json={}, headers=key).json() == first
        again = client.post("/v1/decisions", json=some, headers={"idempotency-key": "l"})
        assert again.json() == second
        refused(client.post("/v1/decisions", json={"actions": ["ben"]}, headers=key), 409, "key-reused")
        assert ask(client)["action_ids"] == ["ann", "cid", "dora"]
        assert "has not retired" in refused(client.post("/v1/decisions", json=some), 422, "invalid")


def test_the_baseline_of_a_shadow_is_one_of_them(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.db"), actions=NAMES, mode="shadow") as client:
        made = ask(client, baseline="cid")
        assert (made["action_id"], made["probability"], made["mode"]) == ("cid", 1.0, "shadow")
        assert ask(client, actions=["cid", "ann"], baseline="ann")["action_id"] == "ann"
        for body in ({}, {"actions": ["ann"]}):
            assert "baseline must be given" in refused(
                client.post("/v1/decisions", json=body), 422, "invalid"
            )
        client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": 1.0})
        assert expected(client)["cid"]["value"] > 0.5


def test_wild_names(place: str) -> None:
    with asking(place, actions=WILD[:4]) as client:
        for name in WILD:
            assert client.put(address(name)).status_code == 204, name
        assert list(listed(client)) == WILD
        for name in WILD:
            made = ask(client, actions=[{"id": name, "group": name}])
            client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": 0.5})
        rows = list(csv.DictReader(io.StringIO(client.get("/v1/export?format=csv").text)))
        assert rows[0]["action_id"] == "'=1+1"
        assert rows[0]["contexts"] == ""
        lines = [json.loads(line) for line in client.get("/v1/export").text.splitlines()]
        assert [line["action_id"] for line in lines] == WILD
        assert {line["contexts"] for line in lines} == {None}
        assert client.get("/v1/export?format=parquet").status_code == 200
        for page in ("/", "/decisions", "/exposure", "/report"):
            shown = client.get(page)
            assert shown.status_code == 200
            assert "<b>?" not in shown.text
            assert "&lt;b&gt;?#%" in shown.text
        for name in WILD[1:]:
            assert client.delete(address(name)).status_code == 204, name
        assert ask(client)["action_ids"] == WILD[:1]
    with asking(place, dimension=None) as client:
        assert list(listed(client)) == WILD


def test_pages_say_what_there_is(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.db"), actions=NAMES) as client:
        ask(client)
        client.delete("/v1/actions/ben")
        overview, report = client.get("/").text, client.get("/report").text
        assert "<dt>Actions</dt><dd>ann, cid</dd>" in overview
        assert "<dt>Retired</dt><dd>ben</dd>" in overview
        assert "learnt for each action separately" in report
        assert "features" not in report
    with asking(str(tmp_path / "other" / "agent.db")) as client:
        assert "Retired" not in client.get("/").text
        assert "a linear function of 3 features: x1, x2, x3, and an intercept" in client.get("/report").text


def test_exposure_is_that_of_the_same_log_with_unit_vectors(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.db"), actions=NAMES) as client:
        service = client.app._app.state.service
        agent, rng = service.default.agent, np.random.default_rng(0)
        with agent.transaction():
            for turn in range(400):
                made = agent.decide(NAMES[: 2 + turn % 2])
                agent.observe(made, reward=float(rng.random() < 0.3 + 0.2 * NAMES.index(made.name)))
            agent.add_actions("dora")
            agent.learn(["dora"] * 5, [1.0] * 5)
            for _ in range(100):
                agent.observe(agent.decide(), reward=1.0)
        table = client.get("/v1/exposure").json()
        assert [row["name"] for row in table["actions"]] == ["ann", "ben", "cid", "dora"]
        log = [
            ffx.Logged(each.policy, each.action, np.eye(4)[: each.policy.size], names=each.names)
            for each in agent.journal.decisions()
        ]
        gram, moment = np.zeros((4, 4)), np.zeros(4)
        for each in agent.journal.decisions():
            gram[each.action, each.action] += 1.0
            moment[each.action] += each.reward
        gram[3, 3] += 5.0
        moment[3] += 5.0
        other = ffx.exposure(log, merit=agent.merit, sums=(gram, moment))
        for row, theirs in zip(table["actions"], other.actions, strict=True):
            assert row["entitled"]["low"] == pytest.approx(theirs.entitled.low)
            assert row["entitled"]["high"] == pytest.approx(theirs.entitled.high)
        assert any("of each action have a constant mean" in claim for claim in table["claims"])


def test_a_private_service_counts_what_was_learnt_from_a_log(tmp_path: Path) -> None:
    """Its exposure is from the log's own records, and from those of names."""
    with asking(str(tmp_path / "agent.db"), epsilon=4.0, dimension=3) as client:
        agent, exposures = (
            getattr(client.app._app.state.service.default, name) for name in ("agent", "exposures")
        )
        agent.learn(np.eye(3), [1.0, 0.5, 0.0], names=["ann", "ben", "ann"])
        sums, rows = exposures._sums(), np.column_stack([np.eye(3), np.full(3, 0.25)])
        assert sums.gram.tolist() == (rows.T @ rows).tolist()
        assert sums.moment.tolist() == (rows.T @ [1.0, 0.5, 0.0]).tolist()
        assert sums.names == ("ann",)
        assert sums.tallies.tolist() == [[2.0, 1.0, *(rows[0] + rows[2])]]
    with pytest.raises(InvalidInput, match="a name's own record is in no message"):
        given = {"epsilon": 4.0, "actions": NAMES}
        open_service(settings_for(str(tmp_path / "other" / "agent.db"), **given))


def test_names_beside_features(tmp_path: Path) -> None:
    """Declared actions come with features too; only these are taken, and each has an own record."""
    place = str(tmp_path / "agent.db")
    rows = [{"id": name, "features": {"price": place}} for place, name in enumerate(NAMES)]
    with asking(place, actions=NAMES, features={"price": [0, 10]}) as client:
        for _ in range(12):
            made = decide(client, actions=rows)
            better = made["action_id"] == "ben"
            client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": float(better)})
        model = client.get("/v1/model").json()
        assert (model["dimension"], model["columns"], model["names"]) == (2, ["price", "intercept"], 3)
        ben = model["records"][1]
        assert (ben["name"], ben["expected"]) == ("ben", None)
        assert ben["effect"] > max(each["effect"] or 0.0 for each in (model["records"][::2]))
        assert sum(each["rewards"] for each in model["records"]) == 12.0
        assert all(0.0 <= each["weight"] < 1.0 for each in model["records"])
        assert [each["name"] for each in client.get("/v1/model?name=B").json()["records"]] == ["ben"]
        assert len(client.get("/v1/model?limit=2").json()["records"]) == 2
        other = [{"id": "dora", "features": {"price": 1}}]
        body = {"decisions": [{"actions": rows}, {"actions": other}]}
        assert "'dora'" in refused(client.post("/v1/decisions/batch", json=body), 422, "invalid")
        assert "'dora'" in refused(client.post("/v1/decisions", json={"actions": other}), 422, "invalid")
        assert client.put("/v1/actions/dora").status_code == 204
        assert decide(client, actions=other)["action_id"] == "dora"
        assert client.delete("/v1/actions/ann").status_code == 204
        refused(client.post("/v1/decisions", json={"actions": rows}), 422, "invalid")
        for path in ("/", "/model", "/exposure", "/report", "/decisions", "/v1/exposure", "/v1/export"):
            client.get(path).raise_for_status()
        table = client.get("/v1/exposure?name=ben").json()
        assert ([row["name"] for row in table["actions"]], table["matching"]) == (["ben"], 1)


def test_who_may(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.db"), actions=NAMES) as client:
        service = client.app._app.state.service
        keys = {role: ApiKeys(service.log).add("x", role) for role in ("reader", "writer", "admin")}
        service.auth.any_key = True
        for role, text in keys.items():
            headers = {"authorization": f"Bearer {text}"}
            assert client.get("/v1/actions", headers=headers).status_code == 200
            for answer in (
                client.put("/v1/actions/dora", headers=headers),
                client.delete("/v1/actions/dora", headers=headers),
            ):
                if role == "admin":
                    assert answer.status_code == 204
                else:
                    refused(answer, 403, "forbidden")
        refused(client.put("/v1/actions/dora"), 401, "unauthenticated")
        cross = {"sec-fetch-site": "cross-site", "authorization": f"Bearer {keys['admin']}"}
        refused(client.put("/v1/actions/dora", headers=cross), 403, "cross-site")


def test_the_setting(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    file.write_text('actions = ["ann", "b, en"]\n')
    assert load({}, environment={}, config=file).actions == ("ann", "b, en")
    assert load({}, environment={"FEDFAIRX_ACTIONS": "ann, ben,"}, config=file).actions == ("ann", "ben")
    assert load({"actions": "Ω,=1+1"}, environment={}).actions == ("Ω", "=1+1")
    for bad in ("a,a", ["a", ""], ["a" * 201], [1], 3):
        with pytest.raises(InvalidInput, match=r"^actions must") as caught:
            load({"actions": bad}, environment={})
        assert "actions" in str(caught.value)
    for name, value in (("shared", "a"), ("intercept", "true")):
        with pytest.raises(InvalidInput, match=f"^{name} must be left out where actions have names alone"):
            load({"actions": "a,b", name: value}, environment={})
    for name, value in (("dimension", "3"), ("features", "a=0:1")):
        assert load({"actions": "a,b", name: value}, environment={}).actions == ("a", "b")
    with pytest.raises(InvalidInput, match="the members of a federation agree on features"):
        load({"actions": "a,b", "federation": str(tmp_path)}, environment={"FEDFAIRX_CONFIG": str(file)})
    with pytest.raises(InvalidInput, match="at most 2"):
        load({"actions": "a,b,c", "max_actions": "2"}, environment={})


@pytest.mark.process
def test_both_clients(tmp_path: Path) -> None:
    running = Running(str(tmp_path / "agent.db"), "--actions", "ann,ben,cid")
    try:
        with Client(running.url) as client:
            made = client.decide()
            assert made.names == tuple(NAMES)
            assert made.name == NAMES[made.action]
            client.observe(made, reward=1.0)
            assert client.decide(["ben"]).name == "ben"
            assert client.decide(actions=["ben", {"id": "cid", "group": "g"}]).names == ("ben", "cid")
            client.add_actions(*WILD)
            assert client.actions() == (*NAMES, *WILD)
            client.retire_actions("ann", *WILD)
            assert client.actions() == ("ben", "cid")
            assert [each.names for each in client.decide_many([{}, {"actions": ["cid"]}])] == [
                ("ben", "cid"),
                ("cid",),
            ]
            with pytest.raises(ServiceError, match="no action of that name"):
                client.retire_actions("zoe")
        running.kill()
        running.start()
        asyncio.run(_at_once(running.url))
    finally:
        running.stop()


async def _at_once(url: str) -> None:
    async with AsyncClient(url) as client:
        assert await client.actions() == ("ben", "cid")
        await client.add_actions("dora")
        assert (await client.decide()).names == ("ben", "cid", "dora")
        await client.retire_actions("dora")
        assert (await client.decide(["cid"])).name == "cid"
