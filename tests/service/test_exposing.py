"""Exposure from the service's log: the library's table, bounded, over windows, one at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from service_helpers import ACTIONS, asking, decide, settings_for
from starlette.testclient import TestClient

import fedfairx as ffx
from fedfairx.service import exposing
from fedfairx.service.app import make_app
from fedfairx.service.counting import Counting
from fedfairx.service.opening import open_service
from fedfairx.service.service import Service
from fedfairx.storage.glances import by_time, first_time, last_of, latest, number_at


@contextmanager
def served(place: str, **given) -> Iterator[tuple[TestClient, Service]]:
    """A service, and a client of it."""
    service = open_service(settings_for(place, **given))
    with TestClient(make_app(service), base_url="http://127.0.0.1") as client:
        yield client, service


def rewarded(client, count: int, **more) -> None:
    for t in range(count):
        made = decide(client, actions=ACTIONS, **more)
        client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": float(t % 2)})


def test_it_is_the_table_of_the_library(place: str) -> None:
    with served(place) as (client, service):
        rewarded(client, 40)
        gone = decide(client, actions=ACTIONS)
        client.delete(f"/v1/decisions/{gone['decision_id']}")
        decide(client, actions=ACTIONS)  # its reward has not come
        found = client.get("/v1/exposure").json()
        log = [
            ffx.Logged(
                each.policy,
                None if each.status == "withdrawn" else each.action,
                each.contexts,
                each.names,
                each.groups,
                each.drawn,
                each.reward,
            )
            for each in service.journal.decisions()
        ]
        table = ffx.exposure(log)
        assert [row["name"] for row in found["actions"]] == ["ann", "ben", "cat"]
        assert [row["name"] for row in found["groups"]] == ["small", "large"]
        for written, row in zip(
            found["actions"] + found["groups"], table.actions + table.groups, strict=True
        ):
            assert written["shown_times"] == row.count
            assert written["entitled"]["low"] == pytest.approx(row.entitled.low)
            assert written["entitled"]["high"] == pytest.approx(row.entitled.high)
            assert written["shown"] == {
                "value": row.shown.value,
                "low": row.shown.low,
                "high": row.shown.high,
            }
            assert written["verdict"] == row.verdict == "too little data"
        assert (found["decisions"], found["withdrawn"], found["draws"]["decisions"]) == (41, 1, 42)
        assert found["draws"]["p_value"] == pytest.approx(table.draws.p_value)
        assert not found["bounded"]
        assert client.get("/v1/exposure", params={"since": "soon"}).status_code == 422


def test_a_window_counts_what_was_made_in_it(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposing, "FRESH", 0.0)
    monkeypatch.setattr(exposing, "COST", 0.0)
    with asking(place) as client:
        rewarded(client, 3)
        time.sleep(0.05)
        middle = time.time()
        time.sleep(0.05)
        rewarded(client, 5)
        ask = client.get
        assert ask("/v1/exposure", params={"since": middle}).json()["decisions"] == 5
        assert ask("/v1/exposure", params={"until": middle}).json()["decisions"] == 3
        assert ask("/v1/exposure", params={"since": middle, "until": middle}).json()["decisions"] == 0
        empty = ask("/v1/exposure", params={"since": time.time() + 100}).json()
        assert (empty["decisions"], empty["actions"], empty["first"]) == (0, [], None)


def test_of_too_many_decisions_the_latest_are_looked_at(place: str) -> None:
    with asking(place, exposure_decisions=10) as client:
        rewarded(client, 10)
        assert client.get("/v1/exposure").json()["bounded"] is False
    with asking(place, exposure_decisions=10) as client:
        rewarded(client, 3)
        found = client.get("/v1/exposure").json()
        assert (found["decisions"], found["bounded"]) == (10, True)


def test_in_shadow_mode_it_is_a_table_of_the_callers_own_choices(place: str) -> None:
    with asking(place, mode="shadow") as client:
        rewarded(client, 30, baseline="ben")
        found = client.get("/v1/exposure").json()
        assert {row["name"]: row["shown_times"] for row in found["actions"]} == {
            "ann": 0,
            "ben": 30,
            "cat": 0,
        }
        assert found["baseline"] == 30
        assert found["draws"]["verdict"] == "as the policy said"


def test_many_who_look_make_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = exposing.exposure
    monkeypatch.setattr(exposing, "exposure", lambda *args, **more: made.append(1) or real(*args, **more))
    with served(str(tmp_path / "agent.sqlite")) as (client, service):
        rewarded(client, 3)

        async def look() -> None:
            await asyncio.gather(*(service.exposing.look(exact=True) for _ in range(20)))

        client.portal.call(look)
        assert len(made) == 1


def test_glances(place: str) -> None:
    with served(place) as (client, service):
        journal = service.journal
        assert latest(journal, limit=5) == []
        assert first_time(journal) is None
        assert number_at(journal, time.time()) == 0
        before = time.time() - 1
        rewarded(client, 12)
        decide(client)
        every = [each.seq for each in journal.decisions()]
        assert [each.seq for each in latest(journal, limit=5)] == every[::-1][:5]
        assert [each.seq for each in latest(journal, limit=50, before=every[4])] == every[:4][::-1]
        end = number_at(journal, None)
        assert end == every[-1] + 1
        for each in journal.decisions():
            assert number_at(journal, each.time - 1e-7) <= each.seq
        assert number_at(journal, time.time() + 100) == end
        assert last_of(journal, 3, first=0, end=end) == every[-3]
        assert last_of(journal, 100, first=0, end=end) == 0
        made, rewards = by_time(journal, since=before, width=3_600.0, count=2)
        assert (sum(made), sum(rewards)) == (13, 12)


def test_counts_are_brought_up_to_date(place: str) -> None:
    with served(place) as (client, service):
        journal, counting, since = service.journal, Counting(), time.time() - 10
        for _ in range(3):
            rewarded(client, 4)
            gone = decide(client)
            client.delete(f"/v1/decisions/{gone['decision_id']}")
            decide(client)
            rewarded(client, 1)
            assert counting.by_status(journal) == journal.counts()
            time.sleep(0.1)
            for width in (0.1, 5.0):
                count = int((time.time() - since) / width) + 1
                now = counting.by_time(journal, since=since, width=width, count=count)
                assert now == by_time(journal, since=since, width=width, count=count)
        assert counting.by_status(journal) == {"pending": 3, "rewarded": 15, "withdrawn": 3, "expired": 0}
