"""The posterior of a linear model: prior θ ~ N(mean, sd²I), rewards with Gaussian noise of sd σ.

With λ = σ²/sd² and V = λI + Gram, the posterior is N(θ̂, σ²V⁻¹), θ̂ = V⁻¹(b + λ·mean). σ, sd and, for actions
without features, the mean are first guesses, which `marginal_likelihood` replaces by what the agent's own
records say. Decisions come from the likeliest ones. Intervals are averaged over all that are likely: with σ,
sd and mean as if known, they would be too narrow while there are few rewards.

Why λ follows σ and sd, instead of being fixed: with λ fixed an agent whose rewards hardly vary would soon be
as sure of an action that it has never seen, and starve it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedfairx.core.confidence import LARGEST_SETTING, SIZE
from fedfairx.core.merit import Merit, Range
from fedfairx.core.own_record import CONTEXTS, RECORDS, REWARDS
from fedfairx.errors import require
from fedfairx.lanes.decorators import stage
from fedfairx.lanes.linalg import blend, inner
from fedfairx.lanes.rows import Rows, one_lane
from fedfairx.lanes.vector import fma, larger, sqrt
from fedfairx.lanes.vector_llvm import WIDTH
from fedfairx.util.arrays import Array
from fedfairx.util.config import Limits, check_fields, option

#: σ counts as at least this share of sd, so that λ ≥ 1e-6 and V can be inverted.
LEAST_NOISE = 1e-3
#: sd of the expected rewards of actions without features, and of a coordinate of θ, over the size of rewards.
NAMED, ROWS = 0.25, 0.6


@dataclass(frozen=True)
class Prior:
    """The prior of θ and the rewards' noise, for every rule but `"optimism"`.

    mean: of θ: one number for all coordinates, or a tuple of one for each, that of an intercept last.
    sd: the standard deviation of every coordinate of θ around it, in [1e-30, 1e30].
    noise_sd: the standard deviation of a reward around x·θ, in [1e-30, 1e30].
    learn: whether the agent's own rewards correct `sd`, `noise_sd` and the `mean` of actions without features
        or of an intercept; False keeps them fixed. Private agents that decide from releases alone never
        learn them.

    All are in units of the reward. The default is `Prior.for_merit`. A first guess that is wrong by a factor
    of ten costs some tens of rounds; with `learn=False` it can starve an action.

    >>> Prior(sd=1.0).ridge
    0.25
    """

    mean: float | tuple[float, ...] = option(
        0.0, limits=Limits(ge=-LARGEST_SETTING, le=LARGEST_SETTING, min_items=1)
    )
    sd: float = option(0.5, limits=SIZE)
    noise_sd: float = option(0.5, limits=SIZE)
    learn: bool = True

    def __post_init__(self) -> None:
        check_fields(self, Prior)

    @classmethod
    def for_merit(
        cls,
        merit: Merit,
        *,
        reward_range: Range | None = None,
        arms_of_their_own: bool = False,
        intercept: bool = False,
    ) -> Prior:
        """The default prior, for contexts in the unit ball.

        Without a reward range the noise has the size of rewards that the merit tells apart, and a coordinate
        of θ a part of it, so that scaling rewards and merit together changes no decision. A range, if not
        given that of the merit, says more: `arms_of_their_own`, whose contexts are unit vectors, have means
        around its middle; with features θ is around zero. Where there is an `intercept`, how far rewards are
        from 0 says nothing about the other coordinates.

        >>> from fedfairx.core.merit import Exponential
        >>> Prior.for_merit(Exponential(10.0))
        Prior(mean=0.0, sd=0.3, noise_sd=0.5, learn=True)
        >>> Prior.for_merit(Exponential(10.0), reward_range=(1.0, 5.0), arms_of_their_own=True)
        Prior(mean=3.0, sd=0.5, noise_sd=2.0, learn=True)
        """
        share = NAMED if arms_of_their_own else ROWS
        limits: Range | None = reward_range or getattr(merit, "reward_range", None)
        if limits is None:
            size = merit.reward_scale
            return cls(sd=share * size, noise_sd=size)
        low, high = limits
        half, middle = 0.5 * (high - low), 0.5 * (low + high)
        if arms_of_their_own:
            return cls(middle, share * half, half)
        far = 0.0 if intercept else 0.5 * max(abs(low), abs(high))
        return cls(sd=share * max(half, far), noise_sd=half)

    @property
    def ridge(self) -> float:
        """λ = σ²/sd² before any reward."""
        return max(self.noise_sd / self.sd, LEAST_NOISE) ** 2

    def means(self, dimension: int) -> Array:
        """`mean` as an array (d,)."""
        if isinstance(self.mean, tuple):
            require(len(self.mean) == dimension, "mean", f"must be {dimension} numbers", len(self.mean))
        return np.array(np.broadcast_to(np.asarray(self.mean, dtype=np.float64), dimension))


def posterior_of(
    gram: Array, moment: Array, *, mean: Array, sd: float, noise_sd: float
) -> tuple[Array, Array]:
    """θ̂ and σ²V⁻¹ from G (d, d) and b (d,), for a prior of this mean (d,) and sd."""
    ridge = max(noise_sd / sd, LEAST_NOISE) ** 2
    sizes = np.diagonal(gram) + ridge
    if np.count_nonzero(gram) == np.count_nonzero(np.diagonal(gram)):  # actions without features
        inverse = np.diag(1.0 / sizes)
    else:
        try:
            inverse = np.asarray(np.linalg.inv(gram + ridge * np.eye(mean.size)), dtype=np.float64)
        except np.linalg.LinAlgError:  # contexts so long that λ is lost in rounding
            values, vectors = np.linalg.eigh(gram)
            inverse = (vectors / (np.maximum(values, 0.0) + ridge)) @ vectors.T
    return np.asarray(inverse @ (moment + ridge * mean)), np.asarray(noise_sd**2 * inverse)


class LikelySizes(NamedTuple):
    """What σ and the prior's sd may be: g cases, and how likely each is. Arrays are (g,)."""

    weights: Array  # of the cases; they sum to 1
    variance: Array  # σ²; given the case, it is this times freedom/χ²
    ridge: Array  # λ
    freedom: float  # degrees of freedom of χ²; infinite if σ is known
    wide: float  # variance at least of the prior's mean, where that is learnt too

    @classmethod
    def fixed(cls, *, sd: float, noise_sd: float) -> LikelySizes:
        """Sizes that are known."""
        ridge = max(noise_sd / sd, LEAST_NOISE) ** 2
        one = np.ones(1)
        return cls(one, noise_sd**2 * one, ridge * one, math.inf, sd**2 + noise_sd**2)


