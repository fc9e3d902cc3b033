"""Stored decisions, the notes stored with them, and how arrays are packed into columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedfairx.core.slates import ONE, Weights
from fedfairx.util.arrays import Array, Coordinates

#: The status of a decision; one that was deleted has none of these.
STATUSES = ("pending", "rewarded", "withdrawn", "expired")


class DecisionNote(NamedTuple):  # made in a third of the time of a frozen dataclass
    """What the caller wants stored with a decision, in the same transaction.

    key: the idempotency key of the request; a second decision under it is refused (`KeyTaken`).
    digest: digest of the request's body, which tells a retry from another request under the same key.
    groups: the group of each action, for measuring exposure.
    mode: "live", or why the drawn action is not taken ("shadow", "control").
    baseline: the row that the caller would take, or those in the order of slots; unless `mode` is "live" it
        is taken, and its reward learnt.
    control_share: the share of decisions in which the baseline is taken.
    model_version: the agent's model version when it decided.
    extra: any text.

    >>> import fedfairx as ffx
    >>> with ffx.Agent.open("noted.db", actions=["ann", "ben"]) as agent:
    ...     decision = agent.decide(note=DecisionNote(key="order 7", groups=["north", "south"]))
    ...     agent.journal.by_key("order 7").groups
    ['north', 'south']
    """

    key: str | None = None
    digest: str | None = None
    groups: Sequence[str | None] | None = None
    mode: str = "live"
    baseline: int | Sequence[int] | None = None
    control_share: float = 0.0
    model_version: int = 0
    extra: str | None = None

    def propensity(self, action: int, share: float, weights: Weights = ONE) -> float:
        """The expected weight of `action` if the policy gives it `share`, with baselines taken into account.

        Of one slot it is the probability that the action is taken. Off-policy estimates divide by it.
        """
        if self.baseline is None:
            return share
        rows = (self.baseline,) if isinstance(self.baseline, int) else self.baseline
        kept = dict(zip(rows, weights, strict=True)).get(action, 0.0)
        if self.mode == "shadow":
            return kept
        return min(1.0, (1.0 - self.control_share) * share + self.control_share * kept)


@dataclass(slots=True)
class StoredSlot:
    """One slot of a stored decision: the action shown in it, and its outcome. Its repr shows no data.

    exposure: the expected weight of the action, with baselines taken into account; the policy gave it
        `policy[action]`.
    drawn: the action that the policy drew for the slot; another one than `action` if a baseline was taken.
    baseline: the action that the caller would have shown in the slot, if it was given.
    """

    action: int
    weight: float
    exposure: float
    drawn: int
    baseline: int | None = None
    name: str | None = None
    status: str = "pending"
    reward: float | None = field(default=None, repr=False)
    reward_time: float | None = None
    person: str | None = field(default=None, repr=False)


@dataclass(slots=True)  # a frozen one takes three times as long to make
class StoredDecision:
    """A decision in the database. Times are in seconds since 1970. Its repr shows no data.

    propensity: the probability that `action` was taken; the policy gave it `policy[action]`.
    baseline: the row that the caller would have taken, if it was given; that of several slots is in `slots`.
    slots: of a decision that showed several actions; empty for one. `policy` then holds exposures, `action`
        and `drawn` are those of the first slot, and `reward` is the sum of all, once every slot has an
        outcome.
    rolled_back: whether the agent was rolled back to a time before it was made.

    >>> import fedfairx as ffx
    >>> with ffx.Agent.open("stored.db", actions=["ann", "ben"]) as agent:
    ...     decision = agent.decide()
    ...     stored = agent.journal.decision(decision.id)
    >>> stored.status, stored.propensity
    ('pending', 0.5)
    """

    id: str
    status: str
    reward: float | None = field(repr=False)
    reward_time: float | None
    person: str | None = field(repr=False)
    seq: int
    time: float
    packed: bytes = field(repr=False)  # contexts, see `packed_contexts`
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
    slots_json: str | None
    slots: list[StoredSlot] = field(default_factory=list, repr=False)
    rolled_back: bool = False

    @property
    def gone(self) -> bool:
        """Whether its contexts, policy and names were dropped or deleted; only id, time and outcome stay."""
        return not self.packed_policy

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
        """(d,) the parameter that the policy was computed from."""
        return floats(self.packed_theta)

    @property
    def contexts(self) -> Array:
        """(K, d); actions without features have unit vectors."""
        return unpacked_contexts(self.packed, len(self.packed_policy) // 8, len(self.packed_theta) // 8)

    @property
    def context(self) -> Array:
        """(d,) the context of the action taken."""
        return context_of(self.packed, self.action, len(self.packed_policy) // 8, len(self.packed_theta) // 8)

    @property
    def names(self) -> list[str] | None:
        """The names of the actions."""
        return None if self.names_json is None else json.loads(self.names_json)

    @property
    def groups(self) -> list[str | None] | None:
        """The groups of the actions."""
        return None if self.groups_json is None else json.loads(self.groups_json)

    @property
    def name(self) -> str | None:
        """The name of the action taken."""
        return None if self.names is None else self.names[self.action]


def floats(blob: bytes) -> Array:
    return np.frombuffer(blob, dtype="<f8").astype(np.float64)


def packed_contexts(rows: Array | Coordinates) -> bytearray:
    """Pack contexts (K, d) as floats, or coordinates (K,) of actions without features as four bytes each."""
    return bytearray(rows if rows.ndim == 2 else rows.astype("<i4"))


def unpacked_contexts(blob: bytes, arms: int, dimension: int) -> Array:
    """Contexts (K, d) from `packed_contexts`; coordinates become unit vectors."""
    if len(blob) != 4 * arms:
        return floats(blob).reshape(arms, dimension)
    rows = np.zeros((arms, dimension))
    rows[np.arange(arms), np.frombuffer(blob, "<i4")] = 1.0
    return rows


def context_of(blob: bytes, row: int, arms: int, dimension: int) -> Array:
    """One row of `unpacked_contexts`, without unpacking the others."""
    if len(blob) == 4 * arms:
        return unpacked_contexts(blob[4 * row : 4 * row + 4], 1, dimension).reshape(dimension)
    return np.frombuffer(blob, "<f8", dimension, 8 * dimension * row).astype(np.float64)


def as_json(values: Sequence[str | None]) -> str:
    from msgspec.json import encode  # ten times as fast as `json`; not above: an agent may need no database

    return encode(values, enc_hook=str).decode()


def packed_log(rows: Array, rewards: Sequence[float]) -> bytes:
    """Contexts (n, d) and their rewards, as bytes."""
    return len(rows).to_bytes(8, "little") + rows.astype("<f8").tobytes() + np.array(rewards, "<f8").tobytes()


def unpacked_log(body: bytes) -> tuple[Array, Array]:
    """Contexts and rewards from `packed_log`."""
    count = int.from_bytes(body[:8], "little")
    numbers = floats(body[8:])
    return numbers[:-count].reshape(count, -1), numbers[-count:]
