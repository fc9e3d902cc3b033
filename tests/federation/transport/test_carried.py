"""What members may rely on, whatever carries their messages: held to all four ways."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedfairx import Agent
from fedfairx.errors import LedgerMismatch
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.transport import EngineTransport, MemoryTransport
from flower_app import Grid, carried_by, flower_app
from member_helpers import NAMES, D, work, world
from nats_server import wait_until
from transport_helpers import ends_of

WAYS = ("memory", "sqlite", "nats", "flower")
RANKED = (1.0, 0.5)
#: Terms of members that decide with slots, privately and not.
AGREED: dict[str, dict[str, Any]] = {
    "one slot": {},
    "slots": {"slots": RANKED},
    "exact slots": {"slots": RANKED, "algorithm": "fed-fairx-bayes", "epsilon": None},
}


class Way:
    """Members of one federation, and a way that carries what they have to say to all who are named."""

    def __init__(self, **terms: Any) -> None:
        self.here = world(**terms)

    def member(self, name: str, agent: Agent | None = None) -> Member:
        self.here.transport = self.end(name)
        return self.here.member(name, agent)

    def end(self, name: str) -> Any:
        raise NotImplementedError

    def carry(self, *members: Member) -> None:
        raise NotImplementedError

    def lies(self, name: str) -> bytes | None:
        """What all can see under a name."""
        raise NotImplementedError

    def put(self, name: str, message: bytes) -> None:
        """As somebody on the way would."""
        raise NotImplementedError


class Direct(Way):
    """A transport that each member calls."""

    def __init__(self, opening: Any, **terms: Any) -> None:
        super().__init__(**terms)
        self._open, self._ends = opening, [opening("reader")]

    def end(self, name: str) -> Any:
        self._ends.append(self._open(name))
        return self._ends[-1]

    def carry(self, *members: Member) -> None:
        for step in (Member.receive, Member.send, Member.receive):  # as an engine does: ask, then spread
            for member in members:
                with suppress(LedgerMismatch):
                    step(member)
            wait_until(lambda: all(end.latest() == self._ends[0].latest() for end in self._ends))

    def lies(self, name: str) -> bytes | None:
        found = self._ends[0].latest().get(name)
        return None if found is None else bytes(found)

    def put(self, name: str, message: bytes) -> None:
        self._ends[0].publish(name, message, replacing=self.lies(name))
        wait_until(lambda: all(end.latest().get(name) == message for end in self._ends))


class Carried(Way):
    """Flower's ServerApp, which visits each member."""

    def __init__(self, server: Any, **terms: Any) -> None:
        super().__init__(**terms)
        self._server, self._board = server, dict[str, bytes]()

    def end(self, name: str) -> EngineTransport:  # noqa: ARG002
        return EngineTransport()

    def carry(self, *members: Member) -> None:
        grid: Grid = carried_by(*members)
        for _ in range(2):  # one that asks, one that spreads
            self._server.exchange(grid, self._board, deadline=0.05)

    def lies(self, name: str) -> bytes | None:
        return self._board.get(name)

    def put(self, name: str, message: bytes) -> None:
        self._board[name] = message


@contextmanager
def opened(kind: str, folder: Path, **terms: Any) -> Iterator[Way]:
    if kind == "flower":
        with flower_app() as (server, _, _):
            yield Carried(server, **terms)
    else:
        with ends_of(kind, folder) as opening:
            yield Direct(opening, **terms)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Way]:
    with opened(request.param, tmp_path) as made:
        yield made


def release(member: Member, seed: int = 0) -> None:
    work(member.agent, seed=seed)
    member.agent.release()


