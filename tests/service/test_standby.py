"""A standby waits for the database of another process, and goes on where that one was killed."""

from __future__ import annotations

import logging
import random
import resource
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from test_killed_service import CLIENTS, Told, check, load, replayed

import fedfairx as ffx
from fedfairx.errors import StorageUnavailable
from fedfairx.service.settings import place_of
from fedfairx.service.standby import _Waiting
from fedfairx.storage.database import InUse
from in_process_client import InProcessClient
from servers import Postgres
from service_helpers import CONTEXTS, Running, settings_for, until

pytestmark = pytest.mark.process


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def standby(place: str) -> Running:
    """A process that waits at a port that stays the same."""
    running = Running(place, "--dimension", "3", "--wait", "--port", str(free_port()), start=False)
    running.start(until="waits")
    return running


def test_it_takes_over_from_one_that_was_killed(place: str) -> None:
    told = [Told() for _ in range(CLIENTS)]
    active = Running(place, "--dimension", "3", "--wait")  # nobody has it: it serves at once
    for seed in range(3):
        other, stop = standby(place), threading.Event()
        threads = [
            threading.Thread(target=load, args=(active.url, one, stop, 100 * seed + number))
            for number, one in enumerate(told)
        ]
        for thread in threads:
            thread.start()
        before = sum(len(one.rewards) for one in told)
        until(lambda before=before: sum(len(one.rewards) for one in told) > before + 20)
        with httpx.Client(base_url=other.url) as http:
            answer = http.get("/metrics")
            assert (answer.status_code, "\nfedfairx_waiting 1\n" in answer.text) == (200, True)
            for path in ("/readyz", "/v1/model"):
                answer = http.get(path)
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
                assert (
                    answer.json()["detail"] == "This process waits for the database, which another one has."
                )
            assert http.post("/v1/decisions", json={"contexts": CONTEXTS}).status_code == 503
            assert (http.get("/healthz").status_code, http.get("/healthz").json()) == (
                200,
                {"status": "waiting"},
            )
        time.sleep(random.Random(seed).uniform(0.0, 0.03))
        active.kill()
        began = time.monotonic()
        stop.set()
        for thread in threads:
            thread.join()
        active.close()
        other.listen()
        with httpx.Client(base_url=other.url) as http:
            assert http.get("/readyz").status_code == 200
            assert "\nfedfairx_waiting 0\n" in http.get("/metrics").text
        print(f"ready after {time.monotonic() - began:.2f} s")
        active = other
    check(active, told, rounds=3)
    active.stop()
    assert not [text for one in told for text in one.wrong]
    replayed(place)


def test_it_ends_at_once_when_it_is_stopped(place: str) -> None:
    active = Running(place, "--dimension", "3")
    other = standby(place)
    other.stop()
    assert "Traceback" not in other.said
    assert httpx.get(f"{active.url}/readyz").status_code == 200
    active.stop()


