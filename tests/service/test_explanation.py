"""Why an action has its share, over HTTP: sums that give the stored policy, by the names of features."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest

from fedfairx.service.auth import ROLES
from fedfairx.service.settings import place_of
from fedfairx.storage.api_keys import open_keys
from service_helpers import ACTIONS, asking, decide, settings_for

FEATURES = {"price": [0, 10], "distance": [0, 5]}
NAMED = [
    {"id": "ann", "features": {"price": 3, "distance": 1}, "group": "small"},
    {"id": "ben", "features": {"price": 8, "distance": 4}, "group": "large"},
    {"id": "cat", "features": {"price": 5, "distance": 2}},
]


def reward(client: Any, made: dict[str, Any], value: float) -> None:
    client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": value})


def explain(client: Any, made: dict[str, Any], **more: Any) -> Any:
    return client.get(f"/v1/decisions/{made['decision_id']}/explanation", **more)


def check(found: dict[str, Any], policy: list[float], columns: list[str]) -> None:
    """Parts add up to log merits, and these give the policy."""
    assert found["columns"] == columns
    logs = []
    for one in found["actions"]:
        total = sum(one["contributions"]) + one["uncertainty"]
        assert total == pytest.approx(one["log_merit"], abs=1e-9)
        if one["uncertainties"] is not None:
            assert sum(one["uncertainties"]) == pytest.approx(one["uncertainty"], abs=1e-9)
        logs.append(total)
    merits = np.exp(logs)
    assert (merits / merits.sum()).tolist() == pytest.approx(policy, abs=1e-9)
    assert [one["share"] for one in found["actions"]] == pytest.approx(policy)


def test_contributions_are_by_feature_and_of_that_time(place: str) -> None:
    with asking(place, features=FEATURES, intercept=True) as client:
        for t in range(12):
            reward(client, decide(client, actions=NAMED), float(t % 3 > 0))
        made = decide(client, actions=NAMED)
        now = explain(client, made).json()
        check(now, made["policy"], ["price", "distance", "intercept"])
        assert now["unit"] == "log merit"
        assert now["actions"][0]["uncertainties"] is not None
        assert [one["contributions"][2] for one in now["actions"]] == pytest.approx([0, 0, 0], abs=1e-12)
        reward(client, made, 1.0)  # the model moves on, and what is said of the decision stays
        later = explain(client, made).json()
        check(later, made["policy"], ["price", "distance", "intercept"])
        for before, after in zip(now["actions"], later["actions"], strict=True):
            assert after["uncertainties"] is None
            assert after["contributions"] == before["contributions"]
            assert after["uncertainty"] == pytest.approx(before["uncertainty"], abs=1e-9)
        assert "has learnt since" in later["statement"]
        page = client.get(f"/decisions/{made['decision_id']}").text
        assert "Why this share" in page
        for name in ("price", "distance", "what is not known yet"):
            assert name in page
        lines = client.get(f"/decisions/{made['decision_id']}?format=csv").text
        table = list(csv.reader(io.StringIO(lines)))
        assert table[0][:2] + table[0][5:] == ["action", "taken", "price", "distance", "intercept"]
        assert [row[0] for row in table[1:]] == ["ann", "ben", "cat"]


def test_actions_without_features_have_their_expected_reward(place: str) -> None:
    with asking(place, actions=["ann", "ben", "cid"]) as client:
        for t in range(8):
            reward(client, decide(client, actions=["ann", "ben", "cid"]), float(t % 2))
        client.put("/v1/actions/dan")
        made = decide(client, actions=["cid", "ann"])
        found = explain(client, made).json()
        check(found, made["policy"], ["expected reward"])
        assert [one["action_id"] for one in found["actions"]] == ["cid", "ann"]
        client.put("/v1/actions/eve")  # the model grows: what was decided is still explained
        check(explain(client, made).json(), made["policy"], ["expected reward"])


def test_who_is_no_admin_sees_no_explanation(place: str) -> None:
    """Contributions tell contexts, and earlier rewards."""
    with open_keys(place_of(settings_for(place))) as keys:
        roles = {role: {"authorization": f"Bearer {keys.add(role, role)}"} for role in ROLES}
    with asking(place) as client:
        body = {"actions": ACTIONS}
        made = client.post("/v1/decisions", json=body, headers=roles["admin"]).json()
        assert explain(client, made, headers=roles["admin"]).status_code == 200
        for role in ("reader", "writer", "federation"):
            assert explain(client, made, headers=roles[role]).status_code == 403
        text = client.get(f"/decisions/{made['decision_id']}", headers=roles["reader"]).text
        assert "only an admin may see" in text
        assert "ann" in text
        assert "log merit" not in text
        assert (
            "share"
            not in client.get(f"/decisions/{made['decision_id']}?format=csv", headers=roles["reader"]).text
        )
        assert explain(client, {"decision_id": "none"}, headers=roles["admin"]).status_code == 404
        assert client.get("/decisions/none", headers=roles["reader"]).status_code == 404


def test_several_slots_are_explained_too(place: str) -> None:
    with asking(place) as client:
        made = decide(client, actions=ACTIONS, slots=[1.0, 0.6])
        found = explain(client, made).json()
        assert found["columns"] == ["x1", "x2", "x3"]
        assert [one["share"] for one in found["actions"]] == pytest.approx(made["exposure"])
        assert "Why this weight" in client.get(f"/decisions/{made['decision_id']}").text
