"""A member whose agent several processes share: two of them may exchange at once, and do no harm.

Here a process is a log of its own, with connections of its own: addresses that differ are different logs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx import steps
from fedfairx.errors import LedgerMismatch, StateError, StorageUnavailable
from fedfairx.federation.exchange.envelope import SignedCodec
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.transport import MemoryTransport
from member_helpers import World, released, work, world


@pytest.fixture
def address(postgres: Any) -> Iterator[str]:
    lent = postgres.lend()
    yield lent
    postgres.take_back(lent)


class Late(MemoryTransport):
    """A transport in which something happens just before a message is stored."""

    before: Any = None

    def publish(self, agent: str, message: bytes, *, replacing: bytes | None) -> None:
        before, self.before = self.before, None
        if before is not None:
            before()
        super().publish(agent, message, replacing=replacing)


def opened(address: str, here: World, number: int, roster: Any = None) -> Member:
    roster = roster or here.roster
    place = f"{address}&application_name=process{number}"
    agent = roster.terms.open_agent("org1", place, shared=True)
    return Member(agent, here.transport, SignedCodec(roster, "org1", here.keys["org1"]))


@contextmanager
def shared(address: str, here: World, count: int = 2) -> Iterator[list[Member]]:
    """org1 in several processes, by the terms of a federation."""
    with ExitStack() as stack:
        members = [opened(address, here, number) for number in range(count)]
        for member in members:
            stack.callback(member.agent.close)
        yield members


def caught_up(*members: Member) -> None:
    for member in members:
        with member.agent.transaction():
            pass
    first = members[0].agent.state()
    for member in members:
        assert member.agent.state() == first


def absorbed(agent: ffx.Agent) -> list[dict[str, int]]:
    """The releases of peers that the log has, by step."""
    entries = [entry.step for entry in agent.journal.entries()]
    taken = [step.releases for step in entries if isinstance(step, steps.Absorbed) and step.releases]
    return [{name: release.number for name, release in each.items()} for each in taken]


def test_what_one_has_taken_the_others_find_in_the_log(address: str) -> None:
    here = world()
    peer = here.member("org2")
    with shared(address, here) as (one, two):
        release = released(peer)
        assert one.exchange()
        two.look_on()
        caught_up(one, two)
        assert two.agent.held["org2"] == release
        assert two.peers["org2"].release == 1


@pytest.mark.parametrize("private", [True, False])
def test_two_holders_at_once_take_and_send_each_release_once(address: str, private: bool) -> None:
    """In any order: each number has one content at the transport, and no message is taken twice."""
    exact: dict[str, Any] = {"epsilon": None, "algorithm": "fed-fairx-bayes"}
    here, random = world(**({} if private else exact)), np.random.default_rng(1)
    peer, seen = here.member("org2"), dict[int, bytes]()
    with shared(address, here, 3) as members:
        for turn in range(40):
            member = members[random.integers(3)]
            match random.integers(4):
                case 0:
                    released(peer, 1, turn)
                case 1:
                    work(member.agent, 1, turn)
                    member.agent.release()
                case _:
                    assert member.exchange()
            message = here.transport.latest().get("org1")
            if message is not None:
                number = here.seal("org2").open("org1", message).number
                assert seen.setdefault(number, message) == message
        for member in members:
            assert member.exchange()
            assert member.halted is None
        caught_up(*members)
        own = members[0].agent.held["org1"]
        assert here.seal("org2").open("org1", here.transport.latest()["org1"]) == own
        taken = absorbed(members[0].agent)
        assert taken == [{"org2": number["org2"]} for number in taken]
        assert len({number["org2"] for number in taken}) == len(taken) > 0
        for number, message in seen.items():
            if private:
                again = members[0].agent.past_release(number)
                assert here.seal("org1").close(again) == message
        assert not any(member.refusals for member in members)
        members[1].agent.verify()


def test_a_holder_that_was_stopped_does_not_take_its_successor_for_a_copy(address: str) -> None:
    """It goes on in the middle of sending a release, after another process has sent a later one."""
    transport = Late()
    here = world(transport)
    with shared(address, here) as (one, two):
        work(one.agent)
        one.agent.release()

        def successor() -> None:
            work(two.agent)
            two.agent.release()
            assert two.exchange()

        transport.before = successor
        assert one.exchange()
        assert one.halted is None
        assert here.seal("org2").open("org1", transport.latest()["org1"]).number == 2
        caught_up(one, two)


def test_what_another_takes_meanwhile_is_not_taken_again(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world()
    with shared(address, here) as (one, two):
        released(here.member("org2"))
        real = one._absorb

        def absorb(*given: Any, **more: Any) -> Any:
            assert two.exchange()
            return real(*given, **more)

        monkeypatch.setattr(one, "_absorb", absorb)
        assert one.exchange()
        caught_up(one, two)
        assert absorbed(one.agent) == [{"org2": 1}]


def test_a_second_instance_from_an_old_copy_halts_all(address: str, tmp_path: Path) -> None:
    here = world()
    with shared(address, here) as (one, two):
        work(one.agent)
        one.agent.release()
        with here.roster.terms.open_agent("org1", tmp_path / "other.db") as other:
            released(here.member("org1", other), 3)  # under the same name, with other content
        with pytest.raises(LedgerMismatch, match="Sending is halted"):
            one.exchange()
        assert two.halted is None
        two.look_on()
        assert two.halted == one.halted is not None
        with pytest.raises(LedgerMismatch, match="Sending is halted"):
            two.exchange()


def test_a_process_with_an_older_roster_does_not_exchange(address: str) -> None:
    here = world()
    keys = {name: key.public for name, key in here.keys.items() if name != "org3"}
    later = here.roster.amended(here.convener, keys)
    with shared(address, here) as (one, two):
        released(here.member("org3"))
        assert one.exchange()
        two.follow(SignedCodec(later, "org1", here.keys["org1"]))
        with pytest.raises(StateError, match="roster must be at least version 2"):
            one.exchange()
        caught_up(one, two)
        assert "org3" not in one.agent.held
        one.follow(SignedCodec(later, "org1", here.keys["org1"]))
        assert one.exchange()
        caught_up(one, two)


def test_what_another_has_dropped_is_not_taken_again(address: str) -> None:
    """It was read before a later release of the peer was taken, and dropped with its sender."""
    here = world()
    keys = {name: key.public for name, key in here.keys.items()}
    others = {name: key for name, key in keys.items() if name != "org3"}
    without = here.roster.amended(here.convener, others)
    peer = here.member("org3")
    with shared(address, here) as (one, two):
        released(peer)
        messages = one.transport.latest()
        released(peer)
        assert two.exchange()
        again = without.amended(here.convener, keys)
        for member, roster in ((two, without), (two, again), (one, again)):
            member.follow(SignedCodec(roster, "org1", here.keys["org1"]))
        assert one.take(messages) == []
        assert "org3" not in one.agent.held
        assert one.refusals["org3", "older"] == 1
        caught_up(one, two)


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
