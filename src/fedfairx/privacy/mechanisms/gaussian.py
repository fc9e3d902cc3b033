"""Noisy prefix sums: one protocol, and the mechanisms by name.

A mechanism is a factorisation (`factorization.py`, `blt.py`) and a noise sd. `calibrate`
chooses the sd from (ε, δ) and the sensitivity that `bounds.py` derives; the number of releases τ follows from
the schedule and is fixed before the first record.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from fedfairx.errors import BudgetExhausted, InvalidInput, require
from fedfairx.privacy.accounting import mu_for
from fedfairx.privacy.centring import Centring
from fedfairx.privacy.mechanisms.blt import blt_for
from fedfairx.privacy.mechanisms.factorization import Factor, Integers, Tree
from fedfairx.privacy.mechanisms.noise_share import NoiseShare
from fedfairx.util.arrays import Array

# draw(k, count) returns `count` independent standard normals for release k, the same ones on every call.
Draw = Callable[[int, int], Array]


class Mechanism(Protocol):
    """Public description of the noise in a message, fixed before the first record.

    >>> mechanism: Mechanism = NonPrivate()
    >>> mechanism.mu
    inf
    """

    @property
    def name(self) -> str: ...

    @property
    def releases(self) -> int:
        """τ, the number of releases that the noise is sized for."""

    @property
    def mu(self) -> float:
        """μ such that the whole transcript, all τ releases together, is μ-GDP."""

    def sd(self, number: int | Sequence[int] | Integers) -> Array:
        """Return the noise sd of an off-diagonal entry of release `number`, 1…τ."""

    def digest(self) -> str:
        """Return a hash of all that defines the mechanism; agents that learn together compare it."""


class NoiseStream:
    """The noise of release 1, 2, …, τ, in order, with the memory that its factor needs.

    Guarantees:
    - Release k uses base noise `draw(k, q)` and no other; nothing is drawn twice for different releases.
    - After τ releases it raises `BudgetExhausted`.
    """

    def __init__(self, factor: Factor, draw: Draw, *, scale: Array) -> None:
        self._factor = factor
        self._draw = draw
        self._scale = scale
        self._memory = factor.memory(scale.size)
        self.number = 0

    def next(self) -> Array:
        """Return the (q,) noise of the next release's prefix sum."""
        self.advance(1)
        return self._memory.output() * self._scale

    def advance(self, count: int) -> None:
        """Skip `count` releases, as if `next` had been called that often."""
        if self.number + count > self._factor.releases:
            raise BudgetExhausted(
                f"release {self.number + count} exceeds the {self._factor.releases} of this mechanism; "
                "start a new run with a new budget"
            )
        for _ in range(count):
            base = self._draw(self.number + 1, self._scale.size)  # first: if it fails, nothing is skipped
            self._memory.absorb(base)
            self.number += 1


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """Gaussian noise through a factorisation: every private mechanism of this package.

    `epsilon` and `delta` are the requested ones; `mu` is the cost of `base_sd`. Records are centred at
    `public_point`: the noise of a release depends on it, and so does which records are clipped. With a
    `share`, releases are seen only as a total, whose noise `base_sd` is sized for, and each has its share.

    >>> tree = calibrate("tree", epsilon=2.0, delta=1e-6, releases=8, sensitivity=2.0)
    >>> isinstance(tree, Gaussian), tree.releases
    (True, 8)

    Guarantees:
    - `mu` = sensitivity·‖C‖₁→₂/base_sd, from the coefficients in use; with a `share` it is that of a total
      without the rows of as many members as may collude.
    - `sd(t)` is the exact sd of release t of one agent, before a `share` is rounded.
    - Equal digests mean equal mechanisms, the noise's size to seven digits: its last bits come from a root
      finder and may differ between machines.
    """

    name: str
    factor: Factor
    sensitivity: float
    epsilon: float
    delta: float
    base_sd: float
    public_point: Centring | None = None
    share: NoiseShare | None = None

    @property
    def own_sd(self) -> float:
        """Base sd of one agent's noise: `base_sd`, or its share of it."""
        return self.base_sd if self.share is None else self.base_sd * self.share.noise

    @property
    def releases(self) -> int:
        return self.factor.releases

    @property
    def mu(self) -> float:
        return self.sensitivity * self.factor.column_norm / self.base_sd

    def sd(self, number: int | Sequence[int] | Integers) -> Array:
        numbers = np.asarray(number, dtype=np.int64)
        if isinstance(number, int):  # the hot path: each release that is held, at each exchange
            inside = 1 <= number <= self.releases
        else:
            inside = bool(((numbers >= 1) & (numbers <= self.releases)).all())
        if not inside:
            raise InvalidInput(f"number must be in 1..{self.releases}, got number={numbers}")
        return np.asarray(self.own_sd * self.factor.row_norm(numbers))

    def digest(self) -> str:
        return self._digest

    @cached_property
    def _digest(self) -> str:
        fields = {
            "schema": 2,
            "name": self.name,
            "releases": self.releases,
            "sensitivity": float(self.sensitivity).hex(),
            "epsilon": float(self.epsilon).hex(),
            "delta": float(self.delta).hex(),
            "base_sd": f"{self.base_sd:.6e}",
            "factor": self.factor.parameters(),
        }
        if self.public_point is not None:
            fields["public_point"] = self.public_point.to_dict()
        if self.share is not None:
            fields["share"] = self.share.parameters()
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()

    def stream(self, draw: Draw, *, entry_scale: Array) -> NoiseStream:
        return NoiseStream(self.factor, draw, scale=self.own_sd * entry_scale)

    def sample(self, generator: np.random.Generator, width: int) -> Array:
        noise = self.factor.correlate(generator.standard_normal((self.releases, width)))
        noise *= self.own_sd
        return noise


