"""A member's part in an epoch: rows and messages go in, messages and totals come out.

It needs a way to deliver bytes, and nothing else from it: `receive` takes messages in any order and as often
as they come, and `outbox` has all that others may still need, to be delivered again until they have it. What
is in the outbox is durable. After a restart a participant is made again from its stores, and takes up where
it was as soon as the messages of the others come again.

The order of things in a federation is: `opener_key` and `epoch_of` make an epoch, members confirm and
`Agreement.accept` it, `send` their rows round by round, `close` it when a new roster comes, `settle` on its
closings, and accept the next. `shown` says which leaves they may send in it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import Counter
from collections.abc import Callable, Collection

from fedfairx.errors import LedgerMismatch, MessageRefused, PrivacyError, StateError
from fedfairx.federation.aggregation.agreement import Agreement
from fedfairx.federation.aggregation.messages import Acceptance, Closing, Partial, Row, digest, parse, read
from fedfairx.federation.aggregation.opener import Opener
from fedfairx.federation.aggregation.sender import Sender
from fedfairx.federation.aggregation.settlement import Settlement, read_closing, settle
from fedfairx.federation.aggregation.shares import Integers
from fedfairx.federation.aggregation.total import Plausible, Total, Totals
from fedfairx.federation.roster.signing_keys import SigningKey


class Participant:
    """One member in one epoch.

    plausible: whether integers can be a total of the members' rows.
    random: returns n fresh random bytes; only tests replace it.

    refusals: number of refused messages, by sender and reason.
    trouble: why this opener could not open a round of which it has all rows; empty if it could.
    """

    def __init__(
        self,
        agreement: Agreement,
        key: SigningKey,
        *,
        plausible: Plausible,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.agreement, self.epoch, self.name = agreement, agreement.epoch, agreement.name
        if key.public != self.epoch.members.get(self.name):
            raise StateError(f"the key of {self.name!r} is not the one in epoch {self.epoch.number}")
        self._plausible = plausible
        self.sender = Sender(agreement, key, random=random)
        self.totals = Totals(self.epoch, agreement.stores, plausible)
        self.opener = Opener(agreement, key) if self.name in self.epoch.openers else None
        self.refusals: Counter[tuple[str, str]] = Counter()
        self.trouble = ""
        self._rows: dict[int, dict[str, bytes]] = {}  # by round and sender, for an opener
        self._refused: set[bytes] = set()  # digests of rows that can't be opened
        self._closings: dict[str, bytes] = {}

    # --- messages ------------------------------------------------------------------------------------

    def send(self, number: int, row: Integers, *, place: bytes) -> bytes:
        """Make the row of round `number` durable and put it into the outbox; see `Sender.send`."""
        signed = self.sender.send(number, row, place=place, opened=self.totals.number)
        self.receive(signed)
        return signed

    def outbox(self) -> list[bytes]:
        """All messages of this member that others may need, oldest first."""
        signed = [self.agreement.signed, *self.sender.messages(self.totals.number)]
        if self.opener is not None:
            signed += [self.opener.partial, self.opener.closing]
        return [each for each in signed if each]

    def receive(self, signed: bytes) -> None:
        """Take a message of anybody in this epoch. One that is refused is counted and changes nothing."""
        try:
            self._take(signed)
        except MessageRefused as error:
            self._refuse(signed, error)

    def _refuse(self, signed: bytes, error: MessageRefused) -> None:
        try:
            name = parse(signed).name
        except MessageRefused:
            name = ""
        self.refusals[name if name in self.epoch.members else "?", error.reason] += 1

    def _take(self, signed: bytes) -> None:
        match parse(signed):
            case Acceptance():
                self.agreement.take(signed)
                self._open_rounds()
            case Row(name=name):
                if self.opener is not None or name == self.name:
                    self._take_row(signed)
            case Partial():
                self._take_partial(signed)
            case Closing():
                closing = read_closing(self.epoch, signed)
                if digest(self._closings.setdefault(closing.name, signed)) != digest(signed):
                    raise MessageRefused(f"{closing.name!r} has signed two closings", reason="two contents")
                if closing.partial:
                    self._take_partial(closing.partial)
            case _:
                raise MessageRefused("the message belongs to no epoch", reason="kind")

    def _take_row(self, signed: bytes) -> None:
        row, seen = read(signed, Row, self.epoch), digest(signed)
        if row.name == self.name:
            with contextlib.suppress(LedgerMismatch):  # the next `send` raises it
                self.sender.compare(row.number, seen)
        if self.opener is None or row.number <= self.opener.last or seen in self._refused:
            return
        held = self._rows.setdefault(row.number, {}).setdefault(row.name, signed)
        if digest(held) != seen:
            raise MessageRefused(f"{row.name!r} has sent two rows of a round", reason="two contents")
        self._open_rounds()

    def _take_partial(self, signed: bytes) -> None:
        before = self.totals.last
        self.totals.take(signed)
        total = self.totals.last
        if total is not None and total is not before:
            ours = total.rows[[*self.epoch.members].index(self.name)]
            with contextlib.suppress(LedgerMismatch):
                self.sender.compare(total.number, ours)

    # --- opening -------------------------------------------------------------------------------------

    def missing_rows(self, number: int) -> list[str]:
        """The members whose row of a round has not come to this opener."""
        return [name for name in self.epoch.members if name not in self._rows.get(number, {})]

    def keep_rows(self, most: int) -> None:
        """Forget all but the latest rows of each member: this many, which later ones may supersede."""
        for name in self.epoch.members:
            for number in sorted(number for number, rows in self._rows.items() if name in rows)[:-most]:
                del self._rows[number][name]
        self._rows = {number: rows for number, rows in self._rows.items() if rows}

    def _open_rounds(self) -> None:
        """Open the latest round of which all rows are here."""
        opener = self.opener
        if opener is None or opener.closing or not self.agreement.complete:
            return
        for number in sorted(self._rows, reverse=True):
            if number > opener.last and not self.missing_rows(number):
                if not self.agreement.current:  # asked last, since it reads the stores
                    return
                try:
                    partial = opener.open(number, self._rows[number])
                except MessageRefused:
                    self._drop_refused(opener, number)
                    continue
                except PrivacyError as error:  # its vault is gone
                    self.trouble = str(error)
                    return
                self.trouble = ""
                self._rows = {each: rows for each, rows in self._rows.items() if each > number}
                self._take_partial(partial)
                return

    def _drop_refused(self, opener: Opener, number: int) -> None:
        """Drop the rows of a round that can't be opened, so that other rows of it may come."""
        for name, signed in [*self._rows[number].items()]:
            try:
                opener.check(number, name, signed)
            except MessageRefused as error:
                self._refuse(signed, error)
                self._refused.add(digest(signed))
                del self._rows[number][name]

    # --- closing -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Send and open nothing more in this epoch, durably. An opener's closing goes into the outbox."""
        self.sender.stop()
        if self.opener is not None:
            self.receive(self.opener.close(() if self.totals.last is None else self.totals.last.partials))

    def settle(self, *, missing: Collection[str] = ()) -> Settlement:
        """The settlement of this epoch, from the closings of all openers but those missing for good."""
        closings = {name: signed for name, signed in self._closings.items() if name not in missing}
        return settle(self.epoch, closings, plausible=self._plausible, missing=missing)

    def complete(self, settlement: Settlement) -> None:
        """As an opener that is behind, open the last round that the closings name, if its rows are here.

        This member must have accepted an epoch with this settlement.
        """
        if self.opener is None or not settlement.completable or self.opener.last >= settlement.last:
            return
        missing = self.missing_rows(settlement.last)
        if missing:
            text = f"rows of round {settlement.last} must come again from {', '.join(missing)}"
            raise MessageRefused(text, reason="rows")
        self._take_partial(self.opener.complete(settlement, self._rows[settlement.last]))

    @property
    def total(self) -> Total | None:
        """The last plausible total; None before the first."""
        return self.totals.last
