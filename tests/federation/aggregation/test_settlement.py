"""Closings: what was shown, which total stays, and openers that lie, lag, or are gone."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from aggregation_helpers import Group, any_total, exact, group
from fedfairx.errors import InvalidInput, MessageRefused, PrivacyError
from fedfairx.federation.aggregation.agreement import shown
from fedfairx.federation.aggregation.messages import Acceptance, Closing, Partial, parse, sign
from fedfairx.federation.aggregation.settlement import Settlement, settle


def behind(m: int = 5, c: int = 1) -> tuple[Group, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Round 1 is open to all. Round 2 was opened by org00 alone: the other openers have not got the rows."""
    here = group(m, c).start_all()
    one, two = here.round(1), here.rows(2)
    here.send(2, two)
    here.pump(only=["org00"])
    assert here.members["org00"].opener is not None
    assert here.members["org00"].opener.last == 2
    return here, one, two


def closings(here: Group) -> dict[str, bytes]:
    return {parse(each).name: each for each in here.bus if isinstance(parse(each), Closing)}


def close_without_rows(here: Group) -> Settlement:
    """All close before the rows of round 2 reach the other openers; then everything is delivered."""
    for member in here.members.values():
        member.close()
    here.pump()
    return here.members["org03"].settle()


def partial_of(here: Group, name: str, number: int) -> bytes:
    found = [
        m for m in here.bus if isinstance(p := parse(m), Partial) and (p.name, p.number) == (name, number)
    ]
    assert len(found) == 1
    return found[0]


def test_settlements_of_one_round_prove_its_total() -> None:
    here = group(5, 2).start_all()
    here.round(1)
    rows = here.round(2)
    settlement = here.close()
    assert (settlement.last, settlement.missing, settlement.completable) == (2, [], False)
    assert settlement.base is not None
    assert settlement.base.values.tolist() == exact(rows)
    digests = {member.settle().digest for member in here.members.values()}
    assert digests == {settlement.digest}


def test_an_epoch_in_which_nothing_was_opened() -> None:
    here = group(4).start_all()
    here.members["org02"].send(1, here.rows(1)["org02"], place=b"")
    settlement = here.close()
    assert (settlement.last, settlement.base, settlement.rows, settlement.completable) == (
        0,
        None,
        None,
        False,
    )
    here.follow(settlement).start_all()
    assert shown(here.stores("org02"), here.epoch) == 0  # its leaf is carried


def test_an_opener_that_is_behind_completes_the_last_round_after_its_acceptance() -> None:
    here, one, two = behind()
    settlement = close_without_rows(here)
    assert (settlement.last, settlement.behind, settlement.completable) == (2, ("org01",), True)
    assert settlement.base is not None
    assert settlement.base.values.tolist() == exact(one)
    late = here.members["org01"]
    with pytest.raises(PrivacyError, match="only after an epoch with this settlement was accepted"):
        late.complete(settlement)
    there = here.follow(settlement).start_all()
    assert shown(here.stores("org03"), here.epoch) == 2
    for member in here.members.values():
        member.complete(settlement)  # does nothing where there is nothing to do
    here.pump()
    for member in here.members.values():
        assert member.total is not None
        assert (member.total.number, member.total.values.tolist()) == (2, exact(two))
    assert late.opener is not None
    late.opener.forget()
    there.round(1)
    assert there.members["org04"].total is not None


def test_a_last_partial_that_was_withheld_counts_as_shown() -> None:
    """An opener that alone has added up a round can't hide it behind the partials that it has published."""
    here, one, _ = behind()
    hidden = partial_of(here, "org00", 2)
    del here.bus[hidden]
    assert here.members["org03"].total is not None
    assert here.members["org03"].total.values.tolist() == exact(one)
    settlement = close_without_rows(here)
    assert settlement.last == 2
    here.follow(settlement).start_all()
    assert {shown(here.stores(name), here.epoch) for name in here.epoch.members} == {2}