@dataclass(frozen=True, kw_only=True)
class NonPrivate:
    """No noise: NOT PRIVATE.

    >>> float(NonPrivate().sd(1))
    0.0

    Guarantees:
    - None about privacy: μ = ∞.
    - Noise of sd 0 at every release, of which there may be any number.
    """

    name: str = "non-private"
    releases: int = sys.maxsize
    mu: float = math.inf

    def sd(self, number: int | Sequence[int] | Integers) -> Array:
        return np.zeros(np.asarray(number).shape)

    def digest(self) -> str:
        return hashlib.sha256(b"fedfairx non-private").hexdigest()


_FACTORS: dict[str, Callable[[int], Factor]] = {
    "paper-tree": Tree,
    "tree": Tree,
    "blt": blt_for,
}


def mechanisms() -> tuple[str, ...]:
    """Return the names of all mechanisms, noisiest first.

    >>> "blt" in mechanisms()
    True
    """
    return tuple(_FACTORS)


def require_mechanism(mechanism: object) -> None:
    """Refuse what is neither the name of a mechanism nor a function."""
    name = isinstance(mechanism, str) and mechanism in _FACTORS
    text = f"must be one of {', '.join(_FACTORS)}, or a function"
    require(name or callable(mechanism), "mechanism", text, mechanism)


def calibrate(name: str, *, epsilon: float, delta: float, releases: int, sensitivity: float) -> Gaussian:
    """Make the mechanism `name` with exactly the noise that (ε, δ) over all `releases` needs.

    `sensitivity` is `Bounds(...).sensitivity`. `paper-tree` uses the paper's printed noise instead, which is
    more.

    >>> blt = calibrate("blt", epsilon=2.0, delta=1e-6, releases=1000, sensitivity=2.0)
    >>> round(blt.mu, 3)
    0.448

    Guarantees:
    - The whole transcript of `releases` releases is (ε, δ)-DP, with equality for all but `paper-tree`.
    - `mu` of the result is the true cost: for `paper-tree` about ε/(4 ln(2/δ)), 8 times less than (2, 0.1)
      allows.
    """
    require_mechanism(name)
    require(releases >= 1, "releases", "must be >= 1", releases)
    require(0 < sensitivity < math.inf, "sensitivity", "must be > 0 and finite", sensitivity)
    mu = mu_for(epsilon, delta)
    factor = _FACTORS[name](releases)
    base_sd = sensitivity * factor.column_norm / mu
    if name == "paper-tree":
        # Solanki et al. 2024, Alg. 2 lines 3, 6 and 7: variance 16 n (L²+1)² ln²(2/δ)/ε², n = 1 + ⌈log₂ τ⌉;
        # (N̂+N̂ᵀ)/√2 is GOE, so that is the variance off the diagonal.
        # Differs from paper: L²+1 is the sensitivity at B = 1; the derived sensitivity replaces it, so that
        # any L and B are covered.
        levels = 1 + (releases - 1).bit_length()
        base_sd = 4.0 * math.sqrt(levels) * sensitivity * math.log(2.0 / delta) / epsilon
        honest = sensitivity * factor.column_norm / base_sd
        # For ε in the hundreds the printed noise is too little for the (ε, δ) that it claims.
        text = "is too large for the paper's noise to give it at this delta"
        require(honest <= mu, "epsilon", text, epsilon)
    return Gaussian(
        name=name, factor=factor, sensitivity=sensitivity, epsilon=epsilon, delta=delta, base_sd=base_sd
    )