def test_it_says_nothing_of_what_is_half_made_when_it_is_stopped() -> None:
    """As SIGTERM does in the middle of loading: llvmlite's objects then miss what they close at their end."""
    program = """if True:
        import os, signal
        from fedfairx.service import standby

        class Half:
            def __init__(self):
                os.kill(os.getpid(), signal.SIGTERM)
                self.handle = open(os.devnull)

            def __del__(self):
                self.handle.close()

        signal.signal(signal.SIGTERM, standby._interrupt)
        try:
            Half()
        except KeyboardInterrupt:
            print("ended")
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("ended\n", "")


def test_it_takes_over_from_one_that_was_stopped(place: str) -> None:
    active = Running(place, "--dimension", "3")
    other = standby(place)
    active.stop()
    other.listen()
    assert httpx.get(f"{other.url}/readyz").status_code == 200
    other.stop()


def taken_over(place: str, active: Running, other: Running) -> None:
    """The other process serves, the first has ended, and what it acknowledged is there."""
    assert httpx.get(f"{other.url}/readyz").status_code == 200
    until(active.gone, seconds=30)
    active.close()
    assert "Traceback" not in active.said
    assert httpx.get(f"{other.url}/v1/model").json()["pending"] == 1
    assert httpx.post(f"{other.url}/v1/decisions", json={"contexts": CONTEXTS}).status_code == 201
    other.stop()
    with ffx.Agent.open(place_of(settings_for(place))) as agent:
        assert agent.pending == 2
        agent.verify()


def begun(place: str) -> tuple[Running, Running]:
    """An active process with one decision, and a standby."""
    active = Running(place, "--dimension", "3")
    assert httpx.post(f"{active.url}/v1/decisions", json={"contexts": CONTEXTS}).status_code == 201
    return active, standby(place)


def test_it_takes_over_from_one_that_is_paused(place: str) -> None:
    """Which ends when it goes on: at once on a server, and before it goes on with a file."""
    active, other = begun(place)
    active.pause()
    other.listen()
    assert "took the database from a process that was paused" in other.said
    with suppress(ProcessLookupError):
        active.resume()
    taken_over(place, active, other)


def test_a_process_that_is_paused_for_a_moment_keeps_it(place: str) -> None:
    active, other = begun(place)
    active.pause()
    active.resume()
    assert httpx.post(f"{active.url}/v1/decisions", json={"contexts": CONTEXTS}).status_code == 201
    other.stop()
    active.stop()


def test_it_takes_over_from_one_that_can_write_no_more(tmp_path: Path) -> None:
    active, other = begun(str(tmp_path / "agent.db"))
    resource.prlimit(active._process, resource.RLIMIT_FSIZE, (4096, 4096))
    assert httpx.post(f"{active.url}/v1/decisions", json={"contexts": CONTEXTS}).status_code == 503
    other.listen()
    taken_over(str(tmp_path / "agent.db"), active, other)
    assert "could write nothing for 1.5 seconds, and ends" in active.said


@pytest.mark.parametrize("waits", [True, False])
def test_one_whose_lock_is_removed_ends(tmp_path: Path, waits: bool) -> None:
    """Also if nobody has the file yet: its supervisor, or a standby that starts later, goes on from it."""
    place = str(tmp_path / "agent.db")
    active, other = begun(place)
    if not waits:
        other.stop()
    (tmp_path / "agent.sqlite.lock").unlink()
    if waits:
        other.listen()
    else:
        until(active.gone, seconds=30)
        other = Running(place, "--dimension", "3")
    taken_over(place, active, other)
    assert "was removed, so another process may have it" in active.said


def test_a_disk_that_comes_back_needs_nobody(tmp_path: Path) -> None:
    """A supervisor starts the process again, which waits."""
    place = str(tmp_path / "agent.db")
    active = Running(place, "--dimension", "3")
    assert httpx.post(f"{active.url}/v1/decisions", json={"contexts": CONTEXTS}).status_code == 201
    active.stop()
    again = Running(place, "--dimension", "3", "--port", str(free_port()), start=False)
    other = sqlite3.connect(tmp_path / "agent.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    again.start(until="waits")
    with httpx.Client(base_url=again.url) as http:
        assert http.get("/healthz").json() == {"status": "waiting"}
        said = "This process waits for the database, which can't be used for now."
        assert http.get("/readyz").json()["detail"] == said
    other.execute("ROLLBACK")
    other.close()
    again.listen()
    assert httpx.get(f"{again.url}/v1/model").json()["pending"] == 1
    again.stop()


def test_it_waits_for_a_server_that_is_away(own_postgres: Postgres) -> None:
    place = own_postgres.schema()
    own_postgres.stop()
    service = Running(place, "--dimension", "3", "--port", str(free_port()), start=False)
    service.start(until="waits")
    assert "waiting for the database: postgresql://" in service.said
    assert httpx.get(f"{service.url}/healthz").status_code == 200
    assert httpx.get(f"{service.url}/readyz").status_code == 503
    own_postgres.start()
    service.listen()
    assert httpx.get(f"{service.url}/readyz").status_code == 200
    service.stop()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("/postgres?", "/nowhere?"), 'database "nowhere" does not exist'),
        (("postgres@", "nobody@"), 'role "nobody" does not exist'),
        (("?host=", "?hots="), "must be a URL that PostgreSQL understands"),
        (("postgres@", "secret@"), "password"),
    ],
)
def test_what_will_be_refused_later_too_is_an_error_at_once(
    own_postgres: Postgres, change: tuple[str, str], said: str
) -> None:
    own_postgres._connected().execute("CREATE ROLE secret LOGIN PASSWORD 'right'")
    rules = Path(own_postgres.ask("SHOW hba_file")[0][0])
    rules.write_text("local all secret scram-sha-256\n" + rules.read_text())
    own_postgres.ask("SELECT pg_reload_conf()")
    address = own_postgres.schema().replace(*change)
    with pytest.MonkeyPatch.context() as patched, pytest.raises(AssertionError, match=said):
        patched.setenv("PGPASSWORD", "wrong")
        Running(address, "--dimension", "3")


def test_without_it_a_second_process_is_refused(place: str) -> None:
    active = Running(place, "--dimension", "3")
    with pytest.raises(AssertionError, match="is locked by process"):
        Running(place, "--dimension", "3", "--wait", "no")
    active.stop()


def test_what_is_waited_for_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """As long as it stays the same: it is looked for many times a minute."""
    waiting, settings = _Waiting(), settings_for("postgresql://user@host/name", wait=True)
    with caplog.at_level(logging.INFO, "fedfairx.service"):
        for error in (*[StorageUnavailable("away")] * 5, *[InUse("taken")] * 5, StorageUnavailable("away")):
            waiting.look(error, settings)
    said = [record.getMessage().removeprefix("waiting for the database: ") for record in caplog.records]
    assert said == ["away", "taken", "away"]


def test_what_a_waiting_process_answers() -> None:
    """To Prometheus it is up: a process that waits is not one that is down."""
    with InProcessClient(_Waiting().app, base_url="http://127.0.0.1") as client:
        assert "\nfedfairx_waiting 1\n" in client.get("/metrics").text
        assert [client.get(path).status_code for path in ("/metrics", "/healthz", "/readyz")] == [
            200,
            200,
            503,
        ]
