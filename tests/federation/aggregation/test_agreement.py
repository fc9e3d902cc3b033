"""Agreement: a convener that splits, exchanges or adds can't make honest members send to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aggregation_helpers import Crash, Group, any_total, group
from fedfairx.errors import FedFairXError, InvalidInput, MessageRefused, PrivacyError
from fedfairx.federation.aggregation.agreement import Agreement, epoch_of, opener_key, shown
from fedfairx.federation.aggregation.messages import Acceptance, Closing, OpenerKey, Partial, parse, sign
from fedfairx.federation.aggregation.records import MemoryRecords, Stores
from fedfairx.federation.aggregation.settlement import settle
from fedfairx.federation.roster.signing_keys import new_signing_key
from member_helpers import NAMES, world


def refused(here: Group, name: str, text: str, *, confirmed: tuple[str, ...] | None = None) -> None:
    before = [dict(disk) for disk in here.disks[name]]
    names = here.epoch.members if confirmed is None else confirmed
    with pytest.raises(FedFairXError, match=text):
        here.agreement(name).accept(here.keys[name], confirmed=names)
    assert [dict(disk) for disk in here.disks[name]] == before  # nothing was written


def closed(m: int = 4, c: int = 1, rounds: int = 2) -> tuple[Group, Group]:
    """An epoch with some rounds that is closed, and the next one with the same members."""
    here = group(m, c).start_all()
    for number in range(1, rounds + 1):
        here.round(number)
    return here, here.follow(here.close())


# --- openers' keys ----------------------------------------------------------------------------------------


def test_an_epoch_of_a_roster() -> None:
    there = world()
    roster = there.roster.amended(there.convener, there.roster.members, openers=NAMES[:2])
    store = MemoryRecords(), MemoryRecords()  # of all of them
    stores = {name: Stores(name, *store) for name in NAMES}

    def signed(name: str, number: int = 2) -> bytes:
        return opener_key(roster.federation, number, key=there.keys[name], stores=stores[name])

    keys = {name: signed(name) for name in NAMES[:2]}
    epoch = epoch_of(roster, keys, entries=5, rounds=9)
    assert (epoch.number, epoch.roster, epoch.honest, epoch.colluding) == (2, roster.digest, 2, 1)
    assert epoch.members == roster.members
    assert {name: signed(name) for name in NAMES[:2]} == keys  # made once
    key = parse(keys["org1"])
    assert isinstance(key, OpenerKey)
    assert epoch.openers["org1"] == key.key

    def reason(message: bytes) -> str:
        with pytest.raises(MessageRefused) as caught:
            epoch_of(roster, {**keys, "org1": message}, entries=5, rounds=9)
        return caught.value.reason

    # The convener, or whoever carries messages, puts a key of its own in the place of an opener's.
    own = OpenerKey(key.epoch, key.name, bytes(range(32)))
    assert reason(sign(own, there.convener)) == "signature"
    assert reason(sign(own, there.keys["org2"])) == "signature"
    assert reason(keys["org2"]) == "sender"
    assert reason(signed("org1", number=3)) == "epoch"  # of another epoch
    elsewhere = opener_key("00" * 16, 2, key=there.keys["org1"], stores=stores["org1"])
    assert reason(elsewhere) == "epoch"  # of another federation
    for wrong in ({}, {"org1": keys["org1"]}, {"org1": keys["org1"], "org3": signed("org3")}):
        with pytest.raises(InvalidInput, match="openers"):
            epoch_of(roster, wrong, entries=5, rounds=9)
    short = sign(OpenerKey(key.epoch, key.name, b"x"), there.keys["org1"])
    with pytest.raises(InvalidInput, match="X25519"):
        epoch_of(roster, {**keys, "org1": short}, entries=5, rounds=9)


def test_an_opener_takes_the_key_of_another_for_its_own() -> None:
    """It is refused, though it could not decrypt anything with it."""
    here = group()
    with pytest.raises(InvalidInput, match="same key twice"):
        replace(here.epoch, openers=dict.fromkeys(here.epoch.openers, here.epoch.openers["org00"]))


# --- the first epoch --------------------------------------------------------------------------------------


def test_the_operator_confirms_openers_and_enough_members() -> None:
    here = group(6, 1, honest=3)
    refused(here, "org05", "org01 unconfirmed", confirmed=("org00", "org02", "org03"))
    refused(here, "org05", "at least 4 .* got 3", confirmed=("org00", "org01"))
    refused(here, "org00", "at least 4 .* got 2", confirmed=("org01", "somebody", "else"))
    here.agreement("org05").accept(here.keys["org05"], confirmed=("org00", "org01", "org02"))


def test_a_split_roster_begins_nowhere() -> None:
    """The convener signs two rosters of one version, and tells each half another."""
    here = group(4)
    other = replace(here, epoch=replace(here.epoch, roster="ee" * 32), members={}, bus={}, seen={})
    for name in ("org00", "org01"):
        here.start(name)
    for name in ("org02", "org03"):
        other.start(name)
    everything = [m.agreement.signed for each in (here, other) for m in each.members.values()]
    for each in (here, other):
        for message in everything:
            each.publish(message)
        each.pump()
        for member in each.members.values():
            assert not member.agreement.complete
            assert sum(member.refusals.values()) == 2
            with pytest.raises(PrivacyError, match="must be accepted by"):
                member.send(1, here.rows(0)["org00"], place=b"")
    refused(other, "org00", "must be later than 1")  # nobody accepts a second one of that number


def test_another_epoch_with_any_other_content_is_another_agreement() -> None:
    here = group(4)
    for changes in (
        {"roster": "ee" * 32},
        {"members": {**here.epoch.members, "org03": new_signing_key().public}},
        {"openers": {"org00": here.epoch.openers["org00"], "org02": here.epoch.openers["org01"]}},
        {"honest": 2},
        {"rounds": 8},
    ):
        other = replace(here.epoch, **changes)
        acceptance = sign(Acceptance(other.digest, "org01"), here.keys["org01"])
        with pytest.raises(MessageRefused) as caught:
            here.agreement("org00").take(acceptance)
        assert caught.value.reason == "epoch"


def test_acceptances_of_strangers_and_forged_ones() -> None:
    here = group(4)
    agreement = here.agreement("org00")
    stranger = new_signing_key()
    for name, key, reason in (("zed", stranger, "unknown"), ("org01", stranger, "signature")):
        with pytest.raises(MessageRefused) as caught:
            agreement.take(sign(Acceptance(here.epoch.digest, name), key))
        assert caught.value.reason == reason
    assert agreement.missing == ["org00", "org01", "org02", "org03"]
    with pytest.raises(PrivacyError, match="signed by its key"):
        agreement.accept(stranger, confirmed=here.epoch.members)
    with pytest.raises(InvalidInput, match="name"):
        here.disks["zed"] = here.disks["org00"]
        here.agreement("zed")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", [1, 2])
def test_an_acceptance_is_in_both_stores_before_anybody_sees_it(step: int, after: bool) -> None:
    here = group(4)
    other = replace(here, epoch=replace(here.epoch, roster="ee" * 32))
    here.crashes.due, here.crashes.after = here.crashes.done + step, after
    with pytest.raises(Crash):
        here.start("org00")
    if step == 2 or after:  # it may not accept another, though nobody has seen its acceptance
        refused(other, "org00", "must be later than 1")
    here.start("org00")
    for disk in here.disks["org00"]:
        backup, lost = disk.backup(), next(each for each in here.disks["org00"] if each is not disk)
        kept = lost.backup()
        lost.restore({})
        refused(other, "org00", "must be later than 1")
        lost.restore(kept)
        disk.restore(backup)


# --- later epochs -----------------------------------------------------------------------------------------


def test_a_convener_that_exchanges_the_key_of_a_member() -> None:
    here, _ = closed()
    settlement = here.members["org00"].settle()
    thief = new_signing_key()
    there = here.follow(settlement, keys={"org03": thief}, openers=["org00", "org01"])
    with pytest.raises(PrivacyError, match="key of the epoch before"):
        there.agreement("org03").accept(thief, confirmed=there.epoch.members)
    forged = sign(Acceptance(there.epoch.digest, "org03"), thief)
    with pytest.raises(MessageRefused) as caught:
        there.agreement("org00").take(forged)
    assert caught.value.reason == "signature"
    # The old key's signature makes it good, and so does a confirmation where the old key is lost.
    agreement = there.agreement("org00")
    agreement.take(sign(Acceptance(there.epoch.digest, "org03"), here.keys["org03"]))
    assert "org03" not in agreement.missing
    confirmed = there.agreement("org00", rekeyed=["org03"])
    confirmed.take(forged)
    assert "org03" not in confirmed.missing


def test_a_convener_that_adds_members_of_its_own() -> None:
    here = group(4, 1)
    here.start_all()
    settlement = here.close()
    sybils = [f"zzz{number}" for number in range(5)]
    there = here.follow(settlement, join=sybils, leave=["org03"])
    refused(there, "org00", "at least 4 .* got 3", confirmed=())  # of those confirmed three remain
    wrong = here.follow(settlement, join=sybils, openers=["org00", "zzz0"])
    refused(wrong, "org01", "zzz0 unconfirmed", confirmed=())
    fine = here.follow(settlement, join=sybils)  # with all honest members, sybils change nothing
    fine.agreement("org00").accept(fine.keys["org00"])
    for changes in ({"honest": 2}, {"entries": 4}, {"federation": "00" * 16}, {"number": 1}):
        epoch = replace(fine.epoch, **changes)
        with pytest.raises(InvalidInput, match=next(iter(changes))):
            Agreement(epoch, here.stores("org00"), settlement=settlement)
    few = {name: fine.epoch.members[name] for name in ("org00", "org01", "org02")}
    with pytest.raises(InvalidInput, match="members must be at least 4"):
        replace(fine.epoch, members=few)
    third = {**fine.epoch.openers, "org02": here.epoch.openers["org00"][::-1]}
    with pytest.raises(InvalidInput, match="colluding"):
        Agreement(replace(fine.epoch, openers=third, number=9), here.stores("org00"), settlement=settlement)
    with pytest.raises(InvalidInput, match="new keys"):
        reused = replace(fine.epoch, openers=here.epoch.openers)
        Agreement(reused, here.stores("org00"), settlement=settlement)


def test_confirmations_are_kept_for_those_who_stay_only() -> None:
    here = group(4, 1)
    for name in here.epoch.members:
        here.agreement(name).accept(here.keys[name], confirmed=("org00", "org01", "org02", "org03"))
    here.start_all()
    two = here.follow(here.close(), leave=["org03"], join=["zed"])
    refused(two, "org00", "at least 4 .* got 3", confirmed=())
    two.start_all()
    three = two.follow(two.close(), leave=["zed"], join=["org03"])  # the same name, perhaps not the same one
    refused(three, "org00", "at least 4 .* got 3", confirmed=())
    three.agreement("org00").accept(three.keys["org00"], confirmed=("org03",))


def test_a_founding_without_settlement_is_refused_to_a_member() -> None:
    """Else a convener could pretend that there was no epoch before, and exchange everybody's keys."""
    here, there = closed()
    epoch = replace(there.epoch, settlement=b"")
    agreement = Agreement(epoch, here.stores("org03"))
    with pytest.raises(PrivacyError, match="must have the settlement"):
        agreement.accept(here.keys["org03"], confirmed=epoch.members)
    with pytest.raises(InvalidInput, match="settlement must be the one"):
        Agreement(there.epoch, here.stores("org03"))
    with pytest.raises(InvalidInput, match="settlement must be the one"):
        Agreement(epoch, here.stores("org03"), settlement=there.settlement)


