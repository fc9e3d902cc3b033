"""What an agent knows, as one value: `AgentState`. Files and snapshots hold it as JSON.

Python writes a float so that reading it gives the same bits. A restored agent continues with the same
decisions, bit for bit: the state holds the sums, V⁻¹ as the rank-one updates left it, the generator's
position, the pending decisions, and the releases. Only the noise of future releases and the prefix of future
ids are drawn again, because a file can be loaded twice.

A state is as secret as the data: it holds exact sums and the contexts of pending decisions. It never holds
keys or a user's own function.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedfairx.agent.uniforms import GeneratorPosition
from fedfairx.core.slates import as_weights
from fedfairx.decision import REWARDED, Decision
from fedfairx.errors import InvalidInput, MessageRefused, StateError
from fedfairx.privacy import Release
from fedfairx.util.arrays import Array

MOST = 2**53  # the largest count: above it not every reader of JSON is exact


@dataclass(frozen=True)
class LearnerState:
    """The packed statistics that decisions come from, and V⁻¹."""

    statistics: list[float]
    fresh: list[float]
    inverse: list[float]
    count: float
    ridge: float
    largest_reward: float
    noise_variance: float
    mean: float
    squares: float
    observed: int | float
    updates: int
    growth: float


@dataclass(frozen=True)
class Mark:
    """Sums of the first `count` records that are in no release yet."""

    count: int
    sums: list[float]


@dataclass(frozen=True)
class JudgedPartner:
    """How far a partner that may differ is believed."""

    name: str
    weights: list[float]
    trust: float
    power: float


@dataclass(frozen=True)
class Ages:
    """What there is to know beside decayed sums: see `half_life.Aging` and `Exchange.arrived`."""

    at: int
    refit_at: int
    arrived: dict[str, int]


@dataclass(frozen=True)
class ClosedEpochs:
    """What is known from closed epochs: see `exchange.Base`."""

    release: str
    noise_sd: float
    run: int


@dataclass(frozen=True)
class PendingDecision:
    """A pending decision in a file: the fields of `Decision`.

    values: exposure (K), θ (d), and the context (d) of each slot.
    outcomes: slot, status and reward, as far as they have come; a reward that is no number is None.
    """

    number: int
    origin: str
    time: int
    arms: int
    shown: list[int]
    values: list[float]
    weights: list[float]
    names: list[str] | None
    drawn: list[int]
    propensity: float | None  # if it is not the exposure of the first arm
    outcomes: list[tuple[int, str, float | None]]

    @classmethod
    def of(cls, decision: Decision) -> PendingDecision:
        return cls(
            number=decision.number,
            origin=decision.origin,
            time=decision.time,
            arms=decision.arms,
            shown=[int(row) for row in decision.shown],
            values=decision.values.tolist(),
            weights=list(decision.weights),
            names=decision.names,
            drawn=[int(row) for row in decision.drawn_actions],
            propensity=decision.given_propensity,
            outcomes=[
                (slot, decision.status_of(slot), reward if reward is None or math.isfinite(reward) else None)
                for slot, reward in decision.outcomes.items()
            ],
        )

    def decision(self, dimension: int, following: int) -> Decision:
        """The decision, whose number must be below `following`; `dimension` is that of the agent now."""
        slots, arms = len(self.shown), self.arms
        size, rest = divmod(len(self.values) - arms, 1 + slots)  # fewer columns, if some were added since
        possible = (
            1 <= slots <= arms and rest == 0 and 1 <= size <= dimension and 0 <= self.number < following
        )
        possible = (
            possible and len(self.weights) == slots and (self.names is None or len(self.names) == slots)
        )
        for rows in (self.shown, self.drawn):
            possible = possible and len(rows) == len(set(rows)) == slots and set(rows) <= set(range(arms))
        complete = {slot for slot, *_ in self.outcomes}
        if not (possible and complete < set(range(slots))):
            raise StateError("pending holds a decision that this agent can't have made")
        try:
            weights = as_weights(self.weights)
        except InvalidInput as error:
            raise StateError(f"pending holds a decision whose slots can't be: {error}") from None
        values = as_numbers(self.values, len(self.values), "pending.values")
        decision = Decision(
            self.number,
            list(self.shown),
            values,
            arms,
            weights,
            self.names,
            self.origin,
            self.time,
            self.propensity,
            None if self.drawn == self.shown else list(self.drawn),
        )
        for slot, status, reward in self.outcomes:
            decision.end({slot: math.nan if reward is None and status == REWARDED else reward}, status)
        return decision


@dataclass(frozen=True)
class AgentState:
    """Everything that an agent has learnt and holds, exact to the bit; agents of equal state decide alike.

    pending: decisions, or, in a snapshot, the numbers of decisions in the log.
    privatizer: the state of the privatizer, or None if it is in the database itself.
    """

    learner: LearnerState
    actions: list[str] | None
    retired: list[str] | None
    own: list[float]
    released_count: int
    local_count: int
    marks: list[Mark]
    judged: list[JudgedPartner]
    latest: dict[str, str]
    random: GeneratorPosition
    pending: list[PendingDecision | int]
    privatizer: dict[str, Any] | None
    aged: Ages | None = None  # if there is a half-life
    features: dict[str, Any] | None = None  # `Schema.to_dict`, if there is a schema
    base: ClosedEpochs | None = None  # with secure aggregation, after the first epoch


def as_numbers(values: list[float], size: int, name: str) -> Array:
    """Check that there are so many."""
    if len(values) != size:
        raise StateError(f"{name} must be {size} finite numbers, got a list of {len(values)}")
    return np.array(values, dtype=np.float64)


def as_release(text: str) -> Release:
    """The release that this is the hexadecimal text of."""
    try:
        return Release.from_bytes(bytes.fromhex(text))
    except (ValueError, MessageRefused) as error:
        kind = str(error) if isinstance(error, MessageRefused) else "not hexadecimal"
        raise StateError(f"latest must hold releases: {kind}") from None
