"""The configuration under audit: the agents of some options, and what their records should add up to.

`ZeroNoise` returns zeros, so that a release shows the effect of the records alone. `RecordingCentring`
records the noisy sums behind a centred message, since they do not follow from the message.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from fedfairx.agent.agent import Agent
from fedfairx.agent.options import Options
from fedfairx.core.statistics import packed_size
from fedfairx.privacy.bounds import Bounds
from fedfairx.privacy.budget import Budget
from fedfairx.privacy.centring import Centring
from fedfairx.privacy.ledger.ledger import MemoryLedger
from fedfairx.privacy.mechanisms.gaussian import Draw, Gaussian
from fedfairx.privacy.mechanisms.noise import KeyedNoise, NoiseSource
from fedfairx.privacy.mechanisms.noise_share import default_colluding
from fedfairx.privacy.privatizers.stream import StreamPrivatizer
from fedfairx.privacy.release import Release
from fedfairx.util.arrays import Array

Record = tuple[Array, float]
Pair = tuple[Record | None, Record | None]  # of neighbouring worlds; None for no record

_ENDLESS = 1e15  # stands for NaN, so that a comparison fails instead of raising


@dataclass(frozen=True)
class CheckResult:
    """The result of one check of the mechanism: the value found, the values allowed, and whether it holds."""

    name: str
    found: float
    allowed: str
    ok: bool


class ZeroNoise:
    """No noise, to see the effect of the data. NOT PRIVATE.

    Guarantees:
    - None about privacy: every draw is zero.
    """

    is_private = False
    owner: str | None = None
    fingerprint = "silent"

    def __call__(self, _number: int, count: int, _place: bytes, /) -> Array:
        return np.zeros(count)


@dataclass(frozen=True, kw_only=True)
class RecordingCentring(Centring):
    """A centring that records the sums that `leave` is called with. NOT PRIVATE.

    Guarantees:
    - As `Centring`, but it stores noisy sums.
    """

    recorded: list[Array] = field(default_factory=list, compare=False)

    @classmethod
    def of(cls, centring: Centring) -> RecordingCentring:
        """Make a recording copy of a centring."""
        return cls(**{name: getattr(centring, name) for name in Centring.__dataclass_fields__})

    def leave(self, packed: Array, count: float) -> Array:
        self.recorded.append(packed.copy())
        return super().leave(packed, count)


@dataclass(frozen=True, kw_only=True)
class AuditedConfig:
    """The configuration under audit: private options, contexts of `dimension`, this many releases.

    agents: number of members, with secure aggregation.
    """

    options: Options
    dimension: int
    releases: int
    agents: int = 3

    @cached_property
    def budget(self) -> Budget:
        """The budget of each agent."""
        return self.options.budget(self.releases, agents=self.agents)

    @cached_property
    def mechanism(self) -> Gaussian:
        """The mechanism, as calibrated for the budget."""
        return self.budget.calibrate()

    @property
    def rows(self) -> bool:
        """Whether releases are rows of secure aggregation, which only their total shows."""
        return self.mechanism.share is not None

    @property
    def honest(self) -> int:
        """Number of members among whom the noise is divided; 1 without secure aggregation."""
        return 1 if self.mechanism.share is None else self.mechanism.share.honest

    @property
    def seen(self) -> int:
        """Number of rows in what is seen: a total without those of the colluding members, or one release."""
        if not self.rows:
            return 1
        colluding = self.options.colluding
        return self.agents - (default_colluding(self.agents) if colluding is None else colluding)

    @property
    def own_sd(self) -> float:
        """Base sd of the noise that one agent must add."""
        return self.mechanism.base_sd / math.sqrt(self.honest)

    @property
    def seen_sd(self) -> float:
        """Base sd of the noise in what is seen."""
        return self.mechanism.base_sd * math.sqrt(self.seen / self.honest)

    @cached_property
    def _digest_of_rows(self) -> str:
        """The digest that a row has; empty where releases are none."""
        return self.mechanism.digest() if self.rows else ""

    @cached_property
    def bounds(self) -> Bounds:
        """The bounds of the summed records: a centring's inner bounds where there is one."""
        return self.budget.summed_bounds

    @cached_property
    def centring(self) -> RecordingCentring | None:
        """The public point, with a record of the sums that are moved back from it."""
        centring = self.options.centring
        return None if centring is None else RecordingCentring.of(centring)

    @property
    def inner_dimension(self) -> int:
        """Dimension of the summed records: a centred one has one more coordinate, the constant."""
        return self.dimension + (self.centring is not None)

    @property
    def size(self) -> int:
        """Number of packed entries of the sums."""
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
        """Largest distances of context and reward from the middle."""
        if self.centring is None:
            return self.bounds.context_norm, self.bounds.reward
        return self.centring.context_radius, self.centring.reward_radius

    @property
    def step(self) -> float:
        """Smallest change that is visible: releases lie on a grid of about a millionth of the noise."""
        return self.mechanism.base_sd * 2.0**-17

    @property
    def grid(self) -> int:
        """Every number of a release is a multiple of 2 to the power of `grid`: 2⁻²⁰ of the noise, or less.

        With secure aggregation it is the largest such power that is at most 2⁻¹⁰ of a row's least noise.
        """
        if self.mechanism.share is None:
            return math.frexp(self.mechanism.base_sd)[1] - 20
        return math.floor(math.log2(self.own_sd * min(1.0, float(self.scale.min())))) - 10

    def privatizer(self, noise: NoiseSource) -> StreamPrivatizer:
        """Make a new privatizer of this configuration, for the data path alone: on the finer grid."""
        return StreamPrivatizer(
            self.dimension,
            mechanism=replace(self.mechanism, share=None),
            bounds=self.bounds,
            centring=self.centring,
            noise=noise,
        )

    def agent(self, noise: NoiseSource, ledger: MemoryLedger) -> Agent:
        """Make a new agent of this configuration, as `Options` makes it."""
        privatizer = self.options.privatizer(
            self.dimension, releases=self.releases, noise=noise, ledger=ledger, agents=self.agents
        )
        return Agent(self.dimension, options=self.options, privatizer=privatizer, name=noise.owner, seed=0)

    def drawn(self, key: str, *, agent: str, run: str = "audit") -> Draw:
        """Return `keyed` noise as a function of release number and count alone."""
        source = self.keyed(key, agent=agent, run=run)
        return lambda number, count: source(number, count, b"audit")

    def keyed(self, key: str, *, agent: str, run: str = "audit") -> KeyedNoise:
        """Make an agent's noise with a key derived from the text `key`."""
        return KeyedNoise(hashlib.sha256(f"fedfairx audit {key}".encode()).digest(), agent=agent, run=run)

    def noisy_sums(self, sent: Release) -> tuple[Array, float]:
        """Return the noisy sums of the latest release, and its deviation from the public function of them."""
        if self.centring is None or sent.mechanism == self._digest_of_rows:  # a row is still centred
            return sent.packed, 0.0
        recorded, self.centring.recorded[:] = self.centring.recorded[-1:], []
        if not recorded:
            return np.full(self.size, math.nan), math.inf
        packed = recorded[0]
        return packed, float(np.abs(sent.packed - Centring.leave(self.centring, packed, sent.count)).max())

    def add(self, privatizer: StreamPrivatizer, record: Record) -> None:
        """Add a decision that shows this record in all of its slots, of which there may be one."""
        for weight in self.bounds.slots:
            privatizer.add(*record, weight=weight)

    def sums(self, leaves: Iterable[Sequence[Record]]) -> Array:
        """Return (leaves, q), the sums that these records add to each leaf of an agent without noise."""
        privatizer = self.privatizer(ZeroNoise())
        totals = []
        with np.errstate(invalid="ignore", over="ignore"):  # a faulty privatizer may let such numbers through
            for records in leaves:
                for record in records:
                    self.add(privatizer, record)
                totals.append(self.noisy_sums(privatizer.release())[0])
            entered = np.diff(np.array(totals), axis=0, prepend=0.0)
        return np.clip(np.nan_to_num(entered, nan=_ENDLESS), -_ENDLESS, _ENDLESS)

    def truth(self, contexts: Array, rewards: Array) -> Array:
        """Return (n, q), what each record should add, clipped by the definition, not by the audited code."""
        (point, level), (radius, limit) = self.middle, self.radii
        offsets, y = contexts - point, np.nan_to_num(rewards - level, nan=0.0)
        if self.bounds.nonnegative:
            offsets, y = np.maximum(offsets, 0.0), np.maximum(y, 0.0)
        norms = np.maximum(np.linalg.norm(offsets, axis=1, keepdims=True), 1e-300)
        x, y = offsets * np.minimum(1.0, radius / norms), np.clip(y, -limit, limit)
        whole = self.bounds.record_norm if self.centring is None else self.centring.record_radius
        if whole is not None:
            long = np.sqrt(np.square(x).sum(axis=1) + self.bounds.gram_share * np.square(y))
            shrunk = np.minimum(1.0, whole / np.maximum(long, 1e-300))
            x, y = x * shrunk[:, None], y * shrunk
        if self.centring is not None:
            x = np.hstack([x, np.full((len(x), 1), self.centring.constant)])
        rows, cols = np.triu_indices(self.inner_dimension)
        slots = np.array(self.bounds.slots)  # a decision shows the record in all of its slots
        gram, moment = x[:, rows] * x[:, cols], x * y[:, None]
        return np.concatenate([np.square(slots).sum() * gram, slots.sum() * moment], axis=1)

    def random_records(self, generator: np.random.Generator, count: int) -> tuple[Array, Array]:
        """Draw records beside the middle, so that all sums grow; about half are outside the limits."""
        (point, level), (radius, limit) = self.middle, self.radii
        contexts = (1.0 + generator.standard_normal((count, self.dimension))) * radius
        rewards = (1.0 + generator.standard_normal(count)) * limit
        return point + 0.75 / math.sqrt(self.dimension) * contexts, level + 0.75 * rewards
