"""Several actions at once over HTTP, on both kinds of database."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet
import pytest

import fedfairx as ffx
from fedfairx.agent.schedules import EveryRound
from fedfairx.client import AsyncClient, Client
from fedfairx.demo.couriers import SCHEMA, Couriers
from fedfairx.demo.launcher import Fleet
from fedfairx.errors import InvalidInput
from fedfairx.federation.roster.terms import Terms
from fedfairx.privacy import Budget
from fedfairx.service import service
from fedfairx.service.settings import place_of
from fedfairx.storage.api_keys import open_keys
from flower_server import flower_commands
from member_service import founded, member_of, sync
from service_helpers import ACTIONS, CONTEXTS, Running, asking, decide, metrics_of, settings_for, until

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
        for row in range(3):  # found by every action that it showed
            found = client.get("/v1/decisions", params={"action": row}).json()["decisions"]
            assert len(found) == (row in [one["action"] for one in made["shown"]])
        rewards = "fedfairx_rewards_total 2"
        assert rewards in metrics_of(client)


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
        for baseline, part in (
            ("ann", "must be a list of 2 different actions, one for each slot, got 1"),
            (["ann", "ben", "cid"], "one for each slot, got 3"),
            (["ann", "ann"], "got one of them twice"),
            (["ann", "eve"], "must be of the 3 actions that can be taken"),
            (["ann", 1], "must be ids of actions"),
            ([], ""),
            ([["ann"], "ben"], ""),
        ):
            answer = client.post("/v1/decisions", json={"slots": 2, "baseline": baseline})
            assert answer.status_code == 422, baseline
            assert part in answer.json()["detail"]
        for more in ({"excluded": ["ben"]}, {"actions": ["ann", "cid"]}):
            answer = client.post("/v1/decisions", json={"slots": 2, "baseline": ["ann", "ben"], **more})
            assert answer.status_code == 422
            assert answer.json()["detail"].startswith("baseline")
        answer = client.post("/v1/decisions", json={"baseline": ["ann", "ben"]})
        assert "baseline must be one action, got 2" in answer.json()["detail"]
        batch = {"decisions": [{}, {"slots": 2, "excluded": ["ann", "ben"]}]}
        assert client.post("/v1/decisions/batch", json=batch).status_code == 422
        assert observed(client) == (0, 0)
        made = client.post("/v1/decisions", json={"slots": 2}).json()
        for body in (
            {},
            {"rewards": {}},
            {"reward": 1.0},
            {"reward": 1.0, "rewards": {"ann": 1.0}},
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


def test_a_slot_that_nobody_saw_is_no_reward(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.sqlite")) as client:
        made = decide(client, actions=ACTIONS, slots=3)
        first, second, third = (each["action_id"] for each in made["shown"])
        path = f"/v1/decisions/{made['decision_id']}/reward"
        assert client.put(path, json={"rewards": {first: 0.5, second: None}}).status_code == 204
        assert client.put(path, json={"rewards": {second: None, third: 0.0}}).status_code == 204
        assert "\nfedfairx_rewards_total 2\n" in metrics_of(client)


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


def test_rewards_of_slots_are_replaced(place: str) -> None:
    with asking(place) as client:
        made, other = decide(client, actions=ACTIONS, slots=WEIGHTS), decide(client, slots=2)
        first, second = (one["action_id"] for one in made["shown"])
        assert put(client, made, {first: 1.0}).status_code == 204
        assert (
            put(client, made, {first: 0.5, second: 0.25}, replace=True).status_code == 204
        )  # the second is new
        assert put(client, made, {first: 0.5, second: 0.25}).status_code == 204
        assert put(client, made, {first: 1.0}).status_code == 409
        assert observed(client) == (2, 1)
        assert put(client, made, {first: None}, replace=True).status_code == 422
        both = [
            {"decision_id": made["decision_id"], "rewards": {second: 1.0}},
            {"decision_id": other["decision_id"], "rewards": {str(other["shown"][0]["action"]): 0.5}},
        ]
        assert client.post("/v1/rewards", json={"rewards": both, "replace": True}).status_code == 204
        assert observed(client) == (3, 1)
        row = rows_of(client)[0]
        assert (row["reward"], [slot["reward"] for slot in row["shown"]]) == (1.5, [0.5, 1.0])
        assert "fedfairx_rewards_total 3" in metrics_of(client)
    twin = ffx.Agent(3)
    rows = [*(one["action"] for one in made["shown"]), other["shown"][0]["action"]]
    twin.learn([CONTEXTS[row] for row in rows], [0.5, 1.0, 0.5], weights=[1.0, 0.5, 1.0])
    with ffx.Agent.open(_place(place)) as agent:
        agent.verify()
        np.testing.assert_allclose(agent.estimate, twin.estimate, atol=1e-12)


@pytest.mark.long
def test_a_window_passes_for_slots(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "TICK", 0.05)
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
        assert f"<li>{first}<" in text  # as the whole decision, which is pending
        assert f'<li>{second} <span class="status rewarded">rewarded</span>' in text
        assert text.count("expected weight ") >= 2
        assert "2 slots" not in text
        widths = [
            float(part.partition('%"')[0]) for part in text.split('width="')[1:] if '%" height="14"' in part
        ]
        assert len(widths) == 3
        assert sum(widths) == pytest.approx(100.0, abs=0.01)
        assert text.count('<rect class="taken"') == 2


def rows_of(client: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in client.get("/v1/export").text.splitlines()]


@pytest.mark.parametrize(
    ("slots", "text"),
    [
        ("1", ""),
        ("3", "3 slots of equal weight"),
        ("1,0.5", "2 slots of weight 1, 0.5"),
        ("0.5", "1 slot of weight 0.5"),
    ],
)
def test_pages_tell_what_is_shown(slots: str, text: str, tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.db"), slots=slots) as client:
        overview, report = client.get("/").text, client.get("/report").text
        assert (f"<dt>Shows</dt><dd>{text}</dd>" in overview) == ("<dt>Shows" in overview) == bool(text)
        assert (f"A decision has {text}. The expected weight" in report) == bool(text)
        assert ("Each action is shown with a probability" in report) == (not text)


@pytest.mark.parametrize("private", [False, True])
def test_a_shadow_shows_the_ranked_baseline(private: bool, place: str) -> None:
    """The oracle is an agent that draws with the same seed and learns what the baseline showed."""
    given: dict[str, Any] = {"slots": "1,0.5"} if private else {}
    more: dict[str, Any] = {"slots": WEIGHTS} if private else {}
    if private:
        more |= {"budget": Budget(epsilon=2.0, delta=1e-6, releases=10)}
    with ffx.Agent.open(_place(place), dimension=3, intercept=False, seed=0, **more):
        pass
    twin = ffx.Agent(3, intercept=False, seed=0)
    different = 0
    for start in range(2):
        with asking(place, mode="shadow", **given) as client:
            for k in range(10):
                baseline = [(start + k) % 3, (start + k + 1) % 3]
                drawn = twin.decide(CONTEXTS, slots=WEIGHTS)
                made = decide(client, slots=WEIGHTS, baseline=baseline)
                assert made["mode"] == "shadow"
                assert [one["action"] for one in made["shown"]] == baseline
                assert [one["exposure"] for one in made["shown"]] == WEIGHTS  # for sure
                np.testing.assert_allclose(made["exposure"], drawn.exposure, atol=1e-12)
                slots = rows_of(client)[-1]["shown"]
                assert [slot["drawn"] for slot in slots] == drawn.actions
                assert [slot["baseline"] for slot in slots] == [slot["action"] for slot in slots] == baseline
                different += drawn.actions != baseline
                rewards = [0.1 * k, 0.05 * k]
                assert put(client, made, {str(baseline[1]): rewards[1]}).status_code == 204
                assert put(client, made, {str(baseline[0]): rewards[0]}).status_code == 204
                twin.learn([CONTEXTS[row] for row in baseline[::-1]], rewards[::-1], weights=WEIGHTS[::-1])
            assert (
                client.post("/v1/decisions", json={"contexts": CONTEXTS, "slots": WEIGHTS})
                .json()["detail"]
                .startswith("baseline must be given")
            )
    assert different > 5
    with ffx.Agent.open(_place(place)) as agent:
        agent.verify()
        assert (agent.observed, agent.pending) == (40, 0)


def test_a_control_share_shows_the_ranked_baseline(place: str) -> None:
    """200 decisions with a share of one half: 64 to 136 of them but for one in 10⁷ runs."""
    names, baseline = ["ann", "ben", "cid", "dora"], ["cid", "ann"]
    with asking(place, actions=names, control_share=0.5, slots="1,0.5") as client:
        body = {"decisions": [{"baseline": baseline, "excluded": ["dora"]}] * 200}
        key = {"idempotency-key": "k"}
        made = client.post("/v1/decisions/batch", json=body, headers=key).json()["decisions"]
        control = [one for one in made if one["mode"] == "control"]
        assert 64 <= len(control) <= 136
        assert all([shown["action_id"] for shown in one["shown"]] == baseline for one in control)
        for one in made:
            fair = dict(zip(one["action_ids"], one["exposure"], strict=True))
            assert sum(fair.values()) == pytest.approx(1.5)
            for shown in one["shown"]:
                kept = dict(zip(baseline, WEIGHTS, strict=True)).get(shown["action_id"], 0.0)
                assert shown["exposure"] == pytest.approx(0.5 * fair[shown["action_id"]] + 0.5 * kept)
        rows = rows_of(client)
        assert {row["mode"] for row in rows} == {"live", "control"}
        for row in rows:
            assert [row["action_ids"][slot["baseline"]] for slot in row["shown"]] == baseline
            assert row["baseline"] is row["drawn"] is None
            taken = [slot["action"] for slot in row["shown"]]
            assert (taken == [slot["drawn"] for slot in row["shown"]]) or row["mode"] == "control"
        table = client.get("/v1/exposure").json()
        assert (table["baseline"], table["draws"]["decisions"]) == (len(control), 200)
        assert table["draws"]["verdict"] == "as the policy said"
        assert put(client, control[0], {"ann": 1.0}).status_code == 204
    with asking(place, actions=names, control_share=0.5) as client:
        assert client.post("/v1/decisions/batch", json=body, headers=key).json()["decisions"] == made
        assert statuses(client, control[0]) == ["pending", "rewarded"]
        assert put(client, control[0], {"cid": 0.0}).status_code == 204
    with ffx.Agent.open(_place(place)) as agent:
        agent.verify()


def test_a_list_of_one_is_a_baseline_too(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.db"), mode="shadow") as client:
        for baseline in (2, [2]):
            made = decide(client, baseline=baseline)
            assert (made["action"], made["probability"]) == (2, 1.0)
        for baseline in ("cat", ["cat"]):
            made = decide(client, actions=ACTIONS, slots=[0.5], baseline=baseline, excluded=["ann"])
            (shown,) = made["shown"]
            assert (shown["action"], shown["action_id"], shown["exposure"]) == (2, "cat", 0.5)


def test_the_table_of_a_shadow_is_of_the_callers_own_lists(place: str) -> None:
    """A list that never changes is not what the policy said; what was drawn is."""
    with asking(place, mode="shadow", slots="1,0.5") as client:
        for t in range(40):
            made = decide(client, actions=ACTIONS, baseline=["ben", "cat"])
            rewards = {"ben": float(t % 2), "cat": 0.5}
            assert put(client, made, rewards).status_code == 204
        found = client.get("/v1/exposure").json()
        assert (found["baseline"], found["draws"]["decisions"]) == (40, 40)
        assert found["draws"]["verdict"] == "as the policy said"
        shown = {row["name"]: (row["shown_times"], row["shown"]["value"]) for row in found["actions"]}
        assert shown == {
            "ann": (0, 0.0),
            "ben": (40, pytest.approx(2 / 3)),
            "cat": (40, pytest.approx(1 / 3)),
        }
        page = client.get("/exposure").text
        assert "40 decisions took the caller’s baseline" in page
        assert '<span class="chip quiet">shadow</span>' in client.get("/decisions").text


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
        first, second = (str(shown["action"]) for shown in made["shown"])
        assert put(one, made, {second: 1.0}).status_code == 204
        assert (sync(one)["released"], sync(one)["next_round"]) == (0, 2)  # a round has two rewards
        assert put(one, made, {first: 1.0}).status_code == 204
        assert (sync(one)["released"], sync(one)["next_round"]) == (1, 4)
        until(lambda: sync(two)["peers"]["org1"]["release"] >= 1)


@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize(
    ("transport", "private"),
    [
        ("sqlite", False),
        ("nats", True),
        # Its processes take half a minute. Services over them are in `test_flower`, slots in `test_carried`.
        pytest.param("flower", True, marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("forked_fleet")
def test_services_share_what_their_slots_earned(transport: str, private: bool, tmp_path: Path) -> None:
    """Six rounds of two rewards each: six releases, of two records more each."""
    algorithm = (
        {"algorithm": "priv-fairx-bayes", "epsilon": 2.0} if private else {"algorithm": "fed-fairx-bayes"}
    )
    agreed = Terms(schema=SCHEMA, agents=2, horizon=6, schedule=EveryRound(), slots=WEIGHTS, **algorithm)
    fleet = Fleet(
        tmp_path / "federation",
        ["org1", "org2"],
        agreed,
        transport=transport,
        flower=str(flower_commands()) if transport == "flower" else None,
    )
    with fleet, contextlib.ExitStack() as stack:
        one, two = (
            stack.enter_context(Client(fleet.urls[name], key=fleet.keys.get(name)))
            for name in ("org1", "org2")
        )
        city = Couriers(0)
        before = two.get("/v1/model")["estimate"]
        for number in range(1, 7):
            made = one.decide(**city.order().request)
            assert [shown.weight for shown in made.shown] == WEIGHTS
            one.observe(made, rewards={made.shown[1].name: 1.0})
            assert one.get("/v1/sync")["released"] == number - 1
            one.observe(made, rewards={made.shown[0].name: 1.0})
            assert one.get("/v1/sync")["released"] == number
        until(lambda: two.get("/v1/sync")["peers"]["org1"]["release"] == 6, seconds=120)
        seen = two.get("/v1/sync")
        assert (seen["peers"]["org1"]["records"], seen["refusals"], seen["trouble"]) == (12, {}, None)
        assert two.get("/v1/model")["estimate"] != before
        assert "the budget is spent with 6 releases" in one.get("/v1/sync")["over"]
        told = one.get("/v1/privacy")
        unit = "one decision with the records (vx, y) of all its slots, of weights v = 1, 0.5"
        assert (unit in told["statement"], told["private"]) == (private, private)
    for name in ("org1", "org2"):
        with ffx.Agent.open(fleet.database(name)) as agent:
            agent.verify()
            assert agent.held["org1"].count == 12


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
@pytest.mark.parametrize("mode", ["live", "shadow"])
def test_killed_between_two_rewards(mode: str, place: str) -> None:
    running = Running(place, "--dimension", "3", "--slots", "1,0.5", "--mode", mode)
    post, put = (partial(send, verify=False) for send in (httpx.post, httpx.put))  # which is for TLS alone
    body, key = {"contexts": CONTEXTS, "baseline": [2, 0]}, {"idempotency-key": "k"}
    made = post(f"{running.url}/v1/decisions", json=body, headers=key).json()
    first, second = (str(shown["action"]) for shown in made["shown"])
    path = f"/v1/decisions/{made['decision_id']}/reward"
    assert put(running.url + path, json={"rewards": {second: 0.5}}).status_code == 204
    running.kill()
    running.start()
    assert post(f"{running.url}/v1/decisions", json=body, headers=key).json() == made
    assert put(running.url + path, json={"rewards": {second: 0.5}}).status_code == 204
    assert put(running.url + path, json={"rewards": {second: 0.25}}).status_code == 409
    assert put(running.url + path, json={"rewards": {first: 1.0, second: 0.5}}).status_code == 204
    running.stop()
    with ffx.Agent.open(_place(place)) as agent:
        agent.verify()
        assert (agent.observed, agent.pending) == (2, 0)


COMPILED = """
import gc, os
from numba.core.dispatcher import Dispatcher
from service_helpers import CONTEXTS, asking, decide

