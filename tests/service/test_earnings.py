"""The mean reward and the lift over controls: on the API, on the page and in metrics, by whole batches."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedfairx.evaluation.lift import LiftSoFar
from fedfairx.service import earnings, exposure_cache
from fedfairx.service.earnings import mean_reward
from fedfairx.service.settings import place_of
from fedfairx.storage.api_keys import open_keys
from fedfairx.storage.records import StoredSlot
from service_helpers import CONTEXTS, asking, settings_for

SHARE = 0.3


@pytest.fixture(autouse=True)
def looked_at_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    random.seed(0)  # which decides who is a control
    monkeypatch.setattr(exposure_cache, "FRESH", -1.0)
    monkeypatch.setattr(exposure_cache, "COST", 0.0)


def made(client: Any, count: int, **more: Any) -> list[dict[str, Any]]:
    body = {"decisions": [{"contexts": CONTEXTS, "baseline": 0, **more}] * count}
    answer = client.post("/v1/decisions/batch", json=body)
    assert answer.status_code == 201, answer.text
    found: list[dict[str, Any]] = answer.json()["decisions"]
    return found


def reward(client: Any, decisions: list[dict[str, Any]], rng: np.random.Generator) -> list[float]:
    """Live decisions succeed in four of five cases, controls in one of four."""
    given = [float(rng.random() < (0.8 if one["mode"] == "live" else 0.25)) for one in decisions]
    body = [
        {"decision_id": one["decision_id"], "reward": each}
        for one, each in zip(decisions, given, strict=True)
    ]
    assert client.post("/v1/rewards", json={"rewards": body}).status_code == 204
    return given


def model(client: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/v1/model").json()
    return found


def literal(rewards: list[float], modes: list[str]) -> float:
    """The lift, decision by decision, for rewards in [0, 1]."""
    total = 0.0
    for place, (one, mode) in enumerate(zip(rewards, modes, strict=True)):
        guess = sum(rewards[:place]) / place if place else 0.5
        total += (one - guess) / (1 - SHARE) if mode == "live" else -(one - guess) / SHARE
    return total / len(rewards)


@pytest.mark.long
def test_the_lift_is_shown_by_whole_batches(place: str) -> None:
    rng = np.random.default_rng(4)
    with asking(place, control_share=SHARE, reward_range="0:1") as client:
        assert model(client)["lift"] is None
        assert "There are too few rewards to compare" in client.get("/").text
        decisions = made(client, 230)
        given = reward(client, decisions, rng)
        found, modes = model(client), [one["mode"] for one in decisions]
        assert found["mean_reward"] == float(f"{np.mean(given[:200]):.3g}")
        lift = found["lift"]
        assert lift["decisions"] == 200
        assert lift["value"] == pytest.approx(literal(given[:200], modes[:200]), abs=5.1e-4)
        for name in ("live", "control"):
            rewards = [one for one, mode in zip(given[:200], modes, strict=False) if mode == name]
            assert lift[name] == pytest.approx(np.mean(rewards), abs=5.1e-4)
        assert -1.0 <= lift["low"] <= lift["value"] <= lift["high"] <= 1.0
        so_far, shares = LiftSoFar(), np.full(200, SHARE)
        so_far.add(np.array(given[:200]), np.array(modes[:200]) == "live", shares)
        exact = so_far.answer()  # whose interval is inside, by less than a thousandth
        assert 0 <= exact.low - lift["low"] < 0.001 > lift["high"] - exact.high >= 0
        assert {round(1000 * lift[name], 9) % 1 for name in ("value", "low", "high")} == {0.0}  # thousandths
        metrics = client.get("/metrics").text
        for name, value in (("lift", "value"), ("lift_low", "low"), ("lift_high", "high")):
            assert f'\nfedfairx_{name}{{agent="{found["name"]}"}} {lift[value]!r}\n' in metrics
        mean = f'fedfairx_mean_reward{{agent="{found["name"]}"}} {found["mean_reward"]!r}'
        assert f"\n{mean}\n" in metrics
        page = client.get("/").text
        assert lift["statement"] in page
        assert f"Mean reward</dt><dd>{np.mean(given):.3g}<small>of 230" in page  # an admin sees all rewards


@pytest.mark.long
def test_a_restart_shows_the_same(tmp_path: Path) -> None:
    place = str(tmp_path / "agent.db")
    with asking(place, control_share=SHARE) as client:
        for _ in range(2):  # a batch is whole in the middle of the log
            reward(client, made(client, 130), np.random.default_rng(5))
            before = model(client)["lift"]
    with asking(place, control_share=SHARE) as client:
        assert model(client)["lift"] == before
    with asking(place) as client:
        assert model(client)["lift"] is None  # nobody is compared any more
        assert "Live decisions and controls" not in client.get("/").text


@pytest.mark.long
def test_a_replaced_reward_counts_from_the_next_batch_on(tmp_path: Path) -> None:
    """Whatever restarts there are, in the lift and in the mean."""
    place, rng = str(tmp_path / "agent.db"), np.random.default_rng(8)
    settings: dict[str, Any] = {"control_share": SHARE, "reward_range": "0:1"}
    with asking(place, **settings) as client:
        decisions = made(client, 130)
        rewards, before = reward(client, decisions, rng), model(client)
        body = {"reward": 1.0 - rewards[3], "replace": True}
        assert client.put(f"/v1/decisions/{decisions[3]['decision_id']}/reward", json=body).status_code == 204
        assert [model(client)[name] for name in ("lift", "mean_reward")] == [
            before["lift"],
            before["mean_reward"],
        ]
    with asking(place, **settings) as client:
        assert [model(client)[name] for name in ("lift", "mean_reward")] == [
            before["lift"],
            before["mean_reward"],
        ]
        decisions += made(client, 80)
        rewards += reward(client, decisions[130:], rng)
        rewards[3] = 1.0 - rewards[3]
        after = model(client)
        assert after["mean_reward"] == float(f"{np.mean(rewards[:200]):.3g}")
        modes = [one["mode"] for one in decisions]
        assert after["lift"]["value"] == pytest.approx(literal(rewards[:200], modes[:200]), abs=5.1e-4)
    with asking(place, **settings) as client:
        assert [model(client)[name] for name in ("lift", "mean_reward")] == [
            after["lift"],
            after["mean_reward"],
        ]


def test_a_decision_that_may_still_be_rewarded_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is rewarded sooner is not preferred."""
    rng = np.random.default_rng(6)
    with asking(str(tmp_path / "agent.db"), control_share=SHARE) as client:
        decisions = made(client, 150)
        reward(client, decisions[1:], rng)
        assert model(client)["lift"] is None
        last = json.loads(client.get("/v1/export").text.splitlines()[0])["time"]
        for later, count in ((86_390.0, None), (86_410.0, 100)):
            clock = SimpleNamespace(time=lambda later=later: last + later)
            monkeypatch.setattr(earnings, "time", clock)
            lift = model(client)["lift"]
            assert (None if lift is None else lift["decisions"]) == count


