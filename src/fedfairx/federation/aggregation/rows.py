"""A member's row as its openers get it, and an opener's partial sum of all members' rows.

Every row lists the digests of the sender's earlier rows. An opener compares the list with what it opened, so
it notices a sender that was restored from a backup, or runs twice, and mixes two histories of rows.

The seeds of shares and the ephemeral keys are derived from fresh random bytes, the ledger's place and the
row. Of two machines with the same random numbers, each has other seeds as soon as its row is another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedfairx.errors import LedgerMismatch, MessageRefused, require
from fedfairx.federation.aggregation.epoch import Epoch, typed
from fedfairx.federation.aggregation.messages import (
    Partial,
    RowMessage,
    digest,
    read,
    row_and_share,
    rows_digest,
    share_digest,
    sign,
)
from fedfairx.federation.aggregation.records import Opened
from fedfairx.federation.aggregation.shares import (
    Integers,
    Ring,
    add,
    as_ring,
    derive,
    numbers_of,
    seal,
    sealed_bytes,
    split,
    to_bytes,
    unseal,
)
from fedfairx.federation.roster.signing_keys import SigningKey

#: What is left for a member that has lost its record of what it sent.
CANNOT_CONTINUE = (
    "it can't continue under its name: ask the convener to remove it and to add it under a new name, with a "
    "new key and an empty database"
)


@dataclass(frozen=True)
class MadeRow:
    """The row of a round: the signed message, and the encrypted share of each opener."""

    signed: bytes
    shares: Mapping[str, bytes]


def make_row(
    epoch: Epoch,
    name: str,
    key: SigningKey,
    number: int,
    values: Integers,
    *,
    earlier: tuple[bytes | None, ...],
    place: bytes,
    random: bytes,
) -> MadeRow:
    """The row of round `number` with these values.

    earlier: digests of the rows of the rounds before, from the last opened one on.
    place: the ledger's place of the leaf that the row ends with.
    random: 32 fresh random bytes.
    """
    fits = values.dtype == np.int64 and values.shape == (epoch.entries,)
    shape = f"{values.dtype}, {values.shape}"
    require(fits, "values", f"must be {epoch.entries} integers of 64 bits", shape)
    require(1 <= number <= epoch.rounds, "number", f"must be 1 to {epoch.rounds}", number)
    secret = typed("row", random, place, to_bytes(as_ring(values)))
    seeds = [derive(secret, epoch.label("seed", number, name, opener)) for opener in epoch.openers][:-1]
    shares = {
        opener: seal(
            public,
            share,
            epoch.label("share", number, name, opener),
            derive(secret, epoch.label("ephemeral", number, name, opener)),
        )
        for (opener, public), share in zip(epoch.openers.items(), split(values, seeds), strict=True)
    }
    digests = tuple(share_digest(each) for each in shares.values())
    return MadeRow(
        sign(RowMessage(epoch.digest, name, number, earlier, digests, epoch.federation), key), shares
    )


def read_row(epoch: Epoch, opener: str, name: str, message: bytes) -> tuple[RowMessage, bytes]:
    """The row of `name` in a message to `opener`, verified, and its digest."""
    signed, share = row_and_share(message)
    row = read(signed, RowMessage, epoch)
    if row.name != name:
        raise MessageRefused(f"the row under the name {name!r} is another member's", reason="sender")
    place = [*epoch.openers].index(opener)
    size = sealed_bytes(epoch.entries, last=epoch.is_last(opener))
    if len(share) != size or share_digest(share) != row.shares[place]:
        raise MessageRefused(f"our share in the row of {name!r} is not the one it has signed", reason="share")
    return row, digest(signed)


def open_share(
    epoch: Epoch, opener: str, private: bytes, number: int, name: str, message: bytes, opened: Opened | None
) -> Ring:
    """Our share of a member's row of a round, after all checks of the row; `opened` is our last round."""
    row, _ = read_row(epoch, opener, name, message)
    if row.number != number:
        text = f"the row of {name!r} must be of round {number}, got {row.number}"
        raise MessageRefused(text, reason="round")
    if opened is not None and not row.lists(opened.number, opened.rows[name]):
        text = (
            f"the row of {name!r} does not list its row of round {opened.number} that was opened: it was "
            f"restored from a backup or runs twice, and {CANNOT_CONTINUE}"
        )
        raise MessageRefused(text, reason="restored")
    _, share = row_and_share(message)
    try:
        numbers = unseal(private, share, epoch.label("share", number, name, opener))
        return numbers_of(numbers, epoch.entries, last=epoch.is_last(opener))
    except MessageRefused:
        raise MessageRefused(f"our share in the row of {name!r} can't be decrypted", reason="share") from None


def open_round(
    epoch: Epoch,
    opener: str,
    key: SigningKey,
    private: bytes,
    number: int,
    messages: Mapping[str, bytes],
    opened: Opened | None,
) -> Opened:
    """The partial of a round over one row of every member, later than the last `opened` one.

    `MessageRefused` if a row can't be taken (`open_share` says which).
    """
    if opened is not None and number <= opened.number:
        raise LedgerMismatch(f"a round is opened once, and {opened.number} was opened; got round {number}")
    if {*messages} != {*epoch.members}:
        wrong = sorted({*messages} ^ {*epoch.members})
        text = f"rows must be those of all members of the epoch, got {', '.join(wrong)} wrong"
        raise MessageRefused(text, reason="members")
    shares = [
        open_share(epoch, opener, private, number, name, messages[name], opened) for name in epoch.members
    ]
    rows = {name: read_row(epoch, opener, name, messages[name])[1] for name in epoch.members}
    digests = tuple(rows.values())
    partial = Partial(
        epoch.digest,
        opener,
        number,
        rows_digest(digests),
        to_bytes(add(shares, epoch.entries)),
        digests if epoch.is_first(opener) else (),
    )
    return Opened(epoch.digest, number, rows, sign(partial, key))
