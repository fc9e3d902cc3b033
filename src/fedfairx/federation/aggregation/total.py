"""Totals: the openers' partial sums of a round added up.

A total is the sum of all members' rows if all openers have added up the same rows, which the digests in their
partials say. Nobody can check an opener's arithmetic, so the last one to sign can set a total to anything;
`Plausible` limits that to what the members' rows could have been.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fedfairx.errors import MessageRefused
from fedfairx.federation.aggregation.epoch import Epoch
from fedfairx.federation.aggregation.messages import Partial, read
from fedfairx.federation.aggregation.shares import Integers, add, as_integers, from_bytes

#: Whether integers can be a total of this many members' rows.
Plausible = Callable[[Integers, int], bool]


@dataclass(frozen=True, eq=False)
class Total:
    """The total of a round: the sum of one row of each member."""

    number: int
    rows: tuple[bytes, ...] = field(repr=False)  # digests, in the order of the members' names
    values: Integers = field(repr=False)


def add_up(epoch: Epoch, partials: Iterable[bytes]) -> Total:
    """The total of the partials of all openers, verified; `MessageRefused` if they do not belong together."""
    read_ones: dict[str, Partial] = {}
    for signed in partials:
        partial = read(signed, Partial, epoch)
        if partial.name in read_ones:
            raise MessageRefused(f"{partial.name!r} must have one partial in a total", reason="partials")
        read_ones[partial.name] = partial
    missing = [name for name in epoch.openers if name not in read_ones]
    if missing:
        raise MessageRefused(f"a total lacks the partials of {', '.join(missing)}", reason="partials")
    if len({(each.number, each.rows) for each in read_ones.values()}) > 1:
        raise MessageRefused("the partials of a total must be of the same rows", reason="partials")
    first = read_ones[next(iter(epoch.openers))]
    values = as_integers(add((from_bytes(each.total) for each in read_ones.values()), epoch.entries))
    values.setflags(write=False)
    return Total(first.number, first.digests, values)
