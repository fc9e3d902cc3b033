"""Several agents in one service: made by requests, apart from each other, opened and closed as needed."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fedfairx.agent.agent import Agent
from fedfairx.agent.persistence import AgentStore
from fedfairx.cli.main import main
from fedfairx.errors import InvalidInput, ScaleWarning, StorageUnavailable
from fedfairx.service import agent_factory, schemas, write_queue
from fedfairx.service.agents import Agents
from fedfairx.service.app import make_app
from fedfairx.service.factory import open_service
from fedfairx.service.pages import PAGES
from fedfairx.service.routes import OPERATIONS
from fedfairx.service.served_agent import ServedAgent
from fedfairx.service.settings import load, place_of
from fedfairx.storage.agents import store_served
from fedfairx.storage.api_keys import open_keys
from fedfairx.storage.open_log import open_log
from in_process_client import InProcessClient
from member_service import founded
from service_helpers import CONTEXTS, Running, asking, settings_for, until

BODY = {"contexts": CONTEXTS}
SHOP: dict[str, Any] = {"dimension": 3, "window": 60.0, "mode": "live"}
HIDDEN: dict[str, Any] = {**SHOP, "merit": "doubling:0.123"}
NEWS: dict[str, Any] = {"actions": ["ann", "ben"], "reward_range": [0, 5], "merit": "doubling:0.5"}
RATED: dict[str, Any] = {"features": {"price": [0, 10], "rating": [1, 5]}, "intercept": True, "slots": 2}


def without_id(answer: Any) -> tuple[int, str]:
    """The status and the text of an answer, without the request's id."""
    return answer.status_code, re.sub(r'"request_id":"[^"]*"', "", answer.text)


def where(place: str) -> dict[str, str]:
    return {"database": place} if place.startswith("postgresql:") else {"data": str(Path(place).parent)}


@contextmanager
def serving(place: str, **given: Any) -> Iterator[InProcessClient]:
    """A client of a service in this process that is started without settings of an agent."""
    service = open_service(load({**where(place), **given}, environment={}))
    with InProcessClient(
        make_app(service), base_url="http://127.0.0.1", raise_server_exceptions=False
    ) as client:
        client.app_service = service  # type: ignore[attr-defined]
        yield client


@contextmanager
def two(place: str, **given: Any) -> Iterator[InProcessClient]:
    """A service with the agents shop and news."""
    with serving(place, **given) as client:
        make(client, "shop", SHOP)
        make(client, "news", NEWS)
        yield client


