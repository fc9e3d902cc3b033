"""Totals: all openers' partials of the same rows."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from fedfairx.errors import MessageRefused
from fedfairx.federation.aggregation.messages import Partial, parse, sign
from fedfairx.federation.aggregation.total import add_up
from row_helpers import Group, exact, group


def forged(here: Group, signed: bytes, **changes: object) -> bytes:
    """A partial that its opener has signed with something else in it."""
    partial = parse(signed)
    return sign(msgspec.structs.replace(partial, **changes), here.keys[partial.name])


def reason(here: Group, partials: list[bytes]) -> str:
    with pytest.raises(MessageRefused) as refused:
        add_up(here.epoch, partials)
    return refused.value.reason


def test_a_total_needs_one_partial_of_each_opener_over_the_same_rows() -> None:
    here = group(5, 2)
    partials = here.partials(1, here.rows(1))
    assert add_up(here.epoch, partials).values.tolist() == exact(here.values(1))
    assert add_up(here.epoch, reversed(partials)).values.tolist() == exact(here.values(1))
    first, second, third = partials
    assert reason(here, [first, second]) == "partials"
    assert reason(here, [first, second, second]) == "partials"
    assert reason(here, [first, second, forged(here, third, number=2)]) == "partials"
    assert reason(here, [first, second, forged(here, third, rows=bytes(32))]) == "partials"
    assert reason(here, [first, second, third[:-1] + bytes([third[-1] ^ 1])]) == "signature"
    assert reason(here, [first, second, here.partials(2, here.rows(2))[2]]) == "partials"
    there = group(5, 2)
    assert reason(here, [first, second, there.partials(1, there.rows(1))[2]]) == "epoch"


def test_the_last_opener_can_set_a_total_to_anything_plausible() -> None:
    """A limit that the documentation states: nobody can check an opener's arithmetic."""
    here = group()
    first, second = here.partials(1, here.rows(1))
    last = parse(second)
    assert isinstance(last, Partial)
    shifted = (np.frombuffer(last.total, "<u8") + np.uint64(5)).tobytes()
    total = add_up(here.epoch, [first, forged(here, second, total=shifted)])
    assert total.values.tolist() == [value + 5 for value in exact(here.values(1))]


def test_a_total_can_not_be_changed_in_place() -> None:
    here = group()
    total = add_up(here.epoch, here.partials(1, here.rows(1)))
    with pytest.raises(ValueError, match="read-only"):
        total.values[0] = 1
