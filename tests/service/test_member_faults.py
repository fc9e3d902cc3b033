"""Members' services as real processes: killed at every step of a release, cut off, put back from a backup.

Never: a number with two contents, a record in two releases or in none, a decision refused, a reward lost.
"""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

import fedfairx as ffx
from fedfairx.federation.exchange.envelope import Envelope
from fedfairx.federation.transport import Conflict, SqliteTransport
from member_service import founded, member_of, rounds, sync
from nats_server import NatsServer, free_port
from service_helpers import CONTEXTS, Running, metrics_of, until

pytestmark = pytest.mark.process

#: What has just been done when the service dies.
STEPS = {
    "closed the leaf": "fedfairx.storage.privacy_ledger:StoredLedger.freeze",
    "recorded the release": "fedfairx.storage.privacy_ledger:StoredLedger.record",
    "released, not on disk": "before:fedfairx.federation.exchange.member:Member.wake",
    "on disk, not acknowledged": "fedfairx.service.write_queue:WriteQueue._do",
    "about to publish": "before:fedfairx.federation.exchange.member:Member._publish",
    "published": "fedfairx.federation.exchange.member:Member._publish",
    "marked as sent": "fedfairx.storage.privacy_ledger:StoredLedger.mark_sent",
}


class Customer:
    """Asks again whatever was not acknowledged, and remembers what was."""

    def __init__(self) -> None:
        self.rewards: dict[str, float] = {}
        self._asked = 0

    def order(self, url: str) -> None:
        """A decision and its reward; `httpx.TransportError` if the service dies meanwhile."""
        with httpx.Client(base_url=url, timeout=10.0, verify=False) as http:
            key = f"order-{self._asked}"
            made = http.post("/v1/decisions", json={"contexts": CONTEXTS}, headers={"idempotency-key": key})
            assert made.status_code == 201, made.text
            identity, reward = made.json()["decision_id"], (self._asked % 7) / 7
            taken = http.put(f"/v1/decisions/{identity}/reward", json={"reward": reward})
            assert taken.status_code == 204, taken.text
            self.rewards[identity] = reward
            self._asked += 1


def test_killed_at_every_step_of_a_release(tmp_path: Path) -> None:
    base = founded(tmp_path / "federation", horizon=200)
    transport, customer, seen = SqliteTransport(base / "transport.sqlite"), Customer(), {}
    running = Running.member(base / "org1", start=False)
    for step, where in STEPS.items():
        if "publish" in where or "sent" in where:  # what an earlier life could not send would be its first
            running.start()
            with httpx.Client(base_url=running.url, verify=False) as http:
                until(lambda: not sync(http)["waiting"])
            running.stop()  # once it has noted what it has sent
        running.start(die=where)
        for _ in range(50):
            try:
                customer.order(running.url)
            except httpx.TransportError:
                break
        until(running.gone)
        message = transport.latest().get("org1")
        if message is not None:
            release = Envelope.parse(message).release
            assert seen.setdefault(release.number, release) == release, step
    running.start()
    customer.order(running.url)
    with httpx.Client(base_url=running.url, verify=False) as http:
        until(lambda: not sync(http)["waiting"])
        released = sync(http)["released"]
    running.stop()
    last = Envelope.parse(transport.latest()["org1"]).release
    with ffx.Agent.open(base / "org1" / "data" / "agent.sqlite") as agent:
        agent.verify()
        kept = {row.id: row.reward for row in agent.journal.decisions(status="rewarded")}
        assert customer.rewards == kept
        assert (last.number, last.count) == (released, len(kept))  # each record once
        ledger = agent.privatizer.ledger
        assert ledger.unsent() == ()
        for number, release in seen.items():
            assert ledger.message(number) == release.to_bytes()
    with member_of(base / "org2") as two:
        until(lambda: sync(two)["peers"]["org1"]["release"] == last.number)
        assert not sync(two)["refusals"]


def test_cut_off_from_the_hub_and_back(tmp_path: Path) -> None:
    port = free_port()
    base = founded(tmp_path / "federation", transport="nats", port=port, horizon=5_000)
    hub = NatsServer.of(base / "hub" / "nats-server.conf", port)
    hub.start().make_bucket_in(base / "hub")
    one, two = Running.member(base / "org1"), Running.member(base / "org2")
    try:
        with (
            httpx.Client(base_url=one.url, timeout=30, verify=False) as first,
            httpx.Client(base_url=two.url, verify=False) as second,
        ):
            rounds(first, 10)
            until(lambda: sync(second)["peers"]["org1"]["records"] == 10, seconds=20)
            hub.kill()
            for _ in range(4):  # 1000 rounds, and not one decision is refused
                rounds(first, 250)
            rounds(second, 30)
            until(lambda: sync(first)["trouble"] is not None, seconds=20)
            assert sync(first)["waiting"]
            hub.start()
            until(lambda: sync(second)["peers"]["org1"]["records"] == 1010, seconds=30)
            until(lambda: sync(first)["peers"]["org2"]["records"] == 30, seconds=30)
            until(lambda: sync(first)["trouble"] is None and not sync(first)["waiting"], seconds=20)
            assert not sync(first)["refusals"]
            assert not sync(second)["refusals"]
    finally:
        one.stop()
        two.stop()
        hub.kill()


