"""Envelopes: a release with its sender, federation and terms, signed.

    "FFXE", version   5 bytes
    federation        16 bytes: its id
    terms             32 bytes: SHA-256 of what the members agreed on
    dimension         4 bytes, little-endian
    agent             1 byte of length, and its name
    release           `Release.to_bytes`: number, count, mechanism hash, and the statistics (upper triangle,
                      then moment) as little-endian float64
    signature         64 bytes: Ed25519 over a label and all before it, by the agent's key

There is one way to write an envelope: every byte is signed, so that none can be changed, and its length
follows from the name and the dimension.

A sign of life is a signed time. It is renewed at fixed intervals, so it says nothing about records:

    "FFXL", version   5 bytes
    federation        16 bytes
    time              8 bytes, little-endian: seconds since 1970 by the sender's clock
    agent             its name
    signature         64 bytes: Ed25519 over a label and all before it, by the agent's key
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Protocol

from fedfairx.errors import MessageRefused
from fedfairx.federation.roster.limits import ReleaseLimits
from fedfairx.federation.roster.roster import Roster
from fedfairx.federation.roster.signing_keys import SIGNATURE_BYTES, SigningKey, signed_by
from fedfairx.privacy import Release

_MAGIC = b"FFXE\x01"
_HEADER = struct.Struct("<5s16s32sIB")
_LABEL = b"fedfairx envelope 1\n"  # so that a signature made for another purpose is not valid here
_ALIVE = struct.Struct("<5s16sQ")
_ALIVE_MAGIC = b"FFXL\x01"
_ALIVE_LABEL = b"fedfairx sign of life 1\n"


@dataclass(frozen=True)
class Envelope:
    """The fields of an envelope, not yet verified."""

    federation: str
    terms: str
    dimension: int
    agent: str
    release: Release
    body: bytes
    signature: bytes

    @classmethod
    def parse(cls, message: bytes) -> Envelope:
        """Parse the bytes of an envelope; `SignedCodec.open` verifies it."""
        if len(message) < _HEADER.size + SIGNATURE_BYTES or not message.startswith(_MAGIC):
            raise MessageRefused("the message is not an envelope of this version")
        _, federation, terms, dimension, length = _HEADER.unpack_from(message)
        body, signature = message[:-SIGNATURE_BYTES], message[-SIGNATURE_BYTES:]
        name, content = body[_HEADER.size : _HEADER.size + length], body[_HEADER.size + length :]
        try:
            agent = name.decode("ascii")
        except UnicodeDecodeError:
            raise MessageRefused("the sender's name in an envelope must be ASCII") from None
        return cls(
            federation.hex(), terms.hex(), dimension, agent, Release.from_bytes(content), body, signature
        )


class SignedCodec:
    """Seal and verify the envelopes of one member, by a roster and the member's key.

    Guarantees:
    - What `open` returns was signed by the roster's key of that name, byte by byte, in this federation and
      under these terms. Whether it can be taken is for `Agent.accepted` to say, with these `limits`.
    - Everything else is a `MessageRefused` with its reason, and changes nothing.
    """

    def __init__(self, roster: Roster, name: str, key: SigningKey) -> None:
        roster.require_key(name, key)
        self.roster = roster
        self.name = name
        self._key = key
        terms = roster.terms  # computed once: it is used for each message
        self._agreed, self.limits = terms.digest, terms.limits

    def follow(self, roster: Roster, key: SigningKey | None = None) -> SignedCodec:
        """The codec for a later version of the roster, with the member's new key if it has one.

        An earlier version is refused, and so is another federation's or one with other terms.
        """
        roster.require_follows(self.roster)
        return SignedCodec(roster, self.name, key or self._key)

    def close(self, release: Release) -> bytes:
        """Seal a release of this member."""
        roster, name = self.roster, self.name.encode("ascii")
        header = _HEADER.pack(
            _MAGIC,
            bytes.fromhex(roster.federation),
            bytes.fromhex(roster.terms.digest),
            roster.terms.dimension,
            len(name),
        )
        body = header + name + release.to_bytes()
        return body + self._key.sign(_LABEL + body)

    def open(self, name: str, message: bytes) -> Release:
        """The release of `name` in a message."""
        envelope = Envelope.parse(message)
        terms = self.roster.terms
        self._require_federation(name, envelope.federation)
        if envelope.terms != self._agreed:
            raise MessageRefused(f"message of {name!r} was made under another roster's terms", reason="terms")
        self._require_signed(name, envelope.agent, _LABEL + envelope.body, envelope.signature)
        if envelope.dimension != terms.dimension:
            raise MessageRefused(
                f"message of {name!r} must have dimension {terms.dimension}, got {envelope.dimension}",
                reason="dimension",
            )
        return envelope.release

    def close_sign_of_life(self, moment: float) -> bytes:
        """Sign a time, in seconds since 1970."""
        body = _ALIVE.pack(_ALIVE_MAGIC, bytes.fromhex(self.roster.federation), int(moment))
        body += self.name.encode("ascii")
        return body + self._key.sign(_ALIVE_LABEL + body)

    def open_sign_of_life(self, name: str, message: bytes) -> int:
        """The time that `name` has signed."""
        body, signature = message[:-SIGNATURE_BYTES], message[-SIGNATURE_BYTES:]
        if len(body) < _ALIVE.size or not body.startswith(_ALIVE_MAGIC):
            raise MessageRefused("the message is not a sign of life of this version")
        _, federation, moment = _ALIVE.unpack_from(body)
        self._require_federation(name, federation.hex())
        agent = body[_ALIVE.size :].decode("ascii", "replace")
        self._require_signed(name, agent, _ALIVE_LABEL + body, signature)
        return int(moment)

    def _require_federation(self, name: str, federation: str) -> None:
        if federation != self.roster.federation:
            raise MessageRefused(f"message of {name!r} is of another federation", reason="federation")

    def _require_signed(self, name: str, agent: str, text: bytes, signature: bytes) -> None:
        if agent != name:
            raise MessageRefused(f"message under the name {name!r} is another agent's", reason="sender")
        public = self.roster.members.get(name)
        if public is None:
            raise MessageRefused(f"sender {name!r} is not in the roster", reason="unknown")
        if not signed_by(public, text, signature):
            raise MessageRefused(f"message of {name!r} is not signed by its key", reason="signature")


class Codec(Protocol):
    """Conversion of releases to messages, and verification of received ones (`SignedCodec`)."""

    @property
    def roster(self) -> Roster | None:
        """Members and terms; None among agents of one process."""
        ...

    @property
    def limits(self) -> ReleaseLimits | None:
        """What a release of a member can hold; None among agents of one process."""
        ...

    def close(self, release: Release) -> bytes: ...

    def open(self, name: str, message: bytes) -> Release:
        """The release in a message of `name`, or `MessageRefused`."""
        ...


class PlainCodec:
    """Unsigned bytes, for agents of one process, which trust each other."""

    roster: None = None
    limits: None = None

    def __init__(self) -> None:
        self._opened: dict[str, tuple[bytes, Release]] = {}  # all agents share one copy of a release

    def close(self, release: Release) -> bytes:
        return release.to_bytes()

    def open(self, name: str, message: bytes) -> Release:
        before = self._opened.get(name)
        if before is None or before[0] is not message:
            before = self._opened[name] = message, Release.from_bytes(message)
        return before[1]
