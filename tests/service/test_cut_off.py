"""A process that lost its database meanwhile ends, and writes nothing more: another process had it, or it is
an older copy."""

from __future__ import annotations

import json

import httpx
import psycopg
import pytest

import fedfairx as ffx
from fedfairx.storage.verification import check_logs, open_for_reading
from servers import Postgres
from service_helpers import CONTEXTS, Running, until

pytestmark = pytest.mark.process

AGENTS = ["plain", "private"]
PRIVATE = {"dimension": 3, "epsilon": 2.0, "releases": 9}


def cut(postgres: Postgres) -> None:
    """End all connections, as a network or an administrator would."""
    with psycopg.connect(postgres.address, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


def begin(place: str) -> Running:
    """A service with two agents, one of them private."""
    running = Running(place)
    with httpx.Client(base_url=running.url) as http:
        for name, settings in zip(AGENTS, ({"dimension": 3}, PRIVATE), strict=True):
            assert http.put(f"/v1/agents/{name}", json=settings).status_code in (200, 201)
    return running


def rewarded(running: Running, count: int, pending: int = 1) -> list[str]:
    """Rewards of each agent, and decisions of each that wait for theirs: where to send those."""
    waiting = []
    with httpx.Client(base_url=running.url) as http:
        for name in AGENTS:
            for number in range(count + pending):
                made = http.post(f"/v1/agents/{name}/decisions", json={"contexts": CONTEXTS}).json()
                path = f"/v1/agents/{name}/decisions/{made['decision_id']}/reward"
                if number < count:
                    assert http.put(path, json={"reward": 0.5}).status_code == 204
                else:
                    waiting.append(path)
    return waiting


def ended(running: Running) -> str:
    """What a process said at its end."""
    until(running.gone, seconds=30)
    running.close()
    assert "Traceback" not in running.said
    return running.said.rpartition("fedfairx: ")[2]


def check(place: str, rewards: int, waiting: list[str]) -> None:
    """Nothing is damaged or lost: a new process has it all, and can go on."""
    with open_for_reading(place) as database:
        assert [(log.rewards, log.damage) for log in check_logs(database)] == [(rewards, None)] * len(AGENTS)
    running = Running(place)
    with httpx.Client(base_url=running.url) as http:
        for path in waiting:
            assert http.put(path, json={"reward": 1.0}).status_code == 204
        for name in AGENTS:
            rows = [json.loads(line) for line in http.get(f"/v1/agents/{name}/export").text.splitlines()]
            kept = sum(row["status"] == "rewarded" for row in rows)
            assert kept == rewards + len(waiting) // len(AGENTS)
    rewarded(running, 3)
    running.stop()
    for name in AGENTS:
        with ffx.Agent.open(place, name=name) as agent:
            agent.verify()


def ask(http: httpx.Client) -> int:
    return http.post("/v1/agents/plain/decisions", json={"contexts": CONTEXTS}).status_code


@pytest.mark.parametrize(("still", "pending"), [(False, 0), (False, 1), (True, 1)])
def test_a_process_that_was_cut_off_ends(postgres: Postgres, still: bool, pending: int) -> None:
    """`still`: the other process has the database when this one comes back."""
    place = postgres.schema()
    first = begin(place)
    waiting = rewarded(first, 20, pending)
    first.pause()
    cut(postgres)
    second = Running(place)
    waiting += rewarded(second, 20, pending)
    if not still:
        second.stop()
    first.resume()
    with httpx.Client(base_url=first.url) as http:
        assert ask(http) == 503
    assert " was locked by process " in ended(first)
    if still:
        second.stop()
    check(place, 40, waiting)


def test_a_process_whose_connection_was_cut_goes_on(postgres: Postgres) -> None:
    place = postgres.schema()
    running = begin(place)
    waiting = rewarded(running, 5)
    with httpx.Client(base_url=running.url) as http:
        for _ in range(3):
            cut(postgres)
            assert ask(http) == 503  # a connection that is gone is noticed when it is used
            until(lambda: ask(http) == 201)
            waiting += rewarded(running, 5)
    running.stop()
    check(place, 20, waiting)
