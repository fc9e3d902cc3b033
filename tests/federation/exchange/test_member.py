"""An agent at its transport: what is sent, taken, ignored and refused, whatever the transport does."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.errors import LedgerMismatch, MessageRefused, StorageUnavailable, TransportUnavailable
from fedfairx.federation.exchange.envelope import PlainCodec
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.transport import Conflict, MemoryTransport
from fedfairx.privacy import Release
from member_helpers import NAMES, D, released, work, world
from nats_server import wait_until


class Flaky(MemoryTransport):
    """A transport that is away at will, loses acknowledgements, and shows what it showed before."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.away = False
        self.trouble = 0.0
        self.past: list[dict[str, bytes]] = [{}]

    def publish(self, agent: str, message: bytes, *, replacing: bytes | None) -> None:
        if self.away or self.random.random() < self.trouble:
            raise TransportUnavailable("away")
        super().publish(agent, message, replacing=replacing)
        self.past.append(super().latest())
        if self.random.random() < self.trouble:
            raise TransportUnavailable("the answer was lost")

    def latest(self) -> dict[str, bytes]:
        if self.away or self.random.random() < self.trouble:
            raise TransportUnavailable("away")
        if self.random.random() < self.trouble:  # delayed and out of order
            return {name: self.random.choice(self.past).get(name, b"") or message
                    for name, message in super().latest().items()}  # fmt: skip
        return super().latest()


def test_two_agents_learn_from_each_other() -> None:
    here = world()
    org1, org2 = (here.member(name) for name in ("org1", "org2"))
    release = released(org1)
    assert org2.receive() == ["org1"]
    assert org2.receive() == []
    assert org2.agent.held["org1"] == release
    assert org2.peers["org1"].release == 1
    assert org2.peers["org1"].records == 5
    assert org2.peers["org1"].came is not None
    assert org2.peers["org1"].alive == org2.peers["org1"].came
    released(org2, seed=1)
    released(org2, seed=2)
    assert org1.receive() == ["org2"]
    assert not org1.waiting


def test_what_is_wrong_under_ones_own_name_is_rejected_until_it_is_replaced() -> None:
    here = world()
    member = here.member("org1")
    released(member)
    here.put("org1", b"something else")
    assert member.exchange()
    assert member.rejected.keys() == {"org1"}
    assert here.transport.latest()["org1"] == member.message
    assert member.exchange()
    assert member.rejected == {}
    assert sum(member.refusals.values()) == 1


def test_the_ledger_learns_what_was_sent() -> None:
    here = world()
    member = here.member("org1")
    work(member.agent)
    release = member.agent.release()
    stream = member.agent.privatizer.stream
    assert stream is not None
    assert stream.ledger.unsent() == (1,)
    member.send(release)
    assert stream.ledger.unsent() == ()


