"""The end of an epoch: which rounds count as shown, and which total stays.

Each opener signs a closing, which names the last round for which it has signed any partial, and opens nothing
more. Let s be the largest round that they name. To learn anything about a round's rows one needs the partial
of the honest opener, so nothing beyond s was shown to anybody, and leaves beyond s can be sent again in the
next epoch as if for the first time. Leaves up to s count as shown, opened or not: the others may have added
up the total of s and kept it.

If all closings are of s and of the same rows, everybody adds them up. If some openers are behind, they
complete s, but only after they have accepted the next epoch. Its digest covers the closings, and it begins
when all these openers have accepted it (`agreement.py`). Otherwise an opener could tell a member that s is
small and another opener that it is large: the member would send leaves again that the other then shows.

If an opener is missing, nobody knows what it has opened. Then all that a member has sent counts as shown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from fedfairx.errors import InvalidInput, MessageRefused
from fedfairx.federation.aggregation.epoch import Epoch, digest_of
from fedfairx.federation.aggregation.messages import Closing, Partial, digest, read
from fedfairx.federation.aggregation.total import Plausible, Total, add_up


@dataclass(frozen=True, eq=False)
class Settlement:
    """What follows from the closings of an epoch, for all members alike.

    closings: the signed closings, by opener; openers without one are missing.
    last: the last round of which an opener has signed a partial; 0 if there is none.
    rows: digests of the rows of that round; None if the openers name different ones.
    behind: the openers that have closed and not opened that round.
    base: the last plausible total that the closings prove; None if there is none. Members go on from it, or
        from the total of `last` once that is completed.
    """

    epoch: Epoch
    closings: Mapping[str, bytes] = field(repr=False)
    last: int
    rows: tuple[bytes, ...] | None = field(repr=False)
    behind: tuple[str, ...]
    base: Total | None

    @property
    def missing(self) -> list[str]:
        """The openers without a closing."""
        return [name for name in self.epoch.openers if name not in self.closings]

    @property
    def digest(self) -> bytes:
        """SHA-256 of the epoch and all closings. It is part of the next epoch, so all members agree on it."""
        each = [digest(self.closings[name]) if name in self.closings else None for name in self.epoch.openers]
        return digest_of("settlement", self.epoch.digest, each)

    @property
    def completable(self) -> bool:
        """Whether the openers that are behind can complete the last round.

        They can if no opener is missing and all others name the same rows of it. Otherwise leaves that were
        shown and are not in `base` are in no total, and are dropped.
        """
        return bool(self.behind) and not self.missing and self.rows is not None

    def named(self, name: str) -> list[tuple[int, bytes]]:
        """Rounds and digests of a member's rows, as the openers' partials have them."""
        closings = [read_closing(self.epoch, signed) for signed in self.closings.values()]
        partials = [closing.partial for closing in closings if closing.partial]
        partials += [] if self.base is None else self.base.partials
        place = [*self.epoch.members].index(name)
        return [
            (partial.number, partial.rows[place])
            for partial in (read(signed, Partial, self.epoch) for signed in partials)
        ]


def settle(
    epoch: Epoch, closings: Mapping[str, bytes], *, plausible: Plausible, missing: Collection[str] = ()
) -> Settlement:
    """Verify the closings of all openers but those that are missing for good, and draw the conclusions."""
    if {*closings} & {*missing} or {*closings, *missing} != {*epoch.openers}:
        raise InvalidInput(
            f"closings and missing must name each opener once ({', '.join(epoch.openers)}), "
            f"got closings={sorted(closings)} and missing={sorted(missing)}"
        )
    signed: dict[str, bytes] = {}
    totals: list[Total] = []
    for name, each in sorted(closings.items()):
        closing = read_closing(epoch, each)
        if closing.name != name:
            raise MessageRefused(f"the closing under the name {name!r} is another opener's", reason="sender")
        if closing.partial:
            signed[name] = closing.partial
        if closing.complete:
            totals.append(add_up(epoch, closing.complete))
    partials = {name: read(each, Partial, epoch) for name, each in signed.items()}
    last = max((partial.number for partial in partials.values()), default=0)
    latest = {name: partial.rows for name, partial in partials.items() if partial.number == last}
    behind = tuple(sorted(closings.keys() - latest.keys())) if last else ()
    rows = {*latest.values()}
    if len(rows) == 1 and not behind and not missing:
        totals.append(add_up(epoch, signed.values()))
    credible = [total for total in totals if plausible(total.values)]
    base = max(credible, key=lambda total: total.number, default=None)
    named = rows.pop() if len(rows) == 1 else None
    return Settlement(epoch, dict(closings), last, named, behind, base)


def read_closing(epoch: Epoch, signed: bytes) -> Closing:
    """The closing of an opener, verified, and the partials in it too."""
    closing = read(signed, Closing, epoch)
    if closing.partial and read(closing.partial, Partial, epoch).name != closing.name:
        raise MessageRefused(f"the closing of {closing.name!r} must have its own partial", reason="sender")
    if closing.complete:
        add_up(epoch, closing.complete)
    return closing
