"""Totals: the openers' partial sums of a round added up.

A total is the sum of all members' rows if all openers have added up the same rows, which their lists of
digests say. Nobody can check an opener's arithmetic, so the last one to sign can set a total to anything;
`plausible` limits that to what the members' rows could have been.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from fedfairx.errors import MessageRefused
from fedfairx.federation.aggregation.epoch import Epoch
from fedfairx.federation.aggregation.messages import Partial, digest, read
from fedfairx.federation.aggregation.records import Stores
from fedfairx.federation.aggregation.shares import Integers, add, as_integers, from_bytes

Plausible = Callable[[Integers], bool]


@dataclass(frozen=True, eq=False)
class Total:
    """The total of a round: the sum of one row of each member, with the openers' partials as its proof."""

    number: int
    rows: tuple[bytes, ...] = field(repr=False)  # digests, in the order of the members' names
    values: Integers = field(repr=False)
    partials: tuple[bytes, ...] = field(repr=False)  # signed, in the order of the openers' names


def add_up(epoch: Epoch, partials: Iterable[bytes]) -> Total:
    """The total of the partials of all openers, verified; `MessageRefused` if they do not belong together."""
    found: dict[str, tuple[bytes, Partial]] = {}
    for signed in partials:
        partial = read(signed, Partial, epoch)
        if partial.name in found:
            raise MessageRefused(f"{partial.name!r} must have one partial in a total", reason="partials")
        found[partial.name] = signed, partial
    missing = [name for name in epoch.openers if name not in found]
    if missing:
        raise MessageRefused(f"a total lacks the partials of {', '.join(missing)}", reason="partials")
    if len({(each.number, each.rows) for _, each in found.values()}) > 1:
        raise MessageRefused("the partials of a total must be of the same rows", reason="partials")
    _, first = found[next(iter(epoch.openers))]
    values = as_integers(add((from_bytes(each.total) for _, each in found.values()), epoch.entries))
    values.setflags(write=False)
    return Total(first.number, first.rows, values, tuple(found[name][0] for name in epoch.openers))


class Totals:
    """The totals of an epoch as they become known; a later one replaces the earlier.

    last: the last plausible total, durable; None before the first.
    implausible: the last round whose total was refused; 0 if there is none.
    """

    def __init__(self, epoch: Epoch, stores: Stores, plausible: Plausible) -> None:
        self._epoch, self._stores, self._plausible = epoch, stores, plausible
        self._partials: dict[int, dict[str, bytes]] = {}  # by round and opener
        held = stores.total(epoch.digest)
        self.last = None if held is None else add_up(epoch, msgspec.msgpack.decode(held, type=list[bytes]))
        self.implausible = 0

    @property
    def number(self) -> int:
        """The round of the last total; 0 before the first."""
        return 0 if self.last is None else self.last.number

    def take(self, signed: bytes) -> Partial:
        """Take an opener's partial. If it is the last one of a later round, the total becomes `last`."""
        partial = read(signed, Partial, self._epoch)
        if partial.number <= self.number:
            return partial
        held = self._partials.setdefault(partial.number, {})
        if digest(held.setdefault(partial.name, signed)) != digest(signed):
            text = f"{partial.name!r} has signed two partials of round {partial.number}"
            raise MessageRefused(text, reason="two contents")
        if len(held) == len(self._epoch.openers):
            self._take_total(add_up(self._epoch, held.values()))
        return partial

    def _take_total(self, total: Total) -> None:
        if not self._plausible(total.values):
            self.implausible = max(self.implausible, total.number)
            raise MessageRefused(f"the total of round {total.number} is not plausible", reason="absurd")
        self._stores.keep_total(self._epoch.digest, msgspec.msgpack.encode(total.partials))
        self.last = total
        self._partials = {number: held for number, held in self._partials.items() if number > total.number}
