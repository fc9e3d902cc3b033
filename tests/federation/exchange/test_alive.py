"""Signs of life: who runs, who is silent, and what a hub or a wrong clock can do about it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fedfairx.errors import MessageRefused, TransportUnavailable
from fedfairx.federation.exchange.alive import AHEAD, RENEWED, SILENT, SignsOfLife, renewal, silence
from fedfairx.federation.exchange.envelope import SignedCodec
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.transport import EngineTransport, MemoryTransport
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
    key, times = alive_key("org1"), {}
    for _ in range(5 * int(RENEWED)):
        run.later(1.0, "org1")
        times.setdefault(here.transport.latest()[key], run.times["org1"])
    first, *others = times.values()
    assert first == START + 1.0  # at once, and then by the member's own turns
    assert others[0] - first <= RENEWED
    assert {later - one for one, later in pairwise(others)} == {RENEWED}
    assert len(others) == 5
    run.times["org1"] -= 1000.0  # a clock that was set back
    for _ in range(int(RENEWED)):
        run.later(1.0, "org1")
        times.setdefault(here.transport.latest()[key], run.times["org1"])
    assert 7 <= len(times) <= 8


class Counted(MemoryTransport):
    """A transport that counts what is published, as it would be sent to all members."""

    def __init__(self) -> None:
        super().__init__()
        self.published = 0

    def publish(self, agent: str, message: bytes, *, replacing: bytes | None) -> None:
        super().publish(agent, message, replacing=replacing)
        self.published += 1


def signs_in(members: int, seconds: int) -> list[int]:
    """The signs of life in each second, of members that have all started at the same moment."""
    transport, signs = Counted(), {f"org{number}": SignsOfLife() for number in range(members)}
    counts = []
    for second in range(seconds):
        transport.published = 0
        for name, each in signs.items():
            now = START + second
            each.renew(transport, name, lambda now: b"%d" % now, now=now, members=members)
        counts.append(transport.published)
    return counts


@pytest.mark.parametrize("members", [10, 60, 240])
def test_all_signs_of_life_to_everybody_are_as_many_a_minute_as_there_are_members(members: int) -> None:
    """Each is sent to all members, so these many times `members` are passed on."""
    first, *later = signs_in(members, 1 + 2 * int(renewal(members)))
    assert first == members
    a_minute = 60.0 * sum(later) / len(later)
    assert a_minute <= 60.0
    assert max(later) <= max(4, 0.05 * members)  # not all at once again


def test_a_member_of_many_that_stops_is_noticed_later() -> None:
    assert [silence(members) for members in (3, 30, 200, 1000)] == [300.0, 300.0, 470.0, 1270.0]
    signs, transport = SignsOfLife(), MemoryTransport()
    signs.saw("org2", START)
    for second in range(1000):
        now = START + second
        signs.renew(transport, "org1", lambda now: b"%d" % now, now=now, members=200)
        if signs.silent(["org2"]):
            break
    assert silence(200) < second <= silence(200) + renewal(200)


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
