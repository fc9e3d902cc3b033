"""Whether rewards arrive: counts of each action and group, the test, and where both are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.service import arrivals, exposure_cache
from fedfairx.service.arrivals import Arrivals
from service_helpers import asking

NAMES = [f"c{k}" for k in range(1, 8)]
BEGIN = 1_900_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def looked_at_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposure_cache, "FRESH", -1.0)
    monkeypatch.setattr(exposure_cache, "COST", 0.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time that decisions are old by."""
    clock = Clock()
    monkeypatch.setattr(arrivals, "time", clock)
    return clock


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """All decisions are old."""
    clock = Clock()
    clock.now = 4_000_000_000.0
    monkeypatch.setattr(arrivals, "time", clock)


def run(client: Any, count: int, rng: np.random.Generator, *, never: str = "c7", rest: float = 0.92) -> None:
    """Decisions of a service of 7 equal actions, and their rewards, which for one action never come."""
    for _ in range(count // 50):
        body = {"decisions": [{}] * 50}
        made = client.post("/v1/decisions/batch", json=body).json()["decisions"]
        given = [
            {"decision_id": one["decision_id"], "reward": float(rng.random())}
            for one in made
            if one["action_id"] != never and rng.random() < rest
        ]
        assert client.post("/v1/rewards", json={"rewards": given}).status_code == 204


@pytest.mark.long
def test_what_never_comes_is_seen_everywhere(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    later(monkeypatch)
    with asking(place, actions=",".join(NAMES)) as client:
        assert "Nothing needs attention" in client.get("/").text
        assert client.get("/v1/rewards").json()["untested"].startswith("Nothing is tested before 20 rewards")
        run(client, 500, rng)
        found = client.get("/v1/rewards").json()
        rows = {row["name"]: row for row in found["actions"]}
        assert [name for name, row in rows.items() if row["missing"]] == ["c7"]
        assert sum(row["decisions"] for row in rows.values()) == 500
        seven = rows["c7"]
        assert (seven["rewards"], seven["waiting"], seven["expired"]) == (0, seven["decisions"], 0)
        for row in rows.values():
            assert row["rewards"] + row["waiting"] == row["decisions"]
        lacking = seven["missing"]
        assert (lacking["kind"], lacking["name"], lacking["came"]) == ("action", "c7", 0)
        assert 0 < lacking["shown"] <= seven["decisions"]
        (text,) = found["missing"]
        assert text.startswith("c7: ")
        assert "none with a reward; others 9" in text
        assert (found["tested"], found["age"], found["error"], found["untested"]) == (480, 60.0, 0.01, "")
        assert found["read"]
        page = client.get("/").text
        assert "Rewards of 1 action are missing" in page
        assert text in page
        assert "Nothing needs attention" not in page
        assert "missing</span>" in client.get("/rewards").text
        metric = r'fedfairx_rewards_missing{agent="' + client.get("/v1/model").json()["name"]
        assert f'{metric}",kind="action",name="c7"}} ' in client.get("/metrics").text
    with asking(place, actions=",".join(NAMES)) as client:  # after a restart
        assert client.get("/v1/rewards").json()["actions"] == found["actions"]
        assert "Rewards of 1 action are missing" in client.get("/").text


def test_without_a_difference_nothing_needs_attention(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    later(monkeypatch)
    with asking(place, actions=",".join(NAMES)) as client:
        run(client, 500, np.random.default_rng(6), never="", rest=0.6)
        assert client.get("/v1/rewards").json()["missing"] == []
        assert "Nothing needs attention" in client.get("/").text
        assert "name=" not in "".join(
            line for line in client.get("/metrics").text.splitlines() if "rewards_missing" in line
        )


def test_with_a_default_reward_nothing_is_tested(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    later(monkeypatch)
    with asking(place, actions=",".join(NAMES), window=1e6, default_reward=0.0) as client:
        run(client, 300, np.random.default_rng(7))
        found = client.get("/v1/rewards").json()
        assert found["missing"] == []
        assert "default_reward" in found["untested"]
        assert "default_reward" in client.get("/rewards").text


def test_counts_follow_every_status(place: str) -> None:
    """By action and group, with withdrawn decisions left out, read at once or bit by bit."""
    actions = [{"id": "ann", "group": "x", "features": [1.0]}, {"id": "ben", "group": "y", "features": [1.0]}]
    with asking(place, dimension=1) as client:
        tally = {name: [0, 0, 0] for name in ("ann", "ben", "x", "y")}  # decisions, rewards, waiting
        for k in range(24):
            one = client.post("/v1/decisions", json={"actions": actions}).json()
            path = f"/v1/decisions/{one['decision_id']}"
            if k % 3 == 0:
                assert client.put(f"{path}/reward", json={"reward": 1.0}).status_code == 204
            elif k % 3 == 1:
                assert client.delete(path).status_code == 204
                continue
            for name in (one["action_id"], "xy"[one["action"]]):
                tally[name][0] += 1
                tally[name][1 + (k % 3 > 0)] += 1
            found = client.get("/v1/rewards").json()
            rows = found["actions"] + found["groups"]
            seen = {row["name"]: [row["decisions"], row["rewards"], row["waiting"]] for row in rows}
            assert seen == {name: counts for name, counts in tally.items() if counts[0]}
        csv = client.get("/rewards?format=csv").text.splitlines()
        assert csv[0] == "kind,name,decisions,rewards,waiting,expired,oldest_waiting,missing"
        assert len(csv) == 1 + len(rows)


def test_counts_of_slots(place: str) -> None:
    with asking(place, actions="a,b,c", slots=2) as client:
        one = client.post("/v1/decisions", json={}).json()
        first, second = (shown["action_id"] for shown in one["shown"])
        path = f"/v1/decisions/{one['decision_id']}/reward"
        assert client.put(path, json={"rewards": {first: 1.0}}).status_code == 204
        rows = {row["name"]: row for row in client.get("/v1/rewards").json()["actions"]}
        assert {name: (row["rewards"], row["waiting"]) for name, row in rows.items()} == {
            first: (1, 0),
            second: (0, 1),
        }
        assert rows[second]["oldest_waiting"] is not None


def log_of(folder: Path, delays: dict[str, float], rng: np.random.Generator, rounds: int) -> ffx.Agent:
    """An agent with one decision per minute; rewards come after exponential delays of these means."""
    agent = ffx.Agent.open(str(folder / "agent.db"), actions=list(delays), seed=3)
    log, begin = agent.journal.log, BEGIN
    due: list[tuple[float, str]] = []
    for t in range(rounds):
        now = begin + 60.0 * t
        for when, identity in sorted(each for each in due if each[0] <= now):
            log.clock = lambda when=when: int(when * 1e9)
            agent.observe(identity, reward=float(rng.random()))
        due = [each for each in due if each[0] > now]
        log.clock = lambda now=now: int(now * 1e9)
        made = agent.decide()
        mean = delays[str(made.name)]
        if np.isfinite(mean) and rng.random() < 0.9:
            due.append((now + rng.exponential(mean), made.id))
    return agent


def reader(agent: ffx.Agent, **more: Any) -> Arrivals:
    given: dict[str, Any] = {"most": 100_000, "window": None, "default_reward": False}
    return Arrivals(agent.journal, **given | more)


@pytest.mark.long
def test_late_is_not_missing(tmp_path: Path, clock: Clock) -> None:
    """Rewards of one action take three times as long as those of the others."""
    rng = np.random.default_rng(11)
    delays = {"a": 1200.0, "b": 1200.0, "c": 1200.0, "slow": 3600.0}
    with log_of(tmp_path, delays, rng, 900) as agent:
        clock.now = BEGIN + 60.0 * 900
        table = reader(agent).update()
        assert table.age is not None
        assert table.age >= 3600.0
        assert table.tested > 100
        assert table.alarms() == []


@pytest.mark.long
def test_late_rewards_do_not_hide_missing_ones(tmp_path: Path, clock: Clock) -> None:
    rng = np.random.default_rng(12)
    with log_of(tmp_path, {"a": 1200.0, "b": 2400.0, "c": np.inf}, rng, 600) as agent:
        clock.now = BEGIN + 60.0 * 600
        table = reader(agent).update()
        assert [each.name for each in table.alarms()] == ["c"]
        young = reader(agent, window=600.0).update()
        assert young.age == 600.0  # nothing comes later


def test_young_decisions_are_not_tested(tmp_path: Path, clock: Clock) -> None:
    with log_of(tmp_path, {"a": 10.0, "b": 10.0}, np.random.default_rng(13), 80) as agent:
        clock.now = BEGIN + 60.0 * 40  # as if half of them had not been made
        assert reader(agent).update().tested == arrivals.BATCH
        assert reader(agent, most=20).update().tested == 0  # the others are too many for it


def test_counts_are_there_while_decisions_are_tested(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "EVERY", 1)
    with log_of(tmp_path, {"a": 1.0, "b": 1.0}, np.random.default_rng(0), 3 * arrivals.BATCH) as agent:
        clock.now = BEGIN + 1e6
        found, seen = reader(agent), []
        assert (found.table.read, found.table.untested) == (False, arrivals.COUNTING)
        add = arrivals.MissingTest.add

        def watched(test: arrivals.MissingTest, log: Any) -> None:
            seen.append(found.table)
            add(test, log)

        monkeypatch.setattr(arrivals.MissingTest, "add", watched)
        whole = found.update()
        assert [table.tested for table in seen] == [0, arrivals.BATCH, 2 * arrivals.BATCH]
        assert {(table.read, table.untested) for table in seen[1:]} == {(False, arrivals.TESTING)}
        assert seen[1].actions == whole.actions
        assert (whole.read, whole.untested, whole.tested) == (True, "", 3 * arrivals.BATCH)
        assert found.table is whole
