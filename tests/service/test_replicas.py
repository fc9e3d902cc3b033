"""Several services with one PostgreSQL database: what one does, the others know, keys and agents soon."""

from __future__ import annotations

import asyncio
import math
import os
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedfairx.errors import InvalidInput, StorageUnavailable, TransportUnavailable
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.service import agents as agents_module
from fedfairx.service import auth, federation, served_agent
from fedfairx.service import service as service_module
from fedfairx.service.app import make_app
from fedfairx.service.factory import open_service
from fedfairx.service.metrics import over_processes
from fedfairx.service.settings import load
from fedfairx.storage import leases
from fedfairx.storage import postgres as postgres_module
from fedfairx.storage.agents import read_served, store_served
from fedfairx.storage.api_keys import open_keys
from in_process_client import InProcessClient
from member_service import founded, member_of, rounds, sync
from service_helpers import CONTEXTS, metrics_of, until

BODY = {"contexts": CONTEXTS}
SHOP: dict[str, Any] = {"dimension": 3}
NEWS: dict[str, Any] = {"actions": ["ann", "ben"]}
#: Who waits for the write lock.
WAITING = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


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


def test_requests_join_a_group_that_waits_for_the_write_lock(postgres: Any, address: str) -> None:
    """The one that is refused among them, too, gets its own answer."""
    bodies = [BODY, BODY | {"contexts": CONTEXTS[:2]}, {"actions": ["nobody"]}, BODY]
    with replicas(address, dimension=3) as (one, two), ThreadPoolExecutor(len(bodies)) as pool:
        service = two.app_service  # type: ignore[attr-defined]
        groups = service.metrics.groups
        with one.app_service.log.transaction:  # type: ignore[attr-defined]
            waiting = [pool.submit(two.post, "/v1/decisions", json=bodies[0])]
            until(lambda: postgres.ask(WAITING))
            waiting += [pool.submit(two.post, "/v1/decisions", json=body) for body in bodies[1:]]
            until(lambda: service.write_queue.waiting == 2)  # the wrong one is refused before
        answers = [each.result().status_code for each in waiting]
        assert answers == [201, 201, 422, 201]
        assert service.metrics.groups == groups + 1
        assert service.default.agent.pending == 3


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


def test_a_key_that_two_get_at_once_gives_one_decision(postgres: Any, address: str) -> None:
    """Both wait for the write lock before either has made it."""
    headers = {"idempotency-key": "k"}
    with replicas(address, 3, dimension=3) as (one, two, three), ThreadPoolExecutor(2) as pool:
        with three.app_service.log.transaction:  # type: ignore[attr-defined]
            waiting = [
                pool.submit(each.post, "/v1/decisions", json=BODY, headers=headers) for each in (one, two)
            ]
            until(lambda: len(postgres.ask(WAITING)) == 2)
        made, again = (asked(each.result(), 201) for each in waiting)
        assert made == again
        catch_up(three)
        assert three.app_service.default.agent.pending == 1  # type: ignore[attr-defined]


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


