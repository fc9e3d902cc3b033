"""Several actions at once over HTTP, on both kinds of database."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet
import pytest

import fedfairx as ffx
from fedfairx.client import AsyncClient, Client
from fedfairx.errors import InvalidInput
from fedfairx.service.settings import place_of
from fedfairx.storage.api_keys import open_keys
from member_service import founded, member_of, sync
from service_helpers import ACTIONS, CONTEXTS, Running, asking, decide, settings_for, until

WEIGHTS = [1.0, 0.5]
NAMES = [action["id"] for action in ACTIONS]


def put(client: Any, made: dict[str, Any], rewards: dict[str, Any], **more: Any) -> Any:
    return client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"rewards": rewards, **more})


def seen(client: Any, made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/v1/decisions/{made['decision_id']}").json()
    return found


def statuses(client: Any, made: dict[str, Any]) -> list[str]:
    return [slot["status"] for slot in seen(client, made)["shown"]]


def observed(client: Any) -> tuple[int, int]:
    model = client.get("/v1/model").json()
    return model["observed"], model["pending"]


def _place(place: str) -> str:
    return place_of(settings_for(place))


def test_a_decision_with_slots_and_its_rewards(place: str) -> None:
    with asking(place) as client:
        made = decide(client, actions=ACTIONS, slots=WEIGHTS)
        assert [made[name] for name in ("action", "action_id", "probability", "policy")] == [None] * 4
        assert [(one["slot"], one["weight"]) for one in made["shown"]] == [(1, 1.0), (2, 0.5)]
        for one in made["shown"]:
            assert NAMES[one["action"]] == one["action_id"]
            assert one["exposure"] == made["exposure"][one["action"]]
        assert sum(made["exposure"]) == pytest.approx(1.5)
        first, second = (one["action_id"] for one in made["shown"])
        (hidden,) = set(NAMES) - {first, second}
        assert put(client, made, {hidden: 1.0}).status_code == 422
        assert put(client, made, {second: 0.25}).status_code == 204
        assert statuses(client, made) == ["pending", "rewarded"]
        assert seen(client, made)["status"] == "pending"
        assert put(client, made, {second: 0.25}).status_code == 204  # the same again
        other = put(client, made, {second: 0.75})
        assert (other.status_code, other.json()["detail"]) == (409, "The action has another reward already.")
        assert put(client, made, {second: None}).status_code == 409
        assert observed(client) == (1, 1)
        assert put(client, made, {second: 0.25, first: 1.0}).status_code == 204  # one of them is new
        assert observed(client) == (2, 0)
        assert seen(client, made)["status"] == "rewarded"
        assert put(client, made, {second: 0.25, first: 1.0}).status_code == 204
        assert put(client, made, {first: 0.5}).status_code == 409
        assert put(client, made, {hidden: 1.0}).status_code == 422
        assert client.delete(f"/v1/decisions/{made['decision_id']}").status_code == 409
        assert observed(client) == (2, 0)
        rewards = "fedfairx_rewards_total 2"
        assert rewards in client.get("/metrics").text


def test_answers_are_those_of_an_agent(tmp_path: Path) -> None:
    """Exposures and what is learnt are those of an agent with the same data."""
    agent = ffx.Agent(3)
    with asking(str(tmp_path / "agent.db")) as client:
        for k in range(20):
            made = decide(client, slots=WEIGHTS)
            expected = agent.policy(CONTEXTS, slots=WEIGHTS)
            np.testing.assert_allclose(made["exposure"], expected, atol=1e-12)
            rewards = {one["action"]: k % 3 / 2 for one in made["shown"]}
            assert put(client, made, {str(row): value for row, value in rewards.items()}).status_code == 204
            rows = list(rewards)
            agent.learn([CONTEXTS[row] for row in rows], list(rewards.values()), weights=WEIGHTS)


def test_one_slot_is_as_ever(place: str) -> None:
    with asking(place) as client:
        for slots in (None, 1, [1.0]):
            made = decide(client, slots=slots)
            assert "shown" not in made
            assert "exposure" not in made
            assert made["probability"] == made["policy"][made["action"]]
            assert "shown" not in seen(client, made)
        action = str(made["action"])
        assert put(client, made, {action: 0.5}).status_code == 204
        assert put(client, made, {action: 0.5}).status_code == 204
        assert client.put(
            f"/v1/decisions/{made['decision_id']}/reward", json={"reward": 0.5}
        ).is_success  # said otherwise
        assert put(client, made, {action: 0.25}).status_code == 409
        shy = decide(client, actions=ACTIONS)
        assert put(client, shy, {"nobody": 1.0}).status_code == 422
        assert put(client, shy, {shy["action_id"]: None}).status_code == 204
        assert put(client, shy, {shy["action_id"]: None}).status_code == 204
        assert seen(client, shy)["status"] == "withdrawn"
        assert client.get("/v1/model").json()["slots"] == [1.0]


def test_positions_are_those_of_the_request(place: str) -> None:
    with asking(place) as client:
        made = decide(client, slots=2, excluded=[1])
        assert {one["action"] for one in made["shown"]} == {0, 2}
        assert made["exposure"] == [1.0, 0.0, 1.0]
        assert [one["action_id"] for one in made["shown"]] == [None, None]
        assert put(client, made, {"2": 1.0}).status_code == 204
        assert put(client, made, {"1": 1.0}).status_code == 422
        assert put(client, made, {"0": None}).status_code == 204
        assert observed(client) == (1, 0)


def test_requests_that_do_not_fit(place: str) -> None:
    with asking(place, actions=("ann", "ben", "cid")) as client:
        for slots, part in (
            (4, "slots must be at most as many as the 3 actions"),
            ([0.5, 1.0], "slots must be a number of slots >= 1"),
            ([0.0, 0.0], "slots must be a number of slots >= 1"),
            ([2.0], ""),
            (0, ""),
            (10**9, ""),
            ([], ""),
            ("2", ""),
        ):
            answer = client.post("/v1/decisions", json={"slots": slots})
            assert answer.status_code == 422, slots
            assert part in answer.json()["detail"]
        answer = client.post("/v1/decisions", json={"slots": 2, "baseline": "ann"})
        assert answer.json()["detail"].startswith("baseline must be left out")
        batch = {"decisions": [{}, {"slots": 2, "excluded": ["ann", "ben"]}]}
        assert client.post("/v1/decisions/batch", json=batch).status_code == 422
        assert observed(client) == (0, 0)
        made = client.post("/v1/decisions", json={"slots": 2}).json()
        for body in (
            {},
            {"rewards": {}},
            {"reward": 1.0},
            {"reward": 1.0, "rewards": {"ann": 1.0}},
            {"rewards": {made["shown"][0]["action_id"]: 1.0}, "replace": True},
            {"reward": 1.0, "replace": True},
        ):
            answer = client.put(f"/v1/decisions/{made['decision_id']}/reward", json=body)
            assert answer.status_code == 422, body
        assert observed(client) == (0, 1)
        assert put(client, made, {one["action_id"]: 1.0 for one in made["shown"]}).status_code == 204
        for more in ({}, {"replace": True}):
            late = client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": 2.0, **more})
            assert late.status_code == 422, more  # not the sum of the rewards


def test_keys_batches_and_a_restart_in_the_middle(place: str) -> None:
    body = {
        "decisions": [{"actions": ACTIONS, "slots": WEIGHTS}, {"actions": ACTIONS}, {"contexts": CONTEXTS}]
    }
    key = {"idempotency-key": "k"}
    with asking(place, slots="2") as client:
        made = client.post("/v1/decisions/batch", json=body, headers=key).json()["decisions"]
        assert [[one["weight"] for one in each["shown"]] for each in made] == [
            WEIGHTS,
            [1.0, 1.0],
            [1.0, 1.0],
        ]
        one, two, three = made
        first, second = (shown["action_id"] for shown in one["shown"])
        assert put(client, one, {first: 1.0}).status_code == 204
    with asking(place) as client:  # the slots are stored
        assert client.get("/v1/model").json()["slots"] == [1.0, 1.0]
        assert client.post("/v1/decisions/batch", json=body, headers=key).json()["decisions"] == made
        assert put(client, one, {first: 1.0}).status_code == 204
        assert put(client, one, {first: 0.0}).status_code == 409
        assert statuses(client, one) == ["rewarded", "pending"]

        def rewards(*each: tuple[dict[str, Any], dict[str, Any]]) -> Any:
            given = [{"decision_id": of["decision_id"], "rewards": by} for of, by in each]
            return client.post("/v1/rewards", json={"rewards": given})

        both = {shown["action_id"]: 0.5 for shown in two["shown"]}
        assert rewards((one, {second: 0.5}), (two, both), (three, {"7": 1.0})).status_code == 422
        assert observed(client) == (1, 3)
        assert rewards((one, {first: 1.0, second: 0.5}), (two, both)).status_code == 204
        assert observed(client) == (4, 1)
        assert rewards((one, {second: 0.5}), (two, both)).status_code == 204
        assert rewards((one, {second: 0.75}), (two, both)).status_code == 409
        assert observed(client) == (4, 1)
    with ffx.Agent.open(_place(place)) as agent:
        agent.verify()
    with pytest.raises(InvalidInput, match="slots must be"), asking(place, slots="3"):
        pass


def test_what_waits_is_withdrawn(place: str) -> None:
    with asking(place) as client:
        half, none = (decide(client, actions=ACTIONS, slots=2) for _ in range(2))
        assert put(client, half, {half["shown"][1]["action_id"]: 1.0}).status_code == 204
        for made in (half, none):
            assert client.delete(f"/v1/decisions/{made['decision_id']}").status_code == 204
            assert client.delete(f"/v1/decisions/{made['decision_id']}").status_code == 204
        assert statuses(client, half) == ["withdrawn", "rewarded"]
        assert seen(client, half)["status"] == "rewarded"
        assert statuses(client, none) == ["withdrawn", "withdrawn"]
        assert seen(client, none)["status"] == "withdrawn"
        late = put(client, half, {half["shown"][0]["action_id"]: 1.0})
        assert (late.status_code, late.json()["detail"]) == (409, "The action is withdrawn already.")
        assert observed(client) == (1, 0)
        listed = client.get("/v1/decisions", params={"status": "withdrawn"}).json()["decisions"]
        assert [one["decision_id"] for one in listed] == [none["decision_id"]]


def test_a_window_passes_for_slots(place: str) -> None:
    with asking(place, window=0.2, default_reward=0.0) as client:
        half, none = (decide(client, slots=2) for _ in range(2))
        first = half["shown"][0]["action"]
        assert put(client, half, {str(first): 1.0}).status_code == 204
        until(lambda: observed(client) == (4, 0))
        assert statuses(client, half) == ["rewarded", "expired"]
        assert statuses(client, none) == ["expired", "expired"]
        assert (seen(client, half)["status"], seen(client, none)["status"]) == ("rewarded", "expired")


def test_the_export_of_slots(place: str, tmp_path: Path) -> None:
    with asking(place) as client:
        made, one = decide(client, actions=ACTIONS, slots=WEIGHTS), decide(client)
        ids = [shown["action_id"] for shown in made["shown"]]
        assert put(client, made, {ids[1]: 0.25}).status_code == 204
        assert put(client, made, {ids[0]: None}).status_code == 204
        rows = [json.loads(line) for line in client.get("/v1/export").text.splitlines()]
        table = list(csv.DictReader(io.StringIO(client.get("/v1/export?format=csv").text)))
        (tmp_path / "export.parquet").write_bytes(client.get("/v1/export?format=parquet").content)
    parquet = pyarrow.parquet.read_table(tmp_path / "export.parquet").to_pylist()
    several, single = rows
    assert rows == parquet
    for name in ("action", "action_id", "group", "probability", "drawn", "policy"):
        assert several[name] is None
        assert table[0][name] == ""
    assert several["exposure"] == made["exposure"]
    assert several["reward"] == 0.25
    assert several["status"] == "rewarded"
    assert json.loads(table[0]["shown"]) == several["shown"]
    groups = {action["id"]: action.get("group") for action in ACTIONS}
    for number, (shown, slot) in enumerate(zip(made["shown"], several["shown"], strict=True), 1):
        assert {**shown, "group": groups[shown["action_id"]]}.items() <= slot.items()
        assert slot["slot"] == number
    outcomes = [(slot["status"], slot["reward"]) for slot in several["shown"]]
    assert outcomes == [("withdrawn", None), ("rewarded", 0.25)]
    assert several["shown"][1]["reward_time"] > several["time"]
    assert (single["shown"], single["exposure"], single["action"]) == (None, None, one["action"])


def test_a_page_shows_all_slots(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.db")) as client:
        made = decide(client, actions=ACTIONS, slots=WEIGHTS)
        first, second = (shown["action_id"] for shown in made["shown"])
        put(client, made, {second: 1.0})
        text = client.get("/decisions").text
        assert f'<li>{first} <span class="status pending">pending</span>' in text
        assert f'<li>{second} <span class="status rewarded">rewarded</span>' in text
        assert "2 slots" in text
        widths = [
            float(part.partition('%"')[0]) for part in text.split('width="')[1:] if '%" height="14"' in part
        ]
        assert len(widths) == 3
        assert sum(widths) == pytest.approx(100.0, abs=0.01)
        assert text.count('<rect class="taken"') == 2


@pytest.mark.parametrize("given", [{"mode": "shadow"}, {"control_share": 0.1}])
def test_a_baseline_is_one_action(given: dict[str, Any], tmp_path: Path) -> None:
    place = str(tmp_path / "agent.db")
    with (
        pytest.raises(InvalidInput, match="slots must be 1 in mode shadow"),
        asking(place, slots="2", **given),
    ):
        pass
    with asking(place, **given) as client:
        answer = client.post("/v1/decisions", json={"contexts": CONTEXTS, "slots": 2, "baseline": 0})
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith("slots must be 1: this service takes the baseline")
        assert decide(client, slots=1, baseline=0)["mode"] in ("live", "control", "shadow")


def test_stored_slots_and_a_baseline(tmp_path: Path) -> None:
    place = str(tmp_path / "agent.db")
    with asking(place, slots="1,0.5"):
        pass
    with pytest.raises(InvalidInput, match="mode must be live"), asking(place, mode="shadow"):
        pass


def test_the_slots_of_a_private_service_are_fixed(tmp_path: Path) -> None:
    place = str(tmp_path / "agent.db")
    given: dict[str, Any] = {"epsilon": 2.0, "reward_range": (0.0, 1.0), "slots": "1,0.5"}
    with asking(place, **given) as client:
        answer = client.post("/v1/decisions", json={"contexts": CONTEXTS, "slots": 2})
        assert answer.status_code == 422
        assert "must be left out or those of the service" in answer.json()["detail"]
        assert client.post("/v1/decisions", json={"contexts": CONTEXTS, "slots": 1}).status_code == 422
        made = decide(client, slots=WEIGHTS)
        assert put(client, made, {str(one["action"]): 1.0 for one in made["shown"]}).status_code == 204
        assert decide(client)["shown"]
    with asking(place, **given) as client:  # a later start with the same settings
        assert observed(client) == (2, 1)


def test_members_of_a_federation_show_what_was_agreed(tmp_path: Path) -> None:
    base = founded(tmp_path / "federation", slots=WEIGHTS)
    with member_of(base / "org1") as one, member_of(base / "org2") as two:
        assert one.get("/v1/model").json()["slots"] == WEIGHTS
        assert one.post("/v1/decisions", json={"contexts": CONTEXTS, "slots": 2}).status_code == 422
        made = decide(one)
        assert [shown["weight"] for shown in made["shown"]] == WEIGHTS
        rewards = {str(shown["action"]): 1.0 for shown in made["shown"]}
        assert put(one, made, rewards).status_code == 204
        until(lambda: sync(two)["peers"]["org1"]["release"] >= 1)


def test_exposures_are_for_admins(tmp_path: Path) -> None:
    place = str(tmp_path / "agent.db")
    with asking(place) as client:
        made = decide(client, actions=ACTIONS, slots=WEIGHTS)
        assert seen(client, made)["exposure"] == made["exposure"]
    with open_keys(_place(place)) as keys:
        headers = {role: {"authorization": f"Bearer {keys.add(role, role)}"} for role in ("reader", "admin")}
    with asking(place) as client:
        path = f"/v1/decisions/{made['decision_id']}"
        told, exact = (client.get(path, headers=headers[role]).json() for role in ("reader", "admin"))
        assert exact["exposure"] == made["exposure"]
        assert told["exposure"] is None
        assert [slot["exposure"] for slot in told["shown"]] == [None, None]
        assert [slot["action_id"] for slot in told["shown"]] == [one["action_id"] for one in made["shown"]]
        page = client.get("/decisions", headers=headers["reader"])
        assert page.status_code == 200
        assert '<ol class="slots">' in page.text
        assert "%" not in page.text.partition("<tbody")[2]


@pytest.mark.process
def test_killed_between_two_rewards(place: str) -> None:
    running = Running(place, "--dimension", "3", "--slots", "1,0.5")
    body, key = {"contexts": CONTEXTS}, {"idempotency-key": "k"}
    made = httpx.post(f"{running.url}/v1/decisions", json=body, headers=key).json()
    first, second = (str(shown["action"]) for shown in made["shown"])
    path = f"/v1/decisions/{made['decision_id']}/reward"
    assert httpx.put(running.url + path, json={"rewards": {second: 0.5}}).status_code == 204
    running.kill()
    running.start()
    assert httpx.post(f"{running.url}/v1/decisions", json=body, headers=key).json() == made
    assert httpx.put(running.url + path, json={"rewards": {second: 0.5}}).status_code == 204
    assert httpx.put(running.url + path, json={"rewards": {second: 0.25}}).status_code == 409
    assert httpx.put(running.url + path, json={"rewards": {first: 1.0, second: 0.5}}).status_code == 204
    running.stop()
    with ffx.Agent.open(_place(place)) as agent:
        agent.verify()
        assert (agent.observed, agent.pending) == (2, 0)


@pytest.mark.process
def test_clients(tmp_path: Path) -> None:
    running = Running(str(tmp_path / "agent.db"), "--actions", "ann,ben,cid", "--slots", "1,0.5")
    try:
        with Client(running.url) as client:
            made = client.decide()
            assert [one.weight for one in made.shown] == WEIGHTS
            assert sum(made.exposure) == pytest.approx(1.5)
            assert made.names == ("ann", "ben", "cid")
            assert [made.names[row] for row in made.actions] == [one.name for one in made.shown]
            for name in ("action", "name", "probability", "policy"):
                with pytest.raises(InvalidInput, match=f"{name} is of one slot, and this decision has 2"):
                    getattr(made, name)
            with pytest.raises(InvalidInput, match="either reward or rewards"):
                client.observe(made)
            with pytest.raises(InvalidInput, match="rewards must be one for each of 2 slots"):
                client.observe(made, rewards=[1.0])
            with pytest.raises(InvalidInput, match="must be by action"):
                client.observe(made.id, rewards=[1.0, 0.0])
            client.observe(made, rewards={made.shown[1].name: 0.5})
            client.observe(made, rewards=[1.0, 0.5])
            several, one = client.decide_many([{"slots": 3}, {"slots": 1}])
            assert one.policy == one.exposure
            assert one.actions == (one.action,)
            client.observe_many([several, one], [[1.0, None, 0.0], 0.5])
            assert client.get("/v1/model")["observed"] == 5
        asyncio.run(_ask_slowly(running.url))
        assert httpx.get(f"{running.url}/v1/model").json()["observed"] == 6
    finally:
        running.stop()


async def _ask_slowly(url: str) -> None:
    async with AsyncClient(url) as client:
        made = await client.decide(["ann", "ben"], slots=[0.5])
        assert [(shown.slot, shown.weight) for shown in made.shown] == [(1, 0.5)]
        await client.observe(made.id, rewards={made.shown[0].name: 1.0})
