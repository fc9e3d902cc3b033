"""Signs of life: who runs, who is silent, and what a hub or a wrong clock can do about it."""

from __future__ import annotations

import pytest

from fedfairx.errors import MessageRefused, TransportUnavailable
from fedfairx.federation.exchange.alive import AHEAD, RENEWED, SILENT
from fedfairx.federation.exchange.envelope import SignedCodec
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.transport import EngineTransport
from fedfairx.federation.transport.protocol import alive_key, named_by, require_name
from member_helpers import World, released, world

START = 1.8e9


class Clocks:
    """Members of one world, each with a clock that the test sets."""

    def __init__(self, here: World, *names: str) -> None:
        self.times = dict.fromkeys(names, START)
        self.members = {name: here.member(name, clock=lambda n=name: self.times[n]) for name in names}

    def later(self, seconds: float, *running: str) -> None:
        """Time passes; those that run exchange and show that they do."""
        for name in self.times:
            self.times[name] += seconds
        for name in running:
            turn(self.members[name])
        for name in running:
            self.members[name].exchange()

    def silent(self, name: str) -> list[str]:
        return self.members[name].signs.silent([each for each in self.members if each != name])


def turn(member: Member) -> None:
    member.exchange()
    member.show_life()


def test_a_peer_that_stops_is_silent_after_five_minutes_and_heard_again() -> None:
    run = Clocks(world(), "org1", "org2", "org3")
    run.later(0.0, "org1", "org2", "org3")
    assert run.silent("org1") == []
    run.later(SILENT, "org1", "org2")
    assert run.silent("org1") == []
    run.later(RENEWED, "org1", "org2")
    assert run.silent("org1") == ["org3"]
    one = run.members["org1"]
    assert one.peers["org3"].alive == START
    assert one.signs.age("org3", run.times["org1"]) == SILENT + RENEWED
    assert one.peers["org2"].alive == run.times["org1"]
    run.later(1.0, "org1", "org3")
    assert run.silent("org1") == []
    assert not one.refusals


def test_a_peer_that_was_never_heard_is_silent_since_we_can_be_heard() -> None:
    run = Clocks(world(), "org1", "org2")
    assert run.silent("org1") == []  # nothing of ours has come through yet
    run.later(0.0, "org1")
    run.later(SILENT + RENEWED, "org1")
    assert run.silent("org1") == ["org2"]
    assert run.members["org1"].peers == {}


def test_nobody_is_silent_while_our_own_signs_do_not_come_through() -> None:
    here = world()
    run = Clocks(here, "org1", "org2")
    run.later(0.0, "org1", "org2")
    one = run.members["org1"]
    one.transport = EngineTransport()  # takes nothing by itself
    run.later(10 * SILENT)
    with pytest.raises(TransportUnavailable):
        one.show_life()
    assert run.silent("org1") == []
    own = here.seal("org1").close_sign_of_life(run.times["org1"])
    one.take({alive_key("org1"): own})  # an engine shows that it has carried ours
    assert run.silent("org1") == ["org2"]


def test_a_sign_is_renewed_every_half_minute_and_not_more_often() -> None:
    here = world()
    run = Clocks(here, "org1")
    key, seen = alive_key("org1"), set()
    for _ in range(4 * int(RENEWED)):
        run.later(1.0, "org1")
        seen.add(here.transport.latest()[key])
    assert len(seen) == 4
    run.times["org1"] -= 1000.0  # a clock that was set back
    for _ in range(int(RENEWED)):
        run.later(1.0, "org1")
        seen.add(here.transport.latest()[key])
    assert len(seen) == 5


def test_an_earlier_process_has_left_a_sign() -> None:
    here = world()
    run = Clocks(here, "org1")
    run.later(0.0, "org1")
    again = Clocks(here, "org1", "org2")
    again.later(50.0, "org1", "org2")
    assert again.members["org2"].peers["org1"].alive == START + 50.0


def test_after_a_restart_the_age_is_that_of_the_sign_at_the_hub() -> None:
    here = world()
    run = Clocks(here, "org1", "org2")
    run.later(0.0, "org1", "org2")
    again = Clocks(here, "org1", "org2")
    again.later(7000.0, "org1")
    assert again.members["org1"].peers["org2"].alive == START
    assert again.silent("org1") == ["org2"]