def test_after_an_acceptance_nothing_is_sent_or_opened_in_the_epoch_before() -> None:
    here = group(4).start_all()
    here.round(1)
    closings = here.close()
    there = here.follow(closings)
    there.start("org00")
    with pytest.raises(PrivacyError, match="closed"):
        here.members["org00"].send(2, here.rows(0)["org00"], place=b"")
    # One that has not closed, and counts as missing, is stopped by the acceptance alone.
    here = group(4).start_all()
    here.round(1)
    there = here.follow(here.close(missing=["org00"]), openers=["org01", "org02"])
    late = here.members["org00"]
    here.start("org00")
    there.start("org00")
    with pytest.raises(PrivacyError, match="last one"):
        late.send(2, here.rows(0)["org00"], place=b"")
    assert late.opener is not None
    with pytest.raises(PrivacyError, match="last one"):
        late.opener.open(2, here.messages(1))


def test_openers_that_leave_must_accept_too() -> None:
    here = group(5, 1).start_all()
    here.round(1)
    settlement = here.close()
    there = here.follow(settlement, leave=["org00"], join=["new"])
    for name in there.epoch.members:
        there.start(name)
    there.pump()
    for member in there.members.values():
        assert member.agreement.missing == ["org00"]
    there.publish(there.agreement("org00").accept(here.keys["org00"]))
    there.pump()
    assert all(member.agreement.complete for member in there.members.values())


