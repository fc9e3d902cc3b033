"""One release of an agent's statistics, and its bytes. What makes releases is a `NoCopy`."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from fedfairx.errors import MessageRefused, PrivacyError, require
from fedfairx.util.arrays import Array

_MAGIC, _NAMED = b"FFXR\x01", b"FFXR\x02"  # the latter with tallies of names
_HEADER = struct.Struct("<5sQQ32s")
_REFUSED = "these bytes are not a release of this version"
_SIZES = struct.Struct("<II")  # of the statistics in numbers, and of the names in bytes


@dataclass(frozen=True, eq=False)
class Release:
    """Cumulative, privatized statistics after `number` leaves.

    `count` is the number of observations inside. It is public, and so is the time of each of them: if the
    delay of a reward depends on its value, that value leaks.
    `mechanism` is the digest of the mechanism that made it. `tallies` are the sums of each name's own records
    (`core.own_record`), of agents whose releases are exact and who take each other for alike.

    >>> from fedfairx.privacy import NonPrivateSums
    >>> release = NonPrivateSums(2).release()
    >>> Release.from_bytes(release.to_bytes()).number
    1

    Guarantees:
    - `packed` can't be written to.
    - `from_bytes(to_bytes())` is the same release, bit for bit; bytes that aren't a release are refused.
    """

    number: int
    packed: Array
    count: int
    mechanism: str
    tallies: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.packed.flags.writeable = False
        for tally in self.tallies.values():
            tally.flags.writeable = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Release) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    @cached_property
    def largest(self) -> float:
        """Size of its largest number; NaN if one of them is NaN."""
        return float(np.abs(np.concatenate([self.packed, *self.tallies.values()])).max(initial=0.0))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of its bytes."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """Header and little-endian float64 statistics; then sizes, the names as JSON, and their tallies."""
        head = self.number, self.count, bytes.fromhex(self.mechanism)
        packed = self.packed.astype("<f8").tobytes()
        if not self.tallies:
            return _HEADER.pack(_MAGIC, *head) + packed
        names = json.dumps(list(self.tallies)).encode()
        tallies = np.concatenate(list(self.tallies.values())).astype("<f8").tobytes()
        sizes = _SIZES.pack(self.packed.size, len(names))
        return b"".join((_HEADER.pack(_NAMED, *head), sizes, packed, tallies, names))

    @classmethod
    def from_bytes(cls, message: bytes) -> Release:
        """Read the release that `to_bytes` wrote."""
        body = len(message) - _HEADER.size
        if message.startswith(_NAMED) and body > _SIZES.size:
            return cls._named(message)
        if body <= 0 or body % 8 or not message.startswith(_MAGIC):
            raise MessageRefused(_REFUSED)
        _, number, count, digest = _HEADER.unpack_from(message)
        packed = np.frombuffer(message, dtype="<f8", offset=_HEADER.size).astype(np.float64)
        return cls(number, packed, count, digest.hex())

    @classmethod
    def _named(cls, message: bytes) -> Release:
        """Read a release with tallies."""
        _, number, count, digest = _HEADER.unpack_from(message)
        size, length = _SIZES.unpack_from(message, _HEADER.size)
        start, end = _HEADER.size + _SIZES.size, len(message) - length
        if length < 2 or end - start < 8 * size or (end - start) % 8:
            raise MessageRefused(_REFUSED)
        try:
            names = json.loads(message[end:])
        except (ValueError, RecursionError):
            raise MessageRefused(_REFUSED) from None
        numbers = np.frombuffer(message[start:end], dtype="<f8").astype(np.float64)
        sound = isinstance(names, list) and all(isinstance(name, str) and name for name in names)
        if not sound or len(set(names)) != len(names) or not names or (numbers.size - size) % len(names):
            raise MessageRefused(_REFUSED)
        rows = numbers[size:].reshape(len(names), -1)
        tallies = {name: row.copy() for name, row in zip(names, rows, strict=True)}
        return cls(number, numbers[:size].copy(), count, digest.hex(), tallies)


def total_of(rows: Sequence[Release]) -> Release:
    """The sum of all members' rows of one round, exact on their grid (`mechanisms.noise_share`)."""
    require(len(rows) > 0, "rows", "must be at least one", 0)
    number, mechanism = rows[0].number, rows[0].mechanism
    alike = all((row.number, row.mechanism) == (number, mechanism) for row in rows)
    require(alike, "rows", "must be of one round and one mechanism", [row.number for row in rows])
    packed = np.sum([row.packed for row in rows], axis=0)
    return Release(number, packed, sum(row.count for row in rows), mechanism)


def leaf_digest(leaf: Array) -> str:
    """SHA-256 of a leaf's exact sums: it identifies the content of a release and stays with the owner."""
    return hashlib.sha256(leaf.astype("<f8").tobytes()).hexdigest()


class NoCopy:
    """Base class that refuses `copy`, `deepcopy` and `pickle`, also inside a copied container.

    Guarantees:
    - There is never a second copy, which would make a second release of the same number.
    """

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise PrivacyError(
            f"a {type(self).__name__} can't be copied or pickled: two copies would make two messages of one "
            "number; Agent.open keeps an agent and its ledger in one place"
        )
