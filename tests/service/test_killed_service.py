"""Killed at any moment: what was acknowledged is there, exactly once, and the model is what its log says."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from hypothesis import settings

import fedfairx as ffx
from fedfairx.service.settings import place_of
from service_helpers import CONTEXTS, Running, settings_for, until

pytestmark = pytest.mark.process

ROUNDS = min(20, settings.default.max_examples // 3)  # 8, and 20 in `make test-all`
CLIENTS = 4


@dataclass
class Told:
    """What the service has acknowledged to one client, and what that client asks again after a crash."""

    decisions: dict[str, dict[str, Any]] = field(default_factory=dict)  # by idempotency key
    rewards: dict[str, float] = field(default_factory=dict)  # by decision
    asking: str = ""
    wrong: list[str] = field(default_factory=list)


def load(url: str, told: Told, stop: threading.Event, seed: int, *, pause: float = 0.0) -> None:
    """Ask until the service is gone: decisions under a key each, and a reward for most of them."""
    rng = random.Random(seed)
    with httpx.Client(base_url=url, timeout=5.0, verify=False) as http:
        while not stop.wait(pause):
            told.asking = told.asking or str(uuid.UUID(int=rng.getrandbits(128)))
            try:
                answer = http.post(
                    "/v1/decisions", json={"contexts": CONTEXTS}, headers={"idempotency-key": told.asking}
                )
                if answer.status_code != 201:
                    told.wrong.append(answer.text)
                made = answer.json()
                told.decisions[told.asking] = made
                told.asking = ""
                if rng.random() < 0.8:
                    reward = rng.random()
                    path = f"/v1/decisions/{made['decision_id']}/reward"
                    taken = http.put(path, json={"reward": reward})
                    if taken.status_code != 204:
                        told.wrong.append(taken.text)
                    told.rewards[made["decision_id"]] = reward
            except httpx.TransportError:
                return


def test_nothing_acknowledged_is_lost(place: str) -> None:
    rng = random.Random(12)
    told = [Told() for _ in range(CLIENTS)]
    running = Running(place, "--dimension", "3")
    for number in range(ROUNDS):
        stop = threading.Event()
        threads = [
            threading.Thread(target=load, args=(running.url, one, stop, 1000 * number + i))
            for i, one in enumerate(told)
        ]
        for thread in threads:
            thread.start()
        before = sum(len(one.rewards) for one in told)
        until(lambda before=before: sum(len(one.rewards) for one in told) > before + 4)
        time.sleep(rng.uniform(0.0, 0.03))
        running.kill()
        stop.set()
        for thread in threads:
            thread.join()
        running.start()
    check(running, told)
    running.stop()
    assert not [text for one in told for text in one.wrong]
    replayed(place)


def test_stopped_in_order_it_finishes_what_it_has_begun(place: str) -> None:
    told = [Told() for _ in range(CLIENTS)]
    running = Running(place, "--dimension", "3")
    stop = threading.Event()
    threads = [
        threading.Thread(target=load, args=(running.url, one, stop, i), daemon=True)
        for i, one in enumerate(told)
    ]
    for thread in threads:
        thread.start()
    until(lambda: sum(len(one.rewards) for one in told) > 8)
    running.stop()
    stop.set()
    for thread in threads:
        thread.join()
    assert not [text for one in told for text in one.wrong]
    assert "Traceback" not in running.said
    with ffx.Agent.open(place_of(settings_for(place))) as agent:
        rewards = {identity: reward for one in told for identity, reward in one.rewards.items()}
        kept = {row.id: row.reward for row in agent.journal.decisions(status="rewarded")}
        assert rewards.items() <= kept.items()
        made = {one["decision_id"] for each in told for one in each.decisions.values()}
        assert made <= {row.id for row in agent.journal.decisions()}


def check(running: Running, told: list[Told], rounds: int = ROUNDS) -> None:
    """Each acknowledged decision and reward is there once, as it was told; asked again, it is the same."""
    with httpx.Client(base_url=running.url, verify=False) as http:
        rows = [json.loads(line) for line in http.get("/v1/export").text.splitlines()]
        kept = {row["decision_id"]: row for row in rows}
        assert len(kept) == len(rows)
        acknowledged = {key: made for one in told for key, made in one.decisions.items()}
        rewards = {identity: reward for one in told for identity, reward in one.rewards.items()}
        assert len(rewards) > 4 * rounds  # it was loaded indeed
        assert len({made["decision_id"] for made in acknowledged.values()}) == len(acknowledged)
        for made in acknowledged.values():
            assert kept[made["decision_id"]]["policy"] == made["policy"]
            assert kept[made["decision_id"]]["action"] == made["action"]
        for identity, reward in rewards.items():
            assert (kept[identity]["status"], kept[identity]["reward"]) == ("rewarded", reward)
        # What was written and not acknowledged is at most what was under way when it was killed.
        assert len(kept) - len(acknowledged) <= CLIENTS * rounds
        for key, made in list(acknowledged.items())[:: max(1, len(acknowledged) // 20)]:
            again = http.post("/v1/decisions", json={"contexts": CONTEXTS}, headers={"idempotency-key": key})
            assert again.json() == made
        assert http.get("/v1/model").json()["observed"] == sum(row["status"] == "rewarded" for row in rows)


def replayed(place: str) -> None:
    """The model is the one that its log leads to, and what an agent in memory learns from it, to the bit."""
    with ffx.Agent.open(place_of(settings_for(place))) as agent:
        agent.verify()
        made = {row.seq: row for row in agent.journal.decisions(status="rewarded")}
        order = agent.journal.log.database.read("SELECT decision FROM outcomes ORDER BY seq")
        rows = [made[number] for (number,) in order]
        other = ffx.Agent(3)
        other.learn([row.contexts[row.action] for row in rows], [row.reward for row in rows])
        assert agent.estimate.tobytes() == other.estimate.tobytes()
        assert agent.observed == other.observed
        assert agent.pending == agent.journal.counts()["pending"]
