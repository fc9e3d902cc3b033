"""An active service and a standby that are killed, stopped, paused and cut off while clients go on.

Each client sends a request again, by a load balancer and under the same key, until it is answered. What has
ended is started again. What was acknowledged is in the log once, and the log leads to the same policies. In a
private agent each record is in one leaf of the ledger. As a member of a federation, it sends each number with
one content, and everybody gets all records.
"""

from __future__ import annotations

import itertools
import os
import random
import resource
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.federation.exchange.envelope import Envelope
from fedfairx.federation.transport import SqliteTransport
from fedfairx.privacy import Release
from fedfairx.service.settings import place_of
from fedfairx.steps import Decided
from member_service import founded, member_of, sync
from nats_server import free_port
from relay import Relay
from servers import Postgres
from service_helpers import CONTEXTS, Running, settings_for, until

pytestmark = pytest.mark.process

CLIENTS = 3
#: In a group, and after the commit of its steps, before anybody is answered.
DEATHS = {
    "die in a group": "fedfairx.storage.journal:Journal.append_decisions",
    "die after a commit": "before:fedfairx.agent.persistence:AgentStore._after_commit",
}
#: Of a member also while it makes a release, and before and after the others have it.
OF_A_MEMBER = {
    "die in a release": "fedfairx.storage.privacy_ledger:StoredLedger.freeze",
    "die before it is sent": "before:fedfairx.federation.exchange.member:Member._publish",
    "die after it was sent": "fedfairx.federation.exchange.member:Member._publish",
}
COMMITTED = b"COMMIT\0"  # what PostgreSQL says of a group
FAULTS = ("kill", *DEATHS, "stop", "pause")
WITH_FILE = (*FAULTS, "no more room", "lock removed")
WITH_SERVER = (*FAULTS, "end sessions", "cut after a commit", "restart")


class Client(threading.Thread):
    """Makes decisions and rewards them, one after the other, until it is told to stop."""

    def __init__(self, number: int, url: str) -> None:
        super().__init__(daemon=True)
        self.number, self.url, self.random = number, url, random.Random(number)
        self.enough = threading.Event()
        self.acknowledged: dict[str, tuple[str, float]] = {}  # by key: the decision's id, and its reward
        self.wrong: list[str] = []
        self.given_up = False

    def run(self) -> None:
        once = httpx.Limits(max_keepalive_connections=0)  # each request may go to another process
        with httpx.Client(base_url=self.url, timeout=5, limits=once) as http:
            while not self.enough.is_set() and not self.wrong:
                key = f"client-{self.number}-request-{len(self.acknowledged)}"
                contexts = [[self.random.random() / 2 for _ in range(3)] for _ in CONTEXTS]
                body, headers = {"contexts": contexts}, {"idempotency-key": key}
                decision = self.answered(http, "POST", "/v1/decisions", 201, json=body, headers=headers)
                identity, reward = decision["decision_id"], float(self.random.randrange(2))
                path = f"/v1/decisions/{identity}/reward"
                self.answered(http, "PUT", path, 204, json={"reward": reward})
                self.acknowledged[key] = identity, reward

    def answered(self, http: httpx.Client, method: str, path: str, status: int, **request: Any) -> Any:
        """The answer to a request, which is sent until somebody takes it."""
        while not self.given_up:
            with suppress(httpx.HTTPError):
                answer = http.request(method, path, **request)
                if answer.status_code == status:
                    return answer.json() if answer.content else None
                if answer.status_code != 503:
                    self.wrong.append(answer.text)
                    raise SystemExit
            self.enough.wait(0.01)
        raise SystemExit


