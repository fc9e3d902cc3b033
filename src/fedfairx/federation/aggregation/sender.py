"""A member's rows of one epoch: one content for a round, recorded before it is sent.

Every row lists the digests of the sender's earlier rows. Openers compare the list with what they opened, so
they notice a sender that was restored from a backup, or runs twice, and mixes two histories of rows. The
sender notices it too, when it sees a row under its name that it has no record of, and sends nothing more.

The seeds of shares and the ephemeral keys are derived from fresh random bytes, the ledger's place and the
row. Of two machines with the same random numbers, each has other seeds as soon as its row is another.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec
import numpy as np

from fedfairx.errors import LedgerMismatch, PrivacyError, require
from fedfairx.federation.aggregation.agreement import Agreement
from fedfairx.federation.aggregation.epoch import digest_of, typed
from fedfairx.federation.aggregation.messages import Row, digest, sign
from fedfairx.federation.aggregation.records import CANNOT_CONTINUE, Sent
from fedfairx.federation.aggregation.shares import KEY_BYTES, Integers, as_ring, derive, seal, split, to_bytes
from fedfairx.federation.roster.signing_keys import SigningKey


class _Recorded(msgspec.Struct, frozen=True, array_like=True):
    """A row as it was sent, and a digest of what is in it."""

    content: bytes
    message: bytes


class Sender:
    """Makes the rows of one member in one epoch.

    random: returns n fresh random bytes; only tests replace it.

    Guarantees:
    - A round has one row: it is durable before `send` returns it, and is returned again when asked again.
    - Rounds go upwards. A round that was passed over is never sent.
    - No new row is made before all have accepted the epoch, after `stop`, after a later epoch was accepted,
      or once another row under this name was seen.
    """

    def __init__(
        self,
        agreement: Agreement,
        key: SigningKey,
        *,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._agreement, self._epoch, self._name = agreement, agreement.epoch, agreement.name
        self._key, self._stores, self._random = key, agreement.stores, random
        self._sent = self._stores.sent(self._epoch.digest)

    @property
    def last(self) -> int:
        """The last round that was sent; 0 before the first."""
        return len(self._sent.digests)

    @property
    def halted(self) -> str:
        """Why this sender sends nothing more; empty while it does."""
        return self._sent.halted

    def send(self, number: int, row: Integers, *, place: bytes, opened: int) -> bytes:
        """The message with the row of round `number`, durable.

        place: the ledger's place of the leaf that the row ends with.
        opened: the last round whose total is known here; 0 if there is none.
        """
        fits = isinstance(row, np.ndarray) and row.dtype == np.int64 and row.shape == (self._epoch.entries,)
        found = f"{getattr(row, 'dtype', type(row).__name__)}, {getattr(row, 'shape', '')}"
        require(fits, "row", f"must be {self._epoch.entries} integers of 64 bits", found)
        require(1 <= number <= self._epoch.rounds, "number", f"must be 1 to {self._epoch.rounds}", number)
        content = digest_of("content", place, to_bytes(as_ring(row)))
        self._sent = self._stores.sent(self._epoch.digest)
        held = self._recorded(number)
        if held is not None:
            if held.content != content:
                raise LedgerMismatch(
                    f"row of round {number} was sent with other content; a round has one row"
                )
            return held.message
        if self._sent.halted:
            raise LedgerMismatch(self._sent.halted)
        if self._sent.stopped:
            raise PrivacyError(f"epoch {self._epoch.number} is closed here, so no row is sent in it any more")
        if number <= self.last:
            raise LedgerMismatch(f"rounds must go upwards: {self.last} was sent, got {number}")
        self._agreement.require_begun()
        require(0 <= opened <= self.last, "opened", f"must be 0 to {self.last}, the last sent", opened)
        message = self._message(number, row, place, opened)
        first = max(opened, self._sent.first)
        recorded = msgspec.msgpack.encode(_Recorded(content, message))
        superseded = dict.fromkeys(range(self._sent.first, first))
        digests = (*self._before(number), digest(message))
        self._write(Sent(digests, first), {**superseded, number: recorded})
        return message

    def _before(self, number: int) -> tuple[bytes | None, ...]:
        """The digests of all rounds before this one."""
        return self._sent.digests + (None,) * (number - 1 - self.last)

    def _message(self, number: int, row: Integers, place: bytes, opened: int) -> bytes:
        epoch, name = self._epoch, self._name
        secret = typed("row", self._random(KEY_BYTES), place, to_bytes(as_ring(row)))
        seeds = [derive(secret, epoch.label("seed", number, name, opener)) for opener in epoch.openers][:-1]
        shares = tuple(
            seal(
                public,
                share,
                epoch.label("share", number, name, opener),
                derive(secret, epoch.label("ephemeral", number, name, opener)),
            )
            for (opener, public), share in zip(epoch.openers.items(), split(row, seeds), strict=True)
        )
        earlier = self._before(number)[max(opened, 1) - 1 :]
        return sign(Row(epoch.digest, name, number, earlier, shares), self._key)

    def messages(self, opened: int) -> list[bytes]:
        """The recorded rows from round `opened` on, for sending them again."""
        rows = [self._recorded(number) for number in range(max(opened, self._sent.first), self.last + 1)]
        return [row.message for row in rows if row is not None]

    def stop(self) -> None:
        """Make no new rows in this epoch."""
        if not self._sent.stopped:
            self._write(msgspec.structs.replace(self._sent, stopped=True))

    def compare(self, number: int, seen: bytes) -> None:
        """Compare the digest of a row that others hold under this member's name with the recorded one."""
        known = self._sent.digests[number - 1] if number <= self.last else None
        if seen != known:
            if not self._sent.halted:
                text = (
                    f"another row of round {number} was sent with the key of {self._name!r}: this member was "
                    f"restored from a backup or runs twice, and {CANNOT_CONTINUE}"
                )
                self._write(msgspec.structs.replace(self._sent, halted=text))
            raise LedgerMismatch(self._sent.halted)

    def _recorded(self, number: int) -> _Recorded | None:
        held = self._stores.row(self._epoch.digest, number)
        return None if held is None else msgspec.msgpack.decode(held, type=_Recorded)

    def _write(self, sent: Sent, rows: Mapping[int, bytes | None] = MappingProxyType({})) -> None:
        try:
            self._stores.send(self._epoch.digest, sent, rows)
        finally:  # a write that failed may have been made
            self._sent = self._stores.sent(self._epoch.digest)
