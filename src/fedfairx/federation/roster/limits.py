"""Plausibility limits: what a sum of a known number of bounded records with known noise can be.

docs/explanation/federation.md ("What a release can be") has the inequalities, their proof, and Υ and H.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from fedfairx.agent.pooling import noise_bounds
from fedfairx.core.statistics import unpack
from fedfairx.errors import MessageRefused
from fedfairx.privacy import Bounds, Centring, Release
from fedfairx.privacy.mechanisms.factorization import Integers
from fedfairx.privacy.mechanisms.gaussian import Mechanism, NonPrivate
from fedfairx.util.arrays import Array

#: p: the probability that any of all releases of an honest member is refused.
FALSE_REFUSAL = 1e-9
_ROUNDING = 1e-6  # of sums of floats, and of the grid that releases lie on, relative


@dataclass(frozen=True)
class ReleaseLimits:
    """Limits of release k of a member: at most `records[k - 1]` records; exact sums have no noise.

    rows: how many members' noise it holds; several where it is a total of secure aggregation.
    """

    mechanism: Mechanism
    dimension: int
    bounds: Bounds
    centring: Centring | None
    records: Integers
    rows: int = 1

    def check(self, name: str, release: Release, before: Release | None = None) -> None:
        """Refuse an impossible release of checked size; `before` is the sender's last one."""
        why = self._why_absurd(release)
        if before is not None and release.number > before.number and release.count < before.count:
            why = why or f"it holds fewer records than release {before.number}"
        if why:
            text = f"release {release.number} of {name!r} is impossible: {why}"
            raise MessageRefused(text, reason="absurd")

    def _why_absurd(self, release: Release) -> str:
        number, count = release.number, release.count
        if number > self.records.size:
            return f"a member makes at most {self.records.size} releases"
        most = int(self.records[number - 1])
        if count > most:
            return f"it claims {count} records, at most {most} are possible"
        gram, moment = unpack(release.packed)
        diagonal = np.einsum("ii->i", gram)
        length, reward = self._largest_record()
        matrix, vector, trace = self._noise(number)
        slack = 1.0 + _ROUNDING
        # Exact sums have only rounding errors for noise.
        matrix = matrix * slack or _ROUNDING * max(float(diagonal.max()), 0.0) + np.finfo(np.float64).tiny
        if float(diagonal.sum()) > (count * length**2 + trace) * slack:
            return "its Gram matrix has a larger trace than its records allow"
        if float(np.linalg.norm(moment)) > (count * length * reward + vector) * slack:
            return "its moment is larger than its records allow"
        above = -gram
        np.einsum("ii->i", above)[:] += count * length**2 * slack + matrix
        if _factor(above) is None:
            return "its Gram matrix is larger than its records allow"
        diagonal += matrix
        if _factor(gram) is None:
            return "its Gram matrix is more negative than noise allows"
        diagonal += matrix
        seen = math.sqrt(max(float(moment @ np.linalg.solve(gram, moment)), 0.0))
        if seen > (math.sqrt(count) * reward + vector / math.sqrt(matrix)) * slack:
            return "its moment contradicts its Gram matrix"
        return ""

    def _largest_record(self) -> tuple[float, float]:
        """L and B."""
        if self.centring is None:
            return self.bounds.whole_norm, self.bounds.reward
        point = self.centring
        far = math.hypot(*point.context) + point.context_radius
        if point.intercept:
            far = math.hypot(point.context_radius, point.constant)
        return far, abs(point.reward) + point.reward_radius

    @cached_property
    def _noise(self) -> Callable[[int], tuple[float, float, float]]:
        """`_noise_of` with a cache: many members are at the same number."""
        return lru_cache(64)(self._noise_of)

    def _noise_of(self, number: int) -> tuple[float, float, float]:
        """(Υ, H, bound of tr N) of release `number`."""
        if isinstance(self.mechanism, NonPrivate):
            return 0.0, 0.0, 0.0
        sd = math.sqrt(self.rows) * float(self.mechanism.sd(number))
        point, d = self.centring, self.dimension
        failure, share = FALSE_REFUSAL / 3.0, self.bounds.gram_share
        wide = noise_bounds(
            noise_sd=sd,
            dimension=d if point is None or point.intercept else d + 1,
            releases=self.mechanism.releases,
            failure=failure,
        )
        matrix, vector, trace_variance = wide.matrix, wide.vector / math.sqrt(share), 2.0 * d
        if point is not None:
            far = 0.0 if point.intercept else math.hypot(*point.context) / point.constant
            vector = vector * (1.0 + far) + abs(point.reward) * matrix / point.constant
            matrix *= 1.0 + 2.0 * far
            trace_variance += 4.0 * far**2
        tail = math.sqrt(2.0 * math.log(self.mechanism.releases / failure))
        return matrix, vector, sd * math.sqrt(trace_variance) * tail


def _factor(matrix: Array) -> Array | None:
    """Cholesky factor; None if an eigenvalue is negative. Much faster than computing eigenvalues."""
    try:
        return np.asarray(np.linalg.cholesky(matrix))
    except np.linalg.LinAlgError:
        return None
