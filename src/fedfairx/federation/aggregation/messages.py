"""The five signed messages. Each is a tagged array in MessagePack, followed by an Ed25519 signature.

    opener key    an opener's X25519 key of an epoch
    acceptance    a member has accepted an epoch
    row           a member's row of a round: digests of one encrypted share for each opener
    partial       an opener's sum of its shares of all members' rows of a round
    past          the last totals of earlier epochs that a member learns from

The signature covers a label and all bytes before it. There is one way to write a message: one that would be
written otherwise is refused. Its digest is that of the signed bytes. An opener gets a row with its own share
beside it (`with_share`), and no other share.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TypeVar

import msgspec

from fedfairx.errors import MessageRefused, require
from fedfairx.federation.aggregation.epoch import DIGEST_BYTES, Draft, Epoch, digest_of
from fedfairx.federation.aggregation.shares import KEY_BYTES
from fedfairx.federation.roster.roster import Roster
from fedfairx.federation.roster.signing_keys import SIGNATURE_BYTES, SigningKey, signed_by
from fedfairx.federation.transport.protocol import LARGEST

HEADERS = 4096  # bytes of a message that are left for its other parts and the transport's headers
_LABEL = b"fedfairx aggregation message 2\n"  # a signature made for another purpose is not valid here


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A message without its signature. `epoch` is the epoch's digest, `name` the sender's name."""

    epoch: bytes
    name: str


class OpenerKey(Message, frozen=True, tag="opener key"):
    """`epoch` is `key_place`: without keys there is no `Epoch` yet."""

    key: bytes


class Acceptance(Message, frozen=True, tag="acceptance"):
    pass


class RowMessage(Message, frozen=True, tag="row"):
    """`shares` has the digests of the encrypted shares, in the order of the openers' names.

    `earlier` has the digests of the sender's rows of the rounds before, up to `number` - 1. It goes back to
    the last opened round or further. None stands for a round in which the sender has sent nothing, and in
    which it never will.

    `federation` is in the epoch's digest, too. Here the sender itself can read it, whatever the epoch was.
    """

    number: int
    earlier: tuple[bytes | None, ...]
    shares: tuple[bytes, ...]
    federation: str

    def lists(self, number: int, digest: bytes) -> bool:
        """Whether the sender says that its row of round `number` had this digest."""
        place = number - self.number
        return -len(self.earlier) <= place < 0 and self.earlier[place] == digest


class Partial(Message, frozen=True, tag="partial"):
    """`rows` is the digest of the digests of all members' rows (`rows_digest`).

    `digests` has them, in the order of the members' names, in the partials of the first opener alone: who
    has all partials needs them once.
    """

    number: int
    rows: bytes
    total: bytes
    digests: tuple[bytes, ...] = ()


