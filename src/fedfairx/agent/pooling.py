"""What an agent makes of the releases it holds: what decisions come from, but for its own fresh records.

all alike          the sum of all releases (Alg. 1 line 22)
beside its own     its own exact statistics, and the others' noisy ones weighted by their worth

Noisy sums are first made fit to be decided from, in the way that the agent's rule needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from fedfairx.agent.partners import Judge, Judged
from fedfairx.core import noise_filter, noisy_sums
from fedfairx.core.confidence import Confidence
from fedfairx.core.statistics import dimension_of, packed_size
from fedfairx.errors import require
from fedfairx.lanes.rows import Rows, floats
from fedfairx.privacy import Release
from fedfairx.privacy.mechanisms.gaussian import Mechanism
from fedfairx.util.arrays import Array


class Pooled(NamedTuple):
    """Packed statistics, and how many observations are in them."""

    packed: Array
    records: float


class Known(NamedTuple):
    """What an agent knows when it pools: σ² of the rewards, E‖θ‖² by its posterior, λ, the prior's mean."""

    variance: float
    size: float
    ridge: float
    mean: Array


class Pool(Protocol):
    """How releases become what decisions come from."""

    def all_alike(self, releases: Sequence[Release], dimension: int, known: Known) -> Pooled:
        """Everybody's latest release, one's own among them."""
        ...

    def beside_own(self, own: Array, own_count: int, others: Sequence[Release], known: Known) -> Pooled:
        """One's own exact statistics, and the others' releases by their worth."""
        ...


def sds(mechanism: Mechanism, releases: Sequence[Release]) -> list[float]:
    """sd of an off-diagonal entry of each of these releases."""
    # Agents in lock step all have the same number, and stating an sd is not free.
    stated = {number: float(mechanism.sd(number)) for number in {r.number for r in releases}}
    return [stated[release.number] for release in releases]


def sum_sd(mechanism: Mechanism, releases: Sequence[Release]) -> float:
    """Noise sd of the sum of these releases."""
    return math.sqrt(sum(sd**2 for sd in sds(mechanism, releases)))


def _total(releases: Sequence[Release], size: int) -> tuple[Array, float]:
    return combine((release.packed for release in releases), size), float(sum(r.count for r in releases))


@dataclass(frozen=True)
class PosteriorPool:
    """For the rules of the posterior: noisy sums are weighed, direction by direction, by what they say."""

    mechanism: Mechanism
    private: bool

    def all_alike(self, releases: Sequence[Release], dimension: int, known: Known) -> Pooled:
        total, count = _total(releases, packed_size(dimension))
        if not self.private or not releases:
            return Pooled(total, count)
        noise_sd = sum_sd(self.mechanism, releases)
        weighed = weigh(total, noise_sd=noise_sd, size=known.size, variance=known.variance)
        return Pooled(weighed, count)

    def beside_own(self, own: Array, own_count: int, others: Sequence[Release], known: Known) -> Pooled:
        if not others:
            return Pooled(own, float(own_count))
        theirs = self.all_alike(others, dimension_of(own), known)
        return Pooled(own + theirs.packed, own_count + theirs.records)

    def judged(
        self, own: Array, others: Mapping[str, Release], known: Known, weights: Mapping[str, Array]
    ) -> Judged:
        """What partners who may differ say of one's own θ; `weights` of some of them are known."""
        judge = Judge(own, known.mean, size=known.size, ridge=known.ridge, variance=known.variance)
        noise = dict(zip(others, sds(self.mechanism, list(others.values())), strict=True))
        return judge.together({name: each.packed for name, each in others.items()}, noise, weights)


