"""Rewards that must not be taken, and rewards that were booked wrongly, over HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent.agent import Agent
from fedfairx.client import Client
from fedfairx.service import exposure_cache as exposing
from fedfairx.service import schemas, write_queue
from fedfairx.service.app import make_app
from fedfairx.service.factory import open_service
from fedfairx.service.roles import ROLES
from fedfairx.service.served_agent import WIDE
from fedfairx.service.settings import place_of
from fedfairx.storage.api_keys import open_keys
from in_process_client import InProcessClient
from service_helpers import CONTEXTS, asking, decide, metrics_of, settings_for

WRONG, RIGHT = 0.875, 0.25
NOBODY: dict[str, str] = {}


def put(client: Any, identity: str, reward: float, headers: dict[str, str] = NOBODY, **more: Any) -> Any:
    body = {"reward": reward, **more}
    return client.put(f"/v1/decisions/{identity}/reward", json=body, headers=headers)


def post(client: Any, rewards: dict[str, float], headers: dict[str, str] = NOBODY, **more: Any) -> Any:
    body = [{"decision_id": identity, "reward": reward} for identity, reward in rewards.items()]
    return client.post("/v1/rewards", json={"rewards": body, **more}, headers=headers)


def keys_of(place: str) -> dict[str, dict[str, str]]:
    with open_keys(place_of(settings_for(place))) as keys:
        return {role: {"authorization": f"Bearer {keys.add(role, role)}"} for role in ROLES}


def exported(client: Any, headers: dict[str, str] = NOBODY) -> dict[str, Any]:
    lines = client.get("/v1/export", headers=headers).text.splitlines()
    return {row["decision_id"]: row["reward"] for row in map(json.loads, lines)}


# --- what is not taken ------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{}, {"reward_range": (0.0, 1.0)}, {"rule": "optimism"}])
def test_a_wild_reward_is_a_422_and_changes_nothing(given: dict[str, Any], place: str) -> None:
    with asking(place, **given) as client:
        for _ in range(3):
            assert put(client, decide(client)["decision_id"], 0.5).status_code == 204
        one, two = (decide(client)["decision_id"] for _ in range(2))
        before = client.get("/v1/model").json()
        for wild in (-1e100, 1e100, 1e6, -1e6):
            for answer in (
                put(client, one, wild),
                put(client, one, wild, replace=True),
                post(client, {one: 0.5, two: wild}),
                post(client, {one: 0.5, two: wild}, replace=True),
            ):
                assert answer.status_code == 422, answer.text
                problem = answer.json()
                assert problem["type"] == "urn:fedfairx:problem:invalid"
                assert problem["detail"].startswith("reward must be ")
                assert "reward_range" in problem["detail"]
                assert f"{wild:g}" not in answer.text
        for odd in ("1e999", '"much"', "null", "true", "[1]"):
            body = f'{{"reward": {odd}}}'
            headers = {"content-type": "application/json"}
            answer = client.put(f"/v1/decisions/{one}/reward", content=body, headers=headers)
            assert answer.status_code in (400, 422)
        assert client.get("/v1/model").json() == before
        policy = decide(client)["policy"]
        assert min(policy) > 0.1
        assert put(client, one, 0.5).status_code == 204
    with asking(place) as client:
        assert client.get("/v1/model").json()["observed"] == 4


def test_a_private_service_takes_it_clips_it_and_counts_it(place: str) -> None:
    with asking(place, epsilon=2.0, decide_from="own+released", name="here") as client:
        assert put(client, decide(client)["decision_id"], -1e100).status_code == 204
        one, two = (decide(client)["decision_id"] for _ in range(2))
        assert post(client, {one: 1e100, two: 0.5}).status_code == 204
        assert client.get("/v1/privacy").json()["clipped"] == 2
        assert np.isfinite(client.get("/v1/model").json()["estimate"]).all()


def test_features_are_clipped_and_counted_and_other_kinds_refused(place: str) -> None:
    with asking(place, features="price=0:10,rating=1:5") as client:
        there = {"price": 1e90, "rating": -7.0}
        answer = client.post("/v1/decisions", json={"actions": [{"id": "a", "features": there}]})
        assert answer.status_code == 201
        assert "\nfedfairx_features_clipped_total 2\n" in metrics_of(client)
        for odd in (
            {"price": "1", "rating": 2.0},
            {"price": True, "rating": 2.0},
            {"price": 1.0},
            [1.0, 2.0, 3.0],
        ):
            answer = client.post("/v1/decisions", json={"actions": [{"id": "a", "features": odd}]})
            assert answer.status_code == 422
        assert client.get("/v1/model").json()["pending"] == 1


# --- what is replaced -------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{}, {"epsilon": 2.0, "decide_from": "own+released"}])
def test_an_admin_replaces_what_was_booked_wrongly(given: dict[str, Any], place: str, tmp_path: Path) -> None:
    """The model is that of a service which never had it, also after a restart."""
    given = {"mode": "shadow", "name": "here", **given}
    models, texts = [], []
    for here, wrong in ((place, True), (str(tmp_path / "right" / "agent.sqlite"), False)):
        with asking(here, **given) as client:
            ids = [decide(client, baseline=t % 3)["decision_id"] for t in range(12)]
            for t, identity in enumerate(ids[:10]):
                assert put(client, identity, WRONG if wrong and t in (2, 3, 4) else RIGHT).status_code == 204
            if wrong:
                assert put(client, ids[2], RIGHT).status_code == 409
                for _ in range(2):  # the second is a retry
                    assert put(client, ids[2], RIGHT, replace=True).status_code == 204
                assert put(client, ids[2], RIGHT).status_code == 204
                for _ in range(2):
                    answer = post(client, {ids[3]: RIGHT, ids[4]: RIGHT, ids[10]: 0.5}, replace=True)
                    assert answer.status_code == 204
            else:
                assert put(client, ids[10], 0.5).status_code == 204
            models.append(client.get("/v1/model").json())
            texts.append(metrics_of(client))
            assert [exported(client)[identity] for identity in ids] == [RIGHT] * 10 + [0.5, None]
        with asking(here, **given) as client:
            assert client.get("/v1/model").json() == models[-1]
            assert put(client, ids[11], 0.5).status_code == 204
    assert models[0] == models[1]
    for text in texts:
        assert "\nfedfairx_rewards_total 11\n" in text
    with ffx.Agent.open(place_of(settings_for(place))) as agent:
        agent.verify()


def test_it_is_for_admins_alone(place: str) -> None:
    keys = keys_of(place)
    with asking(place, host="0.0.0.0") as client:
        answer = client.post("/v1/decisions", json={"contexts": CONTEXTS}, headers=keys["writer"])
        identity = answer.json()["decision_id"]
        assert put(client, identity, WRONG, keys["writer"]).status_code == 204
        for role in ("reader", "writer", "federation", "auditor"):
            for answer in (
                put(client, identity, RIGHT, keys[role], replace=True),
                post(client, {identity: RIGHT}, keys[role], replace=True),
            ):
                assert answer.status_code == 403
                assert answer.json()["type"] == "urn:fedfairx:problem:forbidden"
        assert put(client, identity, WRONG, keys["writer"], replace=False).status_code == 204
        assert exported(client, keys["admin"]) == {identity: WRONG}
        assert put(client, identity, RIGHT, keys["admin"], replace=True).status_code == 204
        assert post(client, {identity: 0.5}, keys["admin"], replace=True).status_code == 204
        assert exported(client, keys["admin"]) == {identity: 0.5}


def test_what_can_t_be_replaced_is_a_409_with_the_reason(place: str) -> None:
    with asking(place) as client:
        rewarded, gone = (decide(client)["decision_id"] for _ in range(2))
        put(client, rewarded, WRONG)
        client.delete(f"/v1/decisions/{gone}")
        answer = put(client, gone, RIGHT, replace=True)
        assert (answer.status_code, answer.json()["detail"]) == (409, f"decision {gone} was forgotten")
        assert put(client, "nobody-1", RIGHT, replace=True).status_code == 404
        assert post(client, {rewarded: RIGHT, "nobody-1": RIGHT}, replace=True).status_code == 404
        assert put(client, rewarded, RIGHT, replace="yes").status_code == 422
        twice = [{"decision_id": rewarded, "reward": RIGHT}] * 2
        assert client.post("/v1/rewards", json={"rewards": twice, "replace": True}).status_code == 422
        assert exported(client)[rewarded] == WRONG
    with ffx.Agent.open(place_of(settings_for(place))) as agent:
        agent.release()
    with asking(place) as client:
        for answer in (
            put(client, rewarded, RIGHT, replace=True),
            post(client, {rewarded: RIGHT}, replace=True),
        ):
            assert answer.status_code == 409
            assert answer.json()["type"] == "urn:fedfairx:problem:conflict"
            assert "is in release 1 already" in answer.json()["detail"]
            assert "let a new agent learn the right rewards" in answer.json()["detail"]
        assert put(client, rewarded, WRONG, replace=True).status_code == 204  # as it is
        assert exported(client)[rewarded] == WRONG


ASKED = json.dumps({"contexts": CONTEXTS}).encode()


def test_others_of_the_same_moment_go_on(tmp_path: Path) -> None:
    """Requests that are written together: each is done or refused for itself."""
    place = str(tmp_path / "agent.sqlite")
    service = open_service(settings_for(place))
    served = service.default

    async def work() -> list[Any]:
        made = [await served.decide(ASKED, None) for _ in range(6)]
        ids = [each[0].decision_id for each in made]
        for identity in ids[:4]:
            await served.reward([_reward(identity, WRONG)])
        await served.withdraw([ids[5]])
        done = await asyncio.gather(
            served.replace([_reward(ids[0], RIGHT)]),
            served.reward([_reward(ids[4], WRONG)]),
            served.replace([_reward(ids[5], RIGHT)]),
            served.replace([_reward(ids[4], RIGHT)]),
            served.decide(ASKED, None),
            served.replace([_reward("nobody-1", RIGHT)]),
            served.replace([_reward(ids[1], RIGHT), _reward(ids[2], 1e100)]),
            return_exceptions=True,
        )
        await service.close()
        return done

    done = asyncio.run(work())
    assert [isinstance(each, Exception) for each in done] == [False, False, True, False, False, True, True]
    with ffx.Agent.open(place_of(settings_for(place))) as agent:
        stored = [each.reward for each in agent.journal.decisions()]
        assert stored == [RIGHT, WRONG, WRONG, WRONG, RIGHT, None, None]
        agent.verify()


def _reward(identity: str, value: float) -> Any:
    return schemas.RewardOf(identity, value)


def test_the_clients_say_it() -> None:
    asked: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        return httpx.Response(204)

    client = Client("http://there")
    client._calls._http = httpx.Client(base_url="http://there", transport=httpx.MockTransport(answer))
    client.observe("a-1", reward=0.5)
    client.observe("a-1", reward=0.5, person="p", replace=True)
    client.observe_many(["a-1"], [0.5])
    client.observe_many(["a-1"], [0.5], replace=True)
    one = [{"decision_id": "a-1", "reward": 0.5}]
    assert asked[:2] == [{"reward": 0.5}, {"reward": 0.5, "person": "p", "replace": True}]
    assert asked[2:] == [{"rewards": one}, {"rewards": one, "replace": True}]


# --- who sees it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("private", [False, True])
def test_it_is_seen_at_once(private: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the table, the estimate and the mean, after a restart too."""
    monkeypatch.setattr(exposing, "FRESH", -1.0)
    monkeypatch.setattr(exposing, "COST", 0.0)
    place = str(tmp_path / "agent.sqlite")
    given: dict[str, Any] = {"mode": "shadow", "noise_sd": 0.01, "name": "here"}
    given |= {"epsilon": 2.0, "decide_from": "own+released"} if private else {}
    rewards = [0.5 + 0.04 * t for t in range(10)]

    def seen(client: Any) -> list[Any]:
        return [client.get(way).json() for way in ("/v1/exposure", "/v1/model")]

    service = open_service(settings_for(place, **given))
    with InProcessClient(make_app(service), base_url="http://127.0.0.1") as client:
        ids = []
        for t, reward in enumerate(rewards):
            made = decide(client, contexts=(np.eye(3) / 2).tolist(), baseline=t % 3)
            ids.append(made["decision_id"])
            assert put(client, ids[-1], reward).status_code == 204
        before = seen(client)
        assert put(client, ids[1], 0.0, replace=True).status_code == 204
        rewards[1] = 0.0
        now = seen(client)
        assert now[0] != before[0]  # entitlements
        assert now[1]["estimate"] != before[1]["estimate"]
        assert now[1]["mean_reward"] == pytest.approx(np.mean(rewards))
        gram, moment, *_ = service.default.exposures._sums()
        constant = service.default.agent.constant
        gram_of_units = np.diag([1.0, 0.75, 0.75, 10.0 * constant**2])
        gram_of_units[3, :3] = gram_of_units[:3, 3] = np.array([2.0, 1.5, 1.5]) * constant
        assert gram == pytest.approx(gram_of_units)
        assert moment == pytest.approx([*(sum(rewards[k::3]) / 2 for k in range(3)), sum(rewards) * constant])
    with asking(place, **given) as client:
        again = seen(client)
        assert again[1]["mean_reward"] == now[1]["mean_reward"]
        assert again[1]["estimate"] == now[1]["estimate"]


