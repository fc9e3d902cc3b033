"""How an epoch has ended, as its openers tell it by the transport, and what a member stores of its epochs.

A closing is signed for the epoch's digest. Who joins later knows neither that epoch's roster nor its openers'
keys, so an opener publishes them with its closing (`Closed`). They are verified like all others: the convener
has signed the roster, the openers their keys, and the closings are valid only for the epoch of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from fedfairx.core.statistics import packed_size
from fedfairx.errors import FedFairXError, MessageRefused, require
from fedfairx.federation.aggregation.agreement import epoch_of
from fedfairx.federation.aggregation.epoch import Epoch
from fedfairx.federation.aggregation.messages import Partial, read
from fedfairx.federation.aggregation.settlement import Settlement, read_closing, settle
from fedfairx.federation.aggregation.total import Plausible, Total, add_up
from fedfairx.federation.roster.roster import Roster
from fedfairx.federation.transport.protocol import LARGEST

_HEADERS = 4096  # bytes of a message that are left for the transport's headers
#: Whether integers can be a total of this many members' rows.
PlausibleAmong = Callable[[int], Plausible]


class Definition(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What makes an epoch: its roster, its openers' signed keys, and the digest of the settlement before."""

    roster: bytes
    keys: dict[str, bytes]
    settlement: bytes = b""

    @classmethod
    def of(cls, roster: Roster, keys: Mapping[str, bytes], settlement: bytes = b"") -> Definition:
        return cls(roster.to_json().encode(), dict(keys), settlement)

    def epoch(self, roster: Roster) -> Epoch:
        """The epoch of this roster, which must be the one in it."""
        terms = roster.terms
        if terms.share is None or terms.rounds is None:
            raise MessageRefused("the roster of an epoch must be of secure aggregation")
        return epoch_of(
            roster,
            self.keys,
            entries=packed_size(terms.dimension + (terms.options.centring is not None)) + 1,
            rounds=terms.rounds.count,
            honest=terms.share.honest,
            settlement=self.settlement,
        )