def test_a_colluding_opener_that_names_less_than_it_has_opened_gains_nothing() -> None:
    """What an opener alone has opened is noise: without the honest opener's partial nobody has the total."""
    here, _, two = behind()
    for member in here.members.values():
        member.close()
    here.pump()
    first = partial_of(here, "org00", 1)
    less = sign(Closing(here.epoch.digest, "org00", first, ()), here.keys["org00"])
    settlement = settle(here.epoch, {**closings(here), "org00": less}, plausible=any_total)
    assert settlement.last == 1
    # The honest opener accepts this end and opens no more: round 2 stays closed, and its leaves are carried.
    there = here.follow(settlement)
    there.agreement("org01").accept(here.keys["org01"])
    honest = here.members["org01"].opener
    assert honest is not None
    for call in (
        lambda: honest.open(2, here.messages(2)),
        lambda: honest.complete(settlement, here.messages(2)),
    ):
        with pytest.raises(PrivacyError):
            call()
    assert here.members["org01"].total is not None
    assert here.members["org01"].total.values.tolist() != exact(two)


def test_an_opener_that_tells_two_ends_of_an_epoch() -> None:
    """Told to members, s is small, so that they send leaves again; told to the honest opener, it is large.

    The epoch of the members begins only if the honest opener has accepted their settlement; and then it does
    not complete the round of the other.
    """
    here, _, _ = behind()
    for member in here.members.values():
        member.close()
    here.pump()
    first = partial_of(here, "org00", 1)
    less = sign(Closing(here.epoch.digest, "org00", first, ()), here.keys["org00"])
    large = settle(here.epoch, closings(here), plausible=any_total)
    small = settle(here.epoch, {**closings(here), "org00": less}, plausible=any_total)
    assert (small.last, large.last) == (1, 2)
    for leaves in (False, True):  # also when the honest opener is no member any more
        told = here.follow(small, leave=["org01"] if leaves else [], join=["zed"], number=2 + 2 * leaves)
        for name in told.epoch.members:
            if name not in ("org00", "org01"):
                told.start(name)
        told.publish(sign(Acceptance(told.epoch.digest, "org00"), here.keys["org00"]))
        told.pump()
        assert told.members["org03"].agreement.missing == ["org01"]
        with pytest.raises(PrivacyError, match="accepted by org01"):
            told.members["org03"].send(1, told.rows(0)["org03"], place=b"")
    honest = here.members["org01"]
    here.follow(large, number=5).agreement("org01").accept(here.keys["org01"])
    honest.complete(large)
    assert honest.opener is not None
    assert honest.opener.last == 2
    # Now it can't be made to accept the other end, not even in a later epoch.
    later = here.follow(small, number=6)
    with pytest.raises(PrivacyError, match="reach round 2"):
        later.agreement("org01").accept(here.keys["org01"])
    with pytest.raises(PrivacyError, match="accepted"):
        honest.opener.complete(small, here.messages(1))


def test_an_opener_that_has_accepted_two_ends_of_an_epoch_completes_neither() -> None:
    """The members may have begun after the first, and have sent again what the second would show."""
    here, _, _ = behind()
    for member in here.members.values():
        member.close()
    here.pump()
    less = sign(Closing(here.epoch.digest, "org00", partial_of(here, "org00", 1), ()), here.keys["org00"])
    large = settle(here.epoch, closings(here), plausible=any_total)
    small = settle(here.epoch, {**closings(here), "org00": less}, plausible=any_total)
    honest = here.members["org01"].opener
    assert honest is not None
    for number, settlement in ((2, small), (3, large)):
        here.follow(settlement, number=number).agreement("org01").accept(here.keys["org01"])
    for settlement in (small, large):
        with pytest.raises(PrivacyError, match="and none with another"):
            honest.complete(settlement, here.messages(2))
    assert honest.last == 1


