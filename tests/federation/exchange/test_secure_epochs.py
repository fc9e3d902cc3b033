"""Members with secure aggregation change epochs: what stays, what is carried, and what is dropped."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest

from fedfairx.agent.exchange import OTHERS, TOTAL
from fedfairx.federation.exchange.secure_member import SecureMember
from fedfairx.privacy import Centring, Release
from fedfairx.privacy.release import total_of
from member_helpers import work
from secure_helpers import NAMES, Flaky, SecureWorld, secure_world

pytestmark = pytest.mark.long


def busy(here: SecureWorld, seed: int) -> None:
    for place, member in enumerate(here.members.values()):
        work(member.agent, 3 + place, seed=10 * seed + place)


def held(member: SecureMember) -> Release:
    """What a member holds of the others, or of all, from all epochs."""
    found = member.agent.held
    return found[OTHERS] if OTHERS in found else found[TOTAL]


def observed(here: SecureWorld, *, without: Collection[str] = ()) -> int:
    return sum(member.agent.observed for name, member in here.members.items() if name not in without)


@pytest.mark.parametrize(
    "changes",
    [{}, {"decide_from": "released"}, {"centring": Centring.unit_box(3)}],
    ids=["own", "released", "centred"],
)
def test_a_member_joins(changes: dict[str, object]) -> None:
    here = secure_world(**changes).start_all()  # type: ignore[arg-type]
    for number in (1, 2):
        busy(here, number)
        here.round(number)
    closed = total_of(here.rows(2))
    own = {name: member.agent.past_release(2) for name, member in here.members.items()}
    busy(here, 3)
    here.amend(add=["org5"])
    joined = here.start("org5")
    here.turn()
    assert {member.progress.epoch for member in here.members.values()} == {2}
    assert {member.progress.opened for member in here.members.values()} == {0}
    for name, member in here.members.items():
        packed, count = closed.packed, closed.count
        if OTHERS in member.agent.held and name in own:
            packed, count = packed - own[name].packed, count - own[name].count
        assert held(member).number == 0
        assert held(member).count == count
        assert np.array_equal(held(member).packed, member._stream.opened(packed, count))
    work(joined.agent, 4)
    here.round(1)
    here.check_total(1)
    for name, member in here.members.items():  # every record is in one of the two totals, once
        less = member.agent.observed if OTHERS in member.agent.held else 0
        assert held(member).count == observed(here) - less, name
    assert not any(member.refusals for member in here.members.values())


def begun(here: SecureWorld, *, epoch: int) -> None:
    here.turn()
    assert {name: member.progress.epoch for name, member in here.members.items()} == dict.fromkeys(
        here.members, epoch
    )
    assert not any(member.progress.waits_for for member in here.members.values())


def exactly_once(here: SecureWorld, *, gone: int = 0, dropped: int = 0) -> None:
    """All records of members, and `gone` ones of former members, are held once, but for those dropped."""
    for name, member in here.members.items():
        own = member.agent.observed if OTHERS in member.agent.held else 0
        assert held(member).count == observed(here) + gone - own - dropped, name


def test_a_member_leaves_and_what_it_sent_stays() -> None:
    here = secure_world((*NAMES, "org5"), agents=5, colluding=1).start_all()
    assert here.roster.terms.share is not None
    assert here.roster.terms.share.honest == 4
    here.turn()
    here.amend(add=["org6"])
    here.start("org6")
    begun(here, epoch=2)
    busy(here, 1)
    here.round(1)
    gone = here.members["org5"].agent.observed
    here.amend(remove=["org5"])
    begun(here, epoch=3)
    busy(here, 2)
    here.round(1)
    here.check_total(1)
    exactly_once(here, gone=gone)
    assert here.members["org1"].agent.privatizer.guarantee.share.members == 5  # type: ignore[union-attr]


def test_openers_change_and_a_new_one_opens() -> None:
    here = secure_world().start_all()
    busy(here, 1)
    here.round(1)
    here.amend(openers=["org4", "org2"])
    begun(here, epoch=2)
    busy(here, 2)
    here.round(1)
    here.check_total(1)
    exactly_once(here)
    assert "org1.closing" in here.transport.latest()
    for name in ("org1", "org2"):  # its secret of the epoch before is deleted
        assert here.members[name]._stores.secret(here.roster.federation, 1) is None
    assert here.members["org4"]._stores.secret(here.roster.federation, 2) is not None


def test_a_round_that_nobody_has_opened_is_carried() -> None:
    """A row was sent, and one member was away, so nobody was shown anything of it."""
    here = secure_world().start_all()
    busy(here, 1)
    here.round(1)
    for number in (2, 3):
        busy(here, number)
        here.round(number, without=["org4"])
    assert here.members["org1"].progress.sent == 3
    here.amend(add=["org5"])
    here.start("org5")
    begun(here, epoch=2)
    here.round(1)
    here.check_total(1)
    exactly_once(here)


def test_a_round_that_one_opener_has_opened_is_completed() -> None:
    here = secure_world().start_all()
    busy(here, 1)
    here.round(1)
    busy(here, 2)
    here.now += 10
    first, second = here.roster.openers
    behind = here.members[second]
    behind.exchange()  # sends its row
    here.amend(add=["org5"], away=[name for name in NAMES if name != second])
    behind.exchange()  # has closed the epoch, before the others send theirs
    here.turn(without=[second])
    part = here.members[first]._participant
    assert part is not None
    assert part.opener is not None
    assert part.opener.last == 2
    assert [here.members[name].progress.opened for name in NAMES if name != second] == [1] * 3
    rows = here.rows(2)
    for name in NAMES:
        here.follow(name, here.members[name])
    here.start("org5")
    begun(here, epoch=2)
    for member in here.members.values():
        own = member.agent.observed if member.agent.name != "org5" else 0
        assert held(member).count == total_of(rows).count - own
    busy(here, 3)
    here.round(1)
    here.check_total(1)
    exactly_once(here)


def test_leaves_that_a_missing_opener_may_have_shown_are_dropped() -> None:
    here = secure_world().start_all()
    busy(here, 1)
    here.round(1)
    gone = here.members["org1"].agent.observed
    busy(here, 2)
    here.round(2, without=["org1"])  # their rows are sent, and not opened
    sent = observed(here, without=["org1"])
    dropped = sent - sum(row.count for row in here.rows(1)[1:])
    busy(here, 3)  # after the last row
    here.amend(add=["org5"], remove=["org1"])
    here.start("org5")
    begun(here, epoch=2)
    assert here.roster.openers == ("org2", "org3")
    here.round(1)
    here.check_total(1)
    for name, member in here.members.items():
        lost = dropped
        if name != "org5":  # it still decides from its own
            row = here.rows(1)[[*here.members].index(name)]
            closed = 3 + [*NAMES].index(name)
            lost -= member.agent.observed - row.count - closed
        own = member.agent.observed if name != "org5" else 0
        assert held(member).count == observed(here, without=["org5"]) + gone - own - lost, name


def test_a_member_away_through_a_change_is_waited_for_and_catches_up() -> None:
    here = secure_world().start_all()
    busy(here, 1)
    here.round(1)
    here.amend(add=["org5"], away=["org4"])
    here.start("org5")
    here.turn(without=["org4"])
    assert here.members["org2"].progress.waits_for == {"org4": "acceptance"}
    assert here.members["org5"].progress.waits_for == {"org4": "acceptance"}
    here.round(3, without=["org4"])
    busy(here, 2)
    here.follow("org4", here.members["org4"])
    begun_rows = here.members["org2"].progress.sent
    assert begun_rows == 0
    here.turn()
    here.check_total(3)
    exactly_once(here)


def test_an_opener_that_has_not_closed_is_waited_for() -> None:
    here = secure_world().start_all()
    here.round(1)
    here.amend(add=["org5"], away=["org2"])
    joined = here.start("org5")
    here.turn(without=["org2"])
    assert here.members["org1"].progress.waits_for == {"org2": "closing"}
    assert joined.progress.waits_for == {"org2": "closing"}
    assert here.members["org1"].progress.epoch == 1
    assert joined.progress.epoch == 0
    here.follow("org2", here.members["org2"])
    begun(here, epoch=2)


def test_an_epoch_that_never_began_is_passed_over() -> None:
    """org5 never comes, so the convener removes it again."""
    here = secure_world().start_all()
    busy(here, 1)
    here.round(1)
    here.amend(add=["org5"])
    here.turn()
    assert here.members["org1"].progress.waits_for == {"org5": "acceptance"}
    here.amend(remove=["org5"])
    begun(here, epoch=3)
    busy(here, 2)
    here.round(1)
    here.check_total(1)
    exactly_once(here)


@pytest.mark.parametrize("late", [["org1"], ["org3"], ["org1", "org2"]], ids=["opener", "other", "openers"])
def test_an_epoch_that_began_for_some_ends_for_all(late: list[str]) -> None:
    """Some have accepted it and not seen that all have."""
    here = secure_world().start_all()
    busy(here, 1)
    here.round(1)
    here.amend(add=["org5"])
    here.start("org5")
    last = here.members["org5"]
    here.turn(without=["org5"])
    last.exchange()
    here.turn(without=[*late, "org5"])
    assert {here.members[name].progress.epoch for name in late} == {1}
    assert here.members["org4"].progress.epoch == 2
    here.amend(add=["org6"])
    here.start("org6")
    here.turn(times=6)
    begun(here, epoch=3)
    busy(here, 2)
    here.round(1)
    here.check_total(1)
    exactly_once(here)


def test_a_member_comes_back_after_an_epoch_without_it() -> None:
    here = secure_world().start_all()
    busy(here, 1)
    here.round(1)
    back = here.members["org4"]
    here.amend(add=["org5"], remove=["org4"])
    here.start("org5")
    begun(here, epoch=2)
    busy(here, 2)
    here.round(1)
    here.check_total(1)
    work(back.agent, 2)
    here.members["org4"] = back
    here.amend(add=["org4"])
    begun(here, epoch=3)
    busy(here, 3)
    here.round(1)
    here.check_total(1)
    for name, member in here.members.items():
        own = member.agent.observed
        assert held(member).count == observed(here) - own, name


def test_a_total_that_was_opened_after_a_member_had_left_reaches_it_when_it_comes_back() -> None:
    here = secure_world().start_all()
    busy(here, 1)
    here.round(1)
    busy(here, 2)
    here.now += 10
    back = here.members["org4"]
    back.exchange()  # sends its row of round 2, and does not see the total
    here.turn(without=["org4"])
    assert here.members["org1"].progress.opened == 2
    assert back.progress.opened == 1
    here.amend(add=["org5"], remove=["org4"])
    here.start("org5")
    begun(here, epoch=2)
    busy(here, 3)
    here.round(1)
    here.members["org4"] = back
    here.amend(add=["org4"])
    begun(here, epoch=3)
    here.round(1)
    here.check_total(1)
    exactly_once(here)


def test_one_who_joins_an_epoch_that_has_ended_gets_the_totals_of_all_before() -> None:
    """It has accepted the epoch, and the next roster comes before it sees that all have."""
    here = secure_world().start_all()
    busy(here, 1)
    here.round(1)
    here.amend()
    begun(here, epoch=2)
    busy(here, 2)
    here.round(1)
    here.amend(add=["org5"])
    here.start("org5")
    here.turn(without=["org4"])
    here.turn(without=["org5"])
    assert here.members["org4"].progress.epoch == 3
    assert here.members["org5"].progress.epoch == 0
    here.amend(add=["org6"])
    here.start("org6")
    here.turn(times=6)
    begun(here, epoch=4)
    exactly_once(here)
    assert {*here.members["org5"]._proved()} == {1, 2}


def test_the_noise_of_closed_epochs_adds_up() -> None:
    """Exact sums are zero, so all that members hold is noise: of variance 2σ² after two epochs, and 3σ²."""
    here = secure_world(tuple(f"org{k}" for k in range(8)), decide_from="released", dimension=30).start_all()
    share = here.roster.terms.share
    assert share is not None
    sd = float(here.members["org0"]._stream.mechanism.sd(1)) * np.sqrt(8)
    diagonal = np.cumsum([0, *range(30, 1, -1)])
    for epoch in (1, 2, 3):
        here.round(1)
        for member in [*here.members.values()][:1]:
            entries = np.delete(held(member).packed[: 30 * 31 // 2], diagonal)
            expected = np.sqrt(epoch) * sd
            # 435 normals: the sd's relative error has an sd of 1/√870, and 5 of them come once in a million.
            assert abs(entries.std() / expected - 1) < 5 / np.sqrt(870)
            (stated,) = member.agent._exchange.pool.sds([held(member)])
            assert stated == pytest.approx(expected)
        here.amend()
        begun(here, epoch=epoch + 1)


def test_noise_of_two_epochs_is_unrelated() -> None:
    here = secure_world().start_all()
    here.round(1)
    first = [row.packed for row in here.rows(1)]
    here.amend()
    begun(here, epoch=2)
    here.round(1)
    for one, two in zip(first, here.rows(1), strict=True):
        assert not np.any(one == two.packed)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_transport_does_no_record_is_in_two_epochs(seed: int) -> None:
    """It loses, delays, repeats and reorders messages, while members join, leave and change their duties."""
    transport = Flaky(seed)
    here, gone, begun_epochs = secure_world(transport=transport).start_all(), 0, 1
    transport.trouble = 0.0
    here.turn()
    for change in range(1, 5):
        transport.trouble = 0.3
        for number in range(1, 4):
            busy(here, 10 * change + number)
            here.round(
                number, without=transport.random.sample(sorted(here.members), transport.random.randrange(2))
            )
            here.check_opened()
        transport.trouble = 0.0 if change == 4 else 0.2
        name = f"org{4 + change}"
        leaves = transport.random.choice(sorted(here.members))
        gone += here.members[leaves].agent.observed
        openers = [each for each in here.roster.openers if each != leaves] + [name]
        here.amend(add=[name], remove=[leaves], openers=openers[-2:])
        here.start(name)
        here.turn(times=12)
        assert not any(member.halted for member in here.members.values())
        if {member.progress.epoch for member in here.members.values()} == {here.roster.version}:
            begun_epochs += 1
            for member in here.members.values():
                own = member.agent.observed if member.agent.released else 0
                assert held(member).count <= observed(here) + gone - own if member.agent.held else True
    assert begun_epochs > 2
    busy(here, 99)
    here.round(5)
    here.check_total(5)
    assert {reason for member in here.members.values() for _, reason in member.refusals} <= {"epoch"}
    for member in here.members.values():
        assert held(member).count <= observed(here) + gone - member.agent.observed