@dataclass(frozen=True)
class OptimismPool:
    """For optimism. `shift` is in sds of the sum's noise."""

    mechanism: Mechanism
    private: bool
    confidence: Confidence
    shift: float

    def all_alike(self, releases: Sequence[Release], dimension: int, known: Known) -> Pooled:  # noqa: ARG002
        total, count = _total(releases, packed_size(dimension))
        if not self.private:
            return Pooled(total, count)
        return Pooled(lift(total, self.shift * sum_sd(self.mechanism, releases)), count)

    def beside_own(
        self,
        own: Array,
        own_count: int,
        others: Sequence[Release],
        known: Known,  # noqa: ARG002
    ) -> Pooled:
        """One weight for all directions."""
        if not others:
            return Pooled(own, float(own_count))
        total, count = _total(others, own.size)
        noise_sd = sum_sd(self.mechanism, others)
        shift = self.shift * noise_sd
        return Pooled(
            *add_by_worth(
                own,
                float(own_count),
                total,
                count,
                noise_sd=noise_sd,
                shift=shift,
                confidence=self.confidence,
            )
        )


def pool_for(mechanism: Mechanism, *, private: bool, region: Confidence | None, shift: float) -> Pool:
    """The pool of an agent: of optimism where it has a confidence region, else of a posterior."""
    if region is None:
        return PosteriorPool(mechanism, private)
    return OptimismPool(mechanism, private, region, shift)


def combine(releases: Iterable[Array], size: int) -> Array:
    """The sum of packed statistics, in the order given (the same order gives the same bits)."""
    total = np.zeros(size)
    for packed in releases:
        total += packed
    return total


def lift(packed: Array, shift: float) -> Array:
    """A copy with `shift` added to the Gram diagonal, and negative eigenvalues then raised to zero."""
    lifted = packed.copy()
    noisy_sums.lift(floats(lifted), shift, _room(packed))
    return lifted


def weigh(packed: Array, *, noise_sd: float, size: float, variance: float) -> Array:
    """A copy, weighed direction by direction beside its noise: see `core.weighing`. `size` is E‖θ‖²."""
    d = dimension_of(packed)
    weighed = packed.copy()
    room = floats(np.empty((d, d))), floats(np.empty((d, d + 1)))
    noise_filter.filter_noise(floats(weighed), noise_sd, size, variance, *room)
    return weighed


def add_by_worth(
    own: Array,
    own_count: float,
    others: Array,
    others_count: float,
    *,
    noise_sd: float,
    shift: float,
    confidence: Confidence,
) -> tuple[Array, float]:
    """An agent's own exact statistics and the others' noisy ones by their worth, and how many records that
    counts for: see `core.noisy_sums`."""
    both = others.copy()
    weight = noisy_sums.add_by_worth(
        floats(own),
        own_count,
        floats(both),
        others_count,
        noise_sd,
        shift,
        confidence.radius(own_count + others_count, dimension_of(own)),
        confidence.regulariser,
        confidence.parameter_norm,
        _room(own),
    )
    return both, own_count + weight * others_count


def _room(packed: Array) -> Rows:
    d = dimension_of(packed)
    return floats(np.empty((2, d, d)))


@dataclass(frozen=True)
class NoiseBounds:
    """What the aggregate's noise stays below, at every release at once, with probability 1 - failure.

    With Υ = sup ‖N_t‖ and a shift of 2Υ on the sum, the noise acts as a regulariser between ρ_min = Υ and
    ρ_max = 3Υ, and the vector's noise costs z = sup ‖h_t‖ / √ρ_min (Shariff and Sheffet 2018, of one agent;
    here of the sum, once).
    """

    matrix: float  # Υ
    vector: float  # sup ‖h_t‖

    @property
    def shift(self) -> float:
        return 2.0 * self.matrix

    @property
    def smallest(self) -> float:
        return self.matrix

    @property
    def largest(self) -> float:
        return 3.0 * self.matrix

    @property
    def vector_cost(self) -> float:
        return self.vector / math.sqrt(self.smallest)


def noise_bounds(*, noise_sd: float, dimension: int, releases: int, failure: float) -> NoiseBounds:
    """Bounds on the noise of an aggregate whose noisiest entry has sd `noise_sd`."""
    require(noise_sd > 0, "noise_sd", "must be > 0", noise_sd)
    matrix = noise_sd * (2.0 * math.sqrt(dimension) + 2.0 * math.sqrt(math.log(2.0 * releases / failure)))
    vector = noise_sd * (math.sqrt(dimension) + math.sqrt(2.0 * math.log(releases / failure)))
    return NoiseBounds(matrix, vector)
