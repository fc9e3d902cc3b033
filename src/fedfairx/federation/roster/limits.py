"""Whether a release can be what it says: sums of so many bounded records, and noise of a known law.

Release k of n records (x, y) with ‖x‖ ≤ L and |y| ≤ B is U = G + N and u = g + h, where G = Σxxᵀ and g =
Σxy. Of the sums it is certain that

    0 ⪯ G,   tr G ≤ nL²,   ‖g‖ ≤ nLB,   gᵀ(G + cI)⁻¹g ≤ Σy² ≤ nB²   for every c > 0,

the last since g = Xᵀy, G = XᵀX and X(XᵀX + cI)⁻¹Xᵀ ⪯ I. N is Gaussian with sd s off its diagonal and √2·s
on it, h with sd s/√r, s being the mechanism's sd of release k. With probability 1 - p, at all τ releases at
once (`aggregate.noise_bounds` at p/3 for each of the three; the expected largest eigenvalue of N/s is at
most 2√d, and it is a √2-Lipschitz function of independent normals),

    ‖N‖ ≤ Υ = s(2√d + 2√ln(6τ/p)),   ‖h‖ ≤ H = (s/√r)(√d + √(2 ln(3τ/p))),   tr N ≤ s√(2d)·√(2 ln(3τ/p)).

Then an honest release has

    λmin(U) ≥ -Υ,   λmax(U) ≤ nL² + Υ,   tr U ≤ nL² + tr N,   ‖u‖ ≤ nLB + H,
    √(uᵀ(U + 2ΥI)⁻¹u) ≤ √n·B + H/√Υ,

the last because U + 2ΥI is at least G + ΥI and at least ΥI. It keeps a member from a large moment beside a
small Gram, which would be an absurd estimate. With centring, records lie within r of x₀ and b of y₀, so L =
‖x₀‖ + r, B = |y₀| + b; the noise of the centred sums in d + 1 dimensions reaches the release as N + x₀sᵀ +
sx₀ᵀ and h + x₀t + y₀s, s and t being a column of its N and an entry of its h over κ: Υ grows by 1 +
2‖x₀‖/κ, H by 1 + ‖x₀‖/κ, and |y₀|Υ/κ is added to H.
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
from fedfairx.privacy.mechanisms.gaussian import NonPrivate, PublicMechanism
from fedfairx.util.arrays import Array

#: p: the chance that any of all releases of an honest member is refused.
FALSE_REFUSAL = 1e-9
_ROUNDING = 1e-6  # of sums of floats, and of the grid that releases lie on, relative


@dataclass(frozen=True)
class Limits:
    """What release k of a member can hold; `records[k - 1]` of them at most. Exact sums have no noise."""

    mechanism: PublicMechanism
    dimension: int
    bounds: Bounds
    centring: Centring | None
    records: Integers

    def check(self, name: str, release: Release, before: Release | None = None) -> None:
        """Refuse what can't be; `before` is what is held of this sender. The size must have been checked."""
        why = self._why_absurd(release) or _why_not_after(release, before)
        if why:
            raise MessageRefused(f"release {release.number} of {name!r} can't be: {why}", reason="absurd")

    def _why_absurd(self, release: Release) -> str:
        number, count = release.number, release.count
        if number > self.records.size:
            return f"there are {self.records.size} releases"
        most = int(self.records[number - 1])
        if count > most:
            return f"it claims {count} records, and at most {most} can be in it"
        gram, moment = unpack(release.packed)
        diagonal = np.einsum("ii->i", gram)
        length, reward = self._largest_record()
        matrix, vector, trace = self._noise(number)
        slack = 1.0 + _ROUNDING
        # Of exact sums rounding is all that stands for noise.
        matrix = matrix * slack or _ROUNDING * max(float(diagonal.max()), 0.0) + np.finfo(np.float64).tiny
        if float(diagonal.sum()) > (count * length**2 + trace) * slack:
            return "its Gram matrix has a larger trace than so many records make it"
        if float(np.linalg.norm(moment)) > (count * length * reward + vector) * slack:
            return "its moment is larger than so many records make it"
        above = -gram
        np.einsum("ii->i", above)[:] += count * length**2 * slack + matrix
        if _factor(above) is None:
            return "its Gram matrix is larger than so many records make it"
        diagonal += matrix
        if _factor(gram) is None:
            return "its Gram matrix is more negative than noise makes it"
        diagonal += matrix
        seen = math.sqrt(max(float(moment @ np.linalg.solve(gram, moment)), 0.0))
        if seen > (math.sqrt(count) * reward + vector / math.sqrt(matrix)) * slack:
            return "its moment does not go with its Gram matrix"
        return ""

    def _largest_record(self) -> tuple[float, float]:
        """L and B."""
        if self.centring is None:
            return self.bounds.context_norm, self.bounds.reward
        point = self.centring
        return math.hypot(*point.context) + point.context_radius, abs(point.reward) + point.reward_radius

    @cached_property
    def _noise(self) -> Callable[[int], tuple[float, float, float]]:
        """`_noise_of`, remembered: many members are at the same number."""
        return lru_cache(64)(self._noise_of)

    def _noise_of(self, number: int) -> tuple[float, float, float]:
        """(Υ, H, bound of tr N) of release `number`."""
        if isinstance(self.mechanism, NonPrivate):
            return 0.0, 0.0, 0.0
        sd, point, d = float(self.mechanism.sd(number)), self.centring, self.dimension
        failure, share = FALSE_REFUSAL / 3.0, self.bounds.gram_share
        wide = noise_bounds(
            noise_sd=sd,
            dimension=d if point is None else d + 1,
            releases=self.mechanism.releases,
            failure=failure,
        )
        matrix, vector, trace_variance = wide.matrix, wide.vector / math.sqrt(share), 2.0 * d
        if point is not None:
            far = math.hypot(*point.context) / point.constant
            vector = vector * (1.0 + far) + abs(point.reward) * matrix / point.constant
            matrix *= 1.0 + 2.0 * far
            trace_variance += 4.0 * far**2
        tail = math.sqrt(2.0 * math.log(self.mechanism.releases / failure))
        return matrix, vector, sd * math.sqrt(trace_variance) * tail


def _why_not_after(release: Release, before: Release | None) -> str:
    if before is not None and release.number > before.number and release.count < before.count:
        return f"it holds fewer records than release {before.number}"
    return ""


def _factor(matrix: Array) -> Array | None:
    """Cholesky's factor; None where there is a negative direction. Much faster than eigenvalues."""
    try:
        return np.asarray(np.linalg.cholesky(matrix))
    except np.linalg.LinAlgError:
        return None
