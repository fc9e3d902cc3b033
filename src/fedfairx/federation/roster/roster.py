"""The roster: members, their public keys and the terms, in one file that the convener signs.

    {"format": "fedfairx-roster", "schema": 1, "roster": {…}, "signature": Ed25519 over the canonical roster}

The federation's id is a hash of the convener's key and a nonce, so the id alone, which members tell each
other when they join, says which key must have signed a roster. The key signs nothing else and stays offline.

Members join, leave and change keys by a new version under the same terms, signed by the same key. A member
accepts only versions later than its own, so that an old one can't restore a revoked key. Other terms make
another federation. With secure aggregation each version is an epoch, with rounds of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from fedfairx.agent.settings import read_value
from fedfairx.errors import InvalidInput, StateError, require
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.federation.roster.signing_keys import SMALL_ORDER, SigningKey, signed_by
from fedfairx.federation.roster.terms import Terms
from fedfairx.federation.transport.protocol import require_name
from fedfairx.util.canonical_json import canonical
from fedfairx.util.files import write_atomically
from fedfairx.util.foreign_files import read_file

FORMAT = "fedfairx-roster"
SCHEMA = 1
_LABEL = b"fedfairx roster 1\n"


@dataclass(frozen=True, eq=False)
class Roster:
    """A verified version of the roster: construction fails if the signature is wrong."""

    federation: str  # 16 bytes as hexadecimal digits
    convener: str  # public key
    nonce: str
    version: int
    terms: Terms
    members: Mapping[str, str]  # public keys, by name
    signature: str
    openers: tuple[str, ...] = ()  # members that add up rows, if sums are aggregated securely
    begin: int | None = None  # of its rounds, after the first version; in seconds since 1970

    def __post_init__(self) -> None:
        require(self.version >= 1, "version", "must be >= 1", self.version)
        for name, key in self.members.items():
            require_name(name)
            rule = f"of {name!r} must be 32 bytes in hexadecimal"
            require(_is_hex(key, 32), "key", rule, type(key).__name__)
            rule = f"of {name!r} must not be of small order, under which anybody can sign"
            require(key not in SMALL_ORDER, "key", rule, key, "`fedfairx federate key` makes one")
        keys = list(self.members.values())
        require(len(set(keys)) == len(keys), "keys", "must differ from member to member", len(keys))
        require(bool(self.members), "members", "must be at least one", 0)
        fits = {*self.openers} <= {*self.members} and len({*self.openers}) == len(self.openers)
        require(fits, "openers", "must be members, each named once", ", ".join(self.openers))
        _require_secure(self)
        if self.federation != federation_id(self.convener, self.nonce):
            raise StateError("the roster's federation id is not that of its convener's key")
        if self.convener in SMALL_ORDER:
            raise StateError("the convener's key must not be of small order: create another federation")
        if not _is_hex(self.signature, 64) or not signed_by(
            self.convener, _LABEL + self._canonical, bytes.fromhex(self.signature)
        ):
            raise StateError("the roster's signature must be its convener's: the file was changed")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Roster):
            return False
        return (self._canonical, self.signature) == (other._canonical, other.signature)

    def __hash__(self) -> int:
        return hash(self.signature)

    def _parts(self) -> dict[str, Any]:
        """All fields but the signature."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "signature"}

    def _body(self) -> dict[str, Any]:
        return _plain(self._parts())

    @cached_property
    def _canonical(self) -> bytes:
        """The signed bytes, without their label."""
        return canonical(self._body())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the signed bytes."""
        return hashlib.sha256(_LABEL + self._canonical).hexdigest()

    @property
    def rounds(self) -> Rounds | None:
        """With secure aggregation, the rounds of this version: those of the terms, with its own beginning."""
        rounds = self.terms.rounds
        return rounds if rounds is None or self.begin is None else replace(rounds, begin=self.begin)

    def require_key(self, name: str, key: SigningKey) -> None:
        """Refuse a private key that does not match the member's public key."""
        if name not in self.members:
            raise StateError(
                f"{name!r} is not in the roster (version {self.version}), which has "
                f"{', '.join(self.members)}: it may have been removed; ask the convener"
            )
        if self.members[name] != key.public:
            raise StateError(
                f"the key of {name!r} is not the one in the roster (version {self.version}): "
                "one of the two is outdated"
            )

    def amended(
        self,
        key: SigningKey,
        members: Mapping[str, str],
        *,
        openers: Sequence[str] = (),
        begin: int | None = None,
    ) -> Roster:
        """Sign the next version, with these members.

        With secure aggregation it opens an epoch, and keys stay as they are.

        openers: by default the same; the first members take the place of those that leave.
        begin: of the new rounds, in seconds since 1970; by default they begin now.
        """
        if key.public != self.convener:
            raise StateError(
                "this is not the convener's key: nobody else can sign a roster of this federation"
            )
        parts: dict[str, Any] = {"version": self.version + 1, "members": members, "begin": begin}
        if not self.terms.secure:
            return _signed(key, self._parts() | parts | {"openers": tuple(openers) or self.openers})
        changed = [name for name in members if self.members.get(name, members[name]) != members[name]]
        text = "must stay with secure aggregation: remove the member, and add it under a new name"
        require(not changed, "keys", text, ", ".join(changed))
        staying = [name for name in self.openers if name in members]
        if not openers:
            openers = [*staying, *(name for name in members if name not in staying)][: len(self.openers)]
        begin = int(time.time()) if begin is None else begin
        return _signed(key, self._parts() | parts | {"openers": tuple(openers), "begin": begin})

    def require_follows(self, before: Roster) -> None:
        """Refuse to replace `before` by this roster unless it is a later version of the same federation."""
        if self.federation != before.federation:
            raise StateError("this is the roster of another federation")
        if self.terms.digest != before.terms.digest:
            raise StateError(
                "this roster has other terms: members must create a new federation to change them"
            )
        if self.version < before.version or (self.version == before.version and self != before):
            raise StateError(
                f"this roster is version {self.version}, and version {before.version} is in use: "
                "ask the convener for the latest"
            )

    # --- as a file -----------------------------------------------------------------------------------

    def to_json(self) -> str:
        return self._json

    @cached_property
    def _json(self) -> str:
        document = {"format": FORMAT, "schema": SCHEMA, "roster": self._body(), "signature": self.signature}
        return json.dumps(document, indent=1, sort_keys=True) + "\n"

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file atomically. It holds nothing secret."""
        write_atomically(path, self.to_json())

    @classmethod
    def from_json(cls, text: str | bytes, *, terms: Terms | None = None) -> Roster:
        """Parse and verify a roster; `StateError` if it is not valid.

        terms: used as they are if the roster has the same, which saves time.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            raise StateError("the roster is not JSON: damaged or cut short") from None
        stored = read_value(document, _File, "roster file")
        if stored.format != FORMAT or stored.schema != SCHEMA:
            raise StateError(f"the file must have format {FORMAT!r} and schema {SCHEMA}")
        parts = vars(stored.roster)
        try:
            if terms is None or terms._canonical != canonical(parts["terms"]):
                terms = Terms.from_dict(parts["terms"])
            roster = cls(**parts | {"terms": terms}, signature=stored.signature)
        except InvalidInput as error:
            raise StateError(f"the roster can't be used: {error}") from None
        if canonical(document["roster"]) != roster._canonical:
            raise StateError("the roster has fields that this version of fedfairx does not know")
        return roster

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, federation: str | None = None) -> Roster:
        """Read a roster file, which must be of `federation` if that is given."""
        roster = cls.from_json(read_file(path))
        if federation is not None and roster.federation != federation:
            raise StateError(f"{path} is the roster of federation {roster.federation}, not of {federation}")
        return roster


