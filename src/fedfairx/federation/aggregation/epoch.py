"""An epoch: the members, openers and keys of one version of the roster, which all members accept.

`Epoch.digest` covers all of it, and nothing of another epoch. Every member signs this digest before anybody
sends, so two members that were told different things refuse each other before anything can be learnt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from fedfairx.core.statistics import packed_size
from fedfairx.errors import InvalidInput, require
from fedfairx.federation.aggregation.shares import require_key
from fedfairx.federation.roster.roster import Roster
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.federation.transport.protocol import require_name

DIGEST_BYTES = 32


def typed(kind: str, *parts: object) -> bytes:
    """The parts as one text that no other kind and no other parts have.

    MessagePack writes the type and the length of every part before it.
    """
    return msgspec.msgpack.encode(("fedfairx aggregation 2", kind, *parts))


def digest_of(kind: str, *parts: object) -> bytes:
    """SHA-256 of the parts."""
    return hashlib.sha256(typed(kind, *parts)).digest()


@dataclass(frozen=True)
class Epoch:
    """What the members of an epoch agree on.

    federation, roster: the federation's id and the digest of the roster that the convener signed.
    number: the roster's version; a later epoch has a larger one.
    members: Ed25519 keys, by name.
    openers: X25519 keys of this epoch, by name. One more than the number of members that may collude.
    honest: number of members whose noise must be in every total. It stays when members join.
    entries: number of integers in a row.
    rounds: number of rounds. Members send row k at the public time of round k.
    """

    federation: str
    roster: str
    number: int
    members: Mapping[str, str]
    openers: Mapping[str, bytes]
    honest: int
    entries: int
    rounds: int

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
        )

    def label(self, purpose: str, number: int, sender: str, opener: str) -> bytes:
        """The label of a key: its purpose, and the one share that it is for."""
        where = self.federation, self.roster, self.number, self.digest
        return typed(purpose, *where, number, sender, opener)

    def is_first(self, opener: str) -> bool:
        """Whether this opener's partials list the digests of all rows."""
        return opener == next(iter(self.openers))

    def is_last(self, opener: str) -> bool:
        """Whether this opener gets what is left of a row, and not a seed."""
        return opener == [*self.openers][-1]

    def unconfirmed(self, confirmed: Mapping[str, str]) -> str:
        """What a member's operator still has to confirm before it takes part; empty if nothing.

        confirmed: the keys of the members that were confirmed, by name. A member whose key has changed since
            is not confirmed.
        """
        names = {name for name, key in self.members.items() if confirmed.get(name) == key}
        openers = [name for name in self.openers if name not in names]
        if openers:
            return (
                "openers must be confirmed by this member's operator, with the keys that they have, got "
                f"{', '.join(openers)} unconfirmed"
            )
        least = self.honest + self.colluding
        if len(names) < least:
            return (
                f"members confirmed by this member's operator, with the keys that they have, must be at "
                f"least {least} ({self.honest} honest, {self.colluding} colluding), got {len(names)} of "
                f"{len(self.members)}"
            )
        return ""


@dataclass(frozen=True)
class Draft:
    """The epoch of a roster before the keys of its openers are known; `rounds` are those of the roster."""

    federation: str
    roster: str
    number: int
    members: Mapping[str, str]
    openers: tuple[str, ...]
    honest: int
    entries: int
    rounds: Rounds

    @classmethod
    def of(cls, roster: Roster) -> Draft:
        terms, rounds = roster.terms, roster.rounds
        point = terms.options.centring
        assert terms.share is not None
        assert rounds is not None
        return cls(
            federation=roster.federation,
            roster=roster.digest,
            number=roster.version,
            members=dict(roster.members),
            openers=tuple(sorted(roster.openers)),
            honest=terms.share.honest,
            entries=packed_size(terms.columns + (point is not None and not point.intercept)) + 1,
            rounds=rounds,
        )

    def epoch(self, keys: Mapping[str, bytes]) -> Epoch:
        """The epoch with these X25519 keys of all openers."""
        rule = f"must be those of the roster's openers ({', '.join(self.openers)})"
        require({*keys} == {*self.openers}, "keys", rule, sorted(keys))
        return Epoch(
            federation=self.federation,
            roster=self.roster,
            number=self.number,
            members=self.members,
            openers=keys,
            honest=self.honest,
            entries=self.entries,
            rounds=self.rounds.count,
        )
