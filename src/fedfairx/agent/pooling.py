"""Pooling: from the releases that an agent holds to the statistics that its decisions come from.

all alike          the sum of all releases (Alg. 1 line 22)
beside its own     the agent's own exact statistics, plus the peers' noisy ones weighted by their worth

Noisy sums are first made usable: optimism needs a positive definite sum, a posterior weighs every direction
by how much of it is noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    """Packed statistics, and the number of observations in them."""

    packed: Array
    records: float


class Beliefs(NamedTuple):
    """What an agent believes when it pools: σ² of the rewards, E‖θ‖² under its posterior, λ, prior mean, the
    number of own rewards, and τ² (`core.own_record`).
    """

    variance: float
    size: float
    ridge: float
    mean: Array
    observed: float
    own: float = 0.0

    @property
    def share(self) -> float:
        """How much a record counts whose name is not known: its reward varies by τ² more."""
        return self.variance / (self.variance + self.own) if self.own > 0.0 else 1.0


@dataclass(frozen=True)
class Pool:
    """How an agent pools releases of one mechanism.

    region: the confidence region of optimism; None for rules that have a posterior.
    shift: what optimism adds to the Gram diagonal of noisy sums, in sds of their noise.
    rows: how many members' noise a release holds; several with secure aggregation.
    closed: noise sd of what a release also holds from closed epochs.
    """

    mechanism: Mechanism
    private: bool
    region: Confidence | None = None
    shift: float = 0.0
    rows: int = 1
    closed: float = 0.0

    def sds(self, releases: Sequence[Release]) -> list[float]:
        """Noise sd of an off-diagonal entry of each release."""
        return sds(self.mechanism, releases, self.rows, self.closed)

    def all_alike(self, releases: Sequence[Release], dimension: int, beliefs: Beliefs) -> Pooled:
        """Pool the latest releases of all agents, the agent's own among them."""
        total, count = _total(releases, packed_size(dimension))
        if self.private and releases:
            noise_sd = sum_sd(self.mechanism, releases, self.rows, self.closed)
            total, noise_sd = beliefs.share * total, beliefs.share * noise_sd
            if self.region is None:
                total = weigh(total, noise_sd=noise_sd, size=beliefs.size, variance=beliefs.variance)
            else:
                total = lift(total, self.shift * noise_sd)
        return Pooled(total, count)

    def beside_own(self, own: Array, own_count: int, others: Sequence[Release], beliefs: Beliefs) -> Pooled:
        """Add the peers' releases, by their worth, to the agent's own exact statistics."""
        if not others:
            return Pooled(own, float(own_count))
        if self.region is None:
            theirs = self.all_alike(others, dimension_of(own), beliefs)
            return Pooled(own + theirs.packed, own_count + theirs.records)
        both, count = _total(others, own.size)
        noise_sd = sum_sd(self.mechanism, others, self.rows, self.closed)
        weight = noisy_sums.add_by_worth(  # one weight for all directions
            floats(own),
            float(own_count),
            floats(both),
            count,
            noise_sd,
            self.shift * noise_sd,
            self.region.radius(own_count + count, dimension_of(own)),
            self.region.regulariser,
            self.region.parameter_norm,
            _workspace(own),
        )
        return Pooled(both, own_count + weight * count)

    def judged(
        self, own: Array, others: Mapping[str, Release], beliefs: Beliefs, weights: Mapping[str, Array]
    ) -> Judged:
        """Judge partners who may differ by the agent's own records; the `weights` of some are known."""
        judge = Judge(
            own,
            beliefs.mean,
            size=beliefs.size,
            ridge=beliefs.ridge,
            variance=beliefs.variance,
            observed=beliefs.observed,
        )
        share = beliefs.share if self.private else 1.0
        noise = {name: share * sd for name, sd in zip(others, self.sds(list(others.values())), strict=True)}
        return judge.together({name: share * each.packed for name, each in others.items()}, noise, weights)


