"""The mean reward and the lift over controls: on the API, on the page and in metrics."""

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
from fedfairx.storage.records import StoredSlot
from service_helpers import CONTEXTS, asking

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


def test_the_lift_is_shown_at_once(place: str) -> None:
    rng = np.random.default_rng(4)
    with asking(place, control_share=SHARE, reward_range="0:1") as client:
        assert model(client)["lift"] is None
        assert "There are too few rewards to compare" in client.get("/").text
        decisions, given = [], []
        for count in (3, 57):  # it goes on where it was
            decisions += made(client, count)
            given += reward(client, decisions[-count:], rng)
            found = model(client)
        modes = [one["mode"] for one in decisions]
        assert found["mean_reward"] == pytest.approx(np.mean(given))
        lift = found["lift"]
        assert lift["decisions"] == 60
        assert lift["value"] == pytest.approx(literal(given, modes))
        for name in ("live", "control"):
            rewards = [one for one, mode in zip(given, modes, strict=True) if mode == name]
            assert lift[name] == pytest.approx(np.mean(rewards))
        so_far, shares = LiftSoFar(), np.full(60, SHARE)
        so_far.add(np.array(given), np.array(modes) == "live", shares)
        whole = so_far.answer()
        assert (lift["low"], lift["high"]) == (pytest.approx(whole.low), pytest.approx(whole.high))
        metrics = client.get("/metrics").text
        for name, value in (("lift", "value"), ("lift_low", "low"), ("lift_high", "high")):
            assert f'\nfedfairx_{name}{{agent="{found["name"]}"}} {lift[value]!r}\n' in metrics
        mean = f'fedfairx_mean_reward{{agent="{found["name"]}"}} {found["mean_reward"]!r}'
        assert f"\n{mean}\n" in metrics
        page = client.get("/").text
        assert lift["statement"] in page
        assert f"Mean reward</dt><dd>{np.mean(given):.3g}<small>of 60" in page


def test_a_restart_shows_the_same(tmp_path: Path) -> None:
    place = str(tmp_path / "agent.db")
    with asking(place, control_share=SHARE) as client:
        reward(client, made(client, 40), np.random.default_rng(5))
        before = model(client)["lift"]
    with asking(place, control_share=SHARE) as client:
        assert model(client)["lift"] == before
    with asking(place) as client:
        assert model(client)["lift"] is None  # nobody is compared any more
        assert "Live decisions and controls" not in client.get("/").text


def test_a_replaced_reward_counts_at_once(tmp_path: Path) -> None:
    """In the lift and in the mean."""
    rng = np.random.default_rng(8)
    with asking(str(tmp_path / "agent.db"), control_share=SHARE, reward_range="0:1") as client:
        decisions = made(client, 40)
        rewards, modes = reward(client, decisions, rng), [one["mode"] for one in decisions]
        assert model(client)["lift"]["value"] == pytest.approx(literal(rewards, modes))
        rewards[3] = 1.0 - rewards[3]
        body = {"reward": rewards[3], "replace": True}
        assert client.put(f"/v1/decisions/{decisions[3]['decision_id']}/reward", json=body).status_code == 204
        after = model(client)
        assert after["mean_reward"] == pytest.approx(np.mean(rewards))
        assert after["lift"]["value"] == pytest.approx(literal(rewards, modes))


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
        for later, count in ((86_390.0, None), (86_410.0, 149)):
            clock = SimpleNamespace(time=lambda later=later: last + later)
            monkeypatch.setattr(earnings, "time", clock)
            lift = model(client)["lift"]
            assert (None if lift is None else lift["decisions"]) == count


def test_the_reward_of_slots_is_their_mean() -> None:
    slots = [StoredSlot(0, 1.0, 1.0, 0, reward=each) for each in (1.0, None, 0.5)]
    assert mean_reward(SimpleNamespace(slots=slots, reward=1.5)) == 0.75  # type: ignore[arg-type]
    assert mean_reward(SimpleNamespace(slots=slots[1:2], reward=None)) is None  # type: ignore[arg-type]
    assert mean_reward(SimpleNamespace(slots=[], reward=0.25)) == 0.25  # type: ignore[arg-type]