def test_an_opener_accepts_only_settlements_with_its_own_closing() -> None:
    here, there = closed()
    settlement = here.members["org00"].settle()
    records, vault = here.disks["org00"]
    kept = records.backup(), vault.backup()
    for disk in (records, vault):  # as if it had signed another closing
        disk.restore({name: value for name, value in disk.items() if not name.endswith("/opener")})
    refused(there, "org00", "must have the closing of 'org00'")
    for disk, backup in zip((records, vault), kept, strict=True):
        disk.restore(backup)
    there.agreement("org00").accept(here.keys["org00"])
    assert settlement.last == 2


def test_a_member_restored_from_before_a_closing_can_not_continue() -> None:
    """It has forgotten what was shown of it, so it may not send leaves again as if they were not."""
    here = group(4).start_all()
    empty = here.disks["org03"][0].backup()
    here.round(1)
    one = here.disks["org03"][0].backup()
    here.round(2)
    settlement = here.close()
    there = here.follow(settlement)
    for backup, text in ((one, "no record of its row of round 2"), (empty, "no record of its row")):
        here.disks["org03"][0].restore(backup)
        refused(there, "org03", text)
    here.disks["org03"][0].restore(one)
    here.start("org03").agreement._accepted |= dict.fromkeys(here.epoch.members, b"")
    here.members["org03"].send(2, here.rows(9)["org03"], place=b"another life")
    refused(there, "org03", "no record of its row of round 2")
    for disk in here.disks["org03"]:
        disk.restore({})
    refused(there, "org03", "no record of it: it can't continue under its name")


