"""Centring: less noise where records are known to lie near a public point.

Where contexts are known to lie within r of a public point x₀ and rewards within b of y₀, the records
x̃ = (x - x₀, κ) and ỹ = y - y₀ go to an ordinary privatizer of dimension d + 1, κ a constant. Its
sensitivity is r² + κ² + b² instead of L² + B²: with contexts in [0, 1]^d/√d and rewards in [0, 1] that is
0.5625 instead of 2 (κ = 0.25). The statistics of the records themselves follow from its release, the
number of records n and the public point, so sending them is post-processing:

    Σ x xᵀ = Σ x̃x̃ᵀ + x₀ sᵀ + s x₀ᵀ + n x₀x₀ᵀ,   s = Σ x̃ = (entries of x̃ with κ)/κ,
    Σ x y  = Σ x̃ỹ + x₀ Σỹ + y₀ s + n x₀ y₀,      Σỹ = (moment of κ)/κ.

Contexts that have an intercept come as x̃ = (x - x₀, κ), which an agent makes of them, and have the sums

    Σ x̃x̃ᵀ, where κ² n replaces the last entry,   Σ x̃ y = Σ x̃ỹ + y₀ Σ x̃,   Σ x̃ = (entries of x̃ with κ)/κ, κn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

import numpy as np

from fedfairx.privacy.bounds import Adjacency, Bounds
from fedfairx.util.arrays import Array
from fedfairx.util.config import ABOVE_0, Limits, check_fields, details, option


@dataclass(frozen=True, kw_only=True)
class Centring:
    """A public point, and how far records may lie from it. Chosen without looking at the data.

    context: x₀, the public point of contexts.
    context_radius: r, the distance from it that contexts are clipped to.
    reward: y₀, the public point of rewards.
    reward_radius: b, the distance from it that rewards are clipped to.
    constant: κ; a larger one means less noise on the sums of x̃ and ỹ, and more on everything else.
    intercept: whether contexts come around the public point, and end with κ as their intercept.
    record_radius: ρ, if whole records are also shrunk towards the public point, until ‖x̃‖² + r·ỹ² ≤ ρ², r
        the Gram's share of the noise. The sensitivity is then at most ρ² + κ².

    >>> middle = Centring.unit_box(5)
    >>> middle.inner_bounds().sensitivity
    0.5625

    Guarantees:
    - `enter` never raises, and its result is within `inner_bounds`.
    - `leave` undoes `enter` for sums of records that lie within the radii.
    - Under add-remove a record is blanked in one of two ways: it adds nothing and still counts, or it is
      `blank`. Neither changes the sums by more than the sensitivity. A record of zeros is not blank.
    """

    context: tuple[float, ...] = field(metadata=details(limits=Limits(min_items=1)))
    context_radius: float = field(metadata=details(limits=ABOVE_0))
    reward: float
    reward_radius: float = field(metadata=details(limits=ABOVE_0))
    constant: float = field(metadata=details(limits=ABOVE_0))
    record_radius: float | None = option(None, limits=ABOVE_0)
    intercept: bool = False

    def __post_init__(self) -> None:
        check_fields(self, Centring)

    @classmethod
    def unit_box(cls, dimension: int) -> Centring:
        """Make the centring for contexts x/√d with x in [0, 1]^d, and rewards in [0, 1]."""
        half = 0.5 / math.sqrt(dimension)
        return cls(
            context=(half,) * dimension, context_radius=0.5, reward=0.5, reward_radius=0.5, constant=0.25
        )

    @property
    def dimension(self) -> int:
        return len(self.context) + self.intercept

    @property
    def blank(self) -> tuple[Array, float]:
        """The record without information: the public point itself."""
        if self.intercept:
            return np.append(np.zeros(len(self.context)), self.constant), self.reward
        return np.array(self.context), self.reward

    def inner_bounds(self, *, adjacency: Adjacency = "replace", gram_share: float = 1.0) -> Bounds:
        """Return the bounds of the centred records (x̃, κ), ỹ, from which the sensitivity follows."""
        return Bounds(
            context_norm=math.hypot(self.context_radius, self.constant),
            reward=self.reward_radius,
            adjacency=adjacency,
            gram_share=gram_share,
            record_norm=None if self.record_radius is None else math.hypot(self.record_radius, self.constant),
        )

    def enter(self, context: Array, reward: float, gram_share: float = 1.0) -> tuple[Array, float, bool]:
        """Return ((x - x₀, κ), y - y₀) clipped to the radii, and whether clipping changed it."""
        near = _ball(self.context_radius, self.reward_radius, gram_share, self.record_radius)
        offset = np.asarray(context, dtype=np.float64)
        offset = offset[:-1] if self.intercept else offset - np.asarray(self.context)
        x, y, moved = near.clip(offset, reward - self.reward)
        return np.append(x, self.constant), y, moved

    def leave(self, packed: Array, count: float) -> Array:
        """Compute packed statistics (..., q) of the records from those (..., q') of the centred ones."""
        if self.intercept:
            return self._with_intercept(packed, count)
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

    def _with_intercept(self, packed: Array, count: float) -> Array:
        """`leave`, for contexts that come around the public point and end with the constant."""
        columns, whole = self.dimension, packed.copy()
        rows, cols = np.triu_indices(columns)
        last = np.flatnonzero(cols == columns - 1)
        whole[..., last[-1]] = self.constant**2 * count
        whole[..., rows.size :] += (self.reward / self.constant) * np.take(whole, last, axis=-1)
        return whole

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        values = {item.name: getattr(self, item.name) for item in fields(self)} | {
            "context": list(self.context)
        }
        if self.record_radius is None:  # as before there was one
            del values["record_radius"]
        if not self.intercept:
            del values["intercept"]
        return values


@cache  # making it takes longer than clipping a record
def _ball(context: float, reward: float, gram_share: float, record: float | None) -> Bounds:
    """The radii, as bounds of a record's distance from the public point."""
    return Bounds(context_norm=context, reward=reward, gram_share=gram_share, record_norm=record)
