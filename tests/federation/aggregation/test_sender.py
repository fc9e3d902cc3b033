"""Senders: a round has one content, recorded before it is sent, in a list that shows two lives."""

from __future__ import annotations

import numpy as np
import pytest

from aggregation_helpers import Crash, Group, group, place_of
from fedfairx.errors import InvalidInput, LedgerMismatch, PrivacyError
from fedfairx.federation.aggregation.messages import Row, digest, parse, read
from fedfairx.federation.aggregation.sender import Sender
from fedfairx.federation.aggregation.shares import unseal

PLACE = bytes(32)


def one_row(value: int = 0) -> np.ndarray:
    return np.array([value, -value, 7], dtype=np.int64)


def sent(message: bytes) -> Row:
    row = parse(message)
    assert isinstance(row, Row)
    return row


def sender(here: Group, name: str = "org02") -> Sender:
    return here.members[name].sender


def test_a_repetition_sends_the_same_bytes_also_after_a_restart() -> None:
    here = group().start_all()
    message = sender(here).send(2, one_row(), place=PLACE, opened=0)
    assert sender(here).send(2, one_row(), place=PLACE, opened=0) == message
    here.start("org02")
    here.pump()
    assert sender(here).send(2, one_row(), place=PLACE, opened=0) == message
    assert message in here.members["org02"].outbox()
    assert read(message, Row, here.epoch).number == 2


def test_a_round_has_one_content() -> None:
    here = group().start_all()
    sender(here).send(2, one_row(), place=PLACE, opened=0)
    for row, place in ((one_row(1), PLACE), (one_row(), b"another place")):
        with pytest.raises(LedgerMismatch, match="other content"):
            sender(here).send(2, row, place=place, opened=0)


def test_rounds_go_upwards_and_lists_say_what_was_sent() -> None:
    here = group().start_all()
    two = sender(here).send(2, one_row(2), place=PLACE, opened=0)
    with pytest.raises(LedgerMismatch, match="upwards"):
        sender(here).send(1, one_row(1), place=PLACE, opened=0)
    five = sender(here).send(5, one_row(5), place=PLACE, opened=0)
    with pytest.raises(LedgerMismatch, match="upwards"):
        sender(here).send(4, one_row(4), place=PLACE, opened=0)
    assert sent(two).earlier == (None,)
    assert sent(five).earlier == (None, digest(two), None, None)
    six = sender(here).send(6, one_row(6), place=PLACE, opened=2)  # the total of 2 is known: back to that
    assert sent(six).earlier == (digest(two), None, None, digest(five))
    seven = sender(here).send(7, one_row(7), place=PLACE, opened=6)
    assert sent(seven).earlier == (digest(six),)
    assert sender(here).messages(0) == [six, seven]  # older ones are superseded, and are not kept
    with pytest.raises(InvalidInput, match="opened"):
        sender(here).send(8, one_row(), place=PLACE, opened=8)


@pytest.mark.parametrize(
    "row", [np.zeros(2, dtype=np.int64), np.zeros(3), np.zeros((3, 1), dtype=np.int64), [1, 2, 3], None]
)
def test_rows_of_other_kinds_are_refused(row: np.ndarray) -> None:
    here = group().start_all()
    with pytest.raises(InvalidInput, match="row must be 3 integers") as refused:
        sender(here).send(1, row, place=PLACE, opened=0)
    assert "1, 2, 3" not in str(refused.value)
    for number in (0, 10):
        with pytest.raises(InvalidInput, match="number must be 1 to 9"):
            sender(here).send(number, one_row(), place=PLACE, opened=0)


def test_nothing_is_sent_before_all_have_accepted() -> None:
    here = group(4)
    for name in ("org00", "org01", "org02"):
        here.start(name)
    here.pump()
    with pytest.raises(PrivacyError, match="accepted by org03 first"):
        sender(here).send(1, one_row(), place=PLACE, opened=0)
    unaccepted = here.participant(here.agreement("org03"))
    with pytest.raises(PrivacyError, match="last one that 'org03' has accepted"):
        unaccepted.send(1, one_row(), place=PLACE)
    here.start("org03")
    here.pump()
    assert sender(here).send(1, one_row(), place=PLACE, opened=0)