class Proved(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The last total of an epoch that has ended, as its openers have signed it."""

    definition: Definition
    partials: tuple[bytes, ...]


class Closed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an opener publishes at the end of an epoch: its closing.

    partial: its last one, if it has completed a round after its closing.
    earlier: the last totals of earlier epochs, for those who join later; the oldest ones only if they fit
        into a message.
    """

    definition: Definition
    closing: bytes
    partial: bytes = b""
    earlier: tuple[Proved, ...] = ()


@dataclass(frozen=True)
class ClosedTotal:
    """The last total of an epoch that has ended, verified."""

    proved: Proved
    epoch: Epoch
    total: Total


def closed_totals(
    found: Iterable[Proved], epoch_in: Callable[[Definition], Epoch], plausible: PlausibleAmong
) -> dict[int, ClosedTotal]:
    """The last total of each epoch among those that are valid and plausible, by the epoch's number."""
    totals: dict[int, ClosedTotal] = {}
    for proved in found:
        try:
            epoch = epoch_in(proved.definition)
            total = add_up(epoch, proved.partials)
        except FedFairXError:
            continue
        before = totals.get(epoch.number)
        later = before is None or total.number > before.total.number
        if later and plausible(len(epoch.members))(total.values):
            totals[epoch.number] = ClosedTotal(proved, epoch, total)
    return totals


class StoredEpoch(msgspec.Struct, frozen=True, array_like=True):
    """What a member stores of an epoch before it accepts it, with the end of the epoch before."""

    definition: Definition
    before: Definition | None = None
    closings: dict[str, bytes] = {}


@dataclass(frozen=True)
class Ended:
    """An epoch that has ended, as far as is known here: who has closed it, by opener."""

    definition: Definition
    epoch: Epoch
    closed: Mapping[str, Closed]

    def waits_for(self, roster: Roster) -> tuple[str, ...]:
        """The openers whose closing is missing. One that is not in the later roster is not waited for."""
        known = roster.members
        return tuple(name for name in self.epoch.openers if name in known and name not in self.closed)

    def settlement(self, roster: Roster, plausible: PlausibleAmong) -> Settlement:
        """What follows from the closings of the openers that are still members."""
        closings = {name: each.closing for name, each in self.closed.items() if name in roster.members}
        return settlement_of(self.epoch, closings, plausible)

    def total(self, settlement: Settlement, plausible: PlausibleAmong) -> Total | None:
        """The total of the last round if all openers have opened it by now; else the last that is proved."""
        closings = [read_closing(self.epoch, each.closing) for each in self.closed.values()]
        partials = [each.partial for each in self.closed.values() if each.partial]
        completed = {read(each, Partial, self.epoch).name for each in partials}
        partials += [each.partial for each in closings if each.partial and each.name not in completed]
        try:
            total = add_up(self.epoch, partials)
        except MessageRefused:
            return settlement.base
        fits = total.number == settlement.last and plausible(len(self.epoch.members))(total.values)
        return total if fits else settlement.base


def closed_message(closed: Closed, earlier: Iterable[Proved], *, largest: int = LARGEST) -> bytes:
    """The message of an opener, with as many of the last totals as fit into it, the latest first."""
    message = msgspec.msgpack.encode(closed)
    for proved in earlier:
        closed = msgspec.structs.replace(closed, earlier=(proved, *closed.earlier))
        longer = msgspec.msgpack.encode(closed)
        if len(longer) > largest - _HEADERS:
            break
        message = longer
    return message


def require_closing_fits(roster: Roster, *, largest: int = LARGEST) -> None:
    """Refuse an epoch whose end would not fit into a message at a hub."""
    share, terms = roster.terms.share, roster.terms
    assert share is not None
    entries = packed_size(terms.dimension + (terms.options.centring is not None)) + 1
    partial = 8 * entries + 34 * len(roster.members) + 200  # a digest of each row, names and a signature
    size = (share.colluding + 3) * partial + 2 * len(roster.to_json()) + _HEADERS
    text = (
        f"must be so small that what {share.colluding + 1} openers say about the end of an epoch fits into a "
        f"message of {largest} bytes at the hub"
    )
    require(size <= largest, "dimension", text, terms.dimension, "found another federation")


def settlement_of(epoch: Epoch, closings: Mapping[str, bytes], plausible: PlausibleAmong) -> Settlement:
    """The settlement of these closings; openers without one are missing."""
    missing = [name for name in epoch.openers if name not in closings]
    return settle(epoch, closings, plausible=plausible(len(epoch.members)), missing=missing)


def read_closed(name: str, message: bytes) -> Closed:
    """What an opener has published, not verified yet, or `MessageRefused`."""
    try:
        return msgspec.msgpack.decode(message, type=Closed)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise MessageRefused(f"the closing of {name!r} is not one of this version") from None


def ended_epochs(
    found: Mapping[str, Closed], roster: Roster, epoch_in: Callable[[Definition], Epoch]
) -> tuple[list[Ended], dict[str, str]]:
    """The epochs before the roster's that openers have closed, and why closings are refused, by opener."""
    ended: dict[bytes, tuple[Definition, Epoch, dict[str, Closed]]] = {}
    refused: dict[str, str] = {}
    for name, closed in found.items():
        try:
            epoch = epoch_in(closed.definition)
            if epoch.number == roster.version:
                continue  # those who have a later roster have closed this epoch
            if read_closing(epoch, closed.closing).name != name:
                raise MessageRefused("the closing is another opener's", reason="sender")
            if closed.partial and read(closed.partial, Partial, epoch).name != name:
                raise MessageRefused("the partial is another opener's", reason="sender")
        except MessageRefused as error:
            refused[name] = error.reason
        except FedFairXError:  # the roster, or a key in it
            refused[name] = "malformed"
        else:
            ended.setdefault(epoch.digest, (closed.definition, epoch, {}))[2][name] = closed
    return [Ended(*each) for each in ended.values()], refused