def before(monkeypatch: pytest.MonkeyPatch, client: Any, method: str, act: Any) -> None:
    """Let something happen before a process next calls a method of its agents."""
    agents = client.app_service.agents
    real = getattr(agents, method)

    async def overtaken(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(agents, method, real)
        await asyncio.to_thread(act)
        return await real(*given, **more)

    monkeypatch.setattr(agents, method, overtaken)


@pytest.mark.parametrize("method", ["_make_room", "_open_now"])
@pytest.mark.parametrize("cut_off", [False, True])
def test_of_two_who_make_it_at_once_one_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch, method: str, cut_off: bool
) -> None:
    """Another process makes the agent after this one has looked, or has stored its settings.

    cut_off: whether settings are there already, of a request that was cut off before the agent was made.
    """
    with replicas(address) as (one, two):
        if cut_off:
            with one.app_service.log.transaction as log:  # type: ignore[attr-defined]
                store_served(log, "shop", SHOP | {"window": 9.0})
        before(monkeypatch, two, method, lambda: asked(one.put("/v1/agents/shop", json=SHOP), 200))
        answer = two.put("/v1/agents/shop", json={"dimension": 4})
        assert answer.status_code == (409 if method == "_make_room" else 422)
        assert re.search("dimension must be (what the agent has|the stored one), 3, got ", answer.text)
        later = asked(two.put("/v1/agents/shop", json={"dimension": 4}), 409)
        assert "dimension must be what the agent has, 3, got 4" in later["detail"]
        for client in (one, two):
            catch_up(client)
            asked(client.post("/v1/agents/shop/decisions", json=BODY), 201)
    with replicas(f"{address}&connect_timeout=9", 1) as (three,):  # the settings are those of the agent
        asked(three.post("/v1/agents/shop/decisions", json=BODY), 201)


def test_what_another_stores_while_an_agent_is_made_is_not_kept(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings that are stored are those that the agent has."""
    with replicas(address) as (one, two):
        real = two.app_service.agents._open_now  # type: ignore[attr-defined]

        def overtake() -> None:
            before(monkeypatch, two, "_open_now", lambda: opened.wait(30))
            pool.submit(lambda: answers.append(two.put("/v1/agents/shop", json={"dimension": 4})))
            until(lambda: two.app_service.agents._open_now is not real and stored(two) == 4)  # type: ignore[attr-defined]

        def stored(client: Any) -> int:
            row = read_served(client.app_service.log).get("shop")
            return 0 if row is None or row.settings is None else int(row.settings["dimension"])

        opened, answers = threading.Event(), list[Any]()
        with ThreadPoolExecutor(1) as pool:
            before(monkeypatch, one, "_open_now", overtake)
            asked(one.put("/v1/agents/shop", json=SHOP), 200)
            opened.set()
        assert "dimension must be the stored one, 3, got dimension=4" in asked(answers[0], 422)["detail"]
        assert stored(one) == 3
    with replicas(f"{address}&connect_timeout=9", 1) as (three,):
        asked(three.post("/v1/agents/shop/decisions", json=BODY), 201)


def test_those_that_change_an_agent_at_once_are_both_heard(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later one looks again, as if it had come later."""
    with replicas(address) as (one, two):
        before(monkeypatch, two, "_make_room", lambda: asked(one.put("/v1/agents/shop", json=SHOP), 200))
        asked(two.put("/v1/agents/shop", json=SHOP), 200)
        put = lambda window: one.put("/v1/agents/shop", json=SHOP | {"window": window})  # noqa: E731
        before(monkeypatch, two, "_run_with", lambda: asked(put(60.0), 200))
        asked(two.put("/v1/agents/shop", json=SHOP | {"window": 70.0}), 200)
        before(monkeypatch, two, "_set_archived", lambda: asked(one.delete("/v1/agents/shop"), 204))
        asked(two.delete("/v1/agents/shop"), 204)
        for client in (one, two):
            catch_up(client)
            assert agents_of(client) == {"shop": "archived"}
            assert asked(client.get("/v1/agents/shop"), 200)["settings"]["window"] == 70.0


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


def test_a_look_at_what_others_do_leaves_time_within_a_second() -> None:
    assert max(service_module.TICK, auth.REMEMBERED) <= 0.5


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


# --- metrics ----------------------------------------------------------------------------------------------


def numbers_of(client: Any) -> dict[str, float]:
    """All metrics, by name and labels."""
    text = client.get("/metrics").text
    return {name: float(number) for name, number in re.findall(r"^fedfairx_(\S+) (\S+)$", text, re.MULTILINE)}


def test_metrics_are_summed_or_the_same_everywhere(address: str) -> None:
    """As `over_processes` says, which the reference shows."""
    with replicas(address, dimension=3, control_share=0.3) as (one, two):
        for client, decisions in ((one, 5), (two, 3)):
            for number in range(decisions):
                made = asked(client.post("/v1/decisions", json=BODY | {"baseline": 0}), 201)
                if number:
                    where = f"/v1/decisions/{made['decision_id']}/reward"
                    asked(two.put(where, json={"reward": 0.5}), 204)
        catch_up(one)
        catch_up(two)
        both = numbers_of(one), numbers_of(two)
    for name in both[0].keys() & both[1].keys():
        over = over_processes(re.split("_bucket|_sum|_count|{", name)[0])
        if over == "max" and not name.startswith(("database_bytes", "oldest_pending")):  # they grow
            assert both[0][name] == both[1][name], name
    made = [sum(each[name] for name in each if name.startswith("decisions_total")) for each in both]
    assert made == [5, 3]
    assert [each['rewards_total{agent="agent"}'] for each in both] == [0, 6]
    assert [each['requests_total{operation="decide",status="201"}'] for each in both] == [5, 3]
    for each in both:
        assert each['pending{agent="agent"}'] == 2
        assert each['observed{agent="agent"}'] == 6
        (info,) = (name for name in each if name.startswith("process_info"))
        assert f'process="{os.getpid()}"' in info
        assert 'replica="yes"' in info
        assert each[info] == 1


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
        ({"dimension": 3}, "database must be given for a replica"),
    ],
)
def test_what_is_for_one_process_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        load({"replica": True, **given}, environment={})