def test_a_member_that_runs_twice_does_not_go_on_in_the_next_epoch() -> None:
    """It does not know what the other one has sent, so it can't tell what counts as shown."""
    here = group(5, 1, honest=3).start_all()
    disk = here.disks["org04"][0]
    backup = disk.backup()
    other = here.members["org04"].send(1, here.rows(1)["org04"], place=b"")
    disk.restore(backup)
    here.start("org04")
    here.members["org04"].receive(other)
    settlement = here.close(missing=["org01"])
    refused(here.follow(settlement, openers=["org00", "org02"]), "org04", "add it under a new name")
    here.follow(settlement, openers=["org00", "org02"], leave=["org04"]).start("org03")


def test_a_restored_member_that_comes_back_as_a_new_one() -> None:
    here = group(5, 1, honest=3).start_all()
    here.round(1)
    there = here.follow(here.close(), leave=["org04"]).start_all()
    there.round(1)
    back = there.follow(there.close(), join=["org04"], leave=[]).start_all()
    assert all(member.agreement.complete for member in back.members.values())
    assert shown(here.stores("org04"), here.epoch) == 1


def test_an_epoch_that_could_not_begin_is_passed_over() -> None:
    """Acceptances of epoch 2 do not come together; epoch 3 follows epoch 1 if nothing was sent in 2."""
    here, stuck = closed(rounds=3)
    settlement = here.members["org00"].settle()
    for name in ("org00", "org01", "org02"):
        stuck.agreement(name).accept(stuck.keys[name])
    next_one = here.follow(settlement, number=3)
    next_one.start_all()
    assert all(member.agreement.complete for member in next_one.members.values())
    next_one.round(1)
    after = here.follow(settlement, number=4)
    refused(after, "org00", "rows were sent after epoch 1")


