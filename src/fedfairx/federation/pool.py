"""What an agent makes of the releases it holds: what decisions come from, but for its own fresh records.

all alike          the sum of all releases, made safe to invert where they carry noise (Alg. 1 line 22)
beside its own     its own exact statistics, and the others' noisy ones weighted by their worth
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedfairx.core.confidence import Confidence
from fedfairx.core.statistics import Array, dimension_of, packed_size
from fedfairx.federation.aggregate import RIDGES, combine, worth
from fedfairx.privacy import Release
from fedfairx.privacy.mechanisms import Mechanism


@dataclass(frozen=True)
class Pooled:
    """Packed statistics, how many observations are in them, and the sd of an entry's noise."""

    packed: Array
    count: float
    noise_sd: float


@dataclass(frozen=True)
class Pool:
    """How releases are added up. `shift` is in sds of the sum's noise; `ridge` says how it is applied."""

    mechanism: Mechanism
    private: bool
    confidence: Confidence
    shift: float
    ridge: str

    def noise_sd(self, releases: Sequence[Release]) -> float:
        """sd of an off-diagonal entry of the sum of these releases."""
        return math.sqrt(sum(float(self.mechanism.sd(release.number)) ** 2 for release in releases))

    def all_alike(self, releases: Sequence[Release], dimension: int) -> Pooled:
        """Everybody's latest release, one's own among them."""
        total = combine((release.packed for release in releases), packed_size(dimension))
        count = float(sum(release.count for release in releases))
        if not self.private:
            return Pooled(total, count, 0.0)
        noise_sd = self.noise_sd(releases)
        return Pooled(RIDGES[self.ridge](total, self.shift * noise_sd), count, noise_sd)

    def beside_own(self, own: Array, own_count: int, others: Sequence[Release]) -> Pooled:
        """One's own exact statistics, and the others' releases times one weight."""
        alone = Pooled(own, float(own_count), 0.0)
        if not others:
            return alone
        count = sum(release.count for release in others)
        noise_sd = self.noise_sd(others)
        weight = worth(
            own,
            ratio=count / max(own_count, 1),
            noise_sd=noise_sd,
            radius=self.confidence.radius(own_count + count, dimension_of(own)),
            regulariser=self.confidence.regulariser,
            parameter_norm=self.confidence.parameter_norm,
        )
        if weight == 0.0:
            return alone
        total = combine((release.packed for release in others), own.size)
        theirs = RIDGES[self.ridge](total, self.shift * noise_sd)
        return Pooled(own + weight * theirs, own_count + weight * count, weight * noise_sd)
