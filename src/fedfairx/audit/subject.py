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

from fedfairx.agent.options import Options
from fedfairx.core.statistics import packed_size
from fedfairx.privacy.bounds import Bounds
from fedfairx.privacy.budget import Budget
from fedfairx.privacy.centring import Centring
from fedfairx.privacy.mechanisms.gaussian import Draw, Gaussian
from fedfairx.privacy.mechanisms.noise import KeyedNoise, NoiseSource
from fedfairx.privacy.mechanisms.noise_share import default_colluding
from fedfairx.privacy.privatizers.stream import StreamPrivatizer
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
        return self.options.around_middle(self.dimension).budget(self.releases, agents=self.agents)

    @cached_property
    def mechanism(self) -> Gaussian:
        """The mechanism, as calibrated for the budget."""
        return self.budget.calibrate()

    @property
    def seen(self) -> int:
        """Number of rows in what is seen: a total without those of the colluding members, or one release."""
        if self.mechanism.share is None:
            return 1
        colluding = self.options.colluding
        return self.agents - (default_colluding(self.agents) if colluding is None else colluding)

    @property
    def seen_sd(self) -> float:
        """Base sd of the noise in what is seen."""
        share = self.mechanism.share
        return self.mechanism.base_sd * (1.0 if share is None else math.sqrt(self.seen / share.honest))

    @cached_property
    def bounds(self) -> Bounds:
        """The bounds of the summed records: a centring's inner bounds where there is one."""
        return self.budget.summed_bounds

    @cached_property
    def centring(self) -> RecordingCentring | None:
        """The public point, with a record of the sums that are moved back from it."""
        centring = self.budget.centring
        return None if centring is None else RecordingCentring.of(centring)

    @property
    def columns(self) -> int:
        """Dimension of the records: that of contexts, and the intercept."""
        return self.dimension + self.options.has_intercept

    @property
    def inner_dimension(self) -> int:
        """Dimension of the summed records: a centred one has the constant, too."""
        return self.dimension + (self.centring is not None or self.options.has_intercept)

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
        if self.centring is not None:
            return self.centring.blank
        return np.append(np.zeros(self.dimension), [self.bounds.constant] * self.options.has_intercept), 0.0

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

    def privatizer(self, noise: NoiseSource) -> StreamPrivatizer:
        """Make a new privatizer of this configuration; its grid is finer than that of a row."""
        return StreamPrivatizer(
            self.columns,
            mechanism=replace(self.mechanism, share=None),
            bounds=self.bounds,
            centring=self.centring,
            noise=noise,
        )

    def drawn(self, key: str, *, agent: str, run: str = "audit") -> Draw:
        """Return `keyed` noise as a function of release number and count alone."""
        source = self.keyed(key, agent=agent, run=run)
        return lambda number, count: source(number, count, b"audit")

    def keyed(self, key: str, *, agent: str, run: str = "audit") -> KeyedNoise:
        """Make an agent's noise with a key derived from the text `key`."""
        return KeyedNoise(hashlib.sha256(f"fedfairx audit {key}".encode()).digest(), agent=agent, run=run)

    def add(self, privatizer: StreamPrivatizer, record: Record) -> None:
        """Add a decision that shows this record in all of its slots, of which there may be one."""
        for weight in self.bounds.slots:
            privatizer.add(*record, weight=weight)

    def sums(self, leaves: Iterable[Sequence[Record]]) -> Array:
        """Return (leaves, q), the sums that these records add to each leaf of an agent without noise."""
        privatizer, totals = self.privatizer(ZeroNoise()), []
        with np.errstate(invalid="ignore", over="ignore"):  # a faulty privatizer may let such numbers through
            for records in leaves:
                for record in records:
                    self.add(privatizer, record)
                sent = privatizer.release().packed
                totals.append(sent if self.centring is None else self.centring.recorded.pop())
            entered = np.diff(np.array(totals), axis=0, prepend=0.0)
        return np.clip(np.nan_to_num(entered, nan=_ENDLESS), -_ENDLESS, _ENDLESS)
