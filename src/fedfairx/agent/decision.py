"""A decision as its caller sees it, and how a caller refers to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fedfairx.agent.slots import Slate
from fedfairx.core.slates import ONE
from fedfairx.errors import FedFairXError, InvalidInput, UnknownDecision
from fedfairx.util.arrays import Array


class Decision:
    """The arm to show, and the policy that it was drawn from; or the arms in several slots.

    id: unique; the reward refers to it. It consists of `origin` and `number` (`storage.decision_ids`).
    action: a row of the contexts; `name` is its name, if `decide` was given names.
    drawn: the row that was drawn; it differs from `action` if a baseline's row was taken instead. Of several
        slots it is that of the first, and `slate.drawn` has all.
    actions, exposure: for any number of slots; `action`, `policy` and `probability` are for one.

    >>> import fedfairx as ffx
    >>> decision = ffx.Agent(actions=["ann", "ben"], seed=0).decide()
    >>> decision.name, decision.probability
    ('ben', 0.5)
    """

    __slots__ = (
        "_action",
        "_arms",
        "_propensity",
        "_values",
        "drawn",
        "name",
        "number",
        "origin",
        "slate",
        "time",
    )

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
        slate: Slate | None = None,
    ) -> None:
        self.number = number
        self.origin = origin
        self._action = self.drawn = action
        self.name = name
        self.time = time  # microseconds since 1970, of a durable agent's decision
        self._values = values  # exposure (K), θ (d), the context (d) of each slot: one array, made once
        self._arms = arms
        self._propensity = propensity
        self.slate = slate  # None for one slot of weight 1

    @property
    def id(self) -> str:
        """An id that no other decision has, of this agent or of any other."""
        return f"{self.origin}-{self.number}"

    @property
    def action(self) -> int:
        """The row of the chosen arm."""
        if self.slate is not None:
            raise self._several("action", "actions")
        return self._action

    @property
    def actions(self) -> list[int]:
        """The rows of the shown arms, in the order of slots."""
        return [self._action] if self.slate is None else list(self.slate.shown)

    @property
    def names(self) -> list[str] | None:
        """The names of the shown arms, in the order of slots, if `decide` was given names."""
        if self.slate is None:
            return None if self.name is None else [self.name]
        return None if self.slate.names is None else list(self.slate.names)

    @property
    def weights(self) -> tuple[float, ...]:
        """The weights of the slots."""
        return ONE if self.slate is None else self.slate.weights

    @property
    def exposure(self) -> Array:
        """(K,) the expected weight of every arm's slot; they add up to the sum of the slots' weights."""
        return _read_only(self._values[: self._arms])

    @property
    def shares(self) -> list[float]:
        """`exposure` as a list."""
        found: list[float] = self._values[: self._arms].tolist()
        return found

    @property
    def policy(self) -> Array:
        """The probability (K,) of every arm."""
        if self.slate is not None:
            raise self._several("policy", "exposure")
        return _read_only(self._values[: self._arms])

    def _several(self, name: str, instead: str) -> InvalidInput:
        return InvalidInput(
            f"{name} is of one slot, and this decision has {len(self.weights)}: use {instead}"
        )

    @property
    def probability(self) -> float:
        """The propensity: the probability with which `action` was taken.

        It is `policy[action]`, unless a baseline's row is taken in some or all decisions (`DecisionNote`).
        """
        if self.slate is not None:
            raise self._several("probability", "exposure")
        return float(self._values[self._action]) if self._propensity is None else self._propensity

    @property
    def theta(self) -> Array:
        """The θ (d,) that the policy came from: posterior mean, drawn or optimistic, by the agent's rule."""
        return _read_only(self._values[self._arms : self._arms + self._dimension])

    @property
    def _dimension(self) -> int:
        """d, the size of θ and of a context."""
        return (self._values.size - self._arms) // (1 + len(self.weights))

    @property
    def context(self) -> Array:
        """The context (d,) of the chosen arm; of several arms, that in the first slot."""
        return _read_only(self.chosen())

    def chosen(self, slot: int = 0) -> Array:
        """The context of a slot's arm for compiled code: a writable view, which must only be read."""
        size = self._dimension
        first = self._arms + size * (1 + slot)
        return self._values[first : first + size]

    def grow(self, dimension: int) -> None:
        """Give θ and contexts zeros for the columns that features have got since."""
        arms, old = self._arms, self._dimension
        if old == dimension:
            return
        rows = np.pad(self._values[arms:].reshape(-1, old), ((0, 0), (0, dimension - old)))
        self._values = np.concatenate([self._values[:arms], rows.ravel()])

    def __eq__(self, other: object) -> bool:
        """Whether number and content are equal, to the bit. The ids of agents with the same seed differ."""
        return (
            isinstance(other, Decision)
            and (self.number, self.actions, self._arms) == (other.number, other.actions, other._arms)
            and self.weights == other.weights
            and self._values.tobytes() == other._values.tobytes()
        )

    def __hash__(self) -> int:
        return hash((self.number, self._action))

    def __repr__(self) -> str:  # without context and θ: it ends up in logs
        if self.slate is not None:
            names = "" if self.names is None else f", names={self.names}"
            return f"Decision(id={self.id!r}, actions={self.actions}{names})"
        name = "" if self.name is None else f"name={self.name!r}, "
        return f"Decision(id={self.id!r}, action={self.action}, {name}probability={self.probability:.6g})"


def shown(
    number: int, context: Array, origin: str = "", name: str | None = None, weight: float = 1.0
) -> Decision:
    """A decision among one arm, which was shown elsewhere, so that its reward can be learnt."""
    values = np.concatenate([[1.0], np.zeros(context.size), context])
    if weight == 1.0:
        return Decision(number, 0, values, 1, name, origin)
    slate = Slate((weight,), [0], None if name is None else [name])
    return Decision(number, 0, values, 1, name, origin, slate=slate)


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