def compiled():
    return {one: len(one.signatures) for one in gc.get_objects() if isinstance(one, Dispatcher)}

def check(place, given, body):
    with asking(place, **given) as client:
        before = compiled()
        for slots in (2, 1, [1.0, 0.5]):
            made = client.post("/v1/decisions", json={"slots": slots, **body}).json()
            rewards = {one["action_id"] or str(one["action"]): 0.5 for one in made.get("shown", [made])}
            path = f"/v1/decisions/{made['decision_id']}/reward"
            assert client.put(path, json={"rewards": rewards}).status_code == 204
        assert any(before.values())
        assert compiled() == before

assert not any(compiled().values())
for case in CASES:  # each in a process that has compiled nothing
    if os.fork() == 0:
        check(*case)
        os._exit(0)
    assert os.wait()[1] == 0, case
"""


@pytest.mark.process
@pytest.mark.long
def test_no_request_waits_for_a_compiler(tmp_path: Path) -> None:
    cases = [
        (str(tmp_path / "slots" / "agent.db"), {"slots": "3"}, {"contexts": CONTEXTS}),
        (str(tmp_path / "actions" / "agent.db"), {"actions": ("a", "b", "c")}, {}),
    ]
    program = f"import sys; sys.path[:0] = {sys.path!r}; CASES = {cases!r}\n{COMPILED}"
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


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
            wanted = client.decide(baseline=("ann", "cid"))  # recorded, since the service is live
            client.forget(wanted)
            several, one = client.decide_many([{"slots": 3}, {"slots": 1}])
            assert one.policy == one.exposure
            assert one.actions == (one.action,)
            client.observe_many([several, one], [[1.0, None, 0.0], 0.5])
            assert client.get("/v1/model")["observed"] == 5
        asyncio.run(_ask_slowly(running.url))
        assert httpx.get(f"{running.url}/v1/model", verify=False).json()["observed"] == 6
    finally:
        running.stop()


async def _ask_slowly(url: str) -> None:
    async with AsyncClient(url) as client:
        made = await client.decide(["ann", "ben"], slots=[0.5])
        assert [(shown.slot, shown.weight) for shown in made.shown] == [(1, 0.5)]
        await client.observe(made.id, rewards={made.shown[0].name: 1.0})
