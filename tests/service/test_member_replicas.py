"""A member of a federation as several processes with one PostgreSQL database, over NATS.

The one that exchanges is killed and stopped, again and again, and another takes over; sessions are ended and
PostgreSQL is restarted.

Never: a number with two contents, noise twice, a reward lost or counted twice, two states in the end.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.federation.exchange.envelope import Envelope
from fedfairx.privacy import Release
from fedfairx.storage.verification import check_logs, open_for_reading
from member_service import founded, rounds
from nats_server import NatsServer, free_port
from servers import Postgres
from service_helpers import CONTEXTS, Running, until

pytestmark = pytest.mark.process

#: While it sends a release, before and after the hub has it; and while it takes one of a peer.
DEATHS = (
    "before:fedfairx.federation.exchange.member:Member._publish",
    "fedfairx.federation.exchange.member:Member._publish",
    "fedfairx.storage.privacy_ledger:StoredLedger.freeze",
    "fedfairx.storage.seen:SeenTables.keep_release",
)


class Customer(threading.Thread):
    """Makes decisions and rewards them at any of the processes, one after the other, until it is stopped."""

    def __init__(self, number: int, running: list[Running]) -> None:
        super().__init__()
        self.number, self.running, self.random = number, running, random.Random(number)
        self.enough = threading.Event()
        self.rewards: dict[str, float] = {}

    def run(self) -> None:
        with httpx.Client(timeout=3, verify=False) as http:
            while not self.enough.is_set():
                headers = {"idempotency-key": f"{self.number}-{len(self.rewards)}"}
                body = {"contexts": CONTEXTS}
                made = self.answered(http, "POST", "/v1/decisions", 201, json=body, headers=headers)
                identity, reward = made["decision_id"], self.random.randrange(3) / 2
                self.answered(http, "PUT", f"/v1/decisions/{identity}/reward", 204, json={"reward": reward})
                self.rewards[identity] = reward
                self.enough.wait(0.01)

    def answered(self, http: httpx.Client, method: str, path: str, status: int, **given: Any) -> Any:
        """The answer to a request, which is sent until somebody takes it."""
        while True:
            with suppress(httpx.HTTPError):
                answer = http.request(method, self.random.choice(self.running).url + path, **given)
                if answer.status_code == status:
                    return answer.json() if answer.content else None
                assert answer.status_code == 503, answer.text


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Path]:
    """The folder of a federation with a hub that runs."""
    port = free_port()
    server = NatsServer.of(tmp_path / "federation" / "hub" / "nats-server.conf", port)
    base = founded(tmp_path / "federation", transport="nats", port=port, horizon=5_000)
    server.start().make_bucket_in(base / "hub")
    yield base
    server.kill()


def asked(running: Running) -> Any:
    """What a process says of the exchange; nothing while it is away."""
    with suppress(httpx.HTTPError, ValueError):
        return httpx.get(f"{running.url}/v1/sync", timeout=5, verify=False).json()
    return {}


def holder(running: list[Running]) -> Running | None:
    """The process that exchanges, as all say that answer."""
    said = {asked(each).get("process", "") for each in running}
    return next((each for each in running if said == {each.name}), None)


def the_holder(running: list[Running]) -> Running:
    """The process that exchanges, once all say the same; those that have died are started again."""
    found: list[Running] = []

    def known() -> bool:
        for each in running:
            if each.gone():  # where it was told to die
                each.start()
        found.extend(each for each in [holder(running)] if each is not None)
        return bool(found)

    until(known, seconds=60)
    return found[0]


def test_the_one_that_exchanges_says_which_peers_are_silent(postgres: Any, hub: Path) -> None:
    """The others hear no sign of life, and would say that all peers are silent."""
    flags = ("--replica", "--database", postgres.schema())
    running = [Running.member(hub / "org1", *flags) for _ in range(2)]
    one = the_holder(running)
    for each in running:
        text = httpx.get(f"{each.url}/metrics", timeout=30, verify=False).text
        for name in ("federation_reached", "peer_silent_seconds"):
            assert (f"fedfairx_{name}{{" in text) == (each is one), name
        assert "fedfairx_certificate_expires_seconds{" in text
    for each in running:
        each.stop()


@pytest.mark.parametrize("faults", [9, pytest.param(42, marks=pytest.mark.slow)])
def test_whoever_exchanges_is_killed_and_stopped(own_postgres: Postgres, hub: Path, faults: int) -> None:
    place, chance = own_postgres.schema(), random.Random(3)
    flags = ("--replica", "--database", place)
    running = [Running.member(hub / "org1", *flags) for _ in range(3)]
    peer = Running.member(hub / "org2")
    customers = [Customer(number, running) for number in range(2)]
    seen: dict[int, Release] = {}
    doomed: set[Running] = set()  # those that will die somewhere
    for customer in customers:
        customer.start()
    try:
        for fault in range(faults):
            one, before = the_holder(running), arrived(peer)
            with suppress(ProcessLookupError):  # it has died where it was told to
                disturb(one, own_postgres, chance, fault)
            doomed.update([one] if fault % 6 == 2 else [])
            with httpx.Client(base_url=peer.url, timeout=30, verify=False) as http:
                rounds(http, 1)
            until(lambda: arrived(peer) > before + 1, seconds=60)  # noqa: B023 (another has taken over)
            if fault % 6 == 1:
                with suppress(ProcessLookupError):
                    one.resume()
            note(hub, seen)
    finally:
        for customer in customers:
            customer.enough.set()
        for customer in customers:
            customer.join()
    for each in running:
        if each in doomed and not each.gone():
            each.kill()
        if each.gone():
            each.start()
    rewards = {key: reward for customer in customers for key, reward in customer.rewards.items()}
    for each in running:
        until(lambda: asked(each)["peers"]["org2"]["records"] == faults, seconds=60)  # noqa: B023
    models = lambda: {httpx.get(f"{each.url}/v1/model", verify=False).text for each in running}  # noqa: E731
    until(lambda: len(models()) == 1, seconds=30)
    until(lambda: arrived(peer, "records") == len(rewards), seconds=60)
    assert not asked(peer)["refusals"]
    assert all(asked(each)["trouble"] is None for each in running)
    note(hub, seen)
    for each in (*running, peer):
        each.stop()
        assert "Traceback" not in each.said
    check(place, rewards, seen)


def disturb(one: Running, server: Postgres, chance: random.Random, fault: int) -> None:
    """Kill or stop the process that exchanges: at once, for as long as it takes, or in the middle of it.

    Or end all sessions, or PostgreSQL.
    """
    match fault % 6:
        case 0:
            one.kill()
            one.start()
        case 1:
            one.pause()  # until another has taken over
        case 2:
            one.kill()
            with suppress(AssertionError):  # it may be its turn before it serves
                one.start(die=chance.choice(DEATHS))  # when it is next its turn
        case 3:
            one.pause()
            threading.Event().wait(0.3)
            one.resume()
        case 4:
            server.end_sessions()
        case _:
            server.stop()
            server.start()


def arrived(peer: Running, what: str = "release") -> int:
    """The number of org1's release at its peer, or the records in it."""
    return int(asked(peer)["peers"]["org1"][what])


