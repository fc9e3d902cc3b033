"""Stored decisions, as queries give them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from fedfairx.storage.rows import context_of, floats
from fedfairx.util.arrays import Array

#: The status of a decision; one that was deleted has none of these.
STATUSES = ("pending", "rewarded", "withdrawn", "expired")


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
    packed: bytes = field(repr=False)  # contexts (K, d)
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
        """Whether the log lacks its contexts, policy and names: only id, time and outcome are there.

        They were dropped or deleted, or the decision is from before the log, which began with a saved agent.
        """
        return not self.packed_policy

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
        """(K, d), as the model has them; of actions with a name alone, the constant (K, 1)."""
        return floats(self.packed).reshape(len(self.packed_policy) // 8, len(self.packed_theta) // 8)

    @property
    def context(self) -> Array:
        """(d,) the context of the action taken."""
        return context_of(self.packed, self.action, len(self.packed_theta) // 8)

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
