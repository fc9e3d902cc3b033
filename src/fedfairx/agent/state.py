"""What an agent knows, as one value: `AgentState`. Snapshots hold it as JSON.

Python writes a float so that reading it gives the same bits. A restored agent continues with the same
decisions, bit for bit: the state holds the sums, V⁻¹ as the rank-one updates left it, the generator's
position, and the releases. Only the prefix of future ids is drawn again, because a file can be loaded twice.

A state is as secret as the data: it holds exact sums. It never holds keys or a user's own function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedfairx.agent.uniforms import GeneratorPosition
from fedfairx.errors import MessageRefused, StateError
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
class NamesState:
    """The own records of names: see `own_record.OwnRecords`. A tally begins with its place."""

    ratio: float
    names: list[str]
    shown_at: list[int]
    once: list[str]
    mine: list[list[float]]
    used: list[list[float]] | None  # None if it is `mine`
    sent: list[list[float]] | None = None  # the same


@dataclass(frozen=True)
class AgentState:
    """Everything that an agent has learnt and holds, exact to the bit; agents of equal state decide alike.

    pending: the numbers of the decisions that wait.
    privatizer: the exact sums of an agent that is not private; a private one has them in its ledger.
    """

    learner: LearnerState
    actions: list[str] | None
    retired: list[str] | None
    own: list[float]
    released_count: int
    local_count: int
    judged: list[JudgedPartner]
    latest: dict[str, str]
    random: GeneratorPosition
    pending: list[int]
    privatizer: dict[str, Any] | None
    aged: Ages | None = None  # if there is a half-life
    features: dict[str, Any] | None = None  # `Schema.to_dict`, if there is a schema
    base: ClosedEpochs | None = None  # with secure aggregation, after the first epoch
    records: NamesState | None = None  # if names have own records
    others: list[float] | None = None  # what partners add to them: see `AgentModel.others`


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