class Site:
    """An active process and a standby, their supervisor, the load balancer and clients."""

    def __init__(self, place: str, server: Postgres | None, *flags: str, member: Path | None = None) -> None:
        self.place, self.server, self.said = place, server, ""
        self.cut = threading.Event()  # the connection that says that a group is committed
        self.sent: dict[int, Release] = {}  # by number
        self._member = member
        self.running = [self._process(*flags, "--wait", "--port", str(free_port())) for _ in range(2)]
        for one in self.running:
            self.start(one)
        self._next = itertools.cycle(self.running)
        self.balancer = Relay.at_port(self._connect)
        url = f"http://127.0.0.1:{self.balancer.port}"
        self.clients = [Client(number, url) for number in range(CLIENTS)]

    def _process(self, *flags: str) -> Running:
        if self._member is None:
            return Running(self.place, "--dimension", "3", *flags, start=False)
        where = [] if self.server is None else ["--database", self.place]
        return Running.member(self._member, *where, *flags, start=False)

    def start(self, one: Running, die: str = "") -> None:
        one.start(die=die, until="(?:serves|waits)")

    def _connect(self) -> socket.socket:
        for running in itertools.islice(self._next, len(self.running)):
            url = httpx.URL(running.url)
            with suppress(OSError):
                return socket.create_connection((url.host, url.port or 0))
        raise ConnectionRefusedError

    def _supervise(self) -> None:
        for one in self.running:
            if one.gone():
                one.close()
                self.said, one.said = self.said + one.said, ""
                self.start(one)

    def active(self) -> Running:
        """The process that serves."""
        serving: list[Running] = []

        def look() -> bool:
            self._supervise()
            for one in self.running:
                with suppress(httpx.HTTPError):
                    if httpx.get(f"{one.url}/readyz", timeout=5).status_code == 200:
                        serving.append(one)
            return bool(serving)

        until(look, seconds=60)
        return serving[0]

    def disturb(self, fault: str) -> None:
        """Make one fault; once it is over, clients are answered again."""
        active = self.active()
        (other,) = (one for one in self.running if one is not active)
        death = (DEATHS | OF_A_MEMBER).get(fault)
        if death is not None:
            other.kill()
            self.start(other, die=death)
        if fault == "kill" or death is not None:
            active.kill()
        elif fault == "stop":
            active.stop()
        elif fault == "pause":
            active.pause()
            until(lambda: self.serves(other), seconds=60)
            with suppress(ProcessLookupError):
                active.resume()
            until(active.gone, seconds=60)
        elif fault == "no more room":
            resource.prlimit(active._process, resource.RLIMIT_FSIZE, (4096, 4096))
            until(active.gone, seconds=60)
        elif fault == "lock removed":
            os.unlink(f"{self.place}.lock")
            until(active.gone, seconds=60)
        elif self.server is not None and fault == "end sessions":
            self.server.end_sessions()
        elif self.server is not None and fault == "restart":
            self.server.stop()
            self.server.start()
        else:
            self.cut.set()
            until(lambda: not self.cut.is_set(), seconds=60)
        if death is not None:
            until(other.gone, seconds=60)
        self.until_more(3)
        self.note()

    def note(self) -> Release | None:
        """Remember what a member has sent last, and refuse another content of a number."""
        if self._member is None:
            return None
        transport = SqliteTransport(self._member.parent / "transport.sqlite")
        try:
            message = transport.latest().get(self._member.name)
            assert message is not None
            release = Envelope.parse(message).release
            assert self.sent.setdefault(release.number, release) == release
            return release
        finally:
            transport.close()

    def serves(self, one: Running) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{one.url}/readyz", timeout=5).status_code == 200
        return False

    def until_more(self, count: int) -> None:
        """Wait until so many more requests of each client were answered."""
        wanted = [len(client.acknowledged) + count for client in self.clients]

        def more() -> bool:
            self._supervise()
            counts = [len(client.acknowledged) for client in self.clients]
            enough = all(now >= least for now, least in zip(counts, wanted, strict=True))
            return enough or any(client.wrong for client in self.clients)

        until(more, seconds=60)

    def check(self) -> None:
        """The log has what was acknowledged, and each policy follows from what came before it."""
        for client in self.clients:
            client.enough.set()
            client.join(60)
        assert not [client.wrong for client in self.clients if client.wrong]
        active = self.active()
        if self._member is not None:
            with httpx.Client(base_url=active.url) as http:
                until(lambda: not sync(http)["waiting"], seconds=60)
        for one in self.running:
            one.stop()
            self.said += one.said
        assert "Traceback" not in self.said
        acknowledged = {key: each for client in self.clients for key, each in client.acknowledged.items()}
        with ffx.Agent.open(self.place) as agent:
            agent.verify()
            stored = list(agent.journal.decisions())
            assert {each.key: (each.id, each.reward) for each in stored} == acknowledged
            assert len(stored) == len(acknowledged) == agent.observed
            (self.check_ledger if agent.private else self.check_policies)(agent, stored)

    def check_policies(self, agent: ffx.Agent, stored: list[Any]) -> None:
        again, contexts = ffx.Agent(3, options=agent.options), {each.seq: each.contexts for each in stored}
        for entry in agent.journal.entries():
            if isinstance(entry.step, Decided):
                expected = again.policy(np.asarray(contexts[entry.number]).reshape(-1, again.columns))
                assert entry.step.decision.policy.tobytes() == expected.tobytes()
            again._core.apply(entry.step)

    def check_ledger(self, agent: ffx.Agent, stored: list[Any]) -> None:
        """Each record is in one leaf; what a member sent is in the ledger, and reaches the others whole."""
        ask = agent.journal.log.database.execute
        assert sorted(ask("SELECT record FROM ledger_records")) == sorted((each.id,) for each in stored)
        places = ask("SELECT place FROM ledger_releases")
        assert len({*places}) == len(places)  # the noise is drawn for these
        last = self.note()
        if last is None or self._member is None:
            return
        assert (last.number, last.count) == (agent.released, len(stored))
        assert agent.privatizer.stream is not None
        assert agent.privatizer.stream.ledger.unsent() == ()
        for number, release in self.sent.items():
            assert agent.past_release(number) == release
        with member_of(self._member.parent / "org2") as two:
            until(lambda: sync(two)["peers"]["org1"]["release"] == last.number)
            assert not sync(two)["refusals"]

    def close(self) -> None:
        for client in self.clients:
            client.given_up = True
        self.balancer.close()
        for one in self.running:
            with suppress(ProcessLookupError):
                one.kill()