def create_roster(
    key: SigningKey, terms: Terms, members: Mapping[str, str], *, openers: Sequence[str] = ()
) -> Roster:
    """Sign version 1 of a new federation's roster.

    openers: with secure aggregation, the members that open totals, one more than may collude; by default the
        first ones.
    """
    if terms.share is not None and not openers:
        openers = [*members][: terms.share.colluding + 1]
    nonce = secrets.token_hex(16)
    parts = {"federation": federation_id(key.public, nonce), "convener": key.public, "nonce": nonce}
    return _signed(key, parts | {"version": 1, "terms": terms, "members": members, "openers": tuple(openers)})


def _require_secure(roster: Roster) -> None:
    """Refuse numbers of members and openers that the terms of secure aggregation do not allow."""
    share, members, openers = roster.terms.share, len(roster.members), roster.openers
    if share is None:
        require(roster.begin is None, "begin", "is for secure aggregation", roster.begin)
        return
    c, h = share.colluding, share.honest
    why = f"{h} whose noise hides a record in every total, and {c} that may collude"
    if roster.version == 1:
        text = f"must be {share.members}, as in the terms of secure aggregation: {why}"
        require(members == share.members, "members", text, members)
        require(roster.begin is None, "begin", "must be left out of the first version", roster.begin)
    elif members != share.members:
        require(members >= h + c, "members", f"must be at least {h + c}: {why}", members)
        roster.terms.budget(members=members).calibrate()  # refuses totals that are out of range
    if roster.version > 1:
        is_number = isinstance(roster.begin, int) and not isinstance(roster.begin, bool)
        require(is_number, "begin", "must be given with secure aggregation", roster.begin)
        _ = roster.rounds
    text = f"must be {c + 1} members, one more than may collude"
    require(len(openers) == c + 1, "openers", text, ", ".join(openers))


def federation_id(convener: str, nonce: str) -> str:
    """Federation id: 16 bytes of a hash of the convener's key and a nonce."""
    if not (_is_hex(convener, 32) and _is_hex(nonce, 16)):
        raise StateError("the roster's convener and nonce must be 32 and 16 bytes in hexadecimal")
    return hashlib.sha256(b"fedfairx federation\n" + bytes.fromhex(convener + nonce)).hexdigest()[:32]


def _signed(key: SigningKey, parts: dict[str, Any]) -> Roster:
    return Roster(**parts, signature=key.sign(_LABEL + canonical(_plain(parts))).hex())


def _plain(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a roster as the plain values that are signed."""
    plain = {**parts, "terms": parts["terms"]._described, "members": dict(parts["members"])}
    openers, begin = plain.pop("openers"), plain.pop("begin", None)
    extra = {"openers": list(openers)} if openers else {}
    return plain | extra | ({} if begin is None else {"begin": begin})


def _is_hex(text: object, size: int) -> bool:
    try:
        return isinstance(text, str) and len(bytes.fromhex(text)) == size and text == text.lower()
    except ValueError:
        return False


@dataclass(frozen=True)
class _Body:
    """The signed part of a roster's file."""

    federation: str
    convener: str
    nonce: str
    version: int
    terms: dict[str, Any]
    members: dict[str, str]
    openers: tuple[str, ...] = ()
    begin: int | None = None


@dataclass(frozen=True)
class _File:
    format: str
    schema: int
    roster: _Body
    signature: str