def test_a_hub_that_shows_an_old_sign_again_makes_nobody_alive() -> None:
    here = world()
    run = Clocks(here, "org1", "org2")
    run.later(0.0, "org1", "org2")
    old = here.transport.latest()[alive_key("org2")]
    run.later(100.0, "org1", "org2")
    here.put(alive_key("org2"), old)
    run.later(SILENT + 1.0, "org1")
    assert run.members["org1"].peers["org2"].alive == START + 100.0
    assert run.silent("org1") == ["org2"]


def test_a_sign_that_was_withheld_counts_from_when_it_was_made() -> None:
    here = world()
    run = Clocks(here, "org1", "org2")
    late = here.seal("org2").close_sign_of_life(START + 10.0)
    run.later(2000.0, "org1")
    here.put(alive_key("org2"), late)
    run.later(1.0, "org1")
    assert run.members["org1"].peers["org2"].alive == START + 10.0


def test_a_clock_that_is_ahead() -> None:
    """A little ahead, a sign counts from when it came; far ahead, it is refused, and a later one counts."""
    here = world()
    run = Clocks(here, "org1", "org2")
    run.times["org2"] += AHEAD
    run.later(0.0, "org2", "org1")
    assert run.members["org1"].peers["org2"].alive == START
    run.times["org2"] += 1e6
    run.later(1.0, "org2", "org1")
    assert run.members["org1"].refusals == {("org2", "clock"): 1}
    run.times["org2"] = run.times["org1"] + AHEAD - 1.0
    run.later(RENEWED, "org2", "org1")
    assert run.members["org1"].peers["org2"].alive == run.times["org1"]


def test_a_release_is_a_sign_of_life_too() -> None:
    here = world()
    run = Clocks(here, "org1", "org2")
    run.later(0.0, "org1", "org2")
    run.later(SILENT, "org1")
    released(run.members["org2"])
    run.later(RENEWED, "org1")
    assert run.silent("org1") == []


def test_what_is_not_signed_by_the_member_is_refused() -> None:
    here, other = world(), world()
    run = Clocks(here, "org1")
    seal = here.seal("org2")
    good = seal.close_sign_of_life(START)
    foreign = other.seal("org2").close_sign_of_life(START)
    wrong = {
        "signature": good[:-1] + bytes([good[-1] ^ 1]),
        "federation": foreign,
        "sender": here.seal("org3").close_sign_of_life(START),
        "malformed": b"",
    }
    for reason, message in wrong.items():
        with pytest.raises(MessageRefused) as refused:
            seal.open_sign_of_life("org2", message)
        assert refused.value.reason == reason
    for place in range(len(good)):
        flipped = bytearray(good)
        flipped[place] ^= 1
        with pytest.raises(MessageRefused):
            seal.open_sign_of_life("org2", bytes(flipped))
    here.put(alive_key("org2"), wrong["signature"])
    for _ in range(3):
        run.later(1.0, "org1")
    assert run.members["org1"].refusals == {("org2", "signature"): 1}
    assert run.members["org1"].peers["org2"].alive is None


def test_an_envelope_is_no_sign_of_life_nor_the_other_way_round() -> None:
    here = world()
    seal = here.seal("org1")
    message = seal.close(released(here.member("org1")))
    for read in (seal.open, seal.open_sign_of_life):
        other = message if read == seal.open_sign_of_life else seal.close_sign_of_life(START)
        with pytest.raises(MessageRefused, match="this version"):
            read("org1", other)


def test_of_those_who_left_nothing_is_counted() -> None:
    here = world()
    run = Clocks(here, "org1", "org2", "org3")
    run.later(0.0, "org1", "org2", "org3")
    released(run.members["org3"])
    run.later(1.0, "org1")
    left = here.roster.amended(
        here.convener, {name: key for name, key in here.roster.members.items() if name != "org3"}
    )
    one = run.members["org1"]
    one.follow(SignedCodec(left, "org1", here.keys["org1"]))
    run.later(RENEWED, "org1", "org3")
    one.exchange()
    assert not one.refusals


def test_the_name_of_a_sign_is_no_members_name() -> None:
    with pytest.raises(ValueError, match="name must be"):
        require_name(alive_key("org1"))
    assert (named_by(alive_key("org1")), named_by("org1")) == ("org1", None)