class NamesBelief(NamedTuple):
    """What names differ by beside features (`own_record`): m cases of ρ, and how likely each is."""

    places: Mapping[str, int]  # of names, among the tallies
    tallies: Array  # (n, d + 2)
    weights: Array  # (m,) of the cases; they sum to 1
    ratios: Array  # (m,) ρ
    sizes: tuple[LikelySizes, ...]  # of σ and the prior's sd, for each


class PosteriorDraws(NamedTuple):
    """Draws of θ (d, S) and, for names, of σ² and ρ (S,)."""

    thetas: Array
    variance: Array
    ratio: Array


@dataclass(frozen=True)
class Posterior:
    """θ given sums of records, averaged over what σ, the prior's sd and its mean may be.

    gram, moment: Σxxᵀ (d, d) and Σxy (d,) of the records.
    prior_mean: (d,) of the prior, before it was learnt.
    sizes: the likely sizes.
    common: (d,) 1 in the coordinates whose prior mean is learnt, else 0: see `marginal_likelihood`.
    reward_range: (low, high) of all rewards, if known: no expected reward is outside.
    names: of names with own records, whose tallies are in gram and moment; `sizes` is then not used.

    >>> sizes = LikelySizes.fixed(sd=1.0, noise_sd=1.0)
    >>> Posterior(np.diag([3.0, 1.0]), np.ones(2), np.zeros(2), sizes, np.zeros(2)).mean.tolist()
    [0.25, 0.5]
    """

    gram: Array
    moment: Array
    prior_mean: Array
    sizes: LikelySizes
    common: Array
    reward_range: Range | None = None
    names: NamesBelief | None = None

    @cached_property
    def _cases(self) -> list[tuple[float, float, Posterior]]:
        """Weight, ρ and what is believed of θ for each case of ρ, with own records integrated out."""
        if self.names is None:
            return [(1.0, math.inf, self)]
        tallies, cases = self.names.tallies[self.names.tallies[:, RECORDS] > 0.0], []
        counts, rewards, contexts = tallies[:, RECORDS], tallies[:, REWARDS], tallies[:, CONTEXTS:]
        for weight, ratio, sizes in zip(
            self.names.weights.tolist(), self.names.ratios.tolist(), self.names.sizes, strict=True
        ):
            shares = 1.0 / (counts + ratio)
            gram = self.gram - (contexts.T * shares) @ contexts
            moment = self.moment - (shares * rewards) @ contexts
            case = replace(self, gram=gram, moment=moment, sizes=sizes, names=None)
            cases.append((weight, ratio, case))
        return cases

    @cached_property
    def _basis(self) -> tuple[Array, Array | None]:
        """Eigenvalues and eigenvectors of the Gram matrix; None for unit vectors."""
        diagonal = np.diagonal(self.gram)
        if np.count_nonzero(self.gram) == np.count_nonzero(diagonal):  # actions without features
            return diagonal, None
        values, vectors = np.linalg.eigh(self.gram)
        return np.maximum(values, 0.0), vectors

    def _around(self, ridge: Array, shift: Array) -> Array:
        """(d, S) means of θ, in the eigenbasis, for these sizes (S,)."""
        (values, _), (moment, mean, common) = self._basis, self._turned
        pulled = moment[:, None] + ridge * (mean[:, None] + common[:, None] * shift)
        return np.asarray(pulled / (values[:, None] + ridge))

    @cached_property
    def _turned(self) -> Array:
        """(3, d) moment, prior mean and `common` in the eigenbasis."""
        parts, (_, vectors) = np.stack([self.moment, self.prior_mean, self.common]), self._basis
        return parts if vectors is None else parts @ vectors

    @cached_property
    def _shift(self) -> tuple[Array, Array]:
        """(g,) by how much the prior's mean is higher in `common` coordinates, and its variance over σ²."""
        sizes, (values, _), (moment, mean, common) = self.sizes, self._basis, self._turned
        spread = values + sizes.ridge[:, None]
        p = sizes.ridge * (common**2 * values / spread).sum(axis=1)
        q = sizes.ridge * (common * (moment - values * mean) / spread).sum(axis=1)
        fit = np.divide(q, p, out=np.zeros_like(p), where=p > 1e-12 * sizes.ridge)
        rho = sizes.variance / np.maximum(fit**2, sizes.wide)
        return q / (p + rho), 1.0 / (p + rho)

    @cached_property
    def mean(self) -> Array:
        """(d,) of θ."""
        if self.names is not None:
            return np.asarray(sum(weight * case.mean for weight, _, case in self._cases))
        sizes, (_, vectors) = self.sizes, self._basis
        mean = self._around(sizes.ridge, self._shift[0]) @ sizes.weights
        return np.asarray(mean if vectors is None else vectors @ mean)

    def draws(self, levels: Array, factors: Array, normals: Array) -> PosteriorDraws:
        """S draws.

        levels: (S,) uniforms, for the sizes; factors: (S,) draws of freedom/χ²; normals: (1 + d, S).
        """
        if self.names is None:
            return self._draws(levels, factors, normals, math.inf)
        cases, size = self._cases, levels.size
        ends = np.cumsum([weight for weight, _, _ in cases])
        which = np.minimum(np.searchsorted(ends, levels, side="right"), len(cases) - 1)
        drawn = PosteriorDraws(np.empty((normals.shape[0] - 1, size)), np.empty(size), np.empty(size))
        for number, (weight, ratio, case) in enumerate(cases):
            some = np.flatnonzero(which == number)
            left = np.clip((levels[some] - (ends[number] - weight)) / weight, 0.0, 1.0)
            each = case._draws(left, factors[some], normals[:, some], ratio)
            drawn.thetas[:, some], drawn.variance[some], drawn.ratio[some] = each
        return drawn

    def _draws(self, levels: Array, factors: Array, normals: Array, ratio: float) -> PosteriorDraws:
        sizes, (values, vectors) = self.sizes, self._basis
        case = np.searchsorted(np.cumsum(sizes.weights)[:-1], levels, side="right")
        variance, ridge = sizes.variance[case] * factors, sizes.ridge[case]
        shift, looseness = (each[case] for each in self._shift)
        shift = shift + np.sqrt(variance * looseness) * normals[0]
        thetas = self._around(ridge, shift) + np.sqrt(variance / (values[:, None] + ridge)) * normals[1:]
        thetas = np.asarray(thetas if vectors is None else vectors @ thetas)
        return PosteriorDraws(thetas, variance, np.full(levels.size, ratio))

    def own_mean(self, names: Sequence[str]) -> Array:
        """(N,) the expected difference of each name from others with the same features."""
        counts, rewards, contexts = self._tallies_of(names)
        means = np.zeros(len(names))
        for weight, ratio, case in self._cases:
            means += weight * (rewards - contexts @ case.mean) / (counts + ratio)
        return means

    def own_draws(self, names: Sequence[str], drawn: PosteriorDraws, normals: Array) -> Array:
        """(N, S) draws of it, given those of θ; normals (N, S)."""
        counts, rewards, contexts = self._tallies_of(names)
        shares = 1.0 / (counts[:, None] + drawn.ratio)
        return np.asarray(
            shares * (rewards[:, None] - contexts @ drawn.thetas) + np.sqrt(drawn.variance * shares) * normals
        )

    def _tallies_of(self, names: Sequence[str]) -> tuple[Array, Array, Array]:
        """n (N,), r (N,) and s (N, d) of names, zeros for one without a tally."""
        assert self.names is not None
        places = np.array([self.names.places.get(name, -1) for name in names], dtype=np.int64)
        rows = np.where(places[:, None] >= 0, self.names.tallies[places], 0.0)
        return rows[:, RECORDS], rows[:, REWARDS], rows[:, CONTEXTS:]