@contextmanager
def network(server: Postgres) -> Iterator[tuple[str, Callable[[threading.Event], None]]]:
    """The address of an empty schema by a relay, and what lets it cut a connection when an event is set."""
    events: list[threading.Event] = []

    def watch(data: bytes, _client: socket.socket) -> bool:
        if not events or not events[0].is_set() or COMMITTED not in data:
            return True
        events[0].clear()
        return False

    def connect() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(server.socket))
        return connection

    with tempfile.TemporaryDirectory() as folder:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{folder}/{server.socket.name}")
        relay = Relay(listener, connect, watch)
        try:
            yield server.schema().replace(str(server.socket.parent), folder), events.append
        finally:
            relay.close()


def run(site: Site, faults: tuple[str, ...], rounds: int) -> None:
    chance = random.Random(7)
    try:
        for client in site.clients:
            client.start()
        for fault in [fault for _ in range(rounds) for fault in chance.sample(faults, len(faults))]:
            site.disturb(fault)
        site.check()
    finally:
        site.close()


PRIVATE = ("--epsilon", "2")
KINDS = [
    pytest.param(1, (), id="once"),
    pytest.param(5, (), id="often", marks=pytest.mark.slow),
    pytest.param(5, PRIVATE, id="often, private", marks=pytest.mark.slow),
]
ROUNDS = [1, pytest.param(5, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("rounds", "flags"), KINDS)
def test_nothing_acknowledged_is_lost_with_a_file(
    tmp_path: Path, rounds: int, flags: tuple[str, ...]
) -> None:
    run(Site(place_of(settings_for(str(tmp_path / "agent.db"))), None, *flags), WITH_FILE, rounds)


@pytest.mark.parametrize(("rounds", "flags"), KINDS)
def test_nothing_acknowledged_is_lost_with_a_server(
    own_postgres: Postgres, rounds: int, flags: tuple[str, ...]
) -> None:
    with network(own_postgres) as (place, watch):
        site = Site(place, own_postgres, *flags)
        watch(site.cut)
        run(site, WITH_SERVER, rounds)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_member_with_a_file_sends_each_number_once(tmp_path: Path, rounds: int) -> None:
    member = founded(tmp_path / "federation", horizon=100_000) / "org1"
    site = Site(str(member / "data" / "agent.sqlite"), None, member=member)
    run(site, (*WITH_FILE, *OF_A_MEMBER), rounds)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_member_with_a_server_sends_each_number_once(
    own_postgres: Postgres, tmp_path: Path, rounds: int
) -> None:
    member = founded(tmp_path / "federation", horizon=100_000) / "org1"
    with network(own_postgres) as (place, watch):
        site = Site(place, own_postgres, member=member)
        watch(site.cut)
        run(site, (*WITH_SERVER, *OF_A_MEMBER), rounds)