def sds(mechanism: Mechanism, releases: Sequence[Release], rows: int = 1, closed: float = 0.0) -> list[float]:
    """Noise sd of an off-diagonal entry of each release, if it is the sum of this many members' rows.

    closed: sd of the noise from closed epochs; release 0 holds nothing else.
    """
    # Agents in lock step all have the same number, and computing an sd is expensive.
    stated = {number: float(mechanism.sd(number)) for number in {r.number for r in releases} - {0}}
    return [math.hypot(math.sqrt(rows) * stated.get(each.number, 0.0), closed) for each in releases]


def sum_sd(mechanism: Mechanism, releases: Sequence[Release], rows: int = 1, closed: float = 0.0) -> float:
    """Noise sd of the sum of these releases."""
    return math.sqrt(sum(sd**2 for sd in sds(mechanism, releases, rows, closed)))


def _total(releases: Sequence[Release], size: int) -> tuple[Array, float]:
    return combine((release.packed for release in releases), size), float(sum(r.count for r in releases))


def combine(releases: Iterable[Array], size: int) -> Array:
    """The sum of packed statistics, in the order given (the same order gives the same bits)."""
    total = np.zeros(size)
    for packed in releases:
        total += packed
    return total


def lift(packed: Array, shift: float) -> Array:
    """A copy with `shift` added to the Gram diagonal, and negative eigenvalues then raised to zero."""
    lifted = packed.copy()
    noisy_sums.lift(floats(lifted), shift, _workspace(packed))
    return lifted


def weigh(packed: Array, *, noise_sd: float, size: float, variance: float) -> Array:
    """A copy whose directions are weighted against their noise (`core.noise_filter`). `size` is E‖θ‖²."""
    d = dimension_of(packed)
    weighed = packed.copy()
    workspace = floats(np.empty((d, d))), floats(np.empty((d, d + 1)))
    noise_filter.filter_noise(floats(weighed), noise_sd, size, variance, *workspace)
    return weighed


def _workspace(packed: Array) -> Rows:
    d = dimension_of(packed)
    return floats(np.empty((2, d, d)))


@dataclass(frozen=True)
class NoiseBounds:
    """Bounds on the noise of an aggregate that hold at every release at once, with probability 1 - failure.

    With Υ = sup ‖N_t‖ and a shift of 2Υ on the sum, the noise acts as a regulariser between ρ_min = Υ and
    ρ_max = 3Υ, and the moment's noise costs z = sup ‖h_t‖ / √ρ_min (Shariff and Sheffet 2018, for one agent;
    here for the sum, once).
    """

    matrix: float  # Υ
    vector: float  # sup ‖h_t‖
    shift: float
    smallest: float  # ρ_min
    largest: float  # ρ_max
    vector_cost: float  # z

    def radius(self, observations: float, *, dimension: int, noise_sd: float, alpha: float) -> float:
        """√β = σ√(2 ln(2/α) + d ln(1 + N/(dρ_min))) + √ρ_max + z of a sum of N observations, for ‖θ*‖ ≤ 1.

        θ̂ - θ* = V⁻¹(Xη + h - Hθ*) with V ≽ H, and V ≽ G + ρ_min I for the first term (Abbasi-Yadkori et al.
        2011).
        """
        grown = math.log1p(observations / (dimension * self.smallest))
        spread = 2 * math.log(2 / alpha) + dimension * grown
        return noise_sd * math.sqrt(spread) + math.sqrt(self.largest) + self.vector_cost


def noise_bounds(*, noise_sd: float, dimension: int, releases: int, failure: float) -> NoiseBounds:
    """Bounds on the noise of an aggregate whose noisiest entry has sd `noise_sd`."""
    require(noise_sd > 0, "noise_sd", "must be > 0", noise_sd)
    matrix = noise_sd * (2.0 * math.sqrt(dimension) + 2.0 * math.sqrt(math.log(2.0 * releases / failure)))
    vector = noise_sd * (math.sqrt(dimension) + math.sqrt(2.0 * math.log(releases / failure)))
    return NoiseBounds(matrix, vector, 2.0 * matrix, matrix, 3.0 * matrix, vector / math.sqrt(matrix))