# --- what counts as shown ---------------------------------------------------------------------------------


def test_leaves_up_to_what_any_opener_opened_count_as_shown() -> None:
    here = group(4).start_all()
    here.round(1)
    here.round(2)
    here.members["org03"].send(3, here.rows(3)["org03"], place=b"3")  # nobody else sends round 3
    assert shown(here.stores("org03"), here.epoch) == 3  # as long as the epoch is not settled
    there = here.follow(here.close())
    there.start_all()
    assert shown(here.stores("org03"), here.epoch) == 2  # leaf 3 is carried into the next epoch
    assert shown(here.stores("org00"), here.epoch) == 2
    there.round(1)
    later = there.follow(there.close()).start_all()
    assert shown(here.stores("org03"), here.epoch) == 2
    assert shown(here.stores("org03"), there.epoch) == 1
    assert shown(here.stores("org03"), later.epoch) == 0


def test_with_a_missing_opener_all_that_was_sent_counts_as_shown() -> None:
    here = group(4).start_all()
    here.round(1)
    here.members["org03"].send(3, here.rows(3)["org03"], place=b"3")
    settlement = here.close(missing=["org01"])
    assert settlement.missing == ["org01"]
    here.follow(settlement, openers=["org00", "org02"], leave=[]).start("org03")
    assert shown(here.stores("org03"), here.epoch) == 3


def test_of_two_settlements_of_one_epoch_the_larger_counts() -> None:
    """An opener that has told two ends of an epoch can't make a member send what was shown."""
    here = group(4).start_all()
    here.round(1)
    here.send(2, here.rows(2))
    here.pump(only=["org00", "org02", "org03"])  # org01 opens nothing but round 1
    here.close()
    true = here.members["org03"].settle()
    one = next(
        m for m in here.bus if isinstance(p := parse(m), Partial) and (p.name, p.number) == ("org00", 1)
    )
    lie = sign(Closing(here.epoch.digest, "org00", one, ()), here.keys["org00"])
    false = settle(here.epoch, {**true.closings, "org00": lie}, plausible=any_total)
    assert (true.last, false.last) == (2, 1)
    here.follow(true).agreement("org03").accept(here.keys["org03"])
    assert shown(here.stores("org03"), here.epoch) == 2
    here.follow(false, number=3).agreement("org03").accept(here.keys["org03"])
    assert [each.limit for each in here.stores("org03").accepted(here.epoch.federation)] == [None, 2, 1]
    assert shown(here.stores("org03"), here.epoch) == 2


def test_one_who_was_away_counts_all_that_it_has_sent() -> None:
    here = group(5, 1, honest=3).start_all()
    here.round(1)
    here.members["org04"].send(3, here.rows(3)["org04"], place=b"3")
    two = here.follow(here.close()).start_all()
    assert shown(here.stores("org04"), here.epoch) == 1
    three = two.follow(two.close(), leave=["org04"]).start_all()
    four = three.follow(three.close(), join=["org04"]).start_all()
    assert shown(here.stores("org04"), here.epoch) == 3  # it can't know what others have settled since
    assert shown(here.stores("org03"), here.epoch) == 1
    assert shown(here.stores("org04"), four.epoch) == 0


def test_a_wrong_key_can_not_make_a_participant() -> None:
    here = group(4).start_all()
    here.keys["org03"] = new_signing_key()
    with pytest.raises(FedFairXError, match="key"):
        here.participant(here.agreement("org03"))
