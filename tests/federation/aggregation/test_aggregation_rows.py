"""Rows and partials: exact sums, a complete set of one round, one history of every sender, fresh secrets."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfairx.errors import InvalidInput, LedgerMismatch, MessageRefused
from fedfairx.federation.aggregation.messages import (
    Partial,
    RowMessage,
    digest,
    parse,
    read,
    rows_digest,
    sign,
    with_share,
)
from fedfairx.federation.aggregation.rows import MadeRow, read_row
from fedfairx.federation.aggregation.shares import unseal
from fedfairx.federation.aggregation.total import add_up
from row_helpers import Group, exact, group

OPENER = "org00"


def reason(call: Callable[[], object]) -> str:
    with pytest.raises(MessageRefused) as refused:
        call()
    return refused.value.reason


def flipped(text: bytes) -> bytes:
    return text[:-1] + bytes([text[-1] ^ 1])


@given(st.integers(3, 7), st.integers(1, 3), st.integers(1, 5), st.integers(0, 2**32))
def test_sums_are_exact(members: int, colluding: int, entries: int, seed: int) -> None:
    here = group(members, min(colluding, members - 2), entries=entries)
    values = here.values(seed)
    rows = {name: here.row(name, 2, each) for name, each in values.items()}
    total = add_up(here.epoch, here.partials(2, rows))
    assert total.values.tolist() == exact(values)
    assert total.rows == tuple(digest(rows[name].signed) for name in sorted(rows))


def test_an_opener_gets_its_own_share_and_the_digests_of_the_others() -> None:
    here = group(5, 2)
    row = here.rows(1)["org04"]
    for opener, share in row.shares.items():
        message = with_share(row.signed, share)
        assert read_row(here.epoch, opener, "org04", message) == (parse(row.signed), digest(row.signed))
        assert not any(other in message for name, other in row.shares.items() if name != opener)


def test_the_first_openers_partial_lists_the_rows_and_others_sign_their_digest() -> None:
    here = group(5, 2)
    rows = here.rows(1)
    digests = tuple(digest(rows[name].signed) for name in sorted(rows))
    first, *others = (read(each, Partial, here.epoch) for each in here.partials(1, rows))
    assert first.digests == digests
    assert all(each.digests == () for each in others)
    assert {each.rows for each in (first, *others)} == {rows_digest(digests)}


def test_exactly_the_members_of_the_epoch() -> None:
    here, there = group(), group(5)
    rows, strange = here.rows(1), there.rows(1)["org04"]
    for wrong in (
        {},
        {name: rows[name] for name in ("org00", "org01", "org02")},
        {**rows, "org04": strange},
        {**rows, "org04": rows["org03"]},
        {("zed" if name == "org03" else name): each for name, each in rows.items()},
    ):
        assert reason(lambda wrong=wrong: here.open(OPENER, 1, wrong)) == "members"


def test_a_row_of_another_sender_round_epoch_or_opener_or_an_altered_one() -> None:
    here = group()
    rows, there = here.rows(1), group()
    messages = {name: with_share(row.signed, row.shares[OPENER]) for name, row in rows.items()}
    row, mine = rows["org03"], rows["org03"].shares[OPENER]
    content = parse(row.signed)
    assert isinstance(content, RowMessage)

    def with_row(message: bytes) -> str:
        return reason(lambda: here.open_messages(OPENER, 1, {**messages, "org03": message}))

    later, foreign = here.rows(2)["org03"], there.rows(1)["org03"]
    assert with_row(messages["org02"]) == "sender"
    assert with_row(with_share(later.signed, later.shares[OPENER])) == "round"
    assert with_row(with_share(foreign.signed, foreign.shares[OPENER])) == "epoch"
    assert with_row(with_share(flipped(row.signed), mine)) == "signature"
    assert with_row(with_share(row.signed, flipped(mine))) == "share"
    assert with_row(with_share(row.signed, row.shares["org01"])) == "share"  # another opener's
    assert with_row(with_share(row.signed, rows["org02"].shares[OPENER])) == "share"  # another sender's
    assert with_row(messages["org03"][:-1]) == "malformed"
    assert with_row(b"") == "malformed"
    stolen = msgspec.structs.replace(content, shares=parse(rows["org02"].signed).shares)  # type: ignore[union-attr]
    signed = sign(stolen, here.keys["org03"])  # its label has the sender's name
    assert with_row(with_share(signed, rows["org02"].shares[OPENER])) == "share"
    assert here.open_messages(OPENER, 1, messages).number == 1  # nothing was spent by all that


def test_a_round_is_opened_once_and_never_an_earlier_one() -> None:
    here = group()
    opened = here.open(OPENER, 2, here.rows(2))
    for number in (1, 2):
        with pytest.raises(LedgerMismatch, match="opened once"):
            here.open(OPENER, number, here.rows(number), opened)


def listing(here: Group, earlier: tuple[bytes | None, ...], number: int) -> dict[str, MadeRow]:
    """Rows of a later round, in which one member lists this."""
    before = here.rows(1)
    rows = {
        name: here.row(name, number, values, (digest(before[name].signed), *(None,) * (number - 2)))
        for name, values in here.values(number).items()
    }
    return {**rows, "org03": here.row("org03", number, here.values(number)["org03"], earlier)}


def test_a_sender_of_two_lives_or_that_passed_over_what_was_opened_is_refused() -> None:
    here = group()
    opened = here.open(OPENER, 1, here.rows(1))
    right, other = digest(here.rows(1)["org03"].signed), bytes(32)
    for earlier in ((other, None), (None, None), (None,), (), (None, right)):
        wrong = listing(here, earlier, 3)
        assert reason(lambda wrong=wrong: here.open(OPENER, 3, wrong, opened)) == "restored"
    assert here.open(OPENER, 3, listing(here, (right, None), 3), opened).number == 3


@pytest.mark.parametrize(
    "values",
    [np.zeros(2, dtype=np.int64), np.zeros(3), np.zeros((1, 3), dtype=np.int64), np.zeros(3, np.uint64)],
)
def test_rows_of_other_kinds_are_refused(values: np.ndarray) -> None:
    with pytest.raises(InvalidInput, match="3 integers of 64 bits"):
        group().row("org00", 1, values)


@pytest.mark.parametrize("number", [0, 10])
def test_rounds_that_the_epoch_does_not_have_are_refused(number: int) -> None:
    with pytest.raises(InvalidInput, match="number must be 1 to 9"):
        group().row("org00", number, np.zeros(3, dtype=np.int64), ())


def test_a_clone_with_the_same_random_numbers_repeats_no_seed_and_no_key() -> None:
    here, zero, one = group(), np.zeros(3, dtype=np.int64), np.ones(3, dtype=np.int64)
    same = {"random": bytes(32)}
    rows = [
        here.row("org03", 1, zero, **same),
        here.row("org03", 1, one, **same),
        here.row("org03", 2, zero, **same),
        here.row("org03", 1, zero, place=b"\1" * 32, **same),
        here.row("org02", 1, zero, **same),
    ]
    seeds = []
    for row in rows:
        content = parse(row.signed)
        assert isinstance(content, RowMessage)
        label = here.epoch.label("share", content.number, content.name, OPENER)
        seeds.append(unseal(here.secrets[OPENER], row.shares[OPENER], label))
    assert len({*seeds}) == len(rows)
    ephemeral = [share[:32] for row in rows for share in row.shares.values()]
    assert len({*ephemeral}) == len(ephemeral)
    assert here.row("org03", 1, zero, **same) == rows[0]
