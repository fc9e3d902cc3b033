"""A decision as its caller sees it, and how a caller refers to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fedfairx.errors import FedFairXError, UnknownDecision
from fedfairx.util.arrays import Array


class Decision:
    """The arm to show, and the policy that it was drawn from.

    id: unique; the reward refers to it. It consists of `origin` and `number` (`storage.decision_ids`).
    action: a row of the contexts; `name` is its name, if `decide` was given names.
    drawn: the row that was drawn; it differs from `action` if a baseline's row was taken instead.
    """

    __slots__ = ("_arms", "_propensity", "_values", "action", "drawn", "name", "number", "origin", "time")

    def __init__(
        self,
        number: int,
        action: int,
        values: Array,
        arms: int,
        name: str | None = None,
        origin: str = "",
        time: int = 0,
        propensity: float | None = None,
    ) -> None:
        self.number = number
        self.origin = origin
        self.action = self.drawn = action
        self.name = name
        self.time = time  # microseconds since 1970, of a durable agent's decision
        self._values = values  # policy (K), θ (d), chosen context (d): one array, made once
        self._arms = arms
        self._propensity = propensity

    @property
    def id(self) -> str:
        """An id that no other decision has, of this agent or of any other."""
        return f"{self.origin}-{self.number}"

    @property
    def policy(self) -> Array:
        """The probability (K,) of every arm."""
        return _read_only(self._values[: self._arms])

    @property
    def probability(self) -> float:
        """The propensity: the probability with which `action` was taken.

        It is `policy[action]`, unless a baseline's row is taken in some or all decisions (`DecisionNote`).
        """
        return float(self._values[self.action]) if self._propensity is None else self._propensity

    @property
    def theta(self) -> Array:
        """The θ (d,) that the policy came from: posterior mean, drawn or optimistic, by the agent's rule."""
        return _read_only(self._values[self._arms : (self._arms + self._values.size) // 2])

    @property
    def context(self) -> Array:
        """The context (d,) of the chosen arm."""
        return _read_only(self.chosen())

    def chosen(self) -> Array:
        """`context` for compiled code: a writable view, which must only be read."""
        return self._values[(self._arms + self._values.size) // 2 :]

    def __eq__(self, other: object) -> bool:
        """Whether number and content are equal, to the bit. The ids of agents with the same seed differ."""
        return (
            isinstance(other, Decision)
            and (self.number, self.action, self._arms) == (other.number, other.action, other._arms)
            and self._values.tobytes() == other._values.tobytes()
        )

    def __hash__(self) -> int:
        return hash((self.number, self.action))

    def __repr__(self) -> str:  # without context and θ: it ends up in logs
        name = "" if self.name is None else f"name={self.name!r}, "
        return f"Decision(id={self.id!r}, action={self.action}, {name}probability={self.probability:.6g})"


def shown(number: int, context: Array, origin: str = "", name: str | None = None) -> Decision:
    """A decision among one arm, which was shown elsewhere, so that its reward can be learnt."""
    values = np.concatenate([[1.0], np.zeros(context.size), context])
    return Decision(number, 0, values, 1, name, origin)


def known(
    decision: Decision | str, pending: Mapping[int, Decision], gone: Callable[[str], FedFairXError]
) -> int:
    """The number of a pending decision; `gone` makes the error for an id that is not pending."""
    if isinstance(decision, Decision) and pending.get(decision.number) is decision:
        return decision.number
    identity = decision.id if isinstance(decision, Decision) else decision
    if not isinstance(identity, str):
        raise UnknownDecision(
            f"decision must be a Decision or its id, got decision of type {type(identity).__name__}"
        )
    digits = identity.rpartition("-")[2]
    held = pending.get(int(digits)) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None
    if held is None or held.id != identity:
        raise gone(identity)
    return held.number


def _read_only(view: Array) -> Array:
    view.flags.writeable = False  # only this view
    return view
