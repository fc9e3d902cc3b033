"""Several services with one PostgreSQL database: what one does, the others know, keys and agents soon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from fedfairx.errors import InvalidInput, StorageUnavailable
from fedfairx.service import agents as agents_module
from fedfairx.service import auth
from fedfairx.service import service as service_module
from fedfairx.service.app import make_app
from fedfairx.service.factory import open_service
from fedfairx.service.settings import load
from fedfairx.storage import postgres as postgres_module
from fedfairx.storage.api_keys import open_keys
from in_process_client import InProcessClient
from service_helpers import CONTEXTS, until

BODY = {"contexts": CONTEXTS}
SHOP: dict[str, Any] = {"dimension": 3}
NEWS: dict[str, Any] = {"actions": ["ann", "ben"]}


@pytest.fixture
def address(postgres: Any) -> Iterator[str]:
    lent = postgres.lend()
    yield lent
    postgres.take_back(lent)


@contextmanager
def replicas(address: str, count: int = 2, **given: Any) -> Iterator[list[InProcessClient]]:
    """Clients of services in this process: each has a log of its own, since their addresses differ."""
    with ExitStack() as stack:
        clients = []
        for number in range(count):
            place = f"{address}&application_name=replica{number}"
            service = open_service(load({"database": place, "replica": True, **given}, environment={}))
            client = InProcessClient(
                make_app(service), base_url="http://127.0.0.1", raise_server_exceptions=False
            )
            clients.append(stack.enter_context(client))
            client.app_service = service  # type: ignore[attr-defined]
        yield clients


def asked(answer: Any, status: int) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


def catch_up(client: Any) -> None:
    client.portal.call(client.app_service.catch_up)


def agents_of(client: Any) -> dict[str, str]:
    return {each["name"]: each["status"] for each in asked(client.get("/v1/agents"), 200)["agents"]}


# --- decisions and rewards --------------------------------------------------------------------------------


def test_decisions_and_rewards_go_to_any_of_them(address: str) -> None:
    with replicas(address, 3, dimension=3) as clients:
        made = [asked(clients[at % 3].post("/v1/decisions", json=BODY), 201) for at in range(9)]
        assert len({each["decision_id"] for each in made}) == 9
        for at, each in enumerate(made):
            where = f"/v1/decisions/{each['decision_id']}/reward"
            asked(clients[(at + 1) % 3].put(where, json={"reward": 1.0}), 204)
            asked(clients[(at + 2) % 3].put(where, json={"reward": 1.0}), 204)  # again: it counts as taken
            asked(clients[at % 3].put(where, json={"reward": 0.0}), 409)
        for client in clients:
            catch_up(client)
            assert asked(client.get("/v1/model"), 200)["observed"] == 9
        models = [client.get("/v1/model").json() for client in clients]
        assert models[0] == models[1] == models[2]


def test_a_decision_can_be_read_at_once_from_another(address: str) -> None:
    """Also the first after another process has drawn a new prefix of ids."""
    later = f"{address}&connect_timeout=9"
    with replicas(address, 1, dimension=3) as (one,), replicas(later, 1) as (two,):
        made = asked(two.post("/v1/decisions", json=BODY), 201)
        read = asked(one.get(f"/v1/decisions/{made['decision_id']}"), 200)
        assert read["decision_id"] == made["decision_id"]
        listed = asked(one.get("/v1/decisions"), 200)["decisions"]
        assert [each["decision_id"] for each in listed] == [made["decision_id"]]


def test_a_key_gives_the_same_answer_everywhere(address: str) -> None:
    with replicas(address, dimension=3) as (one, two):
        headers = {"idempotency-key": "k1"}
        made = asked(one.post("/v1/decisions", json=BODY, headers=headers), 201)
        assert asked(two.post("/v1/decisions", json=BODY, headers=headers), 201) == made
        other = {"contexts": CONTEXTS[:2]}
        answer = two.post("/v1/decisions", json=other, headers=headers)
        assert answer.json()["type"].endswith("key-reused")
        batch = {"decisions": [BODY, BODY]}
        headers = {"idempotency-key": "k2"}
        made = asked(two.post("/v1/decisions/batch", json=batch, headers=headers), 201)
        assert asked(one.post("/v1/decisions/batch", json=batch, headers=headers), 201) == made
        catch_up(one)
        assert one.app_service.default.agent.pending == 3  # type: ignore[attr-defined]


def test_a_reward_is_replaced_and_a_person_deleted_everywhere(address: str) -> None:
    with replicas(address, dimension=3) as (one, two):
        made = [asked(one.post("/v1/decisions", json=BODY), 201)["decision_id"] for _ in range(4)]
        for each in made:
            body = {"reward": 1.0, "person": "p" if each == made[0] else "q"}
            asked(two.put(f"/v1/decisions/{each}/reward", json=body), 204)
        counted = one.app_service.default.counters  # type: ignore[attr-defined]
        assert asked(one.get("/v1/exposure"), 200)["decisions"] == 4
        asked(two.put(f"/v1/decisions/{made[1]}/reward", json={"reward": 0.0, "replace": True}), 204)
        asked(two.delete("/v1/persons/p"), 200)
        catch_up(one)
        catch_up(two)
        assert one.get("/v1/model").json() == two.get("/v1/model").json()
        gone = asked(one.get(f"/v1/decisions/{made[0]}"), 410)
        assert gone["type"].endswith("gone")
        agents = [client.app_service.default.agent for client in (one, two)]  # type: ignore[attr-defined]
        assert agents[0].state() == agents[1].state()
        assert one.app_service.default.counters is not counted  # type: ignore[attr-defined]
        assert asked(one.get("/v1/exposure"), 200)["decisions"] == 3


def test_named_actions_are_those_of_all(address: str) -> None:
    with replicas(address, actions=["ann", "ben"]) as (one, two):
        asked(one.put("/v1/actions/cid"), 204)
        made = asked(two.post("/v1/decisions", json={"actions": ["cid", "ben"]}), 201)
        assert made["action_id"] in ("cid", "ben")
        asked(two.delete("/v1/actions/ann"), 204)
        answer = one.post("/v1/decisions", json={"actions": ["ann", "ben"]})
        assert answer.status_code == 422, answer.text


def test_a_schema_that_one_extends_is_that_of_all(address: str) -> None:
    """As when processes are started again, one after the other, with one more feature."""
    features: Any = {"price": [0, 10]}
    more = features | {"rating": [1, 5]}
    short: Any = {"actions": [{"id": "a", "features": {"price": 1}}, {"id": "b", "features": {"price": 2}}]}
    long: Any = {
        "actions": [
            {"id": "a", "features": {"price": 1, "rating": 2}},
            {"id": "b", "features": {"price": 2, "rating": 3}},
        ]
    }
    with replicas(address, 1, features="price=0:10") as (one,):
        made = asked(one.post("/v1/decisions", json=short), 201)
        with replicas(f"{address}&connect_timeout=9", 1, features="price=0:10,rating=1:5") as (two,):
            asked(one.post("/v1/decisions", json=long), 201)  # not parsed as it was before
            asked(two.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": 1.0}), 204)
            asked(one.post("/v1/decisions", json=long), 201)
            assert asked(one.get("/v1/model"), 200)["features"] == [*more]


# --- agents -----------------------------------------------------------------------------------------------


def test_agents_are_made_and_archived_for_all(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "TICK", 0.05)
    with replicas(address) as (one, two):
        asked(one.put("/v1/agents/shop", json=SHOP), 200)
        until(lambda: agents_of(two) == {"shop": "active"})
        made = asked(two.post("/v1/agents/shop/decisions", json=BODY), 201)
        until(lambda: two.post("/v1/decisions", json=BODY).status_code == 201)  # it is the default of both
        asked(two.put("/v1/agents/news", json=NEWS), 200)
        until(lambda: agents_of(one) == {"shop": "active", "news": "active"})
        asked(one.delete("/v1/agents/shop"), 204)
        until(lambda: agents_of(two)["shop"] == "archived")
        asked(two.post("/v1/agents/shop/decisions", json=BODY), 409)
        where = f"/v1/agents/shop/decisions/{made['decision_id']}/reward"
        asked(two.put(where, json={"reward": 1.0}), 204)
        asked(two.put("/v1/agents/shop", json=SHOP), 200)  # offered again
        until(lambda: agents_of(one)["shop"] == "active")
        asked(one.post("/v1/agents/shop/decisions", json=BODY), 201)


def test_how_an_agent_is_run_changes_for_all(address: str) -> None:
    with replicas(address) as (one, two):
        asked(one.put("/v1/agents/shop", json=SHOP), 200)
        asked(two.put("/v1/agents/shop", json=SHOP), 200)  # it looks first: nothing changes
        asked(two.put("/v1/agents/shop", json=SHOP | {"window": 60.0}), 200)
        catch_up(one)
        shop = one.app_service.agents.open["shop"]  # type: ignore[attr-defined]
        assert shop.agent.window == shop.settings.window == 60.0
        assert asked(one.get("/v1/agents/shop"), 200)["settings"]["window"] == 60.0


def test_other_settings_than_another_process_gave_are_refused(address: str) -> None:
    with replicas(address) as (one, two):
        asked(one.put("/v1/agents/shop", json=SHOP), 200)
        answer = asked(two.put("/v1/agents/shop", json={"dimension": 4}), 409)
        assert "dimension must be what the agent has, 3, got 4" in answer["detail"]
        for client in (one, two):
            catch_up(client)
            assert asked(client.get("/v1/agents/shop"), 200)["settings"]["dimension"] == 3


def test_of_two_who_make_it_at_once_one_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process makes the agent after this one has looked."""
    with replicas(address) as (one, two):
        agents = two.app_service.agents  # type: ignore[attr-defined]
        real = agents._look

        async def look() -> None:
            await real()
            monkeypatch.setattr(agents, "_look", real)
            assert one.put("/v1/agents/shop", json=SHOP).status_code == 200

        monkeypatch.setattr(agents, "_look", look)
        answer = asked(two.put("/v1/agents/shop", json={"dimension": 4}), 422)
        assert "another process has just changed it" in answer["detail"]
        assert (
            "dimension must be what the agent has" in two.put("/v1/agents/shop", json={"dimension": 4}).text
        )
        asked(two.post("/v1/agents/shop/decisions", json=BODY), 201)