def test_the_ledger_learns_what_an_earlier_process_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended between publishing the release and noting that in the ledger."""
    here = world()
    member = here.member("org1")
    with monkeypatch.context() as patch:
        patch.setattr(member, "_acknowledge", lambda: None)
        released(member)
    stream = member.agent.privatizer.stream
    assert stream is not None
    assert stream.ledger.unsent() == (1,)
    again = Member(member.agent, here.transport, member._seal)
    assert again.exchange()
    assert stream.ledger.unsent() == ()


def test_while_the_transport_is_away_the_agent_goes_on_and_then_catches_up() -> None:
    """Cut off for 1 000 rounds and back: all of it arrives, and what the others did meanwhile too."""
    transport = Flaky()
    here = world(transport)
    cut, other = here.member("org1"), here.member("org2")
    released(cut)
    released(other)
    cut.exchange()
    transport.away = True
    for number in range(1000):
        work(cut.agent, 1, seed=number)
        if number % 50 == 49:
            assert cut.send(cut.agent.release()) is False
            assert cut.exchange() is False
            assert cut.waiting
            assert cut.away == "away"
            # Its own releases reach its own decisions all the same.
            assert cut._shared == cut.agent.released
    transport.away = False
    for number in range(20):
        released(other, 1, seed=number)
    assert cut.exchange()
    assert other.exchange()
    assert cut.away is None
    assert other.agent.held["org1"].number == 21
    assert other.agent.held["org1"].count == 1005
    assert cut.agent.held["org2"].number == 21
    assert not other.refusals
    assert not cut.refusals


@pytest.mark.parametrize("seed", range(5))
def test_delayed_doubled_reordered_and_lost_messages_end_the_same(seed: int) -> None:
    """Whatever the way does, all end with the same releases, bit for bit, as if it had done nothing."""

    def end(trouble: float) -> list[dict[str, Release]]:
        transport = Flaky(seed)
        here = world(transport)
        members = [here.member(name) for name in NAMES]
        transport.trouble = trouble
        rng = np.random.default_rng(seed)
        for number in range(12):
            for index, member in enumerate(members):
                only = rng.random((1, D)) / 2  # one arm: what is observed does not depend on what came
                member.agent.observe(member.agent.decide(only), reward=float(rng.random()))
                if index != number % 3:  # not in lock step
                    member.send(member.agent.release())
                member.exchange()
        transport.trouble = 0.0
        for member in members * 2:
            assert member.exchange()
        assert not any(member.refusals for member in members)
        assert trouble == 0.0 or any(member.ignored for member in members)
        return [member.agent.held for member in members]

    troubled, quiet = end(0.3), end(0.0)
    assert all(held == quiet[0] for held in (*troubled, *quiet))
    assert quiet[0].keys() == set(NAMES)


def test_a_replayed_message_is_ignored_and_other_content_under_its_number_refused() -> None:
    here = world()
    sender, ear = here.member("org1"), here.member("org2")
    released(sender)
    old = here.transport.latest()["org1"]
    ear.exchange()
    released(sender, seed=1)
    ear.exchange()
    here.put("org1", old)
    ear.exchange()
    assert (ear.ignored, ear.agent.held["org1"].number) == (1, 2)
    assert not ear.refusals
    twin = here.agent("org1")  # another life of the same agent: the same numbers, other records
    work(twin, 7, seed=5)
    for _ in range(2):
        forked = twin.release()
    here.put("org1", here.seal("org1").close(forked))
    ear.exchange()
    assert ear.refusals == {("org1", "repeated number"): 1}
    assert ear.agent.held["org1"].count == 10


def test_an_agent_from_an_old_copy_sends_nothing_and_says_what_to_do() -> None:
    here = world()
    sender, ear = here.member("org1"), here.member("org2")
    for number in range(3):
        released(sender, seed=number)
    ear.exchange()
    restored = here.agent("org1")  # as it was after its first release
    work(restored, seed=0)
    restored.release()
    work(restored, seed=9)
    member = here.member("org1", restored)
    with pytest.raises(LedgerMismatch, match="old copy") as told:
        member.exchange()
    assert "new name and a new key" in str(told.value)
    assert member.halted == str(told.value)
    with pytest.raises(LedgerMismatch):  # nor is its next release sent
        member.send(restored.release())
    released(ear)
    assert member.receive() == ["org2"]  # it goes on deciding, with what others know
    # Past the hub, its releases are refused by the others: numbers 2 and 3 have another content.
    here.put("org1", here.seal("org1").close(restored.release()))
    ear.receive()
    assert ear.refusals == {("org1", "repeated number"): 1}


def test_one_that_lost_everything_is_told_before_its_first_release() -> None:
    here = world()
    released(here.member("org1"))
    with pytest.raises(LedgerMismatch, match="which has made 0"):
        here.member("org1").exchange()


def test_a_restarted_agent_sends_what_waited_and_nothing_twice() -> None:
    transport = Flaky()
    here = world(transport)
    agent = here.agent("org1")
    transport.away = True
    work(agent)
    here.member("org1", agent).send(agent.release())  # and then the process is gone
    transport.away = False
    again = here.member("org1", agent)
    assert again.waiting
    assert again.exchange()
    assert not again.waiting
    before = transport.latest()
    assert here.member("org1", agent).exchange()
    assert transport.latest() == before


def test_what_the_transport_lost_is_sent_again_and_rubbish_is_replaced() -> None:
    here = world()
    member = here.member("org1")
    released(member)
    message = here.transport.latest()["org1"]
    here.transport._messages.clear()  # type: ignore[attr-defined]
    assert member.exchange()
    assert here.transport.latest() == {"org1": message}
    for rubbish in (b"rubbish", here.seal("org2").close(member.agent.held["org1"])):
        here.put("org1", rubbish)
        assert member.exchange()
        assert here.transport.latest() == {"org1": message}
    assert sum(member.refusals.values()) == 2


def test_rubbish_under_ones_name_before_the_first_release_stops_nothing() -> None:
    here = world()
    here.put("org1", b"rubbish")
    one, two = here.member("org1"), here.member("org2")
    released(two)
    for _ in range(2):
        assert one.exchange()
    assert not one.waiting
    assert "org2" in one.agent.held
    released(one)  # it replaces the rubbish
    two.exchange()
    assert "org1" in two.agent.held


def test_a_member_whose_release_another_life_has_replaced_waits() -> None:
    here = world()
    member = here.member("org1")
    released(member)
    assert not member.waiting
    twin = here.agent("org1")
    work(twin, 7, seed=5)
    for _ in range(3):
        later = twin.release()
    here.put("org1", here.seal("org1").close(later))
    member.receive()
    assert member.halted
    assert member.waiting


def test_two_lives_of_one_agent_never_overwrite_each_other() -> None:
    here = world()
    first = here.agent("org1")
    one, two = here.member("org1", first), here.member("org1", here.agent("org1"))
    released(one)
    work(two.agent, 6, seed=3)
    with pytest.raises(LedgerMismatch):
        two.send(two.agent.release())
    assert one.exchange()
    assert here.transport.latest()["org1"] == here.seal("org1").close(first.held["org1"])


def test_a_name_that_is_written_to_all_the_time_is_tried_again_later() -> None:
    class Busy(MemoryTransport):
        def publish(self, agent: str, message: bytes, *, replacing: bytes | None) -> None:  # noqa: ARG002
            raise Conflict(b"something else")

    here = world(Busy())
    member = here.member("org1")
    work(member.agent)
    assert member.send(member.agent.release()) is False
    assert "another writer" in str(member.away)


def test_a_release_replaces_the_one_before_at_the_first_attempt() -> None:
    """A second one would ask the hub for what it holds."""
    attempts: list[str] = []

    class Noting(MemoryTransport):
        def publish(self, agent: str, message: bytes, *, replacing: bytes | None) -> None:
            attempts.append(agent)
            super().publish(agent, message, replacing=replacing)

    here = world(Noting())
    for number, member in enumerate([here.member("org1"), here.member("org2")] * 2):
        work(member.agent, seed=number)
        member.agent.release()
        assert member.exchange()
    assert attempts == ["org1", "org2"] * 2


def test_releases_that_are_refused_together_are_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    here = world()
    for name in ("org1", "org2"):
        released(here.member(name))
    ear = here.member("org3")
    absorb = ffx.Agent.absorb

    def picky(agent: ffx.Agent, releases: dict[str, object]) -> None:
        if "org1" in releases:
            raise MessageRefused("not this one", reason="indefinite")
        absorb(agent, releases)  # type: ignore[arg-type]

    monkeypatch.setattr(ffx.Agent, "absorb", picky)
    assert ear.receive() == ["org2"]
    assert ear.refusals == {("org1", "indefinite"): 1}
    with pytest.raises(MessageRefused):
        here.member("org3").receive(strict=True)


def test_what_waits_is_sent_before_what_came_is_taken_in() -> None:
    """The others wait for it, and to take in what they have sent may last."""
    held: list[set[str]] = []

    class Noting(MemoryTransport):
        def publish(self, agent: str, message: bytes, *, replacing: bytes | None) -> None:
            super().publish(agent, message, replacing=replacing)
            if agent == "org1":
                held.append(set(member.agent.held))

    here = world(Noting())
    member = here.member("org1")
    released(here.member("org2"))
    work(member.agent)
    member.agent.release()
    assert member.exchange()
    assert held == [{"org1"}]
    assert member.agent.held.keys() == {"org1", "org2"}


def test_who_must_send_nothing_takes_all_the_same() -> None:
    here = world()
    released(here.member("org1"))
    released(here.member("org2"))
    late = here.member("org1")  # has lost everything
    with pytest.raises(LedgerMismatch):
        late.exchange()
    assert late.agent.held.keys() == {"org2"}


def test_a_thread_keeps_it_up_to_date() -> None:
    here = world()
    sender, ear = here.member("org1"), here.member("org2")
    stop = ear.watch(every=60.0)
    released(sender)
    wait_until(lambda: ear.peers.get("org1") is not None and ear.peers["org1"].release == 1)
    stop()
    released(sender)
    ear.receive()
    assert ear.peers["org1"].release == 2


def test_threads_may_share_a_member() -> None:
    here = world()
    sender, ear = here.member("org1"), here.member("org2")
    failures: list[BaseException] = []

    def repeat(work: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            try:
                for _ in range(50):
                    work()
            except BaseException as error:  # shown below
                failures.append(error)

        return run

    threads = [threading.Thread(target=repeat(ear.exchange)) for _ in range(3)]
    threads += [threading.Thread(target=repeat(lambda: sender.send(sender.agent.release())))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    ear.exchange()
    assert ear.peers["org1"].release == 50


def test_agents_of_one_process_share_one_copy_of_a_release() -> None:
    seal, transport = PlainCodec(), MemoryTransport()
    members = [Member(ffx.Agent(2, seed=i, name=f"a{i}"), transport, seal) for i in range(3)]
    for member in members:
        work(member.agent)
        member.send(member.agent.release())
    for member in members:
        member.receive()
    assert members[0].agent.held["a2"] is members[1].agent.held["a2"]


def test_an_old_copy_is_noticed_even_when_it_has_made_more_releases_since() -> None:
    """It was away from the others, and its numbers have passed those that they hold."""
    it = world()
    member = it.member("org1")
    for number in range(2):
        released(member, seed=number)
    other = it.member("org1", it.agent("org1", seed=5))  # as one that was put back to before the first
    for number in range(3):
        work(other.agent, seed=10 + number)
        other.agent.release()
    with pytest.raises(LedgerMismatch, match="halted"):
        other.exchange()
    assert it.seal("org2").open("org1", it.transport.latest()["org1"]).number == 2


def test_the_outbox_follows_the_agent() -> None:
    """Whoever makes the release: the agent's latest is what is sent."""
    it = world()
    member, ear = it.member("org1"), it.member("org2")
    work(member.agent)
    assert not member.waiting
    member.agent.release()
    assert member.waiting
    assert member.message is not None
    assert member.exchange()
    assert not member.waiting
    assert ear.receive() == ["org1"]


def test_a_release_that_may_not_be_stored_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is away, and the hub is not: the next release of this number has other noise."""
    here = world()
    with here.roster.terms.open_agent("org1", tmp_path / "agent.db") as agent:
        member = here.member("org1", agent)
        work(agent)
        database: Any = agent.journal.log.database

        def away(*_given: Any, **_more: Any) -> Any:
            raise StorageUnavailable("away")

        with monkeypatch.context() as patched:
            for name in ("commit", "check_last_row"):
                patched.setattr(database, name, away)
            with pytest.raises(StorageUnavailable, match="away"):
                agent.release()
            with pytest.raises(StorageUnavailable, match="away"):
                member.exchange()
        assert here.transport.latest() == {}
        assert member.exchange()
        assert here.transport.latest() == {}  # it was not stored
        agent.release()
        assert member.exchange()
        assert here.seal("org2").open("org1", here.transport.latest()["org1"]) == agent.past_release(1)