def test_a_mean_of_few_rewards_is_not_shown(tmp_path: Path) -> None:
    """A batch waits for ten controls; their mean would otherwise reveal a single reward."""
    rng, modes = np.random.default_rng(7), []
    with asking(str(tmp_path / "agent.db"), control_share=0.02) as client:
        while modes.count("control") < 10:
            assert model(client)["lift"] is None
            decisions = made(client, 20)
            modes += [one["mode"] for one in decisions]
            reward(client, decisions, rng)
        assert len(modes) > 100
        places = [place for place, mode in enumerate(modes) if mode == "control"]
        assert model(client)["lift"]["decisions"] == max(100, places[9] + 1)


def test_the_reward_of_slots_is_their_mean() -> None:
    slots = [StoredSlot(0, 1.0, 1.0, 0, reward=each) for each in (1.0, None, 0.5)]
    assert mean_reward(SimpleNamespace(slots=slots, reward=1.5)) == 0.75  # type: ignore[arg-type]
    assert mean_reward(SimpleNamespace(slots=slots[1:2], reward=None)) is None  # type: ignore[arg-type]
    assert mean_reward(SimpleNamespace(slots=[], reward=0.25)) == 0.25  # type: ignore[arg-type]


def test_an_admin_sees_the_mean_of_all_rewards_and_a_reader_that_of_whole_batches(place: str) -> None:
    with open_keys(place_of(settings_for(place))) as keys:
        roles = {role: {"authorization": f"Bearer {keys.add(role, role)}"} for role in ("reader", "admin")}
    with asking(place) as client:
        client.headers = roles["admin"]
        given = reward(client, made(client, 30), np.random.default_rng(6))
        mean = f"Mean reward</dt><dd>{np.mean(given):.3g}<small>of 30</small>"
        assert mean in client.get("/").text
        page = client.get("/", headers=roles["reader"]).text
        assert "Mean reward</dt><dd>–<small>after 100 rewards</small>" in page
        assert "rests on no reward yet" in page  # "no reward has come" would not be true
        assert "The table is updated after every 100 rewards" in page