@pytest.mark.parametrize("agreed", AGREED)
@pytest.mark.parametrize("kind", WAYS)
def test_all_decide_as_in_one_process(kind: str, agreed: str, tmp_path: Path) -> None:
    shared, terms = MemoryTransport(), AGREED[agreed]
    with opened(kind, tmp_path, **terms) as way:
        beside = Direct(lambda _: shared, **terms)
        members = [(way.member(name), beside.member(name)) for name in NAMES]
        alone = [way.here.agent(name) for name in NAMES]
        for turn in range(3):
            for seed, (pair, lonely) in enumerate(zip(members, alone, strict=True)):
                for member in pair:
                    release(member, seed=10 * turn + seed)
                work(lonely, seed=10 * turn + seed)
            way.carry(*(one for one, _ in members))
            beside.carry(*(other for _, other in members))
            contexts = np.random.default_rng(turn).random((4, D)) / 2.0
            for (one, other), lonely in zip(members, alone, strict=True):
                assert not one.waiting
                assert one.agent.held == other.agent.held
                assert one.agent.held.keys() == set(NAMES)
                found = one.agent.decide(contexts).exposure
                assert np.array_equal(found, other.agent.decide(contexts).exposure)
                assert not np.allclose(found, lonely.decide(contexts).exposure, atol=1e-6)
        assert not any(one.refusals for one, _ in members)
        slots = len(terms.get("slots", [1.0]))
        assert {each.count for each in members[0][0].agent.held.values()} == {3 * 5 * slots}


@pytest.mark.parametrize("kind", WAYS)
def test_a_decision_with_all_its_slots_is_what_is_protected(kind: str, tmp_path: Path) -> None:
    """Contexts of norm 1 and 1/2 with rewards up to 1 change sums by 2 and 1: noise for 3 instead of 2."""
    noise = {}
    for slots in ((1.0,), RANKED):
        (tmp_path / str(len(slots))).mkdir()
        with opened(kind, tmp_path / str(len(slots)), slots=slots) as way:
            one, other = way.member("org1"), way.member("org2")
            release(one)
            way.carry(one, other)
            guarantee, sent = one.agent.privatizer.guarantee, other.agent.held["org1"]
            assert (guarantee.spent, guarantee.epsilon) == (1, pytest.approx(2.0))
            noise[slots] = sent.packed - one.agent.own_sums()
    assert "one decision with the records (vx, y) of all its slots, of weights v = 1, 0.5" in str(guarantee)
    assert np.abs(noise[RANKED]).min() > 0.1
    np.testing.assert_allclose(noise[RANKED], 1.5 * noise[1.0,], rtol=1e-3)


def test_who_comes_late_has_everything_at_once(way: Way) -> None:
    first, second = way.member("org1"), way.member("org2")
    for seed in range(2):
        release(first, seed)
        way.carry(first, second)
    late = way.member("org3")
    way.carry(first, second, late)
    assert [each.agent.held["org1"].number for each in (first, second, late)] == [2, 2, 2]


def test_an_agent_restored_from_an_old_copy_sends_nothing(way: Way) -> None:
    one, other = way.member("org1"), way.member("org2")
    release(one)
    way.carry(one, other)
    restored = way.member("org1", way.here.agent("org1", seed=77))
    release(restored, seed=5)
    way.carry(restored, other)
    assert restored.halted is not None
    assert way.lies("org1") == one.message
    assert other.agent.held["org1"].number == 1
    assert not other.refusals


def test_what_is_not_signed_by_its_sender_is_refused_and_heals(way: Way) -> None:
    one, other = way.member("org1"), way.member("org2")
    release(one)
    way.carry(one)
    good = way.lies("org1")
    assert good is not None
    way.put("org3", good)  # another's message, under this name
    way.put("org1", good[:-1] + bytes([good[-1] ^ 1]))
    way.carry(other)
    assert dict(other.refusals) == {("org3", "sender"): 1, ("org1", "signature"): 1}
    assert other.agent.held.keys() <= {"org2"}
    way.carry(one, other)
    assert other.agent.held["org1"].number == 1


def test_an_old_message_does_no_harm(way: Way) -> None:
    one, other = way.member("org1"), way.member("org2")
    release(one)
    way.carry(one, other)
    old = way.lies("org1")
    assert old is not None
    release(one, seed=1)
    way.carry(one, other)
    way.put("org1", old)
    way.carry(other)
    assert other.agent.held["org1"].number == 2
    way.carry(one, other)
    assert way.lies("org1") == one.message
    assert not other.refusals
