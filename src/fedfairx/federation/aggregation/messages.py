"""The five signed messages. Each is a tagged array in MessagePack, followed by an Ed25519 signature.

    opener key    an opener's X25519 key of an epoch
    acceptance    a member has accepted an epoch and sends nothing more in earlier ones
    row           a member's row of a round, as one encrypted share for each opener
    partial       an opener's sum of its shares of all members' rows of a round
    closing       an opener's last partial of an epoch, after which it opens nothing more in it

The signature covers a label and all bytes before it. There is one way to write a message: one that would be
written otherwise is refused. Its digest is that of the signed bytes.
"""

from __future__ import annotations

import hashlib
from typing import TypeVar

import msgspec

from fedfairx.errors import MessageRefused
from fedfairx.federation.aggregation.epoch import DIGEST_BYTES, Epoch
from fedfairx.federation.aggregation.shares import sealed_bytes
from fedfairx.federation.roster.signing_keys import SIGNATURE_BYTES, SigningKey, signed_by

_LABEL = b"fedfairx aggregation message 1\n"  # a signature made for another purpose is not valid here
_KEPT = 2  # rounds of messages that are not verified again


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A message without its signature. `epoch` is the epoch's digest, `name` the sender's name."""

    epoch: bytes
    name: str


class OpenerKey(Message, frozen=True, tag="opener key"):
    """`epoch` is a digest of the federation and the epoch's number: without keys there is no `Epoch` yet."""

    key: bytes


class Acceptance(Message, frozen=True, tag="acceptance"):
    pass


class Row(Message, frozen=True, tag="row"):
    """`earlier` has the digests of the sender's rows of the rounds before, up to `number` - 1.

    It goes back to the last opened round or further. None stands for a round in which the sender has sent
    nothing, and in which it never will.
    """

    number: int
    earlier: tuple[bytes | None, ...]
    shares: tuple[bytes, ...]

    def lists(self, number: int, digest: bytes) -> bool:
        """Whether the sender says that its row of round `number` had this digest."""
        place = number - self.number
        return -len(self.earlier) <= place < 0 and self.earlier[place] == digest


class Partial(Message, frozen=True, tag="partial"):
    """`rows` has the digests of all members' rows, in the order of their names."""

    number: int
    rows: tuple[bytes, ...]
    total: bytes


class Closing(Message, frozen=True, tag="closing"):
    """`partial` is the opener's last partial as it was signed, empty if there is none.

    `complete` has the openers' partials of the last total that this opener knows, if there is one.
    """

    partial: bytes
    complete: tuple[bytes, ...]


AnyMessage = OpenerKey | Acceptance | Row | Partial | Closing
Kind = TypeVar("Kind", OpenerKey, Acceptance, Row, Partial, Closing)
InEpoch = TypeVar("InEpoch", Row, Partial, Closing)
_DECODER: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)


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


def verified(signed: bytes, kind: type[Kind], *, epoch: bytes, name: str, public: str) -> Kind:
    """The message of `name` in these bytes, signed by its key for this epoch, or `MessageRefused`."""
    message = parse(signed)
    if not isinstance(message, kind):
        raise MessageRefused(f"the message of {name!r} must be of kind {kind.__name__}", reason="kind")
    if message.epoch != epoch:
        raise MessageRefused(f"the message of {name!r} is of another epoch or roster", reason="epoch")
    if message.name != name:
        raise MessageRefused(f"the message under the name {name!r} is another member's", reason="sender")
    if not signed_by(public, _LABEL + signed[:-SIGNATURE_BYTES], signed[-SIGNATURE_BYTES:]):
        raise MessageRefused(f"the message of {name!r} is not signed by its key", reason="signature")
    return message


def read(signed: bytes, kind: type[InEpoch], epoch: Epoch) -> InEpoch:
    """The row, partial or closing of a member of the epoch, verified, with all its lengths checked.

    The same bytes are verified once, as long as they are among the latest.
    """
    known = epoch.verified.get(signed)
    if isinstance(known, kind):
        return known
    name = parse(signed).name
    if name not in epoch.members:
        raise MessageRefused("the sender of a message is not in the roster", reason="unknown")
    message = verified(signed, kind, epoch=epoch.digest, name=name, public=epoch.members[name])
    if not isinstance(message, Row) and name not in epoch.openers:
        raise MessageRefused(f"{name!r} is not an opener of this epoch", reason="opener")
    if not isinstance(message, Closing) and not 1 <= message.number <= epoch.rounds:
        raise MessageRefused(f"the message of {name!r} must be of round 1 to {epoch.rounds}", reason="round")
    if not _fits(message, epoch):
        raise MessageRefused(f"the message of {name!r} has parts of other lengths than the epoch's")
    epoch.verified[signed] = message
    if len(epoch.verified) > _KEPT * (len(epoch.members) + len(epoch.openers)):
        del epoch.verified[next(iter(epoch.verified))]
    return message


def _fits(message: Row | Partial | Closing, epoch: Epoch) -> bool:
    """Whether the parts have the epoch's lengths."""
    if isinstance(message, Row):
        sizes = [sealed_bytes(epoch.entries, last=epoch.is_last(name)) for name in epoch.openers]
        known = all(each is None or len(each) == DIGEST_BYTES for each in message.earlier)
        return known and len(message.earlier) < message.number and [*map(len, message.shares)] == sizes
    if isinstance(message, Partial):
        rows = len(message.rows) == len(epoch.members) and {*map(len, message.rows)} == {DIGEST_BYTES}
        return rows and len(message.total) == 8 * epoch.entries
    return len(message.complete) in (0, len(epoch.openers))