def test_a_missing_opener() -> None:
    here, one, _ = behind()
    here.members["org02"].send(3, here.rows(3)["org02"], place=b"3")
    settlement = here.close(missing=["org01"])
    assert settlement.missing == ["org01"]
    assert (settlement.last, settlement.completable) == (2, False)
    assert settlement.base is not None
    assert settlement.base.values.tolist() == exact(one)  # the last total stays
    there = here.follow(settlement, leave=["org01"], join=["zed"]).start_all()
    assert all(member.agreement.complete for member in there.members.values())  # it need not accept
    assert shown(here.stores("org02"), here.epoch) == 3  # nobody knows what the missing one has opened
    # If it comes back, it can complete nothing.
    late = here.members["org01"].opener
    assert late is not None
    late.close()
    with pytest.raises(PrivacyError):
        late.complete(settlement, here.messages(2))
    rows = there.round(1)
    assert there.members["zed"].total is not None
    assert there.members["zed"].total.values.tolist() == exact(rows)


def test_all_openers_of_a_member_are_named_once() -> None:
    here = group(4).start_all()
    here.close()
    for given, missing in (
        ({}, ["org00"]),
        (closings(here), ["org01"]),
        ({"org00": closings(here)["org00"]}, []),
        (closings(here), ["org03"]),
    ):
        with pytest.raises(InvalidInput, match="closings and missing"):
            settle(here.epoch, given, plausible=any_total, missing=missing)


def test_openers_that_name_different_rows_of_the_last_round() -> None:
    """A sender of two contents: each opener has opened another. Nothing can complete that round."""
    here = group(4).start_all()
    one = here.round(1)
    disk = here.disks["org03"][0]
    backup = disk.backup()
    here.send(2, here.rows(2))
    here.pump(only=["org00"])
    disk.restore(backup)
    here.start("org03")
    here.members["org03"].agreement._accepted |= dict.fromkeys(here.epoch.members, b"")
    other = here.members["org03"].send(2, here.rows(3)["org03"], place=b"2")
    late = here.members["org01"].opener
    assert late is not None
    late.open(2, {**here.messages(2), "org03": other})
    for name in ("org00", "org01", "org02"):
        here.members[name].close()
    given = {name: here.members[name].opener.closing for name in ("org00", "org01")}  # type: ignore[union-attr]
    settlement = settle(here.epoch, given, plausible=any_total)
    assert (settlement.last, settlement.rows, settlement.completable) == (2, None, False)
    assert settlement.base is not None
    assert settlement.base.values.tolist() == exact(one)


def test_a_round_of_two_sets_of_rows_can_not_be_completed() -> None:
    here = group(5, 2).start_all()
    here.round(1)
    here.close()
    true = closings(here)
    given = {"org02": true["org02"]}  # it is behind
    for name, rows in (("org00", (b"0" * 32,) * 5), ("org01", (b"1" * 32,) * 5)):
        partial = sign(Partial(here.epoch.digest, name, 2, rows, bytes(24)), here.keys[name])
        given[name] = sign(Closing(here.epoch.digest, name, partial, ()), here.keys[name])
    settlement = settle(here.epoch, given, plausible=any_total)
    assert (settlement.last, settlement.behind, settlement.rows) == (2, ("org02",), None)
    assert not settlement.completable


def test_the_last_round_is_completed_for_the_rows_that_were_named() -> None:
    """A member may have sent another row to the opener that is behind."""
    here = group(5, 1).start_all()
    here.round(1)
    disk = here.disks["org04"][0]
    before = disk.backup()
    here.send(2, here.rows(2))
    here.pump(only=["org00"])
    kept = disk.backup()
    disk.restore(before)
    here.start("org04")
    here.members["org04"].agreement._accepted |= dict.fromkeys(here.epoch.members, b"")
    other = here.members["org04"].send(2, here.rows(7)["org04"], place=b"7")
    disk.restore(kept)
    here.start("org04")
    settlement = close_without_rows(here)
    here.follow(settlement).start_all()
    late = here.members["org01"].opener
    assert late is not None
    with pytest.raises(MessageRefused, match="those that the closings name"):
        late.complete(settlement, {**here.messages(2), "org04": other})
    with pytest.raises(MessageRefused, match="those that the closings name"):
        late.complete(settlement, {name: row for name, row in here.messages(2).items() if name != "org04"})
    assert late.last == 1