def test_an_engine_is_refused(address: str, tmp_path: Path) -> None:
    """It would come to one of them, and the others would wait for it."""
    base = founded(tmp_path / "federation", transport="engine")
    with (
        pytest.raises(InvalidInput, match="federation must have transport nats for a replica, got engine"),
        replicas(address, 1, federation=str(base / "org1")),
    ):
        pass


# --- private agents ---------------------------------------------------------------------------------------


def test_a_private_agent_has_one_ledger(address: str) -> None:
    with replicas(address) as (one, two):
        body = SHOP | {"epsilon": 1.0, "reward_range": [0, 1]}
        asked(one.put("/v1/agents/shop", json=body), 200)
        catch_up(two)
        for client in (one, two, one):
            made = asked(client.post("/v1/agents/shop/decisions", json=BODY), 201)
            where = f"/v1/agents/shop/decisions/{made['decision_id']}/reward"
            asked(two.put(where, json={"reward": 1.0}), 204)
        catch_up(one)
        agents = [client.app_service.agents.open["shop"].agent for client in (one, two)]  # type: ignore[attr-defined]
        assert agents[0].state() == agents[1].state()
        assert [agent.privatizer.waiting for agent in agents] == [3, 3]
        assert "shop" in one.get("/agents/shop/privacy").text


# --- duties -----------------------------------------------------------------------------------------------


def holders(clients: list[Any]) -> list[Any]:
    """Those that have the duties of their default agent."""
    return [client for client in clients if client.app_service.default.has_duty]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "TICK", 0.05)
    monkeypatch.setattr(leases, "SECONDS", 2)


@pytest.mark.usefixtures("soon")
def test_one_of_them_expires_decisions_until_it_stops(address: str) -> None:
    with ExitStack() as first:
        (one,) = first.enter_context(replicas(address, 1, dimension=3, window=0.2))
        until(lambda: holders([one]) == [one])
        with replicas(f"{address}&connect_timeout=9", 1, dimension=3, window=0.2) as (two,):
            for client in (one, two):
                asked(client.post("/v1/decisions", json=BODY), 201)
            until(lambda: asked(two.get("/v1/model"), 200)["pending"] == 0)
            assert not holders([two])
            status = asked(two.get("/v1/status"), 200)
            assert status["process"].startswith("process ")
            assert list(status["duties"]) == ["agent"]
            assert "Duties of agent" in two.get("/").text
            first.close()
            until(lambda: holders([two]) == [two], seconds=1.0)  # at once: the duty was given up
            asked(two.post("/v1/decisions", json=BODY), 201)
            until(lambda: asked(two.get("/v1/model"), 200)["pending"] == 0)