@pytest.mark.parametrize(
    ("columns", "snapshot", "elsewhere"),
    [(WIDE, False, False), (WIDE + 1, False, True), (WIDE, True, True)],
)
def test_the_event_loop_runs_no_step_that_may_take_long(
    columns: int, snapshot: bool, elsewhere: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """σ is estimated again at some rewards, and takes seconds with 500 features; so may a snapshot."""
    threads: dict[str, bool] = {}

    def watch(name: str) -> None:
        real = getattr(Agent, name)

        def watched(self: Agent, *given: Any, **more: Any) -> Any:
            threads[name] = threading.current_thread().name.startswith("write-queue")
            return real(self, *given, **more)

        monkeypatch.setattr(Agent, name, watched)

    watch("decide")
    watch("observe")
    monkeypatch.setattr(write_queue, "SHORT", 60.0)  # whatever the disk takes
    service = open_service(settings_for(str(tmp_path / "agent.db"), dimension=str(columns - 1)))
    service.write_queue.requests = ["this one"]
    monkeypatch.setattr(service.default.journal, "long_after", lambda: snapshot)
    with InProcessClient(make_app(service), base_url="http://127.0.0.1") as client:
        for _ in range(2):  # the first runs in the thread: nobody knows the disk yet
            made = client.post("/v1/decisions", json={"contexts": [[0.01] * (columns - 1)] * 2}).json()
        client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": 0.5}).raise_for_status()
    assert threads == {"decide": elsewhere, "observe": elsewhere}
