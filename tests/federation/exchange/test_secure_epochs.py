"""Members with secure aggregation change epochs: what stays, what moves, and what is lost to the others."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest

from fedfairx.agent.exchange import OTHERS, TOTAL
from fedfairx.errors import AlreadyObserved, ReplacementRefused
from fedfairx.federation.aggregation.shares import as_integers, from_bytes
from fedfairx.federation.exchange.secure_member import SecureMember
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.privacy import Centring, Release
from fedfairx.privacy.release import total_of
from member_helpers import BEGIN, work
from secure_helpers import NAMES, Flaky, SecureWorld, part_of, secure_world

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
    here.turn(times=5)  # the others tell it the past when they have begun
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
    here.amend(openers=["org4", "org3"])
    begun(here, epoch=2)
    busy(here, 2)
    here.round(1)
    here.check_total(1)
    exactly_once(here)


def test_leaves_of_rows_in_no_total_never_move() -> None:
    """They were sent, so somebody may have them; their owners still decide from them."""
    here = secure_world().start_all()
    busy(here, 1)
    here.round(1)
    before = {name: member.agent.observed for name, member in here.members.items()}
    busy(here, 2)
    here.round(2, without=["org4"])
    lost = {name: here.members[name].agent.observed - before[name] for name in NAMES[:3]}
    busy(here, 3)
    here.amend(remove=["org4"], add=["org5"])
    here.start("org5")
    here.turn()
    assert {here.members[name].progress.epoch for name in NAMES[:3]} == {1}  # it waits for the last total
    here.now += 600.0
    begun(here, epoch=2)
    here.turn()
    for name, member in here.members.items():
        dropped = sum(count for other, count in lost.items() if other != name)
        own = member.agent.observed
        assert held(member).count == observed(here) + before["org4"] - own - dropped, name


def test_a_member_away_through_a_change_is_waited_for_and_totals_go_on() -> None:
    here = secure_world().start_all()
    busy(here, 1)
    here.round(1)
    here.amend(add=["org5"], away=["org4"])
    here.start("org5")
    here.turn(without=["org4"])
    assert here.members["org2"].progress.waits_for == {"org4": "acceptance"}
    assert here.members["org5"].progress.waits_for == {"org4": "acceptance"}
    busy(here, 2)
    here.now += 10.0
    here.turn()  # a round of the epoch that all but the newcomer are in
    assert {here.members[name].progress.opened for name in NAMES} == {2}
    assert {here.members[name].progress.epoch for name in NAMES} == {1}
    here.follow("org4", here.members["org4"])
    begun(here, epoch=2)
    busy(here, 3)
    here.round(3)
    here.check_total(3)
    exactly_once(here)


def test_a_new_opener_that_never_starts_stops_no_totals() -> None:
    here = secure_world().start_all()
    here.round(1)
    here.amend(add=["org5"], openers=["org1", "org5"])
    for _ in range(3):
        busy(here, 1)
        here.now += 10.0
        here.turn()
    assert {member.progress.opened for member in here.members.values()} == {4}
    assert here.members["org1"].progress.waits_for == {"org5": "key"}


def test_an_epoch_that_never_began_is_passed_over() -> None:
    """org5 never comes, so the convener removes it again."""
    here = secure_world().start_all()
    busy(here, 1)
    here.round(1)
    here.amend(add=["org5"])
    here.turn()
    assert here.members["org1"].progress.waits_for == {"org5": "acceptance"}
    here.keys.pop("org5")
    here.amend(remove=["org5"])
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


def test_one_who_joins_gets_the_totals_of_all_epochs_before() -> None:
    here = secure_world().start_all()
    for number in (1, 2, 3):
        busy(here, number)
        here.round(1)
        here.amend()
        begun(here, epoch=1 + number)
    here.amend(add=["org5"])
    here.start("org5")
    begun(here, epoch=5)
    here.turn()
    exactly_once(here)
    member = here.members["org5"]
    assert member._state is not None
    assert [total.number for total in member._state.record.past] == [3, 2, 1]
    (noise,) = member.agent._exchange.pool.sds([held(member)])
    sd = float(member._stream.mechanism.sd(1))
    assert noise == pytest.approx(np.sqrt(3 * 4) * sd)  # three totals of four rows


def test_a_record_in_a_moved_leaf_is_replaced_deleted_and_refused_again(tmp_path: Path) -> None:
    """Its id has moved with it."""
    here = secure_world(NAMES[:3], folder=tmp_path).start_all()
    busy(here, 1)
    here.round(1)
    member = here.members["org3"]
    agent = member.agent
    contexts = np.eye(3)
    sealed, kept, wrong, gone = (agent.decide(contexts) for _ in range(4))
    agent.observe(sealed, reward=0.25)
    here.round(2)
    for decision, person in ((kept, "ann"), (wrong, "ben"), (gone, "cid")):
        agent.observe(decision, reward=0.5, person=person)
    here.amend()
    begun(here, epoch=2)
    with pytest.raises(AlreadyObserved):
        agent.observe(kept, reward=0.5)
    with pytest.raises(AlreadyObserved):
        member._stream.add(kept.context, 0.5, kept.id)
    before, count = member._stream.open_leaf
    agent.observe(wrong, reward=0.75, replace=True)
    after, same = member._stream.open_leaf
    assert count == same == 3
    # of one reward, for a context of one 1 and the intercept
    assert np.abs(after - before).sum() == pytest.approx(0.25 * 1.25)
    with pytest.raises(ReplacementRefused, match="release 2 already"):
        agent.observe(sealed, reward=0.75, replace=True)
    deletion = agent.delete_person("cid")
    assert (deletion.rewards, deletion.sent) == (1, 0)
    blank, count = member._stream.open_leaf
    assert count == 3  # it still counts
    assert np.abs(blank).sum() == pytest.approx(np.abs(after).sum() - 1.5 * 1.25)
    here.round(1)
    here.check_total(1)
    with pytest.raises(ReplacementRefused):
        agent.observe(wrong, reward=0.25, replace=True)
    assert agent.delete_person("ben").sent == 1
    agent.verify()
    for name in NAMES[:3]:
        here.stop(name)


def test_a_convener_that_opens_32_epochs_learns_from_one_total() -> None:
    """Each record is in one of them, so their mean has the error of one, and no less."""
    here = secure_world(NAMES[:3], decide_from="released", dimension=8).start_all()
    here.turn()
    busy(here, 1)
    records, counts, exact, sums = observed(here), [], np.zeros(0), np.zeros(0)
    member = here.members["org1"]
    for epoch in range(1, 33):
        here.now += 10.0
        here.turn()
        total = part_of(member).total
        assert total is not None
        values = as_integers(from_bytes(total.values))
        counts.append(int(values[-1]))
        if epoch == 1:
            exact = np.sum([each._stream._position.total for each in here.members.values()], axis=0)
            sums = np.zeros_like(exact)
        sums += values[:-1] * member._share.step
        here.amend()
        begun(here, epoch=epoch + 1)
    assert counts == [records, *[0] * 31]
    diagonal = np.cumsum([0, *range(8, 1, -1)])
    noise = np.delete(sums[:36] - exact[:36], diagonal)
    one = float(member._stream.mechanism.sd(1)) * np.sqrt(3)
    # 28 normals: the sd's relative error has an sd of 1/√56, and 5 of them come once in a million.
    assert abs(noise.std() / (np.sqrt(32) * one) - 1) < 5 / np.sqrt(56)


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
    rounds = Rounds(begin=BEGIN, first=1000, ratio=1, count=40)
    here, gone, begun_epochs = secure_world(transport=transport, rounds=rounds).start_all(), 0, 1
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
        here.now += 600.0  # some may wait for totals that never come
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
    assert not any(member.refusals for member in here.members.values())
    for member in here.members.values():
        assert held(member).count <= observed(here) + gone - member.agent.observed
