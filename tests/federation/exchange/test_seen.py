"""Nothing older is taken than was seen before, not after a restart either."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fedfairx.errors import MessageRefused, StateError, StorageUnavailable
from fedfairx.federation.exchange.envelope import SignedCodec
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.roster.roster import Roster
from fedfairx.federation.roster.signing_keys import new_signing_key
from member_helpers import World, released, work, world


@dataclass
class Rosters:
    """A federation's versions: all three members, without org2, with it again."""

    here: World = field(default_factory=world)

    def __post_init__(self) -> None:
        keys = {name: key.public for name, key in self.here.keys.items()}
        others = {name: key for name, key in keys.items() if name != "org2"}
        self.first = self.here.roster
        self.without = self.first.amended(self.here.convener, others)
        self.again = self.without.amended(self.here.convener, keys)

    @contextmanager
    def opened(self, place: str, roster: Roster | None = None) -> Iterator[Member]:
        """org1 from its database, by a version of the roster."""
        roster = roster or self.first
        with roster.terms.open_agent("org1", place) as agent:
            yield Member(agent, self.here.transport, SignedCodec(roster, "org1", self.here.keys["org1"]))

    def sender(self, *, seed: int = 0) -> Member:
        """org2, or with another seed a second life of it."""
        return self.here.member("org2", self.here.agent("org2", seed=seed))


# --- rosters -----------------------------------------------------------------------------------------------


def test_an_older_roster_is_refused_at_a_restart(place: str) -> None:
    those = Rosters()
    for roster in (those.first, those.first, those.without, those.again, those.again):
        with those.opened(place, roster):
            pass
    for older in (those.first, those.without):
        with (
            pytest.raises(
                StateError, match=rf"roster must be at least version 3.*got {older.version}.*latest"
            ),
            those.opened(place, older),
        ):
            pass
    with those.opened(place, those.again) as member:  # and nothing has changed
        assert member.exchange()


def test_another_roster_of_the_same_version_is_refused_at_a_restart(place: str) -> None:
    those = Rosters()
    with those.opened(place, those.without):
        pass
    second = those.first.amended(those.here.convener, {"org1": those.here.keys["org1"].public})
    assert second.version == those.without.version
    with pytest.raises(StateError, match=r"version 2.*later version"), those.opened(place, second):
        pass


def test_a_running_member_remembers_the_version_that_it_followed(place: str) -> None:
    those = Rosters()
    with those.opened(place) as member:
        member.follow(SignedCodec(those.again, "org1", those.here.keys["org1"]))
        with pytest.raises(StateError, match="at least version 3"):
            member.follow(SignedCodec(those.without, "org1", those.here.keys["org1"]))
    with pytest.raises(StateError, match="at least version 3"), those.opened(place, those.without):
        pass


def test_another_federation_has_versions_of_its_own(place: str) -> None:
    those, others = Rosters(), Rosters()
    with those.opened(place, those.again):
        pass
    with others.opened(place, others.first):
        pass


# --- releases ----------------------------------------------------------------------------------------------


def test_who_has_left_can_t_come_back_older_or_altered(place: str) -> None:
    those = Rosters()
    here, sender = those.here, those.sender()
    messages = []
    for number in range(3):
        released(sender, seed=number)
        messages.append(here.transport.latest()["org2"])
    with those.opened(place) as member:
        assert member.receive() == ["org2"]
        assert member.agent.held["org2"].number == 3
    with those.opened(place, those.without) as member:
        assert "org2" not in member.agent.held
    here.roster = those.again
    twin = those.sender(seed=7)
    for _ in range(3):
        work(twin.agent, 2, seed=5)
        altered = twin.agent.release()
    with those.opened(place, those.again) as member:
        for number, message in enumerate(messages[:2], 1):
            here.put("org2", message)
            with pytest.raises(MessageRefused, match=f"release {number} of 'org2' is older than release 3"):
                member.receive(strict=True)
            assert member.receive() == []
        here.put("org2", twin._seal.close(altered))
        with pytest.raises(MessageRefused, match="release 3 of 'org2' was seen before with other content"):
            member.receive(strict=True)
        assert member.receive() == []
        assert member.refusals == {("org2", "older"): 2, ("org2", "repeated number"): 1}
        assert "org2" not in member.agent.held
    with those.opened(place, those.again) as member:  # the last one again, and then the next
        here.put("org2", messages[2])
        assert member.receive() == ["org2"]
        assert member.agent.held["org2"].number == 3
        released(sender, seed=9)
        assert member.receive() == ["org2"]
        assert not member.refusals


def test_a_hub_that_was_put_back_changes_nothing_at_a_restart(place: str) -> None:
    those = Rosters()
    sender = those.sender()
    released(sender)
    old = those.here.transport.latest()["org2"]
    released(sender, seed=1)
    with those.opened(place) as member:
        member.receive()
    those.here.put("org2", old)
    with those.opened(place) as member:
        assert member.receive() == []
        assert (member.ignored, member.agent.held["org2"].number) == (1, 2)


def test_what_was_held_before_there_was_a_memory_was_seen(place: str) -> None:
    """An agent that knows no rosters took it: the member is dropped before anything else of it comes."""
    those = Rosters()
    sender = those.sender()
    released(sender)
    old = those.here.transport.latest()["org2"]
    with those.first.terms.open_agent("org1", place) as agent:
        agent.absorb({"org2": released(sender, seed=1)})
    with those.opened(place, those.without):
        pass
    those.here.put("org2", old)
    with those.opened(place, those.again) as member:
        assert member.receive() == []
        assert member.refusals == {("org2", "older"): 1}


def test_what_could_not_be_kept_was_not_seen(tmp_path: Path) -> None:
    """Release and memory are one transaction: after one that failed, the same release is new."""
    those, place = Rosters(), str(tmp_path / "agent.db")
    released(those.sender())
    with those.opened(place) as member:
        other = sqlite3.connect(place, isolation_level=None)
        member.agent.journal.log.database._writer.execute("PRAGMA busy_timeout = 1")  # type: ignore[attr-defined]
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageUnavailable):
            member.receive()
        with pytest.raises(StorageUnavailable):
            member.follow(SignedCodec(those.without, "org1", those.here.keys["org1"]))
        other.execute("ROLLBACK")
        other.close()
        assert member.receive() == ["org2"]
        member.follow(SignedCodec(those.first, "org1", those.here.keys["org1"]))
        assert member.agent.held["org2"].number == 1


def test_agents_in_memory_remember_as_long_as_they_are_members() -> None:
    those = Rosters()
    here, sender = those.here, those.sender()
    ear = Member(here.agent("org1"), here.transport, here.seal("org1"))
    released(sender)
    old = here.transport.latest()["org2"]
    released(sender, seed=1)
    ear.receive()
    ear.follow(SignedCodec(those.without, "org1", here.keys["org1"]))
    ear.follow(SignedCodec(those.again, "org1", here.keys["org1"]))
    here.put("org2", old)
    assert ear.receive() == []
    assert ear.refusals == {("org2", "older"): 1}


def test_a_roster_s_digest_is_of_what_was_signed() -> None:
    here = world()
    one = here.roster.amended(here.convener, dict(here.roster.members))
    two = here.roster.amended(here.convener, {**here.roster.members, "org4": new_signing_key().public})
    assert one.digest == Roster.from_json(one.to_json()).digest != two.digest
