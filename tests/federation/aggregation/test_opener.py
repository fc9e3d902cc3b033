"""Openers: a complete set, each round once, one life of every sender, and nothing before it is durable."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from aggregation_helpers import Crash, Group, exact, group, place_of
from fedfairx.errors import FedFairXError, LedgerMismatch, MessageRefused, PrivacyError
from fedfairx.federation.aggregation.agreement import Agreement, opener_key
from fedfairx.federation.aggregation.messages import Partial, Row, digest, parse, read, sign
from fedfairx.federation.aggregation.opener import Opener
from fedfairx.federation.aggregation.sender import Sender
from fedfairx.federation.aggregation.shares import Integers
from fedfairx.federation.aggregation.total import add_up

OPENER = "org00"


def quiet(m: int = 4, c: int = 1) -> Group:
    """All have accepted, and no process runs."""
    here = group(m, c).start_all()
    here.members.clear()
    return here


def agreed(here: Group, name: str) -> Agreement:
    agreement = here.agreement(name)
    for acceptance in here.bus:
        agreement.take(acceptance)
    return agreement


def send(here: Group, name: str, number: int, row: Integers | None = None) -> bytes:
    """A sender comes back from its disk and sends."""
    sender = Sender(agreed(here, name), here.keys[name])
    row = here.rows(number)[name] if row is None else row
    return sender.send(number, row, place=place_of(name, number), opened=0)


def rows_of(here: Group, number: int) -> dict[str, bytes]:
    """The signed rows of a round, which reach nobody."""
    return {name: send(here, name, number) for name in here.epoch.members}


def opener(here: Group, name: str = OPENER) -> Opener:
    """An opener comes back from its disks."""
    return Opener(agreed(here, name), here.keys[name])


def refused(call: Callable[[], object], error: type[FedFairXError] = MessageRefused) -> FedFairXError:
    with pytest.raises(error) as caught:
        call()
    return caught.value


def reason(call: Callable[[], object]) -> str:
    error = refused(call)
    assert isinstance(error, MessageRefused)
    return error.reason


def test_partials_of_all_openers_add_up() -> None:
    here = quiet(5, 2)
    rows, messages = here.rows(2), rows_of(here, 2)
    partials = [opener(here, name).open(2, messages) for name in here.epoch.openers]
    assert add_up(here.epoch, partials).values.tolist() == exact(rows)
    for signed in partials:
        partial = read(signed, Partial, here.epoch)
        assert partial.rows == tuple(digest(messages[name]) for name in sorted(messages))


def test_exactly_the_members_of_the_epoch() -> None:
    here, there = quiet(), quiet(5)
    messages, strange = rows_of(here, 1), send(there, "org04", 1)
    for wrong in (
        {},
        {name: messages[name] for name in ("org00", "org01", "org02")},
        {**messages, "org04": strange},
        {**messages, "org04": messages["org03"]},
        {("zed" if name == "org03" else name): each for name, each in messages.items()},
    ):
        assert reason(lambda wrong=wrong: opener(here).open(1, wrong)) == "members"
    assert opener(here).last == 0


def test_a_row_of_another_sender_round_epoch_roster_or_opener() -> None:
    here = quiet()
    messages = rows_of(here, 1)
    later, foreign = send(here, "org03", 2), send(quiet(), "org03", 1)
    row = parse(messages["org03"])
    assert isinstance(row, Row)

    def with_row(message: bytes) -> str:
        return reason(lambda: opener(here).open(1, {**messages, "org03": message}))

    assert with_row(messages["org02"]) == "sender"
    assert with_row(later) == "round"
    assert with_row(foreign) == "epoch"
    assert with_row(flipped(messages["org03"])) == "signature"
    altered = msgspec.structs.replace(row, shares=(flipped(row.shares[0]), row.shares[1]))
    assert with_row(sign(altered, here.keys["org03"])) == "share"
    other = parse(rows_of(quiet(), 1)["org03"])
    assert isinstance(other, Row)  # another federation's keys
    assert with_row(sign(msgspec.structs.replace(row, shares=other.shares), here.keys["org03"])) == "share"
    assert "org03" in str(refused(lambda: opener(here).open(1, {**messages, "org03": altered_by(here, row)})))
    assert opener(here).open(1, messages)  # nothing was spent by all that


def flipped(text: bytes) -> bytes:
    return text[:-1] + bytes([text[-1] ^ 1])


def altered_by(here: Group, row: Row) -> bytes:
    return sign(msgspec.structs.replace(row, shares=(bytes(80), row.shares[1])), here.keys[row.name])


def test_the_shares_of_another_can_not_be_sent_as_ones_own() -> None:
    """A member that repeats another's row would see it twice in the total, and so learn it."""
    here = quiet()
    messages = rows_of(here, 1)
    victim, thief = parse(messages["org02"]), parse(messages["org03"])
    assert isinstance(victim, Row)
    assert isinstance(thief, Row)
    copied = sign(msgspec.structs.replace(thief, shares=victim.shares), here.keys["org03"])
    for name in here.epoch.openers:
        assert reason(lambda name=name: opener(here, name).open(1, {**messages, "org03": copied})) == "share"
    # Nor may an old row of one's own be sent again as a later one.
    earlier = parse(messages["org03"])
    assert isinstance(earlier, Row)
    replayed = msgspec.structs.replace(earlier, number=2, earlier=(digest(messages["org03"]),))
    two = {**rows_of(here, 2), "org03": sign(replayed, here.keys["org03"])}
    assert reason(lambda: opener(here).open(2, two)) == "share"