def test_an_implausible_last_round_leaves_the_last_plausible_total() -> None:
    here = group(4, plausible=lambda values: bool(np.abs(values).max() < 2**50)).start_all()
    one = here.round(1)
    here.round(2, {name: np.full(3, 2**60) for name in here.epoch.members})
    settlement = here.close()
    assert settlement.last == 2
    assert settlement.base is not None
    assert (settlement.base.number, settlement.base.values.tolist()) == (1, exact(one))
    assert (settlement.behind, settlement.completable) == ((), False)  # there is nothing to complete
    here.follow(settlement).start_all()
    assert shown(here.stores("org03"), here.epoch) == 2


def test_forged_closings_are_refused() -> None:
    here, there = group(4).start_all(), group(4).start_all()
    for each in (here, there):
        each.round(1)
        each.round(2)
        each.close()
    true, key = closings(here), here.keys["org00"]
    closing = parse(true["org00"])
    assert isinstance(closing, Closing)

    def reason(signed: bytes) -> str:
        with pytest.raises(MessageRefused) as refused:
            settle(here.epoch, {**true, "org00": signed}, plausible=any_total)
        before = sum(here.members["org02"].refusals.values())
        here.members["org02"].receive(signed)
        assert sum(here.members["org02"].refusals.values()) in (before, before + 1)
        return refused.value.reason

    def changed(**changes: object) -> bytes:
        return sign(msgspec.structs.replace(closing, **changes), key)

    assert reason(closings(there)["org00"]) == "epoch"
    assert reason(true["org01"]) == "sender"
    assert reason(true["org00"][:-1] + bytes([true["org00"][-1] ^ 1])) == "signature"
    assert reason(changed(partial=partial_of(here, "org01", 2))) == "sender"
    assert reason(changed(partial=b"junk" * 20)) == "malformed"
    assert reason(changed(complete=(partial_of(here, "org00", 2),) * 2)) == "partials"
    assert (
        reason(changed(complete=(partial_of(here, "org00", 1), partial_of(here, "org01", 2)))) == "partials"
    )
    assert here.members["org02"].settle().closings == true


def test_a_second_closing_of_an_opener_is_refused() -> None:
    here = group(4).start_all()
    here.round(1)
    here.close()
    other = sign(Closing(here.epoch.digest, "org00", b"", ()), here.keys["org00"])
    here.members["org02"].receive(other)
    assert here.members["org02"].refusals == {("org00", "two contents"): 1}
    assert here.members["org02"].settle().last == 1


def test_a_settlement_is_bound_to_its_epoch_closings_and_missing_openers() -> None:
    here = group(5, 2).start_all()
    here.round(1)
    full = here.close()
    less = here.members["org03"].settle(missing=["org00"])
    other = replace(here.epoch, rounds=10)
    assert len({full.digest, less.digest, replace(full, epoch=other).digest}) == 3


def test_the_next_epochs_shares_are_bound_to_the_closings() -> None:
    """A row of one view of the end of an epoch opens in no other."""
    here, _, _ = behind()
    settlement = close_without_rows(here)
    there = here.follow(settlement)
    other = replace(there.epoch, settlement=bytes(32))
    assert there.epoch.label("share", 1, "org02", "org00") != other.label("share", 1, "org02", "org00")
    assert settlement.digest in there.epoch.label("share", 1, "org02", "org00")
