"""A standby waits for the database of another process, and goes on where that one was killed."""

from __future__ import annotations

import random
import socket
import threading
import time

import httpx
import pytest
from test_killed_service import CLIENTS, Told, check, load, replayed

from service_helpers import CONTEXTS, Running, until

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
            for path in ("/readyz", "/v1/model", "/metrics"):
                answer = http.get(path)
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
                assert (
                    answer.json()["detail"] == "This process waits for the database, which another one has."
                )
            assert http.post("/v1/decisions", json={"contexts": CONTEXTS}).status_code == 503
            assert (http.get("/healthz").status_code, http.get("/healthz").json()) == (
                200,
                {"status": "alive"},
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


def test_it_takes_over_from_one_that_was_stopped(place: str) -> None:
    active = Running(place, "--dimension", "3")
    other = standby(place)
    active.stop()
    other.listen()
    assert httpx.get(f"{other.url}/readyz").status_code == 200
    other.stop()


def test_without_it_a_second_process_is_refused(place: str) -> None:
    active = Running(place, "--dimension", "3")
    with pytest.raises(AssertionError, match="is locked by process"):
        Running(place, "--dimension", "3", "--wait", "no")
    active.stop()