def test_a_share_for_another_opener_is_refused() -> None:
    here = quiet(5, 2)
    messages = rows_of(here, 1)
    row = parse(messages["org03"])
    assert isinstance(row, Row)
    swapped = msgspec.structs.replace(row, shares=(row.shares[1], row.shares[0], row.shares[2]))
    wrong = {**messages, "org03": sign(swapped, here.keys["org03"])}
    assert reason(lambda: opener(here).open(1, wrong)) == "share"


def test_a_round_is_opened_once() -> None:
    here = quiet()
    two = rows_of(here, 2)
    first = opener(here).open(2, two)
    assert opener(here).open(2, two) == first  # the same bytes, from the disk
    disk = here.disks["org03"][0]
    backup = disk.backup()
    disk.restore({name: value for name, value in backup.items() if "accepted" in name})  # of two contents
    other = send(here, "org03", 2, np.arange(3))
    assert "opened once" in str(
        refused(lambda: opener(here).open(2, {**two, "org03": other}), LedgerMismatch)
    )
    disk.restore(backup)
    three = rows_of(here, 3)
    opener(here).open(3, three)
    refused(lambda: opener(here).open(2, two), LedgerMismatch)  # nor an earlier one, which it has opened
    assert opener(here).last == 3


def test_earlier_rounds_than_the_last_are_never_opened() -> None:
    here = quiet()
    two, three = rows_of(here, 2), rows_of(here, 3)
    opener(here).open(3, three)
    refused(lambda: opener(here).open(2, two), LedgerMismatch)
    assert opener(here, "org01").open(2, two)  # another opener has not opened 3


@pytest.mark.parametrize("lost", ["database", "vault's state", "neither"])
def test_a_restored_opener_opens_no_round_again(lost: str) -> None:
    here = quiet()
    records, vault = here.disks[OPENER]
    two, three = rows_of(here, 2), rows_of(here, 3)
    backups = records.backup(), vault.backup()
    partial = opener(here).open(3, three)
    if lost == "database":
        records.restore(backups[0])
    if lost == "vault's state":
        vault.restore(backups[1])
    again = opener(here)
    assert again.last == 3
    assert again.partial == partial
    refused(lambda: again.open(2, two), LedgerMismatch)
    assert parse(again.close()).partial == partial  # type: ignore[union-attr]


def test_without_its_secret_an_opener_opens_nothing() -> None:
    here = quiet()
    messages = rows_of(here, 1)
    here.disks[OPENER][1].restore({})
    assert "no key" in str(refused(lambda: opener(here).open(1, messages), PrivacyError))
    opener_key(here.epoch.federation, 1, key=here.keys[OPENER], stores=here.stores(OPENER))
    assert "no key" in str(refused(lambda: opener(here).open(1, messages), PrivacyError))  # it is another


