"""A stored decision, what is kept with one, and how arrays are packed into columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedfairx.util.arrays import Array, Coordinates

_ENCODER = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":")
)  # `json.dumps` would make one each time
#: What has become of a decision.
STATUSES = ("pending", "rewarded", "withdrawn", "expired")


class DecisionNote(NamedTuple):  # a third of the time that a frozen dataclass takes to make
    """What is kept with a decision, in the same transaction, beside what the agent itself knows of it.

    key: the request's idempotency key: a second decision under it is refused (`KeyTaken`).
    digest: of the request's body, so that a retry can be told from another request under the same key.
    groups: the group of each arm, for measuring exposure.
    mode: "live", or why the agent's own action is not taken ("shadow", "control").
    baseline: the row that the caller would take; unless `mode` is "live" it is taken, and its reward learnt.
    control_share: the share of decisions in which the baseline is taken.
    model_version: of the agent, when it decided.
    extra: text of the caller's own.
    """

    key: str | None = None
    digest: str | None = None
    groups: Sequence[str | None] | None = None
    mode: str = "live"
    baseline: int | None = None
    control_share: float = 0.0
    model_version: int = 0
    extra: str | None = None

    def propensity(self, action: int, share: float) -> float:
        """The probability with which `action` is taken, its share by the policy being `share`.

        It is what whoever evaluates another policy on the log must divide by.
        """
        if self.mode == "shadow":
            return 1.0
        kept = self.control_share if self.baseline == action else 0.0
        return min(1.0, (1.0 - self.control_share) * share + kept)


@dataclass(slots=True)  # not frozen, which would take three times as long to make
class StoredDecision:
    """A decision as the database has it. Times are in seconds since 1970. Its repr tells no data.

    propensity: the probability with which `action` was taken; by the policy its share is `policy[action]`.
    baseline: the row that the caller would have taken, where one was given.
    """

    id: str
    status: str
    reward: float | None = field(repr=False)
    reward_time: float | None
    person: str | None = field(repr=False)
    seq: int
    time: float
    packed: bytes = field(repr=False)  # its contexts, as `packed_contexts` packed them
    packed_policy: bytes = field(repr=False)
    packed_theta: bytes = field(repr=False)
    action: int
    drawn: int
    propensity: float
    mode: str
    baseline: int | None
    control_share: float
    model_version: int
    names_json: str | None
    groups_json: str | None
    key: str | None
    digest: str | None
    extra: str | None

    @property
    def featureless(self) -> bool:
        """Whether its actions have no features."""
        return 2 * len(self.packed) == len(self.packed_policy)

    @property
    def policy(self) -> Array:
        """(K,) the probabilities that the action was drawn from."""
        return floats(self.packed_policy)

    @property
    def theta(self) -> Array:
        """(d,) what the policy came from."""
        return floats(self.packed_theta)

    @property
    def contexts(self) -> Array:
        """(K, d); of many actions without features they are many zeros."""
        return unpacked_contexts(self.packed, len(self.packed_policy) // 8, len(self.packed_theta) // 8)

    @property
    def context(self) -> Array:
        """(d,) of the action taken."""
        return context_of(self.packed, self.action, len(self.packed_policy) // 8, len(self.packed_theta) // 8)

    @property
    def names(self) -> list[str] | None:
        """Of the actions."""
        return None if self.names_json is None else json.loads(self.names_json)

    @property
    def groups(self) -> list[str | None] | None:
        """Of the actions."""
        return None if self.groups_json is None else json.loads(self.groups_json)

    @property
    def name(self) -> str | None:
        """Of the action taken."""
        return None if self.names is None else self.names[self.action]


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
    return _ENCODER.encode(list(values))


def packed_log(rows: Array, rewards: Sequence[float]) -> bytes:
    """Contexts (n, d) and their rewards, as bytes."""
    return len(rows).to_bytes(8, "little") + rows.astype("<f8").tobytes() + np.array(rewards, "<f8").tobytes()


def unpacked_log(body: bytes) -> tuple[Array, Array]:
    """What `packed_log` packed."""
    count = int.from_bytes(body[:8], "little")
    numbers = floats(body[8:])
    return numbers[:-count].reshape(count, -1), numbers[-count:]
