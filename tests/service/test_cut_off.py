"""A process that lost its database meanwhile ends, and writes nothing more: another process had it, or it is
an older copy."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import psycopg
import pytest

import fedfairx as ffx
from fedfairx.storage.open_log import open_for_reading
from fedfairx.storage.verification import check_logs
from servers import Postgres
from service_helpers import CONTEXTS, Running, until

pytestmark = pytest.mark.process

SETTINGS = {"plain": {"dimension": 3}, "private": {"dimension": 3, "epsilon": 2.0, "releases": 9}}
AGENTS = [*SETTINGS]


def cut(postgres: Postgres) -> None:
    """End all connections, as a network or an administrator would."""
    with psycopg.connect(postgres.address, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


def begin(place: str, agents: list[str] = AGENTS) -> Running:
    """A service with these agents."""
    running = Running(place)
    with httpx.Client(base_url=running.url) as http:
        for name in agents:
            assert http.put(f"/v1/agents/{name}", json=SETTINGS[name]).status_code in (200, 201)
    return running


def rewarded(running: Running, count: int, pending: int = 1, agents: list[str] = AGENTS) -> list[str]:
    """Rewards of each agent, and decisions of each that wait for theirs: where to send those."""
    waiting = []
    with httpx.Client(base_url=running.url) as http:
        for name in agents:
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
    with httpx.Client(base_url=first.url) as http, suppress(httpx.HTTPError):  # it may have ended already
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
            until(lambda: ask(http) == 201)
            waiting += rewarded(running, 5)
    running.stop()
    check(place, 20, waiting)


# --- older copies -----------------------------------------------------------------------------------------


class Own:
    """A database of its own, of which a copy can be put in its place."""

    def __init__(self, postgres: Postgres, folder: Path) -> None:
        self._name = f"d{uuid.uuid4().hex[:12]}"
        self._postgres, self._folder = postgres, folder
        self._do(f"CREATE DATABASE {self._name}")
        self.place = postgres.address.replace("/postgres?", f"/{self._name}?")

    def _do(self, statement: str) -> None:
        with psycopg.connect(self._postgres.address, autocommit=True) as connection:
            connection.execute(statement)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run([self._postgres.programs / program, *arguments, self.place], check=True)

    def dump(self) -> Callable[[], None]:
        """Copy it by pg_dump; what to call to restore the copy, under open connections."""
        file = str(self._folder / uuid.uuid4().hex)
        self._run("pg_dump", "-Fc", "-f", file, "-d")
        return lambda: self._run("pg_restore", "--clean", "--single-transaction", file, "-d")

    def template(self) -> Callable[[], None]:
        """Copy it as a template; what to call to put the copy in its place, which ends all connections."""
        cut(self._postgres)
        self._do(f"CREATE DATABASE {self._name}old TEMPLATE {self._name}")

        def restore() -> None:
            self._do(f"DROP DATABASE {self._name} WITH (FORCE)")
            self._do(f"ALTER DATABASE {self._name}old RENAME TO {self._name}")

        return restore


def counted(place: str) -> list[tuple[int, str | None]]:
    with open_for_reading(place) as database:
        return [(log.rewards, log.damage) for log in check_logs(database)]


@pytest.mark.parametrize("way", ["dump", "template"])
@pytest.mark.parametrize("idle", [True, False])
def test_an_older_copy_under_a_running_service(
    postgres: Postgres, tmp_path: Path, way: str, idle: bool
) -> None:
    """The copy is left as it is. A service without private agents may go on from it; nobody else knows."""
    own = Own(postgres, tmp_path)
    running = begin(own.place, ["plain"])
    rewarded(running, 40, 0, ["plain"])
    if way == "template":
        running.stop()
    restore = getattr(own, way)()
    if way == "template":
        running.start()
    rewarded(running, 20, 0, ["plain"])
    restore()
    with httpx.Client(base_url=running.url) as http:
        if idle:
            until(lambda: http.get("/readyz").status_code == 503)
        else:
            assert ask(http) == 503
    said = ended(running)
    assert re.search(r"is an older copy: .* up to step 1\d\d\. .* start again to go on", said)
    assert counted(own.place) == [(40, None)]
    running.start()
    rewarded(running, 1, 0, ["plain"])
    running.stop()
    assert counted(own.place) == [(41, None)]


def test_an_older_copy_of_a_private_agent_stays_closed(postgres: Postgres, tmp_path: Path) -> None:
    """Else whatever starts services again would let it go on. A later copy opens."""
    own = Own(postgres, tmp_path)
    running = begin(own.place)
    rewarded(running, 4)
    restore = own.dump()
    waiting = rewarded(running, 2)
    restore_later = own.dump()
    restore()
    with httpx.Client(base_url=running.url) as http:
        assert ask(http) == 503
    assert "holds a private agent, which must not go on from it, since its messages are out" in ended(running)
    for _ in range(2):
        with pytest.raises(
            AssertionError, match=r"is an older copy: .* for any other, DROP TABLE older_copy"
        ):
            running.start()
    assert counted(own.place) == [(4, None)] * len(AGENTS)
    restore_later()
    check(own.place, 6, waiting)


def test_the_exit_code(postgres: Postgres, tmp_path: Path) -> None:
    own = Own(postgres, tmp_path)
    flags = ["--database", own.place, "--dimension", "3", "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedfairx", "serve", *flags], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        lines = iter(process.stderr.readline, "")
        url = next(filter(None, (re.search(r"serves on (\S+)", line) for line in lines)))
        restore = own.dump()
        with httpx.Client(base_url=url[1]) as http:
            assert http.post("/v1/decisions", json={"contexts": CONTEXTS}).status_code == 201
            restore()
            assert http.post("/v1/decisions", json={"contexts": CONTEXTS}).status_code == 503
        assert process.wait(30) == 2
        assert process.stderr.read().count("is an older copy") == 2  # in the log, and at the end
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
