"""One decision, as its caller sees it, and which one a caller means."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedfairx.arrays import Array
from fedfairx.errors import AlreadyObserved, UnknownDecision


class Decision:
    """The arm to show, and the policy that it was drawn from.

    `id` is unique within its agent, and the reward refers to it. `action` is a row of the contexts, and
    `name` that row's, if `decide` was given names.
    """

    __slots__ = ("_arms", "_values", "action", "id", "name")

    def __init__(self, identity: int, action: int, values: Array, arms: int, name: str | None = None) -> None:
        self.id = identity
        self.action = action
        self.name = name
        self._values = values  # policy (K), θ (d), chosen context (d): one array, made once
        self._arms = arms

    @property
    def policy(self) -> Array:
        """(K,) the probability of every arm."""
        return _read_only(self._values[: self._arms])

    @property
    def probability(self) -> float:
        """The probability with which `action` was drawn."""
        return float(self._values[self.action])

    @property
    def theta(self) -> Array:
        """(d,) the θ that the policy came from, by the agent's rule: posterior mean, drawn, or optimistic."""
        return _read_only(self._values[self._arms : (self._arms + self._values.size) // 2])

    @property
    def context(self) -> Array:
        """(d,) the context of the chosen arm."""
        return _read_only(self.chosen())

    def chosen(self) -> Array:
        """`context` as compiled code takes it: to be read, though it could be written."""
        return self._values[(self._arms + self._values.size) // 2 :]

    def __eq__(self, other: object) -> bool:
        """The same decision of the same agent, to the bit, also after a save and a load."""
        return (
            isinstance(other, Decision)
            and (self.id, self.action, self._arms) == (other.id, other.action, other._arms)
            and self._values.tobytes() == other._values.tobytes()
        )

    def __hash__(self) -> int:
        return hash((self.id, self.action))

    def __repr__(self) -> str:  # no context and no θ: a repr ends up in logs
        name = "" if self.name is None else f"name={self.name!r}, "
        return f"Decision(id={self.id}, action={self.action}, {name}probability={self.probability:.6g})"


def shown(identity: int, context: Array) -> Decision:
    """An arm that was shown by somebody else: a decision of one arm, for its reward to be learnt."""
    return Decision(identity, 0, np.concatenate([[1.0], np.zeros(context.size), context]), 1)


def known(decision: Decision | int, pending: Mapping[int, Decision], made: int) -> int:
    """The id of a decision that waits for its reward, among the first `made` of an agent."""
    if isinstance(decision, Decision) and pending.get(decision.id) is decision:
        return decision.id
    identity = decision.id if isinstance(decision, Decision) else decision
    if not isinstance(identity, int | np.integer) or isinstance(identity, bool):
        raise UnknownDecision(
            f"decision must be a Decision or its id, got decision of type {type(identity).__name__}"
        )
    held = pending.get(int(identity))
    if held is None and 0 <= identity < made:
        raise AlreadyObserved(f"decision {identity} has its reward already (or was forgotten)")
    foreign = isinstance(decision, Decision) and decision != held
    if held is None or foreign:  # ids start at 0 in every agent
        raise UnknownDecision(f"decision must be one that this agent made, got decision={identity}")
    return int(identity)


def _read_only(view: Array) -> Array:
    view.flags.writeable = False  # of this view alone
    return view
