"""Services with one PostgreSQL database that are killed, stopped and cut off while clients go on.

Each client sends a request again, to any of them and under the same key, until it is answered. What was
acknowledged is in the log once, and all processes end with the same state.
"""

from __future__ import annotations

import random
import threading
from functools import partial
from typing import Any

import httpx
import numpy as np
import psycopg
import pytest

import fedfairx as ffx
from fedfairx.steps import Decided
from fedfairx.storage.verification import check_logs, open_for_reading
from service_helpers import CONTEXTS, Running, until

pytestmark = pytest.mark.process

FAULTS = 24
CLIENTS = 3
#: In a group, with the write lock; and after its commit, before anybody is answered.
DEATHS = (
    "fedfairx.storage.journal:Journal.append_decisions",
    "before:fedfairx.service.write_queue:WriteQueue._acknowledge",
)


class Client(threading.Thread):
    """Makes decisions and rewards them, one after the other, until it is told to stop."""

    def __init__(self, number: int, running: list[Running]) -> None:
        super().__init__()
        self.number, self.running = number, running
        self.random = random.Random(number)
        self.enough = threading.Event()
        self.acknowledged: dict[str, tuple[str, float]] = {}  # by key: the decision's id, and its reward
        self.repeated = 0
        self.wrong: list[str] = []

    def has(self, count: int) -> bool:
        """Whether so many of its requests were answered; or it has failed."""
        return len(self.acknowledged) >= count or bool(self.wrong)

    def run(self) -> None:
        with httpx.Client(timeout=30) as http:
            while not self.enough.is_set() and not self.wrong:
                key = f"client {self.number} request {len(self.acknowledged)}".replace(" ", "-")
                contexts = [[self.random.random() / 2 for _ in range(3)] for _ in CONTEXTS]
                body, headers = {"contexts": contexts}, {"idempotency-key": key}
                made = self.answered(http, "POST", "/v1/decisions", 201, json=body, headers=headers)
                reward = float(self.random.randrange(2))
                path = f"/v1/decisions/{made['decision_id']}/reward"
                self.answered(http, "PUT", path, 204, json={"reward": reward})
                self.acknowledged[key] = made["decision_id"], reward

    def answered(self, http: httpx.Client, method: str, path: str, status: int, **given: Any) -> Any:
        """The answer to a request, which is sent until somebody takes it."""
        while True:
            try:
                answer = http.request(method, self.random.choice(self.running).url + path, **given)
            except httpx.HTTPError:
                self.repeated += 1
                continue
            if answer.status_code == status:
                return answer.json() if answer.content else None
            if answer.status_code != 503:
                self.wrong.append(answer.text)
                raise AssertionError(answer.text)
            self.repeated += 1


def test_nothing_acknowledged_is_lost_or_doubled(postgres: Any) -> None:
    place, chance = postgres.schema(), random.Random(7)
    flags = ("--replica", "--dimension", "3", "--name", "shop")
    running = [Running(place, *flags) for _ in range(3)]
    clients = [Client(number, running) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        for _ in range(FAULTS):
            after = [len(client.acknowledged) + 4 for client in clients]
            disturb(postgres, chance.choice(running), chance)
            for client, count in zip(clients, after, strict=True):
                until(partial(client.has, count), seconds=60)
    finally:
        for client in clients:
            client.enough.set()
        for client in clients:
            client.join()
    assert not [client.wrong for client in clients if client.wrong]
    assert sum(client.repeated for client in clients) > 0
    taken = {key: each for client in clients for key, each in client.acknowledged.items()}
    until(lambda: len({known(each, len(taken)) for each in running}) == 1)
    for each in running:
        each.stop()
        assert "Traceback" not in each.said
    check(place, taken)


def disturb(postgres: Any, one: Running, chance: random.Random) -> None:
    fault = chance.choice(("kill", "kill", "die", "stop", "cut"))
    if fault == "kill":
        one.kill()
        one.start()
    elif fault == "die":
        one.kill()
        one.start(die=chance.choice(DEATHS))
        until(one.gone, seconds=60)
        one.start()
    elif fault == "stop":
        one.pause()
        threading.Event().wait(0.2)
        one.resume()
    else:
        with psycopg.connect(postgres.address, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )


def known(running: Running, rewards: int) -> str:
    """What a process says of its model, once it has taken so many rewards; else its own name."""
    model = httpx.get(f"{running.url}/v1/model", timeout=30)
    return model.text if model.json().get("observed") == rewards else running.url


def check(place: str, taken: dict[str, tuple[str, float]]) -> None:
    with open_for_reading(place) as database:
        (found,) = check_logs(database)
    assert found.damage is None
    with ffx.Agent.open(place, name="shop") as agent:
        stored = list(agent.journal.decisions())
        assert len(stored) == len(taken) == agent.observed
        assert {each.key: (each.id, each.reward) for each in stored} == taken
        agent.verify()
        again = ffx.Agent(3, options=agent.options)  # policies are recomputed from the state before
        contexts = {each.seq: each.contexts for each in stored}
        for entry in agent.journal.entries():
            if isinstance(entry.step, Decided):
                expected = again.policy(np.asarray(contexts[entry.number]).reshape(-1, 3))
                assert entry.step.decision.policy.tobytes() == expected.tobytes()
            again._core.apply(entry.step)
