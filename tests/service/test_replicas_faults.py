"""Services with one PostgreSQL database that are killed, stopped and cut off while clients go on.

Each client sends a request again, by a load balancer and under the same key, until it is answered. What was
acknowledged is in the log once, and all processes end with the same state. At last PostgreSQL falls back to a
copy from the beginning: the processes must notice, and end.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.steps import Decided
from fedfairx.storage.verification import check_logs, open_for_reading
from relay import Relay, process_of
from servers import Postgres
from service_helpers import CONTEXTS, Running, until

pytestmark = pytest.mark.process

CLIENTS = 3
FLAGS = ("--replica", "--dimension", "3", "--name", "shop")
PRIVATE = ("--epsilon", "2")
#: In a group, with the write lock; and after the commit of its steps, before anybody is answered.
DEATHS = (
    "fedfairx.storage.journal:Journal.append_decisions",
    "before:fedfairx.agent.persistence:AgentStore._after_commit",
)
#: What PostgreSQL says when a group has got the write lock, and when it is committed. What it says of a row
#: that it has inserted comes with the latter, if it is the only one.
LOCKED, COMMITTED = b"BEGIN\0", b"COMMIT\0"
#: A session with the write lock, of a process that asks nothing; others would be waiting for the lock.
STANDS_STILL = "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'"
FAULTS = (
    "kill",
    "die in a group",
    "die after a commit",
    "stop",
    "stop in a group",
    "end sessions",
    "cut in a group",
    "cut after a commit",
    "restart",
)


class Network:
    """Between the services and PostgreSQL: it does something once, when PostgreSQL has said something."""

    def __init__(self, server: Postgres, folder: Path) -> None:
        self._armed: tuple[bytes, str] | None = None
        self._lock = threading.Lock()
        self.stopped: int | None = None  # the process that it has stopped last
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / server.socket.name))
        self._server = server
        self._relay = Relay(listener, self._connect, self._watch)

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self._server.socket))
        return connection

    def arm(self, said: bytes, what: str) -> None:
        """Do something with the process to which PostgreSQL says this next.

        what: "stop" it; or "cut" its connection before it hears it, or "cut then", when it has heard it.
        """
        with self._lock:
            self._armed = said, what

    @property
    def armed(self) -> bool:
        with self._lock:
            return self._armed is not None

    def close(self) -> None:
        self._relay.close()

    def _watch(self, data: bytes, client: socket.socket) -> bool:
        with self._lock:
            if self._armed is None or self._armed[0] not in data:
                return True
            (_, what), self._armed = self._armed, None
            if what.startswith("cut"):
                if what == "cut then":
                    client.sendall(data)
                return False
            self.stopped = process_of(client)
            os.kill(self.stopped, signal.SIGSTOP)
            return True


class Balancer:
    """In front of the services: each connection goes to the next one that takes it."""

    def __init__(self, running: list[Running]) -> None:
        self._next = itertools.cycle(running)
        self._count = len(running)
        self._relay = Relay.at_port(self._connect)
        self.url = f"http://127.0.0.1:{self._relay.port}"

    def _connect(self) -> socket.socket:
        for running in itertools.islice(self._next, self._count):
            url = httpx.URL(running.url)
            with suppress(OSError):
                return socket.create_connection((url.host, url.port or 0))
        raise ConnectionRefusedError

    def close(self) -> None:
        self._relay.close()


class Client(threading.Thread):
    """Makes decisions and rewards them, one after the other, until it is told to stop."""

    def __init__(self, number: int, url: str) -> None:
        super().__init__(daemon=True)
        self.number, self.url = number, url
        self.random = random.Random(number)
        self.enough = threading.Event()
        self.acknowledged: dict[str, tuple[str, float]] = {}  # by key: the decision's id, and its reward
        self.repeated = 0
        self.wrong: list[str] = []
        self.given_up = False

    def has(self, count: int) -> bool:
        """Whether so many of its requests were answered; or it has failed."""
        return len(self.acknowledged) >= count or bool(self.wrong)

    def run(self) -> None:
        once = httpx.Limits(max_keepalive_connections=0)  # each request may go to another service
        with httpx.Client(base_url=self.url, timeout=5, limits=once) as http:
            while not self.enough.is_set() and not self.wrong:
                self.ask(http)

    def ask(self, http: httpx.Client) -> None:
        """Make a decision, and reward it."""
        key = f"client-{self.number}-request-{len(self.acknowledged)}"
        contexts = [[self.random.random() / 2 for _ in range(3)] for _ in CONTEXTS]
        body, headers = {"contexts": contexts}, {"idempotency-key": key}
        decision = self.answered(http, "POST", "/v1/decisions", 201, json=body, headers=headers)
        reward = float(self.random.randrange(2))
        path = f"/v1/decisions/{decision['decision_id']}/reward"
        self.answered(http, "PUT", path, 204, json={"reward": reward})
        self.acknowledged[key] = decision["decision_id"], reward

    def answered(self, http: httpx.Client, method: str, path: str, status: int, **request: Any) -> Any:
        """The answer to a request, which is sent until somebody takes it."""
        while not self.given_up:
            with suppress(httpx.HTTPError):
                answer = http.request(method, path, **request)
                if answer.status_code == status:
                    return answer.json() if answer.content else None
                if answer.status_code != 503:
                    self.wrong.append(answer.text)
                    raise AssertionError(answer.text)
            self.repeated += 1
            self.enough.wait(0.01)
        raise SystemExit


class Site:
    """PostgreSQL, the network, services, their load balancer and clients."""

    def __init__(self, server: Postgres, folder: Path, services: int, *flags: str) -> None:
        self.server = server
        self.network = Network(server, folder)
        self.direct = server.schema()
        self.place = self.direct.replace(str(server.socket.parent), str(folder))
        self.running = [Running(self.place, *FLAGS, *flags) for _ in range(services)]
        self.balancer = Balancer(self.running)
        self.clients = [Client(number, self.balancer.url) for number in range(CLIENTS)]

    def rows(self) -> list[Any]:
        """How many decisions and outcomes there are."""
        schema = self.direct.rpartition("%3D")[2]
        tables = ("decisions", "outcomes")
        return [self.server.ask(f"SELECT COUNT(*) FROM {schema}.{table}")[0][0] for table in tables]

    def disturb(self, fault: str, chance: random.Random) -> None:
        """Make one fault; once it is over, all services run."""
        one = chance.choice(self.running)
        if fault == "kill":
            one.kill()
            one.start()
        elif fault in ("die in a group", "die after a commit"):
            one.kill()
            one.start(die=DEATHS[fault == "die after a commit"])
            until(one.gone, seconds=60)
            one.start()
        elif fault == "stop":
            one.pause()
            threading.Event().wait(0.2)
            one.resume()
        elif fault == "stop in a group":
            self.arm(LOCKED, "stop")
            assert self.network.stopped is not None
            until(lambda: self.server.ask(STANDS_STILL))
            self.until_more(1, of=sum)  # the others go on without it
            os.kill(self.network.stopped, signal.SIGCONT)
        elif fault == "end sessions":
            self.server.end_sessions()
        elif fault == "restart":
            self.server.stop()
            self.server.start()
        elif fault == "cut in a group":
            self.arm(LOCKED, "cut then")
        else:
            self.arm(COMMITTED, "cut")

    def arm(self, said: bytes, what: str) -> None:
        """Let the network do something, and wait until it has."""
        self.network.arm(said, what)
        until(lambda: not self.network.armed, seconds=60)

    def until_more(self, count: int, *, of: Any = min) -> None:
        """Wait until so many more requests were answered, by default of each client."""
        before = [len(client.acknowledged) for client in self.clients]

        def more() -> bool:
            now = [len(client.acknowledged) for client in self.clients]
            enough = of(b - a for a, b in zip(before, now, strict=True)) >= count
            return enough or any(client.wrong for client in self.clients)

        until(more, seconds=60)

    def close(self) -> None:
        for client in self.clients:
            client.given_up = True
        self.balancer.close()
        self.network.close()
        for one in self.running:
            with suppress(ProcessLookupError):
                one.kill()


@pytest.mark.parametrize(
    ("services", "rounds", "flags", "seed"),
    [
        pytest.param(3, 1, (), 7, id="once"),
        pytest.param(4, 6, (), 7, id="often", marks=pytest.mark.slow),
        pytest.param(4, 6, PRIVATE, 8, id="often, private", marks=pytest.mark.slow),
    ],
)
def test_nothing_acknowledged_is_lost_or_doubled(
    own_postgres: Postgres, services: int, rounds: int, flags: tuple[str, ...], seed: int
) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        site = Site(own_postgres, Path(folder), services, *flags)
        try:
            with httpx.Client(base_url=site.balancer.url) as http:
                site.clients[0].ask(http)
            backup = own_postgres.backup()
            run(site, [fault for _ in range(rounds) for fault in chance.sample(FAULTS, len(FAULTS))], chance)
            check(site)
            check_states(site)
            fall_back(site, backup, private=flags == PRIVATE)
        finally:
            site.close()


def run(site: Site, faults: list[str], chance: random.Random) -> None:
    """Make faults while clients ask."""
    for client in site.clients:
        client.start()
    for fault in faults:
        site.disturb(fault, chance)
        site.until_more(4)
    for client in site.clients:
        client.enough.set()
    for client in site.clients:
        client.join(60)
        assert not client.is_alive()
    assert not [client.wrong for client in site.clients if client.wrong]
    assert sum(client.repeated for client in site.clients) > 0


def check(site: Site) -> None:
    """All services have one state, and the log has what was acknowledged."""
    acknowledged = {key: each for client in site.clients for key, each in client.acknowledged.items()}
    until(lambda: len({known(one, len(acknowledged)) for one in site.running}) == 1)
    with open_for_reading(site.direct) as database:
        (report,) = check_logs(database)
    assert report.damage is None
    with ffx.Agent.open(site.direct, name="shop", shared=True) as agent:
        stored = list(agent.journal.decisions())
        assert len(stored) == len(acknowledged) == agent.observed
        assert {each.key: (each.id, each.reward) for each in stored} == acknowledged
        agent.verify()
        assert all(each.propensity == each.policy[each.drawn] for each in stored)
        if agent.private:
            ask = agent.journal.log.database.execute
            records = ask("SELECT record FROM ledger_records")
            assert sorted(records) == sorted((each.id,) for each in stored)  # each in one leaf
            return
        again = ffx.Agent(3, options=agent.options)  # policies are recomputed from the state before
        contexts = {each.seq: each.contexts for each in stored}
        for entry in agent.journal.entries():
            if isinstance(entry.step, Decided):
                expected = again.policy(np.asarray(contexts[entry.number]).reshape(-1, 3))
                assert entry.step.decision.policy.tobytes() == expected.tobytes()
            again._core.apply(entry.step)


def known(running: Running, rewards: int) -> str:
    """What a process says of its model, once it has taken so many rewards; else its own name."""
    model = httpx.get(f"{running.url}/v1/model", timeout=30)
    return model.text if model.json().get("observed") == rewards else running.url


def check_states(site: Site) -> None:
    """All services have one state to the byte: each stores its own as a snapshot when it ends."""
    schema, states = site.direct.rpartition("%3D")[2], list[Any]()
    for one in site.running:
        site.server.ask(f"DELETE FROM {schema}.snapshots WHERE seq > 1 RETURNING seq")
        one.stop()
        states += site.server.ask(f"SELECT seq, body FROM {schema}.snapshots WHERE seq > 1")
    assert len(states) == len(site.running)
    assert len(set(states)) == 1
    for one in site.running:
        one.start()


def fall_back(site: Site, backup: Path, *, private: bool) -> None:
    """PostgreSQL falls back to the copy, as if a standby had been promoted that had one decision only.

    A private agent does not go on from it.
    """
    late, *others = site.running
    late.pause()
    site.server.stop()
    site.server.start(backup)
    for one in others:
        with suppress(httpx.HTTPError):
            answer = httpx.post(f"{one.url}/v1/decisions", json={"contexts": CONTEXTS}, timeout=30)
            assert answer.status_code == 503
        until(one.gone, seconds=30)
    assert site.rows() == [1, 1]
    if private:
        with pytest.raises(AssertionError, match=r"it did not start: (.|\n)*older_copy"):
            others[0].start()
    else:
        others[0].start()  # it goes on from the copy, and numbers its steps like those that are lost
        with httpx.Client(base_url=others[0].url) as http:
            assert http.get("/v1/model").json()["observed"] == 1
            for _ in range(5):
                assert http.post("/v1/decisions", json={"contexts": CONTEXTS}).status_code == 201
    late.resume()
    until(late.gone, seconds=30)
    assert site.rows() == [1 if private else 6, 1]
    if not private:
        others[0].stop()
    for one in site.running:
        one.close()
        assert "is an older copy: not all is there that this process has written or read" in one.said
        assert "Traceback" not in one.said
