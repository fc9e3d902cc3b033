"""The configuration under audit: the privatizers that agents use, made with instrumented noise.

`ZeroNoise` returns zeros, so that a release shows what the records alone did to it. `RecordingNoise` passes
the agents' noise on and records it, so that the noise in a release can be compared with what was drawn for
it. `RecordingCentring` records the noisy sums that a centred message is made from, since they do not follow
from the message.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedfairx.core.statistics import packed_size
from fedfairx.privacy.bounds import Bounds
from fedfairx.privacy.centring import Centring
from fedfairx.privacy.ledger.ledger import MemoryLedger
from fedfairx.privacy.mechanisms.gaussian import Draw, Gaussian
from fedfairx.privacy.mechanisms.noise import NoiseSource
from fedfairx.privacy.privatizers.protocol import Privatizer
from fedfairx.util.arrays import Array

Record = tuple[Array, float]

_ENDLESS = 1e15  # stands for NaN, so that a comparison fails instead of raising


@dataclass(frozen=True)
class Check:
    """One check of the mechanism: what was found, what is allowed, and whether it holds."""

    name: str
    found: float
    allowed: str
    ok: bool


class ZeroNoise:
    """No noise, to see what the data do. NOT PRIVATE.

    Guarantees:
    - None about privacy: every draw is zero.
    """

    is_private = False
    owner: str | None = None
    fingerprint = "silent"

    def __call__(self, _number: int, count: int, _place: bytes, /) -> Array:
        return np.zeros(count)


class RecordingNoise:
    """The noise of `source`, with a record of the arguments and the draws, in order. NOT PRIVATE.

    Guarantees:
    - None about privacy: it keeps the noise that it passes on.
    """

    is_private = False
    owner: str | None = None

    def __init__(self, source: NoiseSource) -> None:
        self.fingerprint = source.fingerprint
        self._source = source
        self.asked: list[tuple[Any, ...]] = []
        self.given: list[Array] = []

    def __call__(self, number: int, count: int, place: bytes, /) -> Array:
        noise = self._source(number, count, place)
        self.asked.append((number, place))
        self.given.append(noise.copy())
        return noise


@dataclass(frozen=True, kw_only=True)
class RecordingCentring(Centring):
    """A centring that records the sums whose centring it undoes. NOT PRIVATE.

    Guarantees:
    - As `Centring`, but for what it keeps.
    """

    recorded: list[Array] = field(default_factory=list, compare=False)

    @classmethod
    def of(cls, centring: Centring) -> RecordingCentring:
        """The same centring, recording."""
        return cls(**{name: getattr(centring, name) for name in Centring.__dataclass_fields__})

    def leave(self, packed: Array, count: float) -> Array:
        self.recorded.append(packed.copy())
        return super().leave(packed, count)


@dataclass(frozen=True, kw_only=True)
class AuditedConfig:
    """A configuration under audit. `make` is called as `StreamPrivatizer` is, `source` as `KeyedNoise`."""

    mechanism: Gaussian
    bounds: Bounds  # of what enters the sums: a centring's inner bounds where there is one
    dimension: int  # of a record's context
    centring: RecordingCentring | None
    make: Callable[..., Privatizer]
    source: Callable[..., NoiseSource]

    @property
    def inner_dimension(self) -> int:
        """Dimension of what is summed: a centred record has one more coordinate, the constant."""
        return self.dimension + (self.centring is not None)

    @property
    def size(self) -> int:
        """Number of packed entries of what is summed."""
        return packed_size(self.inner_dimension)

    @property
    def scale(self) -> Array:
        """Noise sd of each packed entry over that of an off-diagonal one."""
        return self.bounds.entry_scale(self.inner_dimension)

    @property
    def middle(self) -> Record:
        """The point that records are clipped around."""
        return (np.zeros(self.dimension), 0.0) if self.centring is None else self.centring.blank

    @property
    def radii(self) -> tuple[float, float]:
        """Largest distance of context and reward from the middle."""
        if self.centring is None:
            return self.bounds.context_norm, self.bounds.reward
        return self.centring.context_radius, self.centring.reward_radius

    @property
    def step(self) -> float:
        """Releases lie on a grid about a millionth of the noise wide; no change is seen more finely."""
        return self.mechanism.base_sd * 2.0**-17

    def agent(self, noise: NoiseSource) -> Privatizer:
        """A new privatizer of this configuration."""
        # The ledger's salts follow from the noise, so that an audit can be repeated.
        salts = np.random.default_rng(list(noise.fingerprint.encode()))
        ledger = MemoryLedger(random=salts.bytes)
        return self.make(
            self.dimension,
            mechanism=self.mechanism,
            bounds=self.bounds,
            centring=self.centring,
            noise=noise,
            ledger=ledger,
        )

    def drawn(self, key: str, *, agent: str, run: str = "audit") -> Draw:
        """`keyed` as a function of release number and count alone."""
        source = self.keyed(key, agent=agent, run=run)
        return lambda number, count: source(number, count, b"audit")

    def keyed(self, key: str, *, agent: str, run: str = "audit") -> NoiseSource:
        """Agents' noise, from a key derived from the text `key`."""
        return self.source(hashlib.sha256(f"fedfairx audit {key}".encode()).digest(), agent=agent, run=run)

    def release(self, agent: Privatizer) -> tuple[Array, float]:
        """The next release: the noisy sums, and by how much the message is not a public function of them."""
        if self.centring is None:
            return agent.release().packed, 0.0
        self.centring.recorded.clear()
        sent = agent.release()
        if not self.centring.recorded:
            return np.full(self.size, math.nan), math.inf
        packed = self.centring.recorded[-1]
        return packed, float(np.abs(sent.packed - Centring.leave(self.centring, packed, sent.count)).max())

    def sums(self, leaves: Iterable[Sequence[Record]]) -> Array:
        """(leaves, q) of what enters each leaf when these are its records, in an agent without noise."""
        agent = self.agent(ZeroNoise())
        totals = []
        with np.errstate(invalid="ignore", over="ignore"):  # from privatizers that let such numbers through
            for records in leaves:
                for context, reward in records:
                    agent.add(context, reward)
                totals.append(self.release(agent)[0])
            entered = np.diff(np.array(totals), axis=0, prepend=0.0)
        return np.clip(np.nan_to_num(entered, nan=_ENDLESS), -_ENDLESS, _ENDLESS)

    def truth(self, contexts: Array, rewards: Array) -> Array:
        """(n, q): what each record should add, clipped by the definition and not by the code under audit."""
        (point, level), (radius, limit) = self.middle, self.radii
        offsets, y = contexts - point, rewards - level
        if self.bounds.nonnegative:
            offsets, y = np.maximum(offsets, 0.0), np.maximum(y, 0.0)
        norms = np.maximum(np.linalg.norm(offsets, axis=1, keepdims=True), 1e-300)
        x = offsets * np.minimum(1.0, radius / norms)
        if self.centring is not None:
            x = np.hstack([x, np.full((len(x), 1), self.centring.constant)])
        y = np.clip(y, -limit, limit)
        rows, cols = np.triu_indices(self.inner_dimension)
        return np.concatenate([x[:, rows] * x[:, cols], x * y[:, None]], axis=1)

    def random_records(self, generator: np.random.Generator, count: int) -> tuple[Array, Array]:
        """Records around the middle, about half of them outside the limits."""
        (point, level), (radius, limit) = self.middle, self.radii
        contexts = generator.standard_normal((count, self.dimension)) * (
            2.0 * radius / math.sqrt(self.dimension)
        )
        return point + contexts, level + generator.standard_normal(count) * (2.0 * limit)