def test_after_stop_nothing_new_is_sent() -> None:
    here = group().start_all()
    message = sender(here).send(1, one_row(), place=PLACE, opened=0)
    sender(here).stop()
    for _ in range(2):
        with pytest.raises(PrivacyError, match="closed"):
            sender(here).send(2, one_row(), place=PLACE, opened=0)
        assert sender(here).send(1, one_row(), place=PLACE, opened=0) == message
        here.start("org02")
        here.pump()


def test_another_row_under_our_name_halts_us_for_good() -> None:
    here = group().start_all()
    backup = here.disks["org02"][0].backup()
    other = here.members["org02"].send(1, one_row(1), place=PLACE)
    here.disks["org02"][0].restore(backup)
    here.start("org02")
    here.pump()
    mine = here.members["org02"].send(1, one_row(2), place=PLACE)  # before the other one is seen here
    assert mine != other
    here.members["org02"].receive(other)
    for _ in range(2):
        assert "restored from a backup or runs twice" in sender(here).halted
        with pytest.raises(LedgerMismatch, match="under a new name"):
            here.members["org02"].send(2, one_row(), place=PLACE)
        here.start("org02")
        here.pump()


def test_only_our_own_signature_halts_us() -> None:
    """An opener that lies about our row can't stop us, as long as another one is honest."""
    here = group().start_all()
    message = bytearray(here.members["org02"].send(1, one_row(1), place=PLACE))
    message[-1] ^= 1
    here.members["org02"].receive(bytes(message))
    assert not sender(here).halted
    assert here.members["org02"].refusals == {("org02", "signature"): 1}


def test_a_clone_with_the_same_random_numbers_repeats_no_seed_and_no_key() -> None:
    """Two machines draw the same bytes. The same row at one place is the same message, another is not."""
    here = group(random=bytes).start_all()  # always zeros
    disk = here.disks["org02"][0]
    backup = disk.backup()
    secrets_of: list[list[bytes]] = []
    messages = []
    for row, place in ((one_row(1), PLACE), (one_row(1), PLACE), (one_row(2), PLACE), (one_row(1), b"other")):
        disk.restore(backup)
        here.start("org02")
        here.pump()
        message = sender(here).send(1, row, place=place, opened=0)
        messages.append(message)
        sealed = sent(message).shares
        private = here.stores("org00").secret(here.epoch.federation, 1)
        assert private is not None
        seed = unseal(private, sealed[0], here.epoch.label("share", 1, "org02", "org00"))
        secrets_of.append([seed, sealed[0][:32], sealed[1][:32]])
    assert messages[0] == messages[1]
    for first, second in ((0, 2), (0, 3), (2, 3)):
        assert not {*secrets_of[first]} & {*secrets_of[second]}
    assert len({*secrets_of[0]}) == 3


def test_two_rounds_with_the_same_row_share_no_secret() -> None:
    here = group(random=bytes).start_all()
    one, two = (sent(sender(here).send(k, one_row(), place=PLACE, opened=0)) for k in (1, 2))
    assert not {share[:32] for share in one.shares} & {share[:32] for share in two.shares}


@pytest.mark.parametrize("after", [False, True])
def test_a_write_that_fails_and_was_made_is_not_forgotten(after: bool) -> None:
    """A disk may report an error although it has the data: the process must know what it holds."""
    here = group().start_all()
    here.crashes.due, here.crashes.after = here.crashes.done + 1, after
    with pytest.raises(Crash):
        sender(here).send(1, one_row(), place=place_of("org02", 1), opened=0)
    again = sender(here).send(1, one_row(), place=place_of("org02", 1), opened=0)
    two = sent(sender(here).send(2, one_row(), place=PLACE, opened=0))
    assert two.earlier == (digest(again),)
    assert here.stores("org02").sent(here.epoch.digest).digests[0] == digest(again)