def make(client: InProcessClient, name: str, settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = client.put(f"/v1/agents/{name}", json=settings, **more)
    assert answer.status_code == 200, answer.text
    seen: dict[str, Any] = answer.json()
    return seen


def decided(
    client: InProcessClient, agent: str, body: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    answer = client.post(f"/v1/agents/{agent}/decisions", json=BODY if body is None else body, **more)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def refused(answer: Any, status: int, kind: str) -> str:
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:fedfairx:problem:{kind}"), (
        answer.text
    )
    return str(answer.json()["detail"])


# --- making ------------------------------------------------------------------------------------------------


def test_it_starts_without_an_agent_and_requests_make_some(place: str) -> None:
    with serving(place) as client:
        assert client.get("/v1/agents").json() == {"agents": []}
        assert (
            refused(client.post("/v1/decisions", json=BODY), 404, "unknown-agent") == "There is no agent yet."
        )
        assert client.get("/").status_code == 404
        assert "makes one" in client.get("/").text
        for path in ("/healthz", "/readyz", "/metrics", "/v1/openapi.json"):
            assert client.get(path).status_code == 200
        first = {"name": "shop", "status": "active", "default": True, "settings": SHOP}
        assert make(client, "shop", SHOP) == first
        assert make(client, "shop", SHOP) == first
        assert make(client, "news", NEWS)["default"] is False
        make(client, "rated", RATED)
        assert client.get("/v1/agents/shop").json() == first
        names = [each["name"] for each in client.get("/v1/agents").json()["agents"]]
        assert names == ["shop", "news", "rated"]
        made = client.post("/v1/decisions", json=BODY).json()  # the first agent is the default
        path = f"/v1/agents/shop/decisions/{made['decision_id']}"
        assert client.get(path).json()["status"] == "pending"
        assert decided(client, "news", {})["action_ids"] == ["ann", "ben"]
        action = {"features": {"price": 3, "rating": 4}}
        body = {"actions": [{"id": name, **action} for name in "abc"]}
        assert len(decided(client, "rated", body)["shown"]) == 2
        assert (
            client.get("/v1/agents/news/model").json()["merit"]
            == "Exponential(steepness=1.38629, 0.5 better doubles the share)"
        )
        assert refused(client.get("/v1/agents/other"), 404, "unknown-agent")
        assert refused(client.post("/v1/agents/other/decisions", json=BODY), 404, "unknown-agent")


def test_other_settings_are_a_conflict_and_wrong_ones_make_nothing(place: str) -> None:
    with serving(place) as client:
        make(client, "shop", SHOP)
        for changed, text in (
            ({**SHOP, "slots": 2}, "slots must be what the agent has, (1.0,), got (1.0, 1.0)."),
            ({**SHOP, "window": 61, "rule": "greedy"}, "rule must be what the agent has, 'expected-merit'"),
            (NEWS, "actions must be what the agent has"),
        ):
            assert text in refused(client.put("/v1/agents/shop", json=changed), 409, "agent-exists")
        for wrong, text in (
            ({}, "dimension, features or actions must be given"),
            (
                {"actions": ["a"], "intercept": True},
                "intercept must be left out where actions have names alone",
            ),
            ({"dimension": 3, "default_reward": 0.5}, "default_reward must come with a window"),
            ({**SHOP, "default_reward": 2, "reward_range": [0, 1]}, "default_reward must be from 0 to 1"),
            ({"dimension": 3, "half_life": "30d", "epsilon": 1.0}, "half_life must be left out where sums"),
            ({"dimension": 3, "merit": "great"}, "merit must be one of"),
            ({"dimension": 3, "delta": 1e-5}, "epsilon must be given with delta"),
            ({"dimension": 3, "reward_range": [1, 0]}, "reward_range"),
            ({"features": {"": [0, 1]}}, "features must have names"),
            ({"dimension": 0}, "dimension"),
            ({"dimension": 3, "max_body": 10_000}, "max_body must be left out: it is an unknown field"),
        ):
            assert text in refused(client.put("/v1/agents/other", json=wrong), 422, "invalid"), wrong
        assert [each["name"] for each in client.get("/v1/agents").json()["agents"]] == ["shop"]
        assert make(client, "other", NEWS)["settings"] == NEWS  # nothing of them is left
        assert decided(client, "shop")["model_version"] == 0
    with serving(place) as client:
        assert [each["name"] for each in client.get("/v1/agents").json()["agents"]] == ["shop", "other"]


def test_how_an_agent_is_run_can_be_changed(place: str) -> None:
    """From shadow mode to live, and the window; what is refused or can't be stored changes nothing."""
    shadow = {"dimension": 3, "mode": "shadow", "window": 60.0, "reward_range": [0, 1]}
    live = {"dimension": 3, "control_share": 0.25, "reward_range": [0, 1], "tolerance": 0.5}
    with serving(place) as client:
        make(client, "first", {"dimension": 3})
        make(client, "shop", shadow)
        agents, body = client.app_service.agents, {**BODY, "baseline": 1}  # type: ignore[attr-defined]
        assert decided(client, "shop", body)["mode"] == "shadow"
        wrong = client.put("/v1/agents/shop", json={**shadow, "window": 5.0, "default_reward": 7.0})
        assert "default_reward must be from 0 to 1" in refused(wrong, 422, "invalid")
        served = agents.open["shop"]
        with pytest.MonkeyPatch.context() as patch:

            def fail(*_: Any, **__: Any) -> None:
                raise StorageUnavailable("full")

            patch.setattr("fedfairx.service.agents.store_served", fail)
            refused(client.put("/v1/agents/shop", json=live), 503, "unavailable")
        assert (served.agent.window, served.agent.default_reward, served.settings.mode) == (
            60,
            None,
            "shadow",
        )
        assert client.get("/v1/agents/shop").json()["settings"] == shadow
        agents._write_queue.failed = -1e9
        client.portal.call(agents._close, served)
        assert client.delete("/v1/agents/shop").status_code == 204
        seen = {"name": "shop", "status": "active", "default": False, "settings": live}
        assert make(client, "shop", live) == seen  # also one that was archived and closed
        modes = {decided(client, "shop", body)["mode"] for _ in range(60)}
        assert modes == {"live", "control"}  # but for one in 10^7
        assert agents.open["shop"].agent.window is None
        assert agents.open["shop"].exposures._settings.tolerance == 0.5
        assert client.get("/v1/agents/shop/model").json()["control_share"] == 0.25
    with serving(place) as client:
        assert client.get("/v1/agents/shop").json()["settings"] == live
        assert client.get("/v1/agents/shop/model").json()["mode"] == "live"


@pytest.mark.parametrize(
    "name", ["-shop", "a b", ".", "..", "%00", "a%0Ab", "%C3%A9", "x" * 65, '"', "a%2Fb"]
)
def test_bad_names(name: str, tmp_path: Path) -> None:
    with serving(str(tmp_path / "agent.db")) as client:
        answer = client.put(f"/v1/agents/{name}", json=SHOP)
        assert answer.status_code in (404, 405, 422), answer.text
        assert client.get("/v1/agents").json() == {"agents": []}


def test_every_operation_is_there_for_each_agent(tmp_path: Path) -> None:
    """A short form is the default agent's, and the long one names the agent; both are in the document."""
    with two(str(tmp_path / "agent.db")) as client:
        paths = client.get("/v1/openapi.json").json()["paths"]
        made = decided(client, "shop")["decision_id"]
        for operation in OPERATIONS:
            if operation.whole:
                continue
            short, long = operation.path, operation.of_agent.path
            method = operation.method.lower()
            assert paths[short][method]["summary"] == paths[long][method]["summary"]
            assert paths[long][method]["parameters"][0]["name"] == "agent"
            if operation.method == "GET":
                short = short.replace("{decision_id}", made)
                for agent in ("shop", "news"):
                    there = client.get(long.replace("{agent}", agent).replace("{decision_id}", made))
                    if agent == "shop":
                        mine = client.get(short)
                        assert without_id(mine) == without_id(there), short
                    elif "{decision_id}" in operation.path:
                        assert there.status_code == 404
        assert client.put("/v1/agents/news/actions/cid").status_code == 204
        assert client.delete("/v1/agents/news/actions/ann").status_code == 204
        assert client.get("/v1/agents/news/actions").json()["actions"][2] == {"id": "cid", "status": "active"}
        assert client.request("PATCH", "/v1/agents/news/decisions").status_code == 405
        for path in ("/v1/agents/news/openapi.json", "/v1/agents/news/agents", "/v1/agents//decisions"):
            assert client.get(path).status_code == 404


def test_schema_and_settings_name_the_same() -> None:
    from fedfairx.service.settings import OF_AGENT, table

    assert set(schemas.AgentSettings.__struct_fields__) == OF_AGENT
    assert {each.name for each in table()} > OF_AGENT


# --- apart from each other ---------------------------------------------------------------------------------


def test_ids_keys_and_models_are_apart(place: str) -> None:
    with serving(place) as client:
        make(client, "one", {"dimension": 3})
        make(client, "two", {"dimension": 3})
        key = {"idempotency-key": "order-1"}
        made = {name: decided(client, name, headers=key) for name in ("one", "two")}
        assert made["one"]["decision_id"] != made["two"]["decision_id"]
        assert decided(client, "two", headers=key) == made["two"]
        theirs = made["one"]["decision_id"]
        path = f"/v1/agents/two/decisions/{theirs}"
        refused(client.get(path), 404, "unknown-decision")
        refused(client.put(f"{path}/reward", json={"reward": 1.0}), 404, "unknown-decision")
        refused(client.delete(path), 404, "unknown-decision")
        batch = {"rewards": [{"decision_id": each["decision_id"], "reward": 1.0} for each in made.values()]}
        refused(client.post("/v1/agents/two/rewards", json=batch), 404, "unknown-decision")
        assert client.get("/v1/agents/two/model").json()["observed"] == 0
        path = f"/v1/agents/one/decisions/{theirs}/reward"
        assert client.put(path, json={"reward": 1.0}).status_code == 204
        models = [client.get(f"/v1/agents/{name}/model").json() for name in ("one", "two")]
        assert [model["observed"] for model in models] == [1, 0]
        assert models[0]["estimate"] != models[1]["estimate"] == [0.0] * 4
        exported = client.get("/v1/agents/two/export").text
        assert theirs not in exported
        assert made["two"]["decision_id"] in exported
        text = client.get("/metrics").text
        assert 'fedfairx_rewards_total{agent="one"} 1\n' in text
        assert 'fedfairx_rewards_total{agent="two"} 0\n' in text
        assert 'fedfairx_decisions_total{agent="two",mode="live"} 1\n' in text
        assert text.count("# TYPE fedfairx_pending gauge") == 1


def test_no_metric_names_an_action(tmp_path: Path) -> None:
    with two(str(tmp_path / "agent.db")) as client:
        decided(client, "news", {})
        assert not re.search("ann|ben", client.get("/metrics").text)


def test_steps_of_several_agents_are_one_commit_and_one_that_fails_fails_alone(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_queue, "TURN", 60.0)  # a busy machine may take longer than a turn
    with two(place) as client:
        service = client.app_service
        one, other = service.agents.open["shop"], service.agents.open["news"]
        asked = json.dumps({"contexts": CONTEXTS}).encode(), b"{}"

        async def work() -> list[Any]:
            pairs = [(one, asked[0]), (other, asked[1])] * 2
            return await asyncio.gather(
                *(served.decide(body, None) for served, body in pairs), return_exceptions=True
            )

        before = service.metrics.groups
        made = client.portal.call(work)
        assert [len(each) for each in made] == [1] * 4
        assert service.metrics.groups == before + 1

        def wrong(*_: Any, **__: Any) -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            patch.setattr(one.agent, "decide", wrong)
            patch.setattr(one.agent, "decide_many", wrong)  # the two are taken together
            first, second, third, fourth = client.portal.call(work)
        assert isinstance(first, ZeroDivisionError)
        assert isinstance(third, ZeroDivisionError)
        kept = {each.id for each in other.journal.decisions()}
        assert {second[0].decision_id, fourth[0].decision_id} <= kept
        assert len(kept) == 4
        assert len(list(one.journal.decisions())) == 2
        for served in (one, other):
            served.agent.verify()
        decided(client, "shop")


# --- opened and closed -------------------------------------------------------------------------------------


def test_everything_is_there_after_a_restart(place: str) -> None:
    with two(place) as client:
        made = decided(client, "news", {})
        path = f"/v1/agents/news/decisions/{made['decision_id']}/reward"
        assert client.put(path, json={"reward": 4.0}).status_code == 204
        make(client, "rated", RATED)
        client.delete("/v1/agents/rated")
        before = [client.get(f"/v1/agents/{name}").json() for name in ("shop", "news", "rated")]
        models = [client.get(f"/v1/agents/{name}/model").json() for name in ("shop", "news", "rated")]
    with serving(place) as client:
        assert client.get("/v1/agents").json()["agents"] == before
        assert list(client.app_service.agents.open) == ["shop"]  # others when they are used
        assert [client.get(f"/v1/agents/{name}/model").json() for name in ("shop", "news", "rated")] == models
        assert client.app_service.agents.open["shop"].agent.window == 60.0
        assert make(client, "news", NEWS)["settings"] == NEWS
        refused(client.post("/v1/agents/rated/decisions", json={}), 409, "archived")
    with pytest.raises(InvalidInput, match="agent 'shop' was made by a request, with its own settings"):
        open_service(load({**where(place), "name": "shop", "window": 5}, environment={}))
    with pytest.raises(InvalidInput, match="mode must be left out: the agents that there are were made by"):
        open_service(load({**where(place), "window": 5, "mode": "shadow"}, environment={}))
    with serving(place, dimension=2, name="own") as client:  # an agent of flags beside those of requests
        assert client.get("/v1/model").json()["name"] == "own"
        assert decided(client, "shop")
        text = refused(client.put("/v1/agents/own", json={"dimension": 2}), 409, "agent-exists")
        assert text == "It was made without a request: dimension must be left out, like all settings."
        assert make(client, "own", {})["settings"] is None
        assert "own settings name it" in refused(client.delete("/v1/agents/own"), 409, "agent-exists")
    with serving(place, dimension=2) as client:
        assert client.get("/v1/model").json()["name"] == "own"


def test_a_request_that_was_cut_off_is_finished_by_the_next(place: str) -> None:
    """The settings were stored, and the agent was not made yet."""
    log = open_log(place_of(load(where(place), environment={})))
    with log.transaction:
        store_served(log, "shop", SHOP)
        store_served(log, "odd", {"dimension": 3, "half_life": "30d", "epsilon": 1.0})
    log.close()
    with serving(place) as client:
        assert [each["name"] for each in client.get("/v1/agents").json()["agents"]] == ["odd", "shop"]
        assert decided(client, "shop")
        assert make(client, "shop", SHOP)
        refused(client.put("/v1/agents/shop", json={"dimension": 2}), 409, "agent-exists")
        assert "half_life" in refused(client.post("/v1/agents/odd/decisions", json=BODY), 422, "invalid")
        make(client, "odd", {"dimension": 2})  # it never was one, so it may become another


@pytest.mark.process
@pytest.mark.parametrize("moment", ["before:", ""])
def test_killed_while_an_agent_is_made(tmp_path: Path, moment: str) -> None:
    """After its settings were stored, or after it was made: the same request finishes it."""
    running = Running(str(tmp_path / "agent.db"))
    running.stop()
    running.start(die=f"{moment}fedfairx.service.agents:Agents._open")
    with pytest.raises(httpx.TransportError):
        httpx.put(f"{running.url}/v1/agents/shop", json=SHOP, verify=False)
    until(running.gone)
    running.start()
    assert [
        each["name"] for each in httpx.get(f"{running.url}/v1/agents", verify=False).json()["agents"]
    ] == ["shop"]
    for _ in range(2):
        answer = httpx.put(f"{running.url}/v1/agents/shop", json=SHOP, verify=False)
        assert (answer.status_code, answer.json()["settings"]) == (200, SHOP)
        assert httpx.post(f"{running.url}/v1/decisions", json=BODY, verify=False).status_code == 201
    running.stop()


@pytest.mark.long
def test_a_thousand_agents_are_opened_when_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, replayed = str(tmp_path / "agent.db"), []
    real = AgentStore._replay
    monkeypatch.setattr(AgentStore, "_replay", lambda self, step: replayed.append(1) or real(self, step))
    log = open_log(place_of(load(where(place), environment={})))
    with log.transaction:
        for number in range(1_000):
            store_served(log, f"agent-{number}", {"dimension": 2})
    log.close()
    body = {"contexts": [[0.1, 0.2], [0.2, 0.1]]}
    with serving(place, max_open=10) as client:
        agents = client.app_service.agents
        assert len(client.get("/v1/agents").json()["agents"]) == 1_000
        assert not agents.open
        for _ in range(2):
            for number in range(0, 1_000, 50):
                decided(client, f"agent-{number}", body)
                assert len(agents.open) <= 10
        assert f"agent-{950}" in agents.open
        assert "agent-0" in agents.open  # the default stays
        assert "agent-50" not in agents.open
        for number in range(0, 1_000, 50):
            assert client.get(f"/v1/agents/agent-{number}/model").json()["pending"] == 2
        prefixes = agents._log.database.execute("SELECT agent FROM id_prefixes")
        assert len(prefixes) == 20  # one for each agent, however often it was opened
        assert 'fedfairx_decisions_total{agent="agent-50",mode="live"} 2' in client.get("/metrics").text
    assert not replayed


def test_an_idle_agent_is_closed_with_a_snapshot(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with two(place, idle_seconds=100) as client:
        service, agents = client.app_service, client.app_service.agents
        for _ in range(3):
            made = decided(client, "news", {})
        client.portal.call(agents.close_idle)
        assert set(agents.open) == {"shop", "news"}
        served = agents.open["news"]
        served.used -= 101
        served.users = 1  # a request is using it
        client.portal.call(agents.close_idle)
        assert "news" in agents.open
        served.users = 0
        agents.open["shop"].used -= 101  # the default stays open
        client.portal.call(agents.close_idle)
        assert set(agents.open) == {"shop"}
        with pytest.raises(Exception, match="this agent is closed"):
            served.agent.decide()

        def none(*_: Any) -> None:
            raise AssertionError("a step was replayed")

        with monkeypatch.context() as patch:
            patch.setattr(AgentStore, "_replay", none)
            path = f"/v1/agents/news/decisions/{made['decision_id']}/reward"
            assert client.put(path, json={"reward": 1.0}).status_code == 204
        assert set(agents.open) == {"shop", "news"}
        assert client.get("/v1/agents/news/model").json()["pending"] == 2
        assert (
            decided(client, "news", {})["decision_id"].partition("-")[0]
            == made["decision_id"].partition("-")[0]
        )
        service.agents.open["news"].agent.verify()


def test_contexts_of_a_closed_agent_are_dropped_too(tmp_path: Path) -> None:
    with two(str(tmp_path / "agent.sqlite"), keep="30d") as client:
        service = client.app_service  # type: ignore[attr-defined]
        made = {
            "shop": decided(client, "shop")["decision_id"],
            "news": decided(client, "news", {})["decision_id"],
        }
        for name, identity in made.items():
            reward = client.put(f"/v1/agents/{name}/decisions/{identity}/reward", json={"reward": 0.5})
            assert reward.status_code == 204
        client.portal.call(service.agents._close, service.agents.open["news"])
        assert "news" not in service.agents.open
        client.portal.call(service.drop_older, -60.0)  # those from before a minute from now
        for name, identity in made.items():
            assert client.get(f"/v1/agents/{name}/decisions/{identity}").status_code == 410


def test_what_expired_while_it_was_closed_is_expired_when_it_is_opened(tmp_path: Path) -> None:
    with two(str(tmp_path / "agent.db")) as client:
        agents = client.app_service.agents
        make(client, "quick", {"dimension": 3, "window": 5.0, "default_reward": 0.5})
        made = decided(client, "quick")
        agents.open["quick"].used -= 1_000
        client.portal.call(agents.close_idle)
        assert "quick" not in agents.open
        later = time.time_ns() + 6_000_000_000
        agents._log.clock = lambda: later
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", lambda: later / 1e9)
            path = f"/v1/agents/quick/decisions/{made['decision_id']}"
            assert client.get(path).json()["status"] == "expired"
        assert client.get("/v1/agents/quick/model").json()["observed"] == 1


def test_nothing_is_written_for_an_agent_that_is_being_closed(tmp_path: Path) -> None:
    """A step of a closed agent would fail those of all others in its group."""
    with two(str(tmp_path / "agent.db")) as client:
        agents = client.app_service.agents
        make(client, "quick", {"dimension": 3, "window": 5.0})
        quick = agents.open["quick"]

        async def expire_meanwhile() -> None:
            go, close = threading.Event(), quick.close
            quick.close = lambda: (go.wait(), close())
            quick.write = None  # it would raise
            closing = asyncio.create_task(agents._close(quick))
            await asyncio.sleep(0)
            try:
                await quick.expire()
            finally:
                go.set()
                await closing

        client.portal.call(expire_meanwhile)
        assert "quick" not in agents.open


def test_too_many_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with two(str(tmp_path / "agent.db"), max_open=2) as client:
        agents = client.app_service.agents
        news = agents.open["news"]
        with monkeypatch.context() as patch:
            patch.setattr("fedfairx.service.agents.PATIENCE", 0.0)
            news.users = 1
            assert "max_open" in refused(client.put("/v1/agents/more", json=SHOP), 503, "busy")
        looks: list[int] = []

        def last_request_ends(served: ServedAgent) -> bool:
            looks.append(served.users)
            if len(looks) == 8:
                news.users = 0
            return Agents._closable(agents, served)

        monkeypatch.setattr(agents, "_closable", last_request_ends)
        make(client, "more", SHOP)  # it has waited
        assert len(looks) >= 8
        assert set(agents.open) == {"shop", "more"}


# --- archived ----------------------------------------------------------------------------------------------


def test_an_archived_agent_decides_nothing_and_can_be_read(place: str) -> None:
    with two(place) as client:
        key = {"idempotency-key": "order-1"}
        first = decided(client, "news", {}, headers=key)
        made = [first["decision_id"], decided(client, "news", {})["decision_id"]]
        for _ in range(2):
            assert client.delete("/v1/agents/news").status_code == 204
            assert client.get("/v1/agents/news").json()["status"] == "archived"
        refused(client.post("/v1/agents/news/decisions", json={}), 409, "archived")
        assert decided(client, "news", {}, headers=key) == first  # it was made before
        batch = client.post("/v1/agents/news/decisions/batch", json={"decisions": [{}]})
        refused(batch, 409, "archived")
        refused(client.put("/v1/agents/news/actions/cid"), 409, "archived")
        reward = f"/v1/agents/news/decisions/{made[0]}/reward"
        assert client.put(reward, json={"reward": 1.0}).status_code == 204  # a late one
        assert client.get("/v1/agents/news/model").json()["observed"] == 1
        lines = client.get("/v1/agents/news/export").text.splitlines()
        assert [json.loads(line)["decision_id"] for line in lines] == made
        assert "archived" in client.get("/agents/news/").text
        assert decided(client, "shop")
        refused(client.put("/v1/agents/news", json={**NEWS, "rule": "greedy"}), 409, "agent-exists")
        assert make(client, "news", NEWS)["status"] == "active"
        decided(client, "news", {})
        refused(client.delete("/v1/agents/other"), 404, "unknown-agent")
        client.delete("/v1/agents/shop")
        refused(client.post("/v1/decisions", json=BODY), 409, "archived")  # no other becomes the default


# --- keys --------------------------------------------------------------------------------------------------


@pytest.fixture
def keys(place: str) -> dict[str, dict[str, str]]:
    """Those of `new_keys`, for the agents shop and news."""
    return new_keys(place, shop=HIDDEN, news=NEWS)


def new_keys(place: str, **agents: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Headers by role: keys that are limited to news, and an admin's of all agents, "all"."""
    with serving(place) as client:
        for name, settings in agents.items():
            make(client, name, settings)
    with open_keys(place_of(load(where(place), environment={}))) as made:
        found = {role: made.add(role, role, ["news"]) for role in ("reader", "writer", "admin")}
        found["all"] = made.add("all", "admin")
    return {role: {"authorization": f"Bearer {text}"} for role, text in found.items()}


def filled(client: InProcessClient, headers: dict[str, str]) -> str:
    """Decisions of news and of shop, whose name and decisions nobody else may see; return that of shop."""
    decided(client, "news", {}, headers=headers)
    actions = [{"id": f"unseen-{k}", "features": row} for k, row in enumerate(CONTEXTS)]
    return str(decided(client, "shop", {"actions": actions}, headers=headers)["decision_id"])


@pytest.mark.long
def test_a_limited_key_reaches_nothing_of_other_agents(place: str, keys: dict[str, dict[str, str]]) -> None:
    """Every operation and page, in every form, with each role: nothing of the other agent comes back."""
    with serving(place) as client:
        made = filled(client, keys["all"])
        shops = ("", "shop", "SHOP", "shop%00", "%73hop", "../shop", "news/../shop", "news%2F..%2Fshop")
        pages = [each.path for each in PAGES.values()]
        for role in ("reader", "writer", "admin"):
            headers = keys[role]
            for operation in OPERATIONS:
                if operation.role is None:
                    continue
                for agent in shops:
                    path = operation.path if operation.whole or not agent else operation.of_agent.path
                    path = path.replace("{agent}", agent or "shop").replace("{decision_id}", made)
                    ask = {"json": {}} if operation.takes is not None else {}
                    answer = client.request(operation.method, path, headers=headers, **ask)
                    listing = operation.path in ("/v1/agents", "/metrics")
                    assert listing or answer.status_code in (403, 404, 405, 422), (path, answer.text)
                    assert "unseen-" not in answer.text
                    assert "0.123" not in answer.text
                    if listing and "shop" not in path:
                        assert answer.status_code == 200
                        assert "news" in answer.text
                        assert "shop" not in answer.text
            for agent in shops:
                for page in pages:
                    path = f"/agents/{agent}{page}" if agent else page
                    answer = client.get(path, headers=headers)
                    assert "unseen-" not in answer.text
                    assert "shop" not in answer.text.replace(path, "")
            for path in ("/agents?agent=shop&page=decisions", "/agents?agent=shop"):
                assert client.get(path, headers=headers, follow_redirects=False).status_code == 403
            known, unknown = (client.get(f"/v1/agents/{name}", headers=headers) for name in ("shop", "none"))
            assert without_id(known) == without_id(unknown)
            text = client.get("/metrics", headers=headers).text
            assert "fedfairx_requests_total" not in text  # counts of all agents together
            assert 'fedfairx_pending{agent="news"} 1' in text
            assert "\nfedfairx_waiting 0\n" in text  # else an alert says that nobody serves


def test_a_limited_key_works_for_its_agents(place: str, keys: dict[str, dict[str, str]]) -> None:
    with serving(place) as client:
        filled(client, keys["all"])
        assert client.get("/v1/agents/news/model", headers=keys["reader"]).status_code == 200
        refused(client.post("/v1/agents/news/decisions", json={}, headers=keys["reader"]), 403, "forbidden")
        assert decided(client, "news", {}, headers=keys["writer"])
        refused(client.delete("/v1/agents/news", headers=keys["writer"]), 403, "forbidden")
        refused(client.put("/v1/agents/more", json=SHOP, headers=keys["admin"]), 403, "forbidden")
        assert client.delete("/v1/agents/news", headers=keys["admin"]).status_code == 204
        assert make(client, "news", NEWS, headers=keys["admin"])["status"] == "active"
        listed = client.get("/v1/agents", headers=keys["reader"]).json()["agents"]
        assert [each["name"] for each in listed] == ["news"]
        page = client.get("/exposure", headers=keys["reader"])
        assert page.url.path == "/agents/news/exposure"  # the default is not theirs
        assert page.status_code == 200
        assert "<select" not in page.text


def test_a_session_has_the_limits_of_its_key(place: str, keys: dict[str, dict[str, str]]) -> None:
    with serving(place) as client:
        filled(client, keys["all"])
        text = keys["reader"]["authorization"].removeprefix("Bearer ")
        assert client.post("/sign-in", data={"key": text}).status_code == 200
        assert client.get("/agents/news/decisions").status_code == 200
        assert client.get("/agents/shop/decisions").status_code == 403
        assert "shop" not in client.get("/decisions").text


def test_keys_of_agents_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["--data", str(tmp_path)]
    create = ["keys", "create", "--role", "reader", "--agents", "shop, news", *base]
    with serving(str(tmp_path / "agent.db")) as client:
        make(client, "shop", SHOP)
        assert main(create) == 2  # else whoever makes the agent would not know who has a key for it
        rule = "agents must be names of agents that there are, got agents='news'; make the agent first"
        assert rule in capsys.readouterr().err
        make(client, "news", NEWS)
        assert main(create) == 0
    assert main(["keys", "create", "--role", "reader", *base]) == 0
    for empty in ("", "shop,,news"):
        assert main(["keys", "create", "--role", "reader", "--agents", empty, *base]) == 2
    capsys.readouterr()
    assert main(["keys", "list", "--json", *base]) == 0
    assert [each["agents"] for each in json.loads(capsys.readouterr().out)] == ["news, shop", "*"]


# --- agents do not wait for each other ---------------------------------------------------------------------


def test_one_agent_does_not_hold_up_another(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of six rewards of one agent, whose steps take long, five wait for the other's decision."""
    monkeypatch.setattr(write_queue, "TURN", -1.0, raising=False)
    with two(place) as client, ThreadPoolExecutor(7) as pool:
        made = [decided(client, "shop")["decision_id"] for _ in range(6)]
        queue, answers = client.app_service.write_queue, []  # type: ignore[attr-defined]
        with client.app_service.log.lock:  # type: ignore[attr-defined]
            for number, one in enumerate(made):
                path = f"/v1/agents/shop/decisions/{one}/reward"
                answers.append(pool.submit(client.put, path, json={"reward": 0.5}))
                until(lambda number=number: queue.waiting == number and not queue._idle.is_set())
            other = pool.submit(decided, client, "news", {})
            until(lambda: queue.waiting == 6)
        assert [answer.result(30).status_code for answer in answers] == [204] * 6
        last, decision = (
            int(identity.rpartition("-")[2]) for identity in (made[-1], other.result(30)["decision_id"])
        )
        assert decision == last + 2  # one reward is between them


def test_nobody_waits_while_an_agent_is_compiled(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    real = agent_factory.warm

    def slow(agent: Agent) -> None:
        if agent.rule == "optimism":
            begun.set()
            assert go_on.wait(60)
        real(agent)

    with two(place):
        pass
    monkeypatch.setattr(agent_factory, "warm", slow)
    monkeypatch.setattr(agent_factory, "is_warm", lambda agent: agent.rule != "optimism", raising=False)
    with serving(place) as client, ThreadPoolExecutor(1) as pool:
        assert set(client.app_service.agents.open) == {"shop"}  # type: ignore[attr-defined]
        new = pool.submit(make, client, "new", {"dimension": 3, "rule": "optimism"})
        try:
            assert begun.wait(30)
            with ThreadPoolExecutor(1) as other:
                assert other.submit(decided, client, "news", {}).result(30)  # it has to be opened first
                assert other.submit(make, client, "more", SHOP).result(30)["status"] == "active"
        finally:
            go_on.set()
        assert new.result(60)["status"] == "active"
        assert decided(client, "new")


# --- pages -------------------------------------------------------------------------------------------------


def test_pages_choose_the_agent_and_links_keep_it(tmp_path: Path) -> None:
    with two(str(tmp_path / "agent.db")) as client:
        decided(client, "news", {})
        page = client.get("/decisions").text
        assert "<option selected>shop</option><option>news</option>" in page
        answer = client.get("/agents?agent=news&page=decisions", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/agents/news/decisions")
        page = client.get("/agents/news/decisions").text
        assert "<option>shop</option><option selected>news</option>" in page
        links = re.findall(r'href="([^"#]*)"', page)
        assert all(link.startswith(("/agents/news/", "/static/")) for link in links), links
        assert len([link for link in links if link.startswith("/agents/news/")]) >= len(PAGES)
        for path in (each.path for each in PAGES.values()):
            assert client.get(f"/agents/news{path}").status_code == 200
        assert client.get("/agents/other/").status_code == 404
        assert client.get("/agents?agent=other").status_code == 404
        assert client.get("/agents?agent=news&page=https://evil.example").url.path == "/agents/news/"


# --- members of federations --------------------------------------------------------------------------------


def test_an_agent_may_be_a_member_where_the_operator_allows_it(tmp_path: Path) -> None:
    base = founded(tmp_path / "federation")
    allowed = {"federations": [str(base / "org1"), str(base / "org2")]}
    place = str(tmp_path / "data" / "agent.db")
    with serving(place, **allowed) as client:
        make(client, "shop", SHOP)
        text = refused(client.put("/v1/agents/org1", json={"epsilon": 1.0}), 422, "invalid")
        assert "the federation's roster states it" in text
        for name in ("org1", "org2"):
            make(client, name, {})
            decision = decided(client, name)["decision_id"]
            path = f"/v1/agents/{name}/decisions/{decision}/reward"
            assert client.put(path, json={"reward": 0.5}).status_code == 204
        until(lambda: client.get("/v1/agents/org1/sync").json()["peers"]["org2"]["release"] == 1)
        assert client.get("/v1/sync").json()["federation"] is None  # the default agent is in none
        for served in client.app_service.agents.open.values():
            served.used -= 10_000
        client.portal.call(client.app_service.agents.close_idle)
        assert set(client.app_service.agents.open) == {"shop", "org1", "org2"}
    with serving(place, **allowed) as client:
        assert set(client.app_service.agents.open) == {"shop", "org1", "org2"}  # they exchange from the start
        client.delete("/v1/agents/org2")
        assert client.get("/v1/agents/org2/sync").json()["federation"] is None
        make(client, "org2", {})
        assert client.get("/v1/agents/org2/sync").json()["federation"] is not None
    with serving(place) as client:
        refused(client.put("/v1/agents/org3", json={}), 422, "invalid")


def test_settings_of_an_agent_are_not_needed_twice(tmp_path: Path) -> None:
    """A database of one agent, made by flags, is served as before."""
    place = str(tmp_path / "agent.db")
    service = open_service(settings_for(place, dimension=3, name="mine", mode="shadow"))
    asyncio.run(service.close())
    with serving(place) as client:
        assert client.get("/v1/model").json()["name"] == "mine"
        seen = client.get("/v1/agents/mine").json()
        assert seen == {"name": "mine", "status": "active", "default": True, "settings": None}
        assert client.delete("/v1/agents/mine").status_code == 204
    for given in ({}, {"mode": "shadow"}):
        with serving(place, **given) as client:
            assert client.get("/v1/agents/mine").json()["status"] == "archived"
            refused(client.post("/v1/decisions", json=BODY), 409, "archived")
    with serving(place) as client:
        assert make(client, "mine", {})["status"] == "active"
        assert client.post("/v1/decisions", json=BODY).status_code == 201


def test_an_agent_may_have_features_by_name(tmp_path: Path) -> None:
    features = {"price": [0, 10], "new": "bool", "city": ["Rome", "Oslo"]}
    actions = [
        {"id": "a", "features": {"price": 1, "new": True}},
        {"id": "b", "features": {"price": 9, "new": False}},
    ]
    with asking(str(tmp_path / "agent.db"), dimension=2) as client:
        made = client.put("/v1/agents/menu", json={"features": features, "shared": ["city"]})
        assert made.is_success, made.text
        body = {"actions": actions, "context": {"city": "Rome"}}
        assert client.post("/v1/agents/menu/decisions", json=body).status_code == 201
        model = client.get("/v1/agents/menu/model").json()
        assert model["schema"]["products"] == ["price:city", "new:city"]
        odd = client.put("/v1/agents/odd", json={"features": {"price": [10, 0]}})
        assert odd.status_code == 422


def test_warnings_are_logged_by_agent_and_shown_to_admins(
    place: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contexts far too long: each agent's log line has its name, once, and the overview tells it."""
    monkeypatch.setattr("fedfairx.service.service.TICK", 0.01)
    keys = new_keys(place, news={"dimension": 3}, shop={"dimension": 3}, other={"dimension": 3})
    with warnings.catch_warnings(), serving(place) as client:
        warnings.simplefilter("ignore", ScaleWarning)
        for name in ("news", "shop"):
            decided(client, name, {"contexts": [[500.0, 0.0, 0.0], CONTEXTS[0]]}, headers=keys["all"])
            until(lambda name=name: f"agent {name}: contexts are longer than 10" in caplog.text)
            page = client.get(f"/agents/{name}/", headers=keys["all"]).text
            assert "Contexts are longer than 10" in page
        for name, role in (("news", "reader"), ("other", "all")):
            assert "Nothing needs attention" in client.get(f"/agents/{name}/", headers=keys[role]).text
        for served in client.app_service.agents.open.values():  # type: ignore[attr-defined]
            served.log_warnings()
        assert caplog.text.count("contexts are longer") == 2


@pytest.mark.parametrize("made_by", ["request", "settings"])
def test_the_window_of_the_process_is_for_agents_without_one(place: str, made_by: str) -> None:
    """Also after a restart; an agent that was made with a window keeps its own."""
    given = {"dimension": 3} if made_by == "settings" else {}
    with serving(place, **given) as client:
        if made_by == "request":
            make(client, "plain", {"dimension": 3})
            make(client, "own", {"dimension": 3, "window": 60.0})
    for window in (3_600.0, 7_200.0):
        with serving(place, window=window) as client:
            agents = client.app_service.agents
            assert agents.default.agent.window == agents.default.settings.window == window
            if made_by == "request":
                make(client, "later", {"dimension": 3})
                assert decided(client, "later")
                assert decided(client, "own")
                assert agents.open["later"].agent.window == window
                assert agents.open["own"].agent.window == 60.0
    with serving(place) as client:  # it is given at each start
        assert client.app_service.agents.default.agent.window is None
