"""A decision as its caller sees it, what is noted beside it, and the rewards of its slots."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from msgspec import Struct

from fedfairx.core.slates import ONE, Weights, as_weights
from fedfairx.errors import InvalidInput, require
from fedfairx.util.arrays import Array

#: By action (its row or its name), or in the order of slots. None withdraws one that nobody saw.
Rewards = Mapping[Any, float | None] | Sequence[float | None]
#: What may become of a decision or of one of its slots; none was deleted while it waited.
REWARDED, WITHDRAWN, EXPIRED, DELETED = "rewarded", "withdrawn", "expired", "deleted"
#: Why a decision or a slot gets no reward, by its status.
REASONS = {WITHDRAWN: "was forgotten", EXPIRED: "has expired", DELETED: "was deleted"}
_GIVEN_UP = frozenset({EXPIRED, DELETED})  # statuses that do not follow from whether there is a reward
_NONE: Mapping[int, Any] = MappingProxyType({})


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
        weight = dict(zip(self.wanted, weights, strict=True)).get(action, 0.0)
        if self.mode == "shadow":
            return weight
        return min(1.0, (1.0 - self.control_share) * share + self.control_share * weight)

    @property
    def wanted(self) -> Sequence[int]:
        """The rows of the baseline in the order of slots; none if there is no baseline."""
        if self.baseline is None:
            return ()
        return (self.baseline,) if isinstance(self.baseline, int) else self.baseline


class Decision(Struct, eq=False, gc=False):  # made in half of the time of a class with slots; no cycles
    """The action to show, and the policy that it was drawn from; or the actions in several slots.

    id: unique; the reward refers to it. It consists of `origin` and `number` (`storage.decision_ids`).
    action: a row of the contexts; `name` is its name, if `decide` was given names.
    drawn: the row that was drawn; it differs from `action` if a baseline's row was taken instead.
    actions, names, exposure: for any number of slots; `action`, `policy` and `probability` are for one, and
        `name` and `drawn` are of the first.

    >>> import fedfairx as ffx
    >>> decision = ffx.Agent(actions=["ann", "ben"], seed=0).decide()
    >>> decision.name, decision.probability
    ('ben', 0.5)
    """

    # Whoever reads these lists and arrays must not change them.
    number: int
    shown: list[int]  # rows, in the order of slots
    values: Array  # exposure (K), θ (d), the context (d) of each slot: one array, made once
    arms: int  # K
    weights: Weights = ONE  # of the slots
    shown_names: list[str] | None = None
    origin: str = ""
    time: int = 0  # microseconds since 1970, of a durable agent's decision
    given_propensity: float | None = None  # None where it is the policy's
    taken_instead_of: list[int] | None = None  # rows that were drawn, where a baseline is shown instead
    outcomes: Mapping[int, float | None] = _NONE  # of slots so far: rewards, and None without one
    statuses: Mapping[int, str] = _NONE  # of slots that were neither rewarded nor withdrawn

    @property
    def id(self) -> str:
        """An id that no other decision has, of this agent or of any other."""
        return f"{self.origin}-{self.number}"

    # --- what is shown -------------------------------------------------------------------------------

    @property
    def action(self) -> int:
        """The row of the chosen action."""
        if self.weights is not ONE:
            raise self._several("action", "actions")
        return self.shown[0]

    @property
    def actions(self) -> list[int]:
        """The rows of the shown actions, in the order of slots."""
        return list(self.shown)

    @property
    def drawn(self) -> int:
        """The row that was drawn; of several slots, that of the first."""
        return self.drawn_actions[0]

    @property
    def drawn_actions(self) -> list[int]:
        """The rows that were drawn, in the order of slots."""
        return self.shown if self.taken_instead_of is None else self.taken_instead_of

    @property
    def name(self) -> str | None:
        """The name of the chosen action, if `decide` was given names; of several, that in the first slot."""
        return None if self.shown_names is None else self.shown_names[0]

    @property
    def names(self) -> list[str]:
        """The names of the shown actions, in the order of slots; none if they have none."""
        return list(self.shown_names or ())

    @property
    def exposure(self) -> Array:
        """(K,) the expected weight of every action's slot; they add up to the sum of the slots' weights."""
        return _read_only(self.values[: self.arms])

    @property
    def shares(self) -> list[float]:
        """`exposure` as a list."""
        shares: list[float] = self.values[: self.arms].tolist()
        return shares

    @property
    def policy(self) -> Array:
        """The probability (K,) of every action."""
        if self.weights is not ONE:
            raise self._several("policy", "exposure")
        return _read_only(self.values[: self.arms])

    def _several(self, name: str, instead: str) -> InvalidInput:
        return InvalidInput(
            f"{name} is of one slot, and this decision has {len(self.weights)}: use {instead}"
        )

    @property
    def probability(self) -> float:
        """The propensity: the probability with which `action` was taken.

        It is `policy[action]`, unless a baseline's row is taken in some or all decisions (`DecisionNote`).
        """
        if self.weights is not ONE:
            raise self._several("probability", "exposure")
        return self.propensity

    @property
    def propensity(self) -> float:
        """The expected weight of the action in the first slot, with baselines taken into account."""
        return float(self.values[self.shown[0]]) if self.given_propensity is None else self.given_propensity

    # --- what it came from ---------------------------------------------------------------------------

    @property
    def theta(self) -> Array:
        """The θ (d,) that the policy came from: posterior mean, drawn or optimistic, by the agent's rule."""
        return _read_only(self.values[self.arms : self.arms + self._dimension])

    @property
    def _dimension(self) -> int:
        """d, the size of θ and of a context."""
        return (self.values.size - self.arms) // (1 + len(self.weights))

    @property
    def context(self) -> Array:
        """The context (d,) of the chosen action; of several actions, that in the first slot."""
        return _read_only(self.chosen())

    def chosen(self, slot: int = 0) -> Array:
        """The context of a slot's action for compiled code: a writable view, which must only be read."""
        size = self._dimension
        first = self.arms + size * (1 + slot)
        return self.values[first : first + size]

    def grow(self, dimension: int) -> None:
        """Give θ and contexts zeros for the columns that features have got since."""
        arms, old = self.arms, self._dimension
        if old in (0, dimension):  # 0 if its content is gone
            return
        rows = np.pad(self.values[arms:].reshape(-1, old), ((0, 0), (0, dimension - old)))
        self.values = np.concatenate([self.values[:arms], rows.ravel()])

    # --- rewards of its slots ------------------------------------------------------------------------

    @property
    def waiting(self) -> Sequence[int]:
        """Slots without an outcome."""
        outcomes, slots = self.outcomes, range(len(self.shown))
        if not outcomes:
            return slots
        return () if len(outcomes) == len(slots) else [slot for slot in slots if slot not in outcomes]

    def end(self, rewards: Mapping[int, float | None], status: str) -> bool:
        """Take the outcomes of slots; whether none waits for one now."""
        if status in _GIVEN_UP:
            self.statuses = {**self.statuses, **dict.fromkeys(rewards, status)}
        if self.outcomes is not _NONE:
            rewards = {**self.outcomes, **rewards}
        self.outcomes = rewards
        return len(rewards) == len(self.weights)

    def status_of(self, slot: int) -> str:
        """The status of a slot that has an outcome."""
        return self.statuses.get(slot) or status_of(self.outcomes[slot], REWARDED)

    @property
    def outcome(self) -> tuple[str, float | None]:
        """The status of the decision once every slot has an outcome, and the sum of their rewards, if any.

        It is rewarded if a slot is, and withdrawn if all are.
        """
        total = None
        for reward in self.outcomes.values():
            if reward is not None:
                total = (total or 0.0) + reward
        if not self.statuses:
            return WITHDRAWN if total is None else REWARDED, total
        *_, status = self.statuses.values()
        rewarded = any(self.status_of(slot) == REWARDED for slot in self.outcomes)
        return REWARDED if rewarded else status, total

    def slots_of(self, rewards: Rewards) -> dict[int, float | None]:
        """The slots that these rewards are for, in order."""
        shown, names = self.shown, self.shown_names
        if isinstance(rewards, Mapping):
            by_slot = {_slot_of(action, shown, names): reward for action, reward in rewards.items()}
            require(len(by_slot) == len(rewards), "rewards", "must name each action once", len(rewards))
            return dict(sorted(by_slot.items(), key=operator.itemgetter(0)))
        count, slots = len(rewards) if are_several(rewards) else type(rewards).__name__, len(shown)
        require(count == slots, "rewards", f"must be one for each of {slots} slots", count)
        return dict(enumerate(rewards))

    def __eq__(self, other: object) -> bool:
        """Whether number and content are equal, to the bit. The ids of agents with the same seed differ."""
        return (
            isinstance(other, Decision)
            and (self.number, self.shown, self.arms) == (other.number, other.shown, other.arms)
            and self.weights == other.weights
            and self.values.tobytes() == other.values.tobytes()
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle plain values; `ONE` is told apart by being itself."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        fields |= {"outcomes": dict(self.outcomes), "statuses": dict(self.statuses)}
        return _unpickled, (fields,)

    def __hash__(self) -> int:
        return hash((self.number, self.shown[0]))

    def __repr__(self) -> str:  # without context and θ: it ends up in logs
        if self.weights is not ONE:
            names = "" if self.shown_names is None else f", names={self.shown_names}"
            return f"Decision(id={self.id!r}, actions={self.shown}{names})"
        name = "" if self.name is None else f"name={self.name!r}, "
        return f"Decision(id={self.id!r}, action={self.action}, {name}probability={self.probability:.6g})"


def _unpickled(fields: dict[str, Any]) -> Decision:
    """The decision that `Decision.__reduce__` wrote."""
    return Decision(**fields | {"weights": as_weights(fields["weights"])})


def status_of(reward: float | None, status: str) -> str:
    """The status of one of several slots: one without a reward was withdrawn, where others are rewarded."""
    return WITHDRAWN if reward is None and status == REWARDED else status


def are_several(rewards: float | Rewards) -> TypeGuard[Rewards]:
    """Whether this is rewards of slots, and not one reward."""
    if isinstance(rewards, np.ndarray):
        return rewards.ndim > 0
    return isinstance(rewards, Mapping | Sequence) and not isinstance(rewards, str | bytes)


def _slot_of(action: object, shown: Sequence[int], names: Sequence[str] | None) -> int:
    if names is not None and action in names:
        once = names.count(str(action)) == 1
        require(once, "rewards", "must be by row: more than one action has this name", action)
        return names.index(str(action))
    if names is None and isinstance(action, str) and action.isascii() and action.isdecimal():
        action = int(action)  # in JSON a row is text
    is_shown = isinstance(action, int | np.integer) and not isinstance(action, bool) and action in shown
    text = f"must be of actions that were shown, {names or shown}"
    value = action if isinstance(action, str | int) else type(action).__name__  # never a reward
    require(is_shown, "rewards", text, value)
    return shown.index(int(action))  # type: ignore[call-overload]


def _read_only(view: Array) -> Array:
    view.flags.writeable = False  # only this view
    return view