def test_those_that_start_at_once_make_one_agent(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has seen an empty database before the other has made the agent."""
    monkeypatch.setattr(agents_module, "read_served", lambda _: {})
    with replicas(address, dimension=3) as (one, two):
        monkeypatch.undo()
        made = asked(one.post("/v1/decisions", json=BODY), 201)
        asked(two.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": 1.0}), 204)
        catch_up(one)
        assert agents_of(one) == {"agent": "active"}


# --- keys and sessions ------------------------------------------------------------------------------------


def test_keys_and_sessions_are_those_of_all(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "REMEMBERED", 0.05)
    monkeypatch.setattr(postgres_module, "_WAITS", ())
    with replicas(address, dimension=3) as (one, two):
        with open_keys(address) as keys:
            key = keys.add("me", "reader")
        headers = {"authorization": f"Bearer {key}"}
        for client in (one, two):
            until(lambda: client.get("/v1/model").status_code == 401)  # noqa: B023
            assert client.get("/v1/model", headers=headers).status_code == 200
        signed = one.post("/sign-in", data={"key": key}, follow_redirects=False)
        assert signed.status_code == 303
        cookie = {"cookie": signed.headers["set-cookie"].split(";")[0]}

        def seen(client: Any) -> int:
            client.cookies.clear()
            return int(client.get("/", headers=cookie, follow_redirects=False).status_code)

        assert seen(one) == seen(two) == 200  # at once
        assert two.post("/sign-out", headers=cookie, follow_redirects=False).status_code == 303
        assert seen(two) == 401
        until(lambda: seen(one) == 401)
        again = two.post("/sign-in", data={"key": key}, follow_redirects=False)
        cookie["cookie"] = again.headers["set-cookie"].split(";")[0]
        assert seen(one) == 200
        with open_keys(address) as keys:
            keys.revoke(key.partition(".")[0])
        for client in (one, two):
            until(lambda: seen(client) == 401)  # noqa: B023
            until(lambda: client.get("/v1/model", headers=headers).status_code == 401)  # noqa: B023


# --- who may be one ---------------------------------------------------------------------------------------


def test_a_replica_and_a_service_alone_refuse_each_other(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "_WAITS", ())
    alone = load({"database": f"{address}&connect_timeout=9", "dimension": 3}, environment={})
    with replicas(address, 1, dimension=3), pytest.raises(StorageUnavailable, match="serve --replica"):
        open_service(alone)
    service = open_service(alone)
    with pytest.raises(StorageUnavailable, match="does not share it"), replicas(address, 1):
        pass
    service.agents.close()
    service.log.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"data": "here", "dimension": 3}, "database must be given for a replica"),
        (
            {"database": "postgresql:///x", "dimension": 3, "epsilon": 1.0},
            "epsilon must be left out for a replica",
        ),
        (
            {"database": "postgresql:///x", "federations": "here"},
            "federations must be left out for a replica",
        ),
    ],
)
def test_what_is_for_one_process_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        load({"replica": True, **given}, environment={})


def test_a_private_agent_is_refused_when_a_request_makes_it(address: str) -> None:
    with replicas(address, 1) as (one,):
        body = SHOP | {"epsilon": 1.0, "reward_range": [0, 1]}
        answer = asked(one.put("/v1/agents/shop", json=body), 422)
        assert "epsilon must be left out for a replica" in answer["detail"]
        assert agents_of(one) == {}
