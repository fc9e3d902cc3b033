"""Bounds of a record: clipping, and the sensitivity that follows from it alone.

The statistics of one record are the entries of [x; y][x; y]ᵀ without its y² corner. Noise of a release
has sd σ off the diagonal of the Gram part, √2·σ on its diagonal (GOE: a rotation of the contexts leaves
the law as it is), and σ/√r on the moment, r = `gram_share`. In units of σ the squared change from (x, y)
to (x', y') is therefore

    D² = ½‖xxᵀ − x'x'ᵀ‖_F² + r‖xy − x'y'‖²

and the sensitivity is its largest value over clipped records. With a = ‖x‖, b = ‖x'‖, k the cosine
between them, D² = ½(a⁴+b⁴) − a²b²k² + r(a²y² + b²y'² − 2abk·yy'). It is convex in each of y, y', so both
lie on the bound B:

- replacement: for y = y' = B it is concave in k with its top at k = −rB²/(ab).
  If L² ≥ rB² that top is reached at a = b = L, and D² = (L² + rB²)²;
  otherwise k = −1, and D² = (a+b)²(½(a−b)² + rB²) is largest at a = b = L: D² = 4rL²B².
- replacement, x ≥ 0 and y ≥ 0: k ≥ 0, so k = 0 and D² = L⁴ + 2rL²B² (√3 at L = B = r = 1).
- add/remove: D² = ½L⁴ + rL²B², with or without signs. "Remove" means to blank: the record adds nothing to the
  sums and still counts, as x' = 0, y' = 0 would; the number of records is public.

Whole records may also be shrunk, (x, y) to (sx, sy), until ‖x‖² + r·y² ≤ R². With v = (x, √r·y),

    D² = ½(‖v‖⁴ + ‖v'‖⁴) − (v·v')² − ½r²(y² − y'²)² ≤ R⁴,

so Δ ≤ R² for replacement, attained if R² ≤ 2L² and R² ≤ L² + rB². With k = 0, or x' = y' = 0, D² grows with
a² even at the cost of ry² = R² − a², so a² = min(L², R²) and ry² = min(rB², R² − a²) take the places of L²
and rB². Where few records are long in x and in y at once, a smaller R changes few and needs less noise.

A decision may have several slots, of weights v_j, each of which gives a record (v_j x, y), and one person may
see them all. The unit is then the decision, and Δ = Σ_j Δ(v_j L, B), the sum over slots: it holds however the
records are spread over leaves, since rewards may come late and one by one.

For one-dimensional contexts k is ±1 only and these values are upper bounds; from d = 2 on they are attained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from fedfairx.core.slates import ONE, Weights, as_weights
from fedfairx.core.statistics import diagonal_entries, packed_size
from fedfairx.errors import require
from fedfairx.util.arrays import Array
from fedfairx.util.config import ABOVE_0, Limits, check_fields, option

Adjacency = Literal["replace", "add-remove"]

# A context of norm L(1 + 1e-12) counts as inside: its norm is L but for rounding, and clipping it would
# report unit vectors as clipped at random. The sensitivity holds to the same relative 1e-12.
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Limits on one record, and the neighbouring relation of the guarantee.

    context_norm: L, the norm that contexts are clipped to.
    reward: B, the size that rewards are clipped to.
    adjacency: what the guarantee hides of a record: its content ("replace"), or whether it has any
        ("add-remove").
    nonnegative: whether x is also clipped to x ≥ 0 and y to [0, B], for data that is non-negative by nature.
        The sensitivity falls from L²+B² to √(L⁴+2L²B²).
    gram_share: r = σ_U²/σ_u², the noise variance of the Gram entries over that of the moment. Below 1 the
        Gram gets less noise.
    slots: weights of a decision's slots, or their number. The unit of the guarantee is a decision with the
        records (v_j x, y) of all its slots.
    record_norm: R, if whole records are also shrunk to ‖x‖² + r·y² ≤ R². The sensitivity is then at most R².
        For one slot.
    constant: of an intercept, the last number of every context. It is not clipped, and counts in the norm:
        records are then like those of an L of √(L² + constant²), and an R of √(R² + constant²).

    >>> Bounds().sensitivity
    2.0
    >>> round(Bounds(nonnegative=True).sensitivity, 3)
    1.732

    Guarantees:
    - `clip` never raises, whatever the numbers (NaN and infinities too), and its result is within the limits.
    - A record within the limits is returned bit for bit.
    - `sensitivity` is the largest change of the statistics, in units of the off-diagonal noise sd,
      between any two neighbouring clipped records; it is derived from the limits and can't be set.
    """

    context_norm: float = option(1.0, limits=ABOVE_0)
    reward: float = option(1.0, limits=ABOVE_0)
    adjacency: Adjacency = "replace"
    nonnegative: bool = False
    gram_share: float = option(1.0, limits=ABOVE_0)
    slots: Weights = ONE
    record_norm: float | None = option(None, limits=ABOVE_0)
    constant: float = option(0.0, limits=Limits(ge=0, le=1e100))
    is_private: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", as_weights(self.slots))
        check_fields(self, Bounds)
        norm, text = self.record_norm, "must be left out where a decision has several slots"
        require(norm is None or self.slots == ONE, "record_norm", text, norm)

    @classmethod
    def for_range(
        cls, reward_range: tuple[float, float] | None, *, norm: float = 1.0, nonnegative: bool = False
    ) -> Bounds:
        """Make the default bounds: contexts in the unit ball, rewards in their range, or in (-1, 1).

        The noise is divided such that Gram and moment lose equally, whatever the size of the rewards.
        Contexts of a schema have a known largest `norm`. Those of one without numbers are `nonnegative`,
        which needs less noise if no reward is negative.
        """
        if reward_range is None:
            return cls(context_norm=norm)
        reward = max(abs(end) for end in reward_range)
        share, least = norm**2 / reward**2, min(reward_range)
        return cls(
            context_norm=norm, reward=reward, gram_share=share, nonnegative=nonnegative and least >= 0.0
        )

    @property
    def whole_norm(self) -> float:
        """The largest norm of a context, with its constant."""
        return math.hypot(self.context_norm, self.constant)

    @property
    def sensitivity(self) -> float:
        """Δ: one leaf under base noise of sd σ costs μ = Δ/σ. The top of this file derives it."""
        return sum(self._sensitivity(weight * self.whole_norm) for weight in self.slots)

    @property
    def largest_record(self) -> float:
        """The share of the sensitivity that one record of a decision has at most: that of its first slot."""
        return self._sensitivity(self.slots[0] * self.whole_norm) / self.sensitivity

    def _sensitivity(self, context_norm: float) -> float:
        """Δ of one record with a context of this norm."""
        norm2 = context_norm**2
        reward2 = self.gram_share * self.reward**2
        whole = math.inf if self.record_norm is None else self.record_norm**2 + self.constant**2
        if self.adjacency == "add-remove" or self.nonnegative:
            norm2 = min(norm2, whole)
            reward2 = min(reward2, whole - norm2)
        if self.adjacency == "add-remove":
            return math.sqrt(norm2 * (0.5 * norm2 + reward2))
        if self.nonnegative:
            return math.sqrt(norm2 * (norm2 + 2.0 * reward2))
        if norm2 >= reward2:
            return min(norm2 + reward2, whole)
        return min(2.0 * math.sqrt(norm2 * reward2), whole)

    @cached_property
    def _numbers(self) -> Bounds:
        """The limits of what comes before the constant."""
        return replace(self, constant=0.0)

    def entry_scale(self, dimension: int) -> Array:
        """Return the noise sd of each packed entry in units of the off-diagonal Gram entry's: (q,)."""
        scale = np.ones(packed_size(dimension))
        scale[diagonal_entries(dimension)] = math.sqrt(2.0)
        scale[-dimension:] = 1.0 / math.sqrt(self.gram_share)
        return scale

    def clip(self, context: Array, reward: float) -> tuple[Array, float, bool]:
        """Return (x, y) moved inside the limits, and whether it moved. Never raises: an error would leak."""
        x = np.asarray(context, dtype=np.float64)
        if self.constant:
            x, y, moved = self._numbers.clip(x[:-1], reward)
            return np.append(x, self.constant), y, moved
        low = 0.0 if self.nonnegative else -self.reward
        # Nearly every record is inside; the entries are checked first, since a square may overflow.
        inside = low <= reward <= self.reward and float(np.abs(x).max()) <= self.context_norm
        square = float(x.dot(x)) if inside else math.inf
        if self.record_norm is not None:
            inside = inside and square + self.gram_share * reward**2 <= self.record_norm**2
        if inside and math.sqrt(square) <= self.context_norm and (not self.nonnegative or x.min() >= 0.0):
            return x, float(reward), False
        contexts, rewards, clipped = self.clip_many(x[None, :], np.asarray([reward], dtype=np.float64))
        return contexts[0], float(rewards[0]), bool(clipped[0])

    def clip_many(self, contexts: Array, rewards: Array) -> tuple[Array, Array, np.ndarray]:
        """Clip the rows of (n, d) contexts and (n,) rewards; the last result is (n,) of bool."""
        if self.constant:
            x, y, moved = self._numbers.clip_many(contexts[:, :-1], rewards)
            return np.column_stack([x, np.full(len(x), self.constant)]), y, moved
        low = 0.0 if self.nonnegative else -self.reward
        x, y = _finite(contexts), np.clip(_finite(rewards), low, self.reward)
        if self.nonnegative:
            x = np.maximum(x, 0.0)
        x = _into_ball(x, self.context_norm)
        if self.record_norm is not None:
            root = math.sqrt(self.gram_share)
            whole = _into_ball(np.column_stack([x, root * y]), self.record_norm)
            changed = (whole[:, :-1] != x).any(axis=1) | (whole[:, -1] != root * y)
            x, y = whole[:, :-1], np.where(changed, whole[:, -1] / root, y)
        moved = (x != contexts).any(axis=1) | (y != rewards)
        return x, y, moved

    def worst_pair(self, dimension: int) -> tuple[tuple[Array, float], tuple[Array, float]]:
        """Return two neighbouring records that differ by `sensitivity` (from d = 2 on), for an audit."""
        if self.constant:
            return self._worst_with_constant(dimension)
        first, second = np.zeros(dimension), np.zeros(dimension)
        norm, reward = self.context_norm, self.reward
        if self.record_norm is not None:
            norm = min(norm, self.record_norm)
            reward = min(reward, math.sqrt((self.record_norm**2 - norm**2) / self.gram_share))
        first[0] = norm
        if self.adjacency == "add-remove":
            return (first, reward), (second, 0.0)
        ratio = self.gram_share * (reward / norm) ** 2
        cosine = 0.0 if self.nonnegative else -min(1.0, ratio)
        if dimension == 1:
            second[0] = 0.0 if self.nonnegative else -norm
        else:
            second[:2] = cosine * norm, math.sqrt(1.0 - cosine**2) * norm
        return (first, reward), (second, reward)

    def _worst_with_constant(self, dimension: int) -> tuple[tuple[Array, float], tuple[Array, float]]:
        """`worst_pair` where contexts end with the constant: rewards of both signs, or a blank record."""
        (x, reward), (other, second) = self._numbers.worst_pair(dimension - 1)
        if self.adjacency == "replace" and not self.nonnegative:
            second, length = -reward, float(np.linalg.norm(x))
            cosine = (self.gram_share * reward**2 - self.constant**2) / length**2
            cosine = min(max(cosine, -1.0), 1.0)
            other = cosine * x
            if dimension > 2:
                other[1] += math.sqrt(1.0 - cosine**2) * length
        return (np.append(x, self.constant), reward), (np.append(other, self.constant), second)

    def to_dict(self) -> dict[str, Any]:
        """Return the limits as plain values, for digests and saved states."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        if not self.constant:  # as before there was one
            del values["constant"]
        if self.record_norm is None:  # as before there was one
            del values["record_norm"]
        if self.slots == ONE:  # as before there were several
            del values["slots"]
            return values
        return values | {"slots": list(self.slots)}


@dataclass(frozen=True, kw_only=True)
class Unbounded:
    """No clipping: NOT PRIVATE, for simulations of what clipping costs.

    nominal: limits that the noise is shaped and sized for; nothing enforces them.

    >>> Unbounded().is_private
    False

    Guarantees:
    - None about privacy: the true sensitivity is infinite, and a privatizer that uses this reports μ = ∞.
    - `clip` returns every record as it is.
    """

    nominal: Bounds = Bounds()
    is_private: ClassVar[bool] = False

    @property
    def sensitivity(self) -> float:
        """Sensitivity of the nominal limits; it scales the noise and promises nothing."""
        return self.nominal.sensitivity

    def entry_scale(self, dimension: int) -> Array:
        """Return the scale of the nominal limits."""
        return self.nominal.entry_scale(dimension)

    def clip(self, context: Array, reward: float) -> tuple[Array, float, bool]:
        """Return the record unchanged."""
        return np.asarray(context, dtype=np.float64), float(reward), False

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for digests and saved states."""
        return {"not_private": "unbounded", "nominal": self.nominal.to_dict()}


Bounding = Bounds | Unbounded


def _finite(x: Array) -> Array:
    """NaN becomes 0; infinities become the largest float, to be scaled down."""
    return x if np.isfinite(x).all() else np.nan_to_num(x, nan=0.0)


def _into_ball(x: Array, radius: float) -> Array:
    """Scale rows of x to norm ≤ radius; rows inside stay bit for bit.

    Norms are taken after dividing by the largest entry, so that nothing overflows.
    """
    largest = np.abs(x).max(axis=1, initial=0.0)
    unit = np.where(largest > radius, largest, radius)[:, None]
    direction = x / unit
    norm = np.sqrt(np.square(direction).sum(axis=1, keepdims=True))
    outside = norm > (radius / unit) * (1.0 + _ROUNDING)
    scaled = direction * (radius / np.where(outside, norm, 1.0))
    return np.where(outside, scaled, x)