@stage
def posterior_mean(inverse: Rows, packed: Rows, mean: Rows, ridge: float, theta: Rows) -> None:
    """θ̂ = V⁻¹(b + λ·mean). inverse (d, d), packed (q,), mean and theta (d,)."""
    dimension = theta.shape[0]
    moment = packed.shape[0] - dimension
    for i in range(dimension):
        s = 0.0
        for j in range(dimension):
            s = fma(inverse[i, j], fma(ridge, mean[j], packed[moment + j]), s)
        theta[i] = s


@stage
def squared_width(contexts: Rows, arm: int, inverse: Rows, product: Rows) -> float:
    """x_aᵀ V⁻¹ x_a: σ² times it is the posterior variance of the action's mean.

    contexts (K, d), inverse (d, d); product (d,) is workspace.
    """
    dimension = contexts.shape[1]
    if one_lane(product) and dimension >= WIDTH:  # many features: `blend` takes several coordinates at a time
        blend(inverse, contexts[arm], product)
        return inner(contexts[arm], product)
    square = 0.0
    for i in range(dimension):  # V⁻¹ is symmetric: the upper triangle, twice
        x = contexts[arm, i]
        half = 0.0
        for j in range(i + 1, dimension):
            half = fma(inverse[i, j], contexts[arm, j], half)
        square = fma(x, fma(2.0, half, inverse[i, i] * x), square)
    return square


@stage
def sample(inverse: Rows, variance: float, normals: Rows, factor: Rows, theta: Rows) -> None:
    """theta (d,), which holds θ̂, ← a draw of N(θ̂, σ²V⁻¹): θ̂ + σ F z with V⁻¹ = F Fᵀ, F lower.

    inverse and factor (d, d), normals z (d,).
    """
    dimension = theta.shape[0]
    sd = sqrt(variance)
    for i in range(dimension):
        for j in range(i + 1):
            s = inverse[i, j]
            for k in range(j):
                s = fma(-factor[i, k], factor[j, k], s)
            if i == j:
                factor[i, i] = sqrt(larger(s, 0.0))
            else:
                factor[i, j] = s / larger(factor[j, j], 1e-300)
    for i in range(dimension):
        s = 0.0
        for j in range(i + 1):
            s = fma(factor[i, j], normals[j], s)
        theta[i] = fma(sd, s, theta[i])
