"""What a row says: a decision as it is kept, and the seal by which damage is noticed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from fedfairx.util.arrays import Array, Coordinates

#: What has become of a decision.
STATUSES = ("pending", "rewarded", "withdrawn", "expired")


class DecisionNote(NamedTuple):  # a third of the time that a frozen dataclass takes to make
    """What is kept with a decision, in the same transaction, beside what the agent itself knows of it.

    key: the request's idempotency key: a second decision under it is refused (`KeyTaken`).
    digest: of the request's body, so that a retry can be told from another request under the same key.
    groups: the group of each arm, for measuring exposure.
    mode: "live", or why the agent's own action was not taken ("shadow", "control").
    baseline: the row that was taken instead of the one drawn; its reward is what will be learnt.
    extra: text of the caller's own.
    """

    key: str | None = None
    digest: str | None = None
    groups: Sequence[str | None] | None = None
    mode: str = "live"
    baseline: int | None = None
    extra: str | None = None


@dataclass(frozen=True, slots=True)
class StoredDecision:
    """A decision as the database has it. Times are in seconds since 1970. Its repr tells no data."""

    id: str
    seq: int
    time: float
    action: int
    drawn: int
    probability: float
    mode: str
    status: str
    names: list[str] | None
    groups: list[str | None] | None
    key: str | None
    digest: str | None
    extra: str | None
    packed: bytes = field(repr=False)  # its contexts, as `packed_contexts` packed them
    policy: Array = field(repr=False)
    theta: Array = field(repr=False)
    reward: float | None = field(repr=False)
    reward_time: float | None
    person: str | None = field(repr=False)

    @property
    def featureless(self) -> bool:
        """Whether its actions have no features."""
        return len(self.packed) == 4 * self.policy.size

    @property
    def contexts(self) -> Array:
        """(K, d), made when asked for: of many actions without features they are many zeros."""
        return unpacked_contexts(self.packed, self.policy.size, self.theta.size)

    @property
    def name(self) -> str | None:
        """Of the action taken."""
        return None if self.names is None else self.names[self.action]

    @property
    def baseline(self) -> int | None:
        """The action taken where it is not the agent's own."""
        return None if self.mode == "live" else self.action


def seal(*parts: Any) -> int:
    """A checksum of a row's content: against damage, not against malice."""
    value = 0
    for part in parts:
        value = crc32(part if isinstance(part, bytes) else repr(part).encode(), value)
    return value


def seal_decision(seq: int, action: int, drawn: int, contexts: bytes, policy: bytes, theta: bytes) -> int:
    """`seal`, where it must be fast."""
    start = crc32(b"%d %d %d" % (seq, action, drawn))
    return crc32(theta, crc32(policy, crc32(contexts, start)))


def seal_outcome(seq: int, decision: int, status: str, reward: float | None) -> int:
    """`seal`, where it must be fast."""
    return crc32(f"{seq} {decision} {status} {reward!r}".encode())


def floats(blob: bytes) -> Array:
    return np.frombuffer(blob, dtype="<f8").astype(np.float64)


def packed_contexts(rows: Array | Coordinates) -> bytes:
    """Contexts (K, d) as floats; coordinates (K,) of actions without features as four bytes each."""
    return rows.tobytes() if rows.ndim == 2 else rows.astype("<i4").tobytes()


def unpacked_contexts(blob: bytes, arms: int, dimension: int) -> Array:
    """The contexts (K, d) that `packed_contexts` packed; coordinates as unit vectors."""
    if len(blob) != 4 * arms:
        return floats(blob).reshape(arms, dimension)
    rows = np.zeros((arms, dimension))
    rows[np.arange(arms), np.frombuffer(blob, "<i4")] = 1.0
    return rows


def context_of(blob: bytes, row: int, arms: int, dimension: int) -> Array:
    """One row of `unpacked_contexts`, without the others."""
    size = len(blob) // arms
    rows = unpacked_contexts(blob[row * size : (row + 1) * size], 1, dimension)
    return rows.reshape(dimension)


def as_json(values: Sequence[str | None]) -> str:
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))


def packed_log(rows: Array, rewards: Sequence[float]) -> bytes:
    """Contexts (n, d) and their rewards, as bytes."""
    return len(rows).to_bytes(8, "little") + rows.astype("<f8").tobytes() + np.array(rewards, "<f8").tobytes()


def unpacked_log(body: bytes) -> tuple[Array, Array]:
    """What `packed_log` packed."""
    count = int.from_bytes(body[:8], "little")
    numbers = floats(body[8:])
    return numbers[:-count].reshape(count, -1), numbers[-count:]