def test_an_opener_that_may_have_forgotten_its_last_round_does_not_close() -> None:
    """Its vault is gone and its database is an old one: it would name too early a round."""
    here = quiet()
    records, vault = here.disks[OPENER]
    opener(here).open(1, rows_of(here, 1))
    backup = records.backup()
    opener(here).open(2, rows_of(here, 2))
    records.restore(backup)
    vault.restore({})
    assert opener(here).last == 1
    assert "no key" in str(refused(lambda: opener(here).close(), PrivacyError))


def test_a_sender_of_two_lives_is_refused() -> None:
    """A row must list what was opened of its sender: a clone or a restored sender does not know it."""
    here = quiet()
    disk = here.disks["org03"][0]
    one = rows_of(here, 1)
    opener(here).open(1, one)
    backup = disk.backup()  # both lives have round 1 in common
    opener(here).open(2, rows_of(here, 2))
    disk.restore(backup)
    three = rows_of(here, 3)
    error = refused(lambda: opener(here).open(3, three))
    assert isinstance(error, MessageRefused)
    assert error.reason == "restored"
    assert "org03" in str(error)
    assert opener(here).last == 2
    # An opener that has not opened the first life's row of 2 follows the second life from here on.
    assert opener(here, "org01").open(3, three)


def test_a_sender_that_passed_over_what_was_opened_is_refused() -> None:
    here = quiet()
    disk = here.disks["org03"][0]
    backup = disk.backup()
    opener(here).open(1, rows_of(here, 1))
    disk.restore(backup)
    two = rows_of(here, 2)  # lists None for round 1
    assert reason(lambda: opener(here).open(2, two)) == "restored"


def test_nothing_is_opened_before_all_have_accepted() -> None:
    here = quiet()
    messages = rows_of(here, 1)
    agreement = here.agreement(OPENER)
    alone = Opener(agreement, here.keys[OPENER])
    assert "must be accepted by" in str(refused(lambda: alone.open(1, messages), PrivacyError))


def test_after_its_closing_an_opener_opens_nothing_and_its_key_can_be_deleted() -> None:
    here = quiet()
    one, two = rows_of(here, 1), rows_of(here, 2)
    partial = opener(here).open(1, one)
    refused(lambda: opener(here).forget(), PrivacyError)
    closing = opener(here).close()
    assert opener(here).close((b"x", b"y")) == closing
    assert parse(closing).partial == partial  # type: ignore[union-attr]
    refused(lambda: opener(here).open(2, two), PrivacyError)
    here.disks[OPENER][0].restore({})  # the vault still knows that it is closed
    here.stores(OPENER).accept(here.epoch.federation, here.stores("org01").accepted(here.epoch.federation))
    refused(lambda: opener(here).open(2, two), PrivacyError)
    assert here.stores(OPENER).secret(here.epoch.federation, 1)
    opener(here).forget()
    assert here.stores(OPENER).secret(here.epoch.federation, 1) is None


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("restart", [False, True])
def test_a_partial_is_durable_before_anybody_sees_it(step: int, after: bool, restart: bool) -> None:
    """The disk fails at each write of a partial: then nothing was returned, and one content comes out."""
    here = quiet()
    messages, other = rows_of(here, 1), rows_of(here, 2)
    now = opener(here)
    here.crashes.due, here.crashes.after = here.crashes.done + step, after
    with pytest.raises(Crash):
        now.open(1, messages)
    held = here.stores(OPENER).opened(here.epoch.digest).partial
    assert bool(held) == (step == 2 or after)
    now = opener(here) if restart else now
    assert now.partial == held
    signed = now.open(1, messages)
    assert held in (b"", signed)
    for disk in here.disks[OPENER]:
        assert signed in disk[f"{OPENER}/{here.epoch.digest.hex()}/opener"]
    assert now.open(2, other) == opener(here).partial
