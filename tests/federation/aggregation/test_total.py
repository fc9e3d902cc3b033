"""Totals: all openers' partials of the same rows, and plausible."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from aggregation_helpers import Group, exact, group
from fedfairx.errors import MessageRefused
from fedfairx.federation.aggregation.messages import Partial, parse, sign
from fedfairx.federation.aggregation.records import MemoryRecords, Stores
from fedfairx.federation.aggregation.total import Total, Totals, add_up


def opened(here: Group, number: int) -> tuple[dict[str, np.ndarray], Total]:
    rows = here.round(number)
    total = here.members["org03"].total
    assert total is not None
    return rows, total


def forged(here: Group, signed: bytes, **changes: object) -> bytes:
    """A partial that its opener has signed with something else in it."""
    partial = parse(signed)
    return sign(msgspec.structs.replace(partial, **changes), here.keys[partial.name])


def reason(here: Group, partials: list[bytes]) -> str:
    with pytest.raises(MessageRefused) as refused:
        add_up(here.epoch, partials)
    return refused.value.reason


def test_a_total_needs_one_partial_of_each_opener_over_the_same_rows() -> None:
    here = group(5, 2).start_all()
    rows, total = opened(here, 1)
    assert total.values.tolist() == exact(rows)
    assert add_up(here.epoch, reversed(total.partials)).values.tolist() == exact(rows)
    first, second, third = total.partials
    assert reason(here, [first, second]) == "partials"
    assert reason(here, [first, second, second]) == "partials"
    assert reason(here, [first, second, forged(here, third, number=2)]) == "partials"
    assert reason(here, [first, second, forged(here, third, rows=(bytes(32),) * 5)]) == "partials"
    assert reason(here, [first, second, third[:-1] + bytes([third[-1] ^ 1])]) == "signature"
    _, later = opened(here, 2)
    assert reason(here, [first, second, later.partials[2]]) == "partials"
    there = group(5, 2).start_all()
    _, foreign = opened(there, 1)
    assert reason(here, [first, second, foreign.partials[2]]) == "epoch"


def test_a_later_total_takes_the_place_of_the_last_in_any_order_of_arrival() -> None:
    here = group().start_all()
    _, one = opened(here, 1)
    rows, two = opened(here, 2)
    totals = Totals(here.epoch, Stores("org03", MemoryRecords()), lambda _: True)
    assert (totals.number, totals.last) == (0, None)
    for signed in (two.partials[0], one.partials[1], two.partials[1], one.partials[0], *one.partials):
        totals.take(signed)
    assert totals.number == 2
    assert totals.last is not None
    assert totals.last.values.tolist() == exact(rows)


def test_other_partials_of_a_round_that_is_known_change_nothing() -> None:
    """All openers together could make another total of the last round, and of an earlier one."""
    here = group().start_all()
    _, one = opened(here, 1)
    rows, two = opened(here, 2)
    stores = Stores("org03", MemoryRecords())
    totals = Totals(here.epoch, stores, lambda _: True)
    for signed in two.partials:
        totals.take(signed)
    kept = stores.total(here.epoch.digest)
    for partials in (two.partials, one.partials):
        for signed in partials:
            other = forged(here, signed, total=bytes(len(parse(signed).total)))
            assert totals.take(other) == parse(other)
    assert totals.last is not None
    assert (totals.number, totals.last.values.tolist()) == (2, exact(rows))
    assert stores.total(here.epoch.digest) == kept
    assert totals._partials == {}


def test_a_total_is_durable() -> None:
    here = group().start_all()
    rows, total = opened(here, 1)
    here.start("org03")
    again = here.members["org03"].total
    assert again is not None
    assert (again.number, again.rows, again.partials) == (1, total.rows, total.partials)
    assert again.values.tolist() == exact(rows)


def test_an_implausible_total_leaves_the_last_in_place() -> None:
    here = group(plausible=lambda values: bool(np.abs(values).max() < 2**50)).start_all()
    rows, total = opened(here, 1)
    large = {name: np.full(3, 2**55) for name in here.epoch.members}
    here.round(2, large)
    for member in here.members.values():
        assert member.total is not None
        assert (member.total.number, member.totals.implausible) == (1, 2)
        assert member.total.values.tolist() == exact(rows)
    later = here.round(3)
    for member in here.members.values():
        assert member.total is not None
        assert member.total.values.tolist() == exact(later)
    assert total.number == 1


def test_an_opener_that_signs_two_partials_of_a_round() -> None:
    here = group().start_all()
    _, total = opened(here, 1)
    first = total.partials[0]
    other = forged(here, first, total=bytes(24))
    totals = Totals(here.epoch, Stores("org03", MemoryRecords()), lambda _: True)
    totals.take(first)
    totals.take(first)
    with pytest.raises(MessageRefused) as refused:
        totals.take(other)
    assert refused.value.reason == "two contents"
    assert isinstance(totals.take(total.partials[1]), Partial)
    assert totals.number == 1


def test_the_last_opener_can_set_a_total_to_anything_plausible() -> None:
    """A limit that the documentation states: nobody can check an opener's arithmetic."""
    here = group().start_all()
    rows, total = opened(here, 1)
    last = parse(total.partials[1])
    assert isinstance(last, Partial)
    shifted = (np.frombuffer(last.total, "<u8") + np.uint64(5)).tobytes()
    found = add_up(here.epoch, [total.partials[0], forged(here, total.partials[1], total=shifted)])
    assert found.values.tolist() == [value + 5 for value in exact(rows)]
