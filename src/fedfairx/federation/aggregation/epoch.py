"""An epoch: the members, openers and keys between two changes of the roster, which all members accept.

The roster's digest alone does not say who opens with which key, nor which rounds of the last epoch count as
shown. `Epoch.digest` covers all of it. Every member signs this digest before anybody sends, so two members
that were told different things refuse each other before anything can be learnt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from fedfairx.errors import InvalidInput, require
from fedfairx.federation.aggregation.shares import require_key
from fedfairx.federation.transport.protocol import require_name

DIGEST_BYTES = 32


def typed(kind: str, *parts: object) -> bytes:
    """The parts as one text that no other kind and no other parts have.

    MessagePack writes the type and the length of every part before it.
    """
    return msgspec.msgpack.encode(("fedfairx aggregation 1", kind, *parts))


def digest_of(kind: str, *parts: object) -> bytes:
    """SHA-256 of the parts."""
    return hashlib.sha256(typed(kind, *parts)).digest()


@dataclass(frozen=True)
class Epoch:
    """What the members of an epoch agree on.

    federation, roster: the federation's id and the digest of the roster that the convener signed.
    number: of the epoch, for which the roster's version can serve; a later epoch has a larger one.
    members: Ed25519 keys, by name.
    openers: X25519 keys of this epoch, by name. One more than the number of members that may collude.
    honest: number of members whose noise must be in every total. It stays when members join.
    entries: number of integers in a row.
    rounds: number of rounds. Members send row k at the public time of round k.
    settlement: digest of the closings of the epoch before (`Settlement.digest`); empty in the first.
    """

    federation: str
    roster: str
    number: int
    members: Mapping[str, str]
    openers: Mapping[str, bytes]
    honest: int
    entries: int
    rounds: int
    settlement: bytes = b""

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", dict(sorted(self.members.items())))
        object.__setattr__(self, "openers", dict(sorted(self.openers.items())))
        for name in self.members:
            require_name(name)
        for name in ("number", "entries", "rounds"):
            require(getattr(self, name) >= 1, name, "must be >= 1", getattr(self, name))
        require(self.honest >= 2, "honest", "must be >= 2", self.honest)
        require(len(self.openers) >= 2, "openers", "must be at least two members", len(self.openers))
        strangers = [name for name in self.openers if name not in self.members]
        require(not strangers, "openers", "must be members", ", ".join(strangers))
        least = self.honest + self.colluding
        rule = f"must be at least {least}: {self.honest} whose noise hides a record, and {self.colluding}"
        require(len(self.members) >= least, "members", f"{rule} that may collude", len(self.members))
        for key in self.openers.values():
            require_key(key)
        if len(set(self.openers.values())) < len(self.openers):
            raise InvalidInput("openers must have different keys, got the same key twice")

    @property
    def colluding(self) -> int:
        """How many members may collude, with each other and with whoever carries the messages."""
        return len(self.openers) - 1

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of everything in it. All messages carry it."""
        return digest_of(
            "epoch",
            self.federation,
            self.roster,
            self.number,
            tuple(self.members.items()),
            tuple(self.openers.items()),
            self.honest,
            self.entries,
            self.rounds,
            self.settlement,
        )

    @cached_property
    def verified(self) -> dict[bytes, object]:
        """The latest messages that `messages.read` has verified here, by their bytes."""
        return {}

    def label(self, purpose: str, number: int, sender: str, opener: str) -> bytes:
        """The label of a key: its purpose, and the one share that it is for."""
        where = self.federation, self.roster, self.number, self.settlement, self.digest
        return typed(purpose, *where, number, sender, opener)

    def is_last(self, opener: str) -> bool:
        """Whether this opener gets what is left of a row, and not a seed."""
        return opener == [*self.openers][-1]

    def require_follows(self, before: Epoch) -> None:
        """Refuse an epoch that can't come after `before`, whoever has signed its roster."""
        require(self.number > before.number, "number", f"must be > {before.number}", self.number)
        for name in ("federation", "honest", "colluding", "entries"):
            was, now = getattr(before, name), getattr(self, name)
            require(now == was, name, f"must stay {was} in all epochs of a federation", now)
        reused = {*self.openers.values()} & {*before.openers.values()}
        if reused:
            raise InvalidInput("openers must have new keys in a new epoch, got a key of the epoch before")