def test_messages_that_come_late_twice_and_out_of_order(tmp_path: Path) -> None:
    """Somebody on the way puts old messages in the place of new ones, all the time; both members run."""
    base, chance = founded(tmp_path / "federation", horizon=200), random.Random(0)
    transport = SqliteTransport(base / "transport.sqlite")
    seen: dict[str, set[bytes]] = {"org1": set(), "org2": set()}
    one, two = Running.member(base / "org1"), Running.member(base / "org2")
    with (
        httpx.Client(base_url=one.url, verify=False) as first,
        httpx.Client(base_url=two.url, verify=False) as second,
    ):
        for _ in range(15):
            rounds(first, 1)
            rounds(second, 1)
            for name, message in transport.latest().items():
                if name not in seen:
                    continue  # a sign of life
                seen[name].add(message)
                with suppress(Conflict):  # the member was quicker
                    transport.publish(name, chance.choice(sorted(seen[name])), replacing=message)
        until(
            lambda: sync(first)["peers"]["org2"]["records"] == sync(second)["peers"]["org1"]["records"] == 15
        )
        until(lambda: not (sync(first)["waiting"] or sync(second)["waiting"]))
        assert (sync(first)["refusals"], sync(second)["refusals"]) == ({}, {})
        assert sync(first)["trouble"] is sync(second)["trouble"] is None
    held = []
    for running, name in ((one, "org1"), (two, "org2")):
        running.stop()
        with ffx.Agent.open(base / name / "data" / "agent.sqlite") as agent:
            agent.verify()
            held.append(agent.held)
    assert held[0] == held[1]
    assert max(len(each) for each in seen.values()) > 3


def test_put_back_from_an_old_backup_it_sends_nothing_and_says_what_to_do(tmp_path: Path) -> None:
    base = founded(tmp_path / "federation")
    database = base / "org1" / "data" / "agent.sqlite"
    backup = tmp_path / "backup.sqlite"
    transport = SqliteTransport(base / "transport.sqlite")

    def work(count: int) -> None:
        with member_of(base / "org1") as one:
            for _ in range(count):
                rounds(one, 2)
            until(lambda: not sync(one)["waiting"])

    work(1)
    shutil.copy(database, backup)
    work(2)
    latest = transport.latest()["org1"]
    shutil.copy(backup, database)
    for left in database.parent.glob("agent.sqlite-*"):
        left.unlink()
    with pytest.raises(AssertionError, match="older copy"):
        Running.member(base / "org1")
    (database.parent / "agent.sqlite.lock").unlink()  # as somebody in a hurry would
    running = Running.member(base / "org1")
    with httpx.Client(base_url=running.url, verify=False) as http:
        rounds(http, 2)
        until(lambda: sync(http)["trouble"] is not None)
        rounds(http, 2)  # deciding goes on
        assert "under a new name and a new key" in sync(http)["trouble"]
        assert "fedfairx_federation_halted 1" in metrics_of(http)
        assert "Sending is halted" in http.get("/").text
        answer = http.get("/v1/release/latest")
        assert answer.status_code == 409
        assert answer.json()["type"].endswith(":halted")
    running.stop()
    assert transport.latest()["org1"] == latest
    assert "halted" in running.said


def test_what_anybody_writes_into_the_transport_is_refused(tmp_path: Path) -> None:
    base = founded(tmp_path / "federation", names=("org1", "org2", "org3"))
    transport = SqliteTransport(base / "transport.sqlite")
    with member_of(base / "org2") as two:
        rounds(two, 5)
        until(lambda: not sync(two)["waiting"])
    good = transport.latest()["org2"]
    transport.publish("org3", good, replacing=None)  # another's, under this name
    transport.publish("<script>", b"rubbish", replacing=None)
    flipped = bytearray(good)
    flipped[-100] ^= 1
    transport.publish("org2", bytes(flipped), replacing=good)
    with member_of(base / "org1") as one:
        until(lambda: len(sync(one)["refusals"]) == 3)
        assert sync(one)["refusals"] == {
            "?": {"malformed": 1},
            "org2": {"signature": 1},
            "org3": {"sender": 1},
        }
        rounds(one, 3)
        assert sync(one)["peers"]["org2"]["release"] == 0
        for page in ("/federation", "/"):
            assert "&lt;script" not in one.get(page).text
            assert "<script>" not in one.get(page).text
        assert 'fedfairx_refused_total{peer="?",reason="malformed"} 1' in metrics_of(one)
        transport.publish("org2", good, replacing=bytes(flipped))
        until(lambda: sync(one)["peers"]["org2"]["release"] == 1)
