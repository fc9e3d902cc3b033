"""An opener: adds up its shares of all members' rows of a round, each round once.

The privacy of all members rests on one honest opener. It opens a round only for exactly the members of the
epoch, and only rounds later than its last. So nobody can take a member out of a sum, or compare two sums of
one round. Its partial is durable in the member's database and in the vault before anybody sees it. When one
of the two was restored from a backup, the other still knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fedfairx.errors import LedgerMismatch, MessageRefused, PrivacyError
from fedfairx.federation.aggregation.agreement import Agreement
from fedfairx.federation.aggregation.messages import Closing, Partial, Row, digest, parse, read, sign
from fedfairx.federation.aggregation.records import CANNOT_CONTINUE, Opened
from fedfairx.federation.aggregation.settlement import Settlement
from fedfairx.federation.aggregation.shares import Ring, add, numbers_of, public_key_of, to_bytes, unseal
from fedfairx.federation.roster.signing_keys import SigningKey


class Opener:
    """Opens the rounds of one epoch with the key that `opener_key` has put into the vault.

    Guarantees:
    - It signs at most one partial of a round, and each is of a later round than the one before.
    - A partial is the sum over exactly the members of the epoch, one row of the same round of each.
    - All rows of a sender that it opens belong to one history, in which each lists the earlier ones.
    - A partial is durable in two places before it is returned, and is returned again when asked again.
    - After its closing it opens nothing but the last round that the closings name, and this only if all
      later epochs that it has accepted have the settlement of these closings.
    """

    def __init__(self, agreement: Agreement, key: SigningKey) -> None:
        self._agreement, self._epoch, self._name = agreement, agreement.epoch, agreement.name
        self._key, self._stores = key, agreement.stores
        self._held: Opened | None = None

    @property
    def _state(self) -> Opened:
        """What both stores hold. After a crash between the two, what one of them has is written to both."""
        if self._held is None:
            held = self._stores.opened(self._epoch.digest)
            if held != Opened():
                self._stores.open(self._epoch.digest, held)
            self._held = held
        return self._held

    @property
    def last(self) -> int:
        """The last round of which a partial was signed; 0 before the first."""
        return self._state.number

    @property
    def partial(self) -> bytes:
        """The last partial, signed; empty before the first."""
        return self._state.partial

    @property
    def closing(self) -> bytes:
        """The closing, signed; empty while the epoch is open."""
        return self._state.closing

    def open(self, number: int, rows: Mapping[str, bytes]) -> bytes:
        """The signed partial of round `number`, durable. `rows` has every member's signed row, by name.

        `MessageRefused` names the sender whose row can't be taken; then nothing has changed.
        """
        self._held = None
        if self._state.closing:
            raise PrivacyError(f"epoch {self._epoch.number} is closed, so {self._name!r} opens nothing in it")
        self._agreement.require_begun()
        return self._open(number, rows)

    def check(self, number: int, name: str, row: bytes) -> None:
        """Raise `MessageRefused` if this row would be refused as that of `name` in round `number`."""
        self._share(number, name, row, self._private())

    def close(self, complete: Sequence[bytes] = ()) -> bytes:
        """The signed closing, durable. From now on `open` is refused.

        An opener that has lost its vault may also have lost its last round. It can't close, and counts as
        missing.

        complete: the partials of the last total that is known here.
        """
        if not self._state.closing:
            self._private()
            closing = Closing(self._epoch.digest, self._name, self._state.partial, tuple(complete))
            self._write(msgspec.structs.replace(self._state, closing=sign(closing, self._key)))
        return self._state.closing

    def complete(self, settlement: Settlement, rows: Mapping[str, bytes]) -> bytes:
        """The partial of the last round that the closings name, for the rows that they name."""
        accepted = self._stores.accepted(self._epoch.federation)
        ends = {each.settlement for each in accepted if each.number > self._epoch.number}
        if ends != {settlement.digest}:  # after another end, members may have sent these leaves again
            raise PrivacyError(
                f"round {settlement.last} is completed only after an epoch with this settlement was "
                "accepted, and none with another"
            )
        if not settlement.completable:
            raise PrivacyError(f"round {settlement.last} of epoch {self._epoch.number} can't be completed")
        if tuple(digest(rows[name]) for name in self._epoch.members if name in rows) != settlement.rows:
            raise MessageRefused("the rows must be those that the closings name", reason="rows")
        return self._open(settlement.last, rows)

    def forget(self) -> None:
        """Delete the secret key of this epoch, once it is closed and nothing is left to complete."""
        if not self._state.closing:
            raise PrivacyError(f"the key of epoch {self._epoch.number} is needed until the epoch is closed")
        self._stores.keep_secret(self._epoch.federation, self._epoch.number, None)

    def _open(self, number: int, rows: Mapping[str, bytes]) -> bytes:
        if {*rows} != {*self._epoch.members}:
            wrong = sorted({*rows} ^ {*self._epoch.members})
            text = f"rows must be those of all members of the epoch, got {', '.join(wrong)} wrong"
            raise MessageRefused(text, reason="members")
        digests = tuple(digest(rows[name]) for name in self._epoch.members)
        self._held = None
        if number <= self.last:
            held = _partial(self._state.partial)
            if (number, digests) == (held.number, held.rows):
                return self._state.partial
            raise LedgerMismatch(f"a round is opened once, and {self.last} was opened; got round {number}")
        private = self._private()
        total = add(
            (self._share(number, name, rows[name], private) for name in self._epoch.members),
            self._epoch.entries,
        )
        partial = Partial(self._epoch.digest, self._name, number, digests, to_bytes(total))
        self._write(Opened(number, sign(partial, self._key), self._state.closing))
        return self._state.partial

    def _private(self) -> bytes:
        private = self._stores.secret(self._epoch.federation, self._epoch.number)
        if private is None or public_key_of(private) != self._epoch.openers[self._name]:
            raise PrivacyError(no_key(self._name, self._epoch.number))
        return private

    def _share(self, number: int, name: str, signed: bytes, private: bytes) -> Ring:
        """Our share of a member's row, after all checks of the row."""
        epoch, row = self._epoch, read(signed, Row, self._epoch)
        if row.name != name:
            raise MessageRefused(f"the row under the name {name!r} is another member's", reason="sender")
        if row.number != number:
            text = f"the row of {name!r} must be of round {number}, got {row.number}"
            raise MessageRefused(text, reason="round")
        if self.last:
            opened = _partial(self._state.partial).rows[[*epoch.members].index(name)]
            if not row.lists(self.last, opened):
                text = (
                    f"the row of {name!r} does not list its row of round {self.last} that was opened: it was "
                    f"restored from a backup or runs twice, and {CANNOT_CONTINUE}"
                )
                raise MessageRefused(text, reason="restored")
        sealed = row.shares[[*epoch.openers].index(self._name)]
        try:
            share = unseal(private, sealed, epoch.label("share", number, name, self._name))
            return numbers_of(share, epoch.entries, last=epoch.is_last(self._name))
        except MessageRefused:
            text = f"our share in the row of {name!r} can't be decrypted"
            raise MessageRefused(text, reason="share") from None

    def _write(self, opened: Opened) -> None:
        self._held = None
        self._stores.open(self._epoch.digest, opened)
        self._held = opened


def no_key(name: str, epoch: int) -> str:
    """The error of an opener that has lost its vault."""
    return (
        f"the vault of {name!r} has no key of epoch {epoch}, so it can't open anything in it: ask the "
        "convener for a later roster"
    )


def _partial(signed: bytes) -> Partial:
    """A partial of our own."""
    partial = parse(signed)
    assert isinstance(partial, Partial)
    return partial