def note(hub: Path, seen: dict[int, Release]) -> None:
    """Remember what the hub has, and refuse another content of a number."""
    from fedfairx.federation.setup.member_folder import MemberFolder

    transport = MemberFolder.read(hub / "org2").transport()
    try:
        message = transport.latest().get("org1")
        assert message is not None
        release = Envelope.parse(message).release
        assert seen.setdefault(release.number, release) == release
    finally:
        transport.close()


def check(place: str, rewards: dict[str, float], seen: dict[int, Release]) -> None:
    with open_for_reading(place) as database:
        (found,) = check_logs(database)
        places = [row[0] for row in database.execute("SELECT place FROM ledger_releases")]
    assert found.damage is None
    assert len(set(places)) == len(places)  # the noise is drawn for these
    with ffx.Agent.open(place, name="org1") as agent:
        agent.verify()
        stored = list(agent.journal.decisions())
        assert {each.id: each.reward for each in stored} == rewards
        last = agent.past_release(agent.released)
        assert (last.number, last.count) == (len(places), len(rewards))  # each record once
        stream = agent.privatizer.stream
        assert stream is not None
        assert stream.ledger.unsent() == ()
        for number, release in seen.items():
            assert agent.past_release(number) == release
        bounds, expected = stream.bounds, np.zeros(9)
        for each in stored:
            row = np.asarray(each.contexts).reshape(-1, 3)[each.action]
            x, y, _ = bounds.clip(row, each.reward)
            expected += [*np.outer(x, x)[np.triu_indices(3)], *(x * y)]
        here = stream._position
        assert np.allclose(here.total, expected, atol=1e-9)
