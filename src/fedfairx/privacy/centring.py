"""Centring: less noise where records are known to lie near a public point.

Where contexts are known to lie within r of a public point x₀ and rewards within b of y₀, the records
x̃ = (x - x₀, κ) and ỹ = y - y₀ go to an ordinary privatizer of dimension d + 1, κ a constant. Its
sensitivity is r² + κ² + b² instead of L² + B²: with contexts in [0, 1]^d/√d and rewards in [0, 1] that is
0.5625 instead of 2 (κ = 0.25). The statistics of the records themselves follow from its release, the
number of records n and the public point, so sending them is post-processing:

    Σ x xᵀ = Σ x̃x̃ᵀ + x₀ sᵀ + s x₀ᵀ + n x₀x₀ᵀ,   s = Σ x̃ = (entries of x̃ with κ)/κ,
    Σ x y  = Σ x̃ỹ + x₀ Σỹ + y₀ s + n x₀ y₀,      Σỹ = (moment of κ)/κ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedfairx.errors import require
from fedfairx.privacy.bounds import Adjacency, Bounds
from fedfairx.privacy.guarantee import Guarantee
from fedfairx.privacy.mechanisms.gaussian import Gaussian
from fedfairx.privacy.privatizers.stream import StreamPrivatizer
from fedfairx.privacy.release import Release
from fedfairx.util.arrays import Array


@dataclass(frozen=True, kw_only=True)
class Centring:
    """A public point, and how far records may lie from it. Chosen without looking at the data.

    context: x₀, the public point of contexts.
    context_radius: r, the distance from it that contexts are clipped to.
    reward: y₀, the public point of rewards.
    reward_radius: b, the distance from it that rewards are clipped to.
    constant: κ, which larger means less noise on the sums of x̃ and ỹ, and more on all else.

    Guarantees:
    - `enter` never raises, and what it returns keeps `inner_bounds`.
    - `leave` undoes `enter` for sums of records that lie within the radii.
    - Under add-remove a record is blanked in one of two ways: it adds nothing and still counts, or it is
      `blank`. Neither changes the sums by more than the sensitivity. A record of zeros is not blank.
    """

    context: tuple[float, ...]
    context_radius: float
    reward: float
    reward_radius: float
    constant: float

    def __post_init__(self) -> None:
        require(len(self.context) >= 1, "context", "must have at least one coordinate", len(self.context))
        for name in ("context_radius", "reward_radius", "constant"):
            value = getattr(self, name)
            require(0 < value < math.inf, name, "must be > 0 and finite", value)

    @classmethod
    def unit_box(cls, dimension: int) -> Centring:
        """For contexts x/√d with x in [0, 1]^d, and rewards in [0, 1]."""
        half = 0.5 / math.sqrt(dimension)
        return cls(
            context=(half,) * dimension, context_radius=0.5, reward=0.5, reward_radius=0.5, constant=0.25
        )

    @property
    def dimension(self) -> int:
        return len(self.context)

    @property
    def blank(self) -> tuple[Array, float]:
        """The record that says nothing: the public point itself."""
        return np.array(self.context), self.reward

    def inner_bounds(self, *, adjacency: Adjacency = "replace", gram_share: float = 1.0) -> Bounds:
        """The bounds of the centred records (x̃, κ), ỹ, from which the sensitivity follows."""
        return Bounds(
            context_norm=math.hypot(self.context_radius, self.constant),
            reward=self.reward_radius,
            adjacency=adjacency,
            gram_share=gram_share,
        )

    def enter(self, context: Array, reward: float) -> tuple[Array, float, bool]:
        """((x - x₀, κ), y - y₀) clipped to the radii, and whether it had to move."""
        near = Bounds(context_norm=self.context_radius, reward=self.reward_radius)
        offset = np.asarray(context, dtype=np.float64) - np.asarray(self.context)
        x, y, moved = near.clip(offset, reward - self.reward)
        return np.append(x, self.constant), y, moved

    def leave(self, packed: Array, count: float) -> Array:
        """Packed statistics (..., q) of the records, from those (..., q') of the centred ones."""
        d, point = self.dimension, np.asarray(self.context)
        rows, cols = np.triu_indices(d + 1)
        moment = packed[..., rows.size :]
        sums = np.take(packed, np.flatnonzero((rows < d) & (cols == d)), axis=-1) / self.constant
        rewards = moment[..., d:] / self.constant
        within = np.flatnonzero(cols < d)
        i, j = rows[within], cols[within]
        gram = np.take(packed, within, axis=-1)
        gram += point[i] * np.take(sums, j, axis=-1)
        gram += point[j] * np.take(sums, i, axis=-1)
        gram += count * (point[i] * point[j])
        plain = moment[..., :d] + point * rewards + self.reward * sums + count * self.reward * point
        return np.concatenate([gram, plain], axis=-1)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a record of the run."""
        return {
            "context": [float(each) for each in self.context],
            "context_radius": float(self.context_radius),
            "reward": float(self.reward),
            "reward_radius": float(self.reward_radius),
            "constant": float(self.constant),
        }


class CentredPrivatizer:
    """A `StreamPrivatizer` of centred records that releases the statistics of the records themselves.

    Guarantees:
    - Its messages are a function of the inner privatizer's messages, the public point and the number of
      records: the inner guarantee holds for them.
    - `enter` has clipped every record before the inner privatizer sees it.
    - The ledger remembers the public point: going on with another one is refused. It holds the bytes that
      are sent.
    """

    def __init__(self, inner: StreamPrivatizer, *, centring: Centring) -> None:
        same = inner.dimension == centring.dimension + 1
        require(same, "inner", f"must have dimension {centring.dimension + 1}", inner.dimension)
        needed = centring.inner_bounds().context_norm
        norm = getattr(inner.bounds, "context_norm", math.inf)
        require(
            norm >= needed * (1 - 1e-12), "inner", f"must have bounds with context_norm {needed:.6g}", norm
        )
        told = inner.public_point == centring
        require(told, "inner", "must be made with public_point=centring", "another public point")
        self.inner = inner
        self.centring = centring

    @property
    def dimension(self) -> int:
        return self.centring.dimension

    @property
    def mechanism(self) -> Gaussian:
        return self.inner.mechanism

    @property
    def guarantee(self) -> Guarantee:
        """The inner one; its bounds speak of distances from the public point."""
        return replace(
            self.inner.guarantee,
            context_norm=self.centring.context_radius,
            reward=self.centring.reward_radius,
            centred=True,
        )

    @property
    def owner(self) -> str | None:
        """The agent that its noise is for."""
        return self.inner.owner

    @property
    def spent(self) -> int:
        """Releases made."""
        return self.inner.spent

    @property
    def clipped(self) -> int:
        """Records that had to be clipped: for the owner only."""
        return self.inner.clipped

    @property
    def waiting(self) -> int:
        """Records in the open leaf."""
        return self.inner.waiting

    @property
    def blank(self) -> tuple[Array, float]:
        """The record that says nothing."""
        return self.centring.blank

    def add(self, context: Array, reward: float, record: str | int | None = None) -> None:
        """Take one record, clipped around the public point, into the open leaf."""
        x, y, moved = self.centring.enter(context, reward)
        self.inner.add(x, y, record, moved=moved)

    def amend(
        self,
        context: Array,
        old: float,
        new: float,
        record: str | int,
        *,
        person: str | None = None,  # noqa: ARG002
        turn: tuple[int, int] = (1, 1),  # noqa: ARG002
    ) -> None:
        """Put the reward `new` into the place of `old`, in a record of the open leaf."""
        x, before, was = self.centring.enter(context, old)
        _, after, now = self.centring.enter(context, new)
        self.inner.amend(x, before, after, record, moved=(was, now))

    def release(self, number: int | None = None) -> Release:
        """The inner release, which is told and recorded in terms of the records themselves."""
        return self.inner.release(number)

    def state(self) -> dict[str, Any]:
        """All it needs to go on; as secret as the data."""
        return {"schema": 2, "inner": self.inner.state()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], *, centring: Centring, **inner: Any) -> CentredPrivatizer:
        """The privatizer that `state` described; `inner` is as for `StreamPrivatizer.from_state`."""
        made = StreamPrivatizer.from_state(state["inner"], public_point=centring, **inner)
        return cls(made, centring=centring)