def test_of_two_that_look_at_once_one_has_the_duty(
    postgres: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both wait for the write lock before either has taken it."""
    monkeypatch.setattr(service_module, "TICK", 1_000.0)
    with replicas(address, 3, dimension=3, window=60.0) as (one, two, three), ThreadPoolExecutor(2) as pool:
        with three.app_service.log.transaction:  # type: ignore[attr-defined]
            waiting = [pool.submit(catch_up, each) for each in (one, two)]
            until(lambda: len(postgres.ask(WAITING)) == 2)
        for each in waiting:
            each.result()
        assert len(holders([one, two])) == 1


@pytest.mark.usefixtures("soon")
def test_two_that_have_a_duty_do_what_is_due_once(address: str) -> None:
    """As after one was stopped: each takes itself for the only one."""
    with replicas(address, 2, dimension=3, window=0.2, default_reward=0.5, keep="1s") as clients:
        for client in clients:
            client.app_service.leases.has = lambda _: True  # type: ignore[attr-defined]
        for number in range(6):
            asked(clients[number % 2].post("/v1/decisions", json=BODY), 201)
        for client in clients:
            until(lambda: asked(client.get("/v1/model"), 200)["observed"] == 6)  # noqa: B023
        journal = clients[0].app_service.default.journal  # type: ignore[attr-defined]
        assert journal.counts()["expired"] == 6
        services = [client.app_service for client in clients]  # type: ignore[attr-defined]
        until(lambda: journal.amendments().dropped.dropped >= 6)
        for client in clients:
            catch_up(client)
        assert services[0].default.agent.state() == services[1].default.agent.state()
        services[0].default.agent.verify()


def test_what_is_due_is_due_by_the_clock_of_the_server(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clocks of two machines may differ: this one is a day ahead."""
    ahead = SimpleNamespace(time=lambda: time.time() + 86_400.0, monotonic=time.monotonic)
    for module in (service_module, served_agent):
        monkeypatch.setattr(module, "time", ahead)
    with replicas(address, 1, dimension=3, window=3_600.0) as (one,):
        service = one.app_service  # type: ignore[attr-defined]
        asked(one.post("/v1/decisions", json=BODY), 201)
        made = asked(one.post("/v1/decisions", json=BODY), 201)
        asked(one.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": 1.0}), 204)
        one.portal.call(service.drop_older, 3_600.0)
        one.portal.call(service.default.expire)
        assert service.default.has_duty
        assert service.default.agent.pending == 1
        assert service.default.journal.amendments().dropped.dropped == 0


@pytest.mark.usefixtures("soon")
def test_one_of_them_exchanges_with_peers(address: str, tmp_path: Path) -> None:
    base = founded(tmp_path / "federation")
    given = {"federation": str(base / "org1")}
    with member_of(base / "org2") as peer, replicas(address, 2, **given) as clients:
        until(lambda: len(holders(clients)) == 1)
        (one,) = holders(clients)
        (two,) = [client for client in clients if client is not one]
        rounds(two, 3)  # the release is made there, and sent by the other
        until(lambda: sync(peer)["peers"]["org1"]["records"] == 3)
        rounds(peer, 2)
        until(lambda: sync(two)["peers"]["org2"]["records"] == 2)  # from the log
        assert sync(two)["process"] == sync(one)["process"] == one.app_service.leases.process  # type: ignore[attr-defined]
        assert "exchanges with the peers" in two.get("/federation").text
        for client in (one, two):
            assert (sync(client)["trouble"], sync(client)["waiting"]) == (None, False)
        one.app_service.leases.take = lambda _: None  # it is cut off, and goes on as if it had the duty
        until(lambda: two in holders(clients))
        assert one in holders(clients)
        for number in range(6):
            rounds(clients[number % 2], 1)
            rounds(peer, 1)
        until(lambda: sync(peer)["peers"]["org1"]["records"] == 9)
        for client in clients:
            until(lambda: sync(client)["peers"]["org2"]["records"] == 8)  # noqa: B023
            assert sync(client)["trouble"] is None
            assert not sync(client)["refusals"]
        assert not sync(peer)["refusals"]
        agents = [client.app_service.default.agent for client in clients]  # type: ignore[attr-defined]
        for client in clients:
            catch_up(client)
        assert agents[0].state() == agents[1].state()
        assert agents[0].privatizer.spent == 7
        agents[0].verify()


@pytest.mark.usefixtures("soon")
def test_one_that_is_cut_off_from_its_peers_lets_another_exchange(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = founded(tmp_path / "federation")
    with (
        member_of(base / "org2") as peer,
        replicas(address, 2, federation=str(base / "org1")) as clients,
    ):
        until(lambda: len(holders(clients)) == 1)
        (one,) = holders(clients)
        (two,) = [client for client in clients if client is not one]

        def away() -> Any:
            raise TransportUnavailable("cut off")

        transport = one.app_service.default.membership.member.transport
        with monkeypatch.context() as patched:
            patched.setattr(transport, "latest", away)
            until(lambda: sync(one)["trouble"] == "cut off")
            assert "fedfairx_federation_reached 0" in metrics_of(one)
            until(lambda: holders(clients) == [two])
            rounds(one, 3)
            until(lambda: sync(peer)["peers"]["org1"]["records"] == 3)
            until(lambda: sync(one)["trouble"] is None)  # it is no longer its duty
            assert "\nfedfairx_federation_reached " not in metrics_of(one)
            assert "fedfairx_federation_reached 1" in metrics_of(two)


@pytest.mark.usefixtures("soon")
def test_secure_aggregation_is_for_the_process_with_the_vault(address: str, tmp_path: Path) -> None:
    """It has the duty also while it is away, and the others say so."""
    times = Rounds(begin=2_000_000_000, first=100, ratio=1, count=3)
    names = ("org1", "org2", "org3")
    base = founded(tmp_path / "federation", names=names, aggregation="secure", rounds=times, schedule=None)
    given = {"federation": str(base / "org1")}
    place = f"{address}&connect_timeout=9"
    with replicas(address, 2, **given) as clients:
        waits = "secure aggregation waits for the process with the vault"
        for client in clients:
            until(lambda: (sync(client)["trouble"] or "").startswith(waits))  # noqa: B023
            assert sync(client)["process"] == ""
            assert waits in client.get("/federation").text.lower()
            assert "Secure aggregation waits" in client.get("/").text
            assert client.app_service.default.membership is None  # type: ignore[attr-defined]
        rounds(clients[0], 4)
        assert not (base / "org1" / "member.vault").exists()
        with replicas(place, 1, vault=str(tmp_path / "vaults"), **given) as (third,):
            for client in clients:
                until(lambda: sync(client)["process"].startswith("process "))  # noqa: B023
                assert sync(client)["trouble"] is None
            assert sync(third)["aggregation"]["rounds"] == 3
            rounds(clients[1], 4)
            catch_up(third)
            agent = third.app_service.default.agent  # type: ignore[attr-defined]
            assert agent.privatizer.waiting == 8
        for client in clients:
            until(lambda: (sync(client)["trouble"] or "").startswith(waits))  # noqa: B023


@pytest.mark.usefixtures("soon")
def test_the_others_learn_totals_from_the_log(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process with the vault makes the row, of the rewards of all."""
    monkeypatch.setattr(federation, "EVERY", 0.02)
    begin, now, names = 2_000_000_000, [2_000_000_000.0], ("org1", "org2", "org3")
    times = Rounds(begin=begin, first=100, ratio=1, count=3)
    base = founded(tmp_path / "federation", names=names, aggregation="secure", rounds=times, schedule=None)
    given = {"federation": str(base / "org1")}
    with (
        member_of(base / "org2", clock=lambda: now[0]) as peer,
        member_of(base / "org3", clock=lambda: now[0]),
        replicas(f"{address}&connect_timeout=9", 1, vault=str(tmp_path / "vaults"), **given) as (one,),
        replicas(address, 1, **given) as (two,),
    ):
        services = [client.app_service for client in (one, two)]  # type: ignore[attr-defined]
        services[0].default.membership.member.clock = lambda: now[0]
        rounds(two, 20, reward=1.0)
        rounds(one, 5)
        until(lambda: sync(one)["aggregation"]["epoch"] == 1)
        now[0] += 100
        until(lambda: sync(one)["aggregation"]["opened"] == 1)
        until(lambda: sync(peer)["aggregation"]["records"] == 25)
        for client in (one, two):
            catch_up(client)
        assert services[0].default.agent.state() == services[1].default.agent.state()
        assert services[1].default.agent.released == 1
        rounds(two, 7)
        now[0] += 100
        until(lambda: sync(peer)["aggregation"]["records"] == 32)
        services[1].default.agent.verify()


# --- faults -----------------------------------------------------------------------------------------------


def test_a_lost_commit_is_said_to_be_unknown(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not that nothing was changed: the decision is there."""
    with replicas(address, 1, dimension=3) as (one,):
        database = one.app_service.log.database  # type: ignore[attr-defined]
        real, headers = database.insert, {"idempotency-key": "k"}

        def cut(*given: Any, **more: Any) -> None:
            real(*given, **more)
            database._writer.close()
            monkeypatch.setattr(database, "insert", real)
            raise database._unknown()

        monkeypatch.setattr(database, "insert", cut)
        answer = asked(one.post("/v1/decisions", json=BODY, headers=headers), 503)
        assert "Whether it was stored is not known" in answer["detail"]
        assert "changed" not in answer["detail"]
        assert "the same Idempotency-Key" in answer["detail"]
        until(lambda: one.post("/v1/decisions", json=BODY, headers=headers).status_code == 201)
        assert one.app_service.default.agent.pending == 1  # type: ignore[attr-defined]


def test_the_server_ends_who_stands_still_with_the_write_lock(address: str) -> None:
    """Tests have shorter limits: these are the ones that users have."""
    names = ("idle_in_transaction_session_timeout", "lock_timeout", "synchronous_commit")
    with replicas(address, 1, dimension=3) as (one,):
        ask = one.app_service.log.database.execute  # type: ignore[attr-defined]
        assert [ask(f"SHOW {name}") for name in names] == [[("10s",)], [("15s",)], [("on",)]]


def test_what_is_rewritten_while_one_fails_is_noticed(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the log again, and does not catch up."""
    with replicas(address, dimension=3) as (one, two):
        made = asked(one.post("/v1/decisions", json=BODY), 201)["decision_id"]
        asked(one.post("/v1/decisions", json=BODY), 201)
        asked(two.put(f"/v1/decisions/{made}/reward", json={"reward": 1.0, "person": "p"}), 204)
        assert asked(one.get("/v1/exposure"), 200)["decisions"] == 2
        database = one.app_service.log.database  # type: ignore[attr-defined]

        def away(*_: Any, **__: Any) -> None:
            patched.setattr(database, "begin", away)  # from the first failure on
            raise StorageUnavailable("away")

        with monkeypatch.context() as patched:
            patched.setattr(database, "insert", away)
            asked(one.post("/v1/decisions", json=BODY), 503)
            asked(two.delete("/v1/persons/p"), 200)
        one.app_service.write_queue.failed = -math.inf  # type: ignore[attr-defined]
        catch_up(one)
        assert asked(one.get("/v1/exposure"), 200)["decisions"] == 1