class PastTotal(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The last total of an epoch: its round, and the integers as little-endian bytes."""

    epoch: bytes
    number: int
    members: int
    round: int
    values: bytes


class Past(Message, frozen=True, tag="past"):
    """`epoch` is `past_place`. The latest epochs come first; the oldest ones only if they fit."""

    totals: tuple[PastTotal, ...]


AnyMessage = OpenerKey | Acceptance | RowMessage | Partial | Past
Kind = TypeVar("Kind", OpenerKey, Acceptance, RowMessage, Partial, Past)
InEpoch = TypeVar("InEpoch", RowMessage, Partial)
_DECODER: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)


def key_place(federation: str, number: int) -> bytes:
    """What stands for the epoch in an opener's key: the federation and the epoch's number."""
    return digest_of("opener key", federation, number)


def past_place(federation: str) -> bytes:
    """What stands for the epoch in a `Past`: the federation."""
    return digest_of("past", federation)


def rows_digest(digests: tuple[bytes, ...]) -> bytes:
    """The digest of the digests of all members' rows of a round."""
    return digest_of("rows", digests)


def sign(message: Message, key: SigningKey) -> bytes:
    """The bytes of a message, signed."""
    body = msgspec.msgpack.encode(message)
    return body + key.sign(_LABEL + body)


def digest(signed: bytes) -> bytes:
    """The digest of a message. The signature is not part of it: a signer could make several."""
    return hashlib.sha256(_LABEL + signed[:-SIGNATURE_BYTES]).digest()


def parse(signed: bytes) -> AnyMessage:
    """The message in these bytes. Nothing is verified yet."""
    body = signed[:-SIGNATURE_BYTES]
    try:
        message = _DECODER.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise MessageRefused("the message is not one of secure aggregation of this version") from None
    if msgspec.msgpack.encode(message) != body:
        raise MessageRefused("the message is not written in the one way that is allowed")
    return message


@lru_cache(1024)  # the same acceptances and keys are read again whenever one of them changes
def _is_signed(public: str, signed: bytes) -> bool:
    return signed_by(public, _LABEL + signed[:-SIGNATURE_BYTES], signed[-SIGNATURE_BYTES:])


def verified(signed: bytes, kind: type[Kind], *, epoch: bytes, name: str, public: str) -> Kind:
    """The message of `name` in these bytes, signed by its key for this epoch, or `MessageRefused`."""
    message = parse(signed)
    if not isinstance(message, kind):
        raise MessageRefused(f"the message of {name!r} must be of kind {kind.__name__}", reason="kind")
    if message.epoch != epoch:
        raise MessageRefused(f"the message of {name!r} is of another epoch or roster", reason="epoch")
    if message.name != name:
        raise MessageRefused(f"the message under the name {name!r} is another member's", reason="sender")
    if not _is_signed(public, signed):
        raise MessageRefused(f"the message of {name!r} is not signed by its key", reason="signature")
    return message


def read(signed: bytes, kind: type[InEpoch], epoch: Epoch) -> InEpoch:
    """The row or partial of a member of the epoch, verified, with all its lengths checked."""
    unverified = parse(signed)
    name = unverified.name
    if unverified.epoch != epoch.digest:
        raise MessageRefused(f"the message of {name!r} is of another epoch or roster", reason="epoch")
    if name not in epoch.members:
        raise MessageRefused("the sender of a message is not in the roster", reason="unknown")
    message = verified(signed, kind, epoch=epoch.digest, name=name, public=epoch.members[name])
    if isinstance(message, Partial) and name not in epoch.openers:
        raise MessageRefused(f"{name!r} is not an opener of this epoch", reason="opener")
    if not 1 <= message.number <= epoch.rounds:
        raise MessageRefused(f"the message of {name!r} must be of round 1 to {epoch.rounds}", reason="round")
    if not _fits(message, epoch):
        raise MessageRefused(f"the message of {name!r} has parts of other lengths than the epoch's")
    return message


def _fits(message: RowMessage | Partial, epoch: Epoch) -> bool:
    """Whether the parts have the epoch's lengths, and a row its federation."""
    if isinstance(message, RowMessage):
        digests = [each for each in message.earlier if each is not None]
        counted = len(message.earlier) < message.number and len(message.shares) == len(epoch.openers)
        here = message.federation == epoch.federation
        return here and counted and all(len(each) == DIGEST_BYTES for each in (*digests, *message.shares))
    if len(message.total) != 8 * epoch.entries:
        return False
    if not epoch.is_first(message.name):
        return message.digests == ()
    all_rows = len(message.digests) == len(epoch.members)
    return all_rows and rows_digest(message.digests) == message.rows


def read_key(signed: bytes, *, federation: str, number: int, name: str, public: str) -> bytes:
    """An opener's X25519 key of an epoch, verified."""
    place = key_place(federation, number)
    message = verified(signed, OpenerKey, epoch=place, name=name, public=public)
    if len(message.key) != KEY_BYTES:
        raise MessageRefused(f"the key of opener {name!r} must be of {KEY_BYTES} bytes")
    return message.key


def require_messages_fit(roster: Roster) -> None:
    """Refuse a roster of secure aggregation whose rows or partials do not fit into a message at a hub."""
    if roster.terms.secure:
        draft = Draft.of(roster)
        digests = 34 * (len(draft.members) + len(draft.openers))
        size = 8 * draft.entries + digests + HEADERS
        text = f"must be so small that a row fits into a message of {LARGEST} bytes at the hub"
        require(size <= LARGEST, "dimension", text, roster.terms.dimension, "choose fewer features")


# --- a row and one share ----------------------------------------------------------------------------------


def share_digest(share: bytes) -> bytes:
    """The digest of an encrypted share."""
    return hashlib.sha256(share).digest()


def with_share(row: bytes, share: bytes) -> bytes:
    """A signed row as one opener gets it, with its encrypted share."""
    return msgspec.msgpack.encode((row, share))


def row_and_share(message: bytes) -> tuple[bytes, bytes]:
    """The signed row and the encrypted share in a message to an opener."""
    try:
        row, share = msgspec.msgpack.decode(message, type=tuple[bytes, bytes])
    except (msgspec.MsgspecError, RecursionError):
        raise MessageRefused("the message is not a row of secure aggregation of this version") from None
    return row, share
