"""The posterior of a linear model: θ ~ N(mean, sd²I) beforehand, rewards with Gaussian noise of sd σ.

With λ = σ²/sd² and V = λI + Gram, the posterior is N(θ̂, σ²V⁻¹), θ̂ = V⁻¹(b + λ·mean). σ is learnt from the
agent's own rewards as they come: a reward that differs by e from its prediction x·θ̂, with g = 1 + xᵀV⁻¹x,
has e²/g as an estimate of σ², and the mean of these is what V, b and Σy² would give, without their
cancellation. λ follows σ whenever V⁻¹ is derived anew; own observations 1, 2, 4, 8, … are such moments.

Why sd is kept and λ follows, instead of a fixed λ: with λ fixed an agent whose rewards hardly vary would soon
be as sure of an arm that it has never seen, and starve it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedfairx.arrays import Array
from fedfairx.core.confidence import LARGEST_SETTING, SMALLEST_SETTING
from fedfairx.core.estimate import grow
from fedfairx.core.learner import Learner
from fedfairx.core.statistics import add
from fedfairx.errors import require
from fedfairx.lanes.block import Lanes
from fedfairx.lanes.compile import glue, leaf, stage
from fedfairx.lanes.linear import entry, inner, multiply
from fedfairx.lanes.registers import WIDTH
from fedfairx.lanes.vector import fma, item, larger, load, load_run, sqrt, store, store_run

#: Observations that the noise assumed beforehand counts as, where the noise is learnt.
ASSUMED_WEIGHT = 2.0
#: The learnt σ stays above this share of the prior's sd, so that λ ≥ 1e-6 and V can be inverted.
LEAST_NOISE = 1e-3


@dataclass(frozen=True)
class Prior:
    """What an agent believes before it has seen a reward, for every rule but `"optimism"`.

    mean: of θ: one number for all coordinates, or a tuple of one for each.
    sd: the standard deviation of every coordinate of θ around it, in [1e-100, 1e100].
    noise_sd: the standard deviation of a reward around x·θ, in [1e-100, 1e100].
    learn_noise: whether `noise_sd` is a first guess, which counts as two observations, and the agent's own
        rewards do the rest; False keeps it as it is. Private agents that decide from releases alone never
        learn it.

    The defaults suit contexts in the unit ball and rewards of a size about 1. A larger `sd` costs a few more
    rounds of exploring; one far below the true size of θ can starve an arm that was unlucky at first. Too
    large a `noise_sd` does little harm; too small a one, not learnt, starves.

    >>> Prior(sd=1.0).ridge
    0.25
    """

    mean: float | tuple[float, ...] = 0.0
    sd: float = 0.5
    noise_sd: float = 0.5
    learn_noise: bool = True

    def __post_init__(self) -> None:
        for name in ("sd", "noise_sd"):
            value = getattr(self, name)
            rule = f"must be from {SMALLEST_SETTING:g} to {LARGEST_SETTING:g}"
            require(SMALLEST_SETTING <= value <= LARGEST_SETTING, name, rule, value)
        if not isinstance(self.mean, int | float | tuple):  # any sequence of numbers will do
            object.__setattr__(self, "mean", tuple(float(number) for number in np.ravel(self.mean)))
        numbers = self.mean if isinstance(self.mean, tuple) else (self.mean,)
        fits = len(numbers) >= 1 and all(abs(number) <= LARGEST_SETTING for number in numbers)
        require(fits, "mean", "must be one finite number, or a tuple of one for each coordinate", self.mean)
        require(isinstance(self.learn_noise, bool), "learn_noise", "must be True or False", self.learn_noise)

    @property
    def ridge(self) -> float:
        """λ = σ²/sd² before any reward."""
        return max(self.noise_sd / self.sd, LEAST_NOISE) ** 2

    def means(self, dimension: int) -> Array:
        """`mean` as an array (d,)."""
        if isinstance(self.mean, tuple):
            require(len(self.mean) == dimension, "mean", f"must be {dimension} numbers", len(self.mean))
        return np.array(np.broadcast_to(np.asarray(self.mean, dtype=np.float64), dimension))


class Assumed(NamedTuple):
    """`Prior`, in the form that compiled stages read."""

    mean: Array  # (d,)
    variance: float  # sd²
    noise: float  # σ² assumed beforehand
    learning: float  # 1 where the noise is learnt, 0 where it is known


def assumed(prior: Prior, dimension: int, *, learning: bool) -> Assumed:
    """The prior for stages; `learning` may forbid what the prior would allow."""
    learns = 1.0 if prior.learn_noise and learning else 0.0
    return Assumed(prior.means(dimension), prior.sd**2, prior.noise_sd**2, learns)


@leaf
def noise_variance(prior: Assumed, surprise: float, observed: float) -> float:
    """σ² as known now, from the sum of e²/g over `observed` rewards of one's own."""
    told = fma(prior.learning, surprise, ASSUMED_WEIGHT * prior.noise)
    least = LEAST_NOISE * LEAST_NOISE * prior.variance
    return larger(told / fma(prior.learning, observed, ASSUMED_WEIGHT), least)


@leaf
def posterior_mean(
    lanes: Lanes, inverse: Array, packed: Array, mean: Array, ridge: Array, theta: Array
) -> None:
    """θ̂ = V⁻¹(b + λ·mean). inverse (d, d[, n]), packed (q, n), mean (d,), ridge (n,), theta (d, n)."""
    dimension = theta.shape[0]
    moment, weight = packed.shape[0] - dimension, load(lanes, ridge)
    for i in range(dimension):
        s = 0.0
        for j in range(dimension):
            pull = fma(weight, item(mean, j), load(lanes, packed, moment + j))
            s = fma(entry(lanes, inverse, i, j), pull, s)
        store(s, lanes, theta, i)


@leaf
def _width_of_one(contexts: Array, arm: int, inverse: Array, product: Array) -> float:
    """`squared_width` of one lane with many features: WIDTH coordinates of V⁻¹x at a time."""
    dimension = contexts.shape[1]
    whole = dimension - dimension % WIDTH
    row = product.reshape(dimension)
    for j in range(0, whole, WIDTH):
        run = 0.0
        for i in range(dimension):
            run = fma(load_run(inverse, i, j), item(contexts, arm, i), run)
        store_run(run, row, j)
    for j in range(whole, dimension):
        s = 0.0
        for i in range(dimension):
            s = fma(item(inverse, i, j), item(contexts, arm, i), s)
        row[j] = s
    square = 0.0
    for j in range(dimension):
        square = fma(item(contexts, arm, j), item(row, j), square)
    return square


@leaf
def squared_width(lanes: Lanes, contexts: Array, arm: int, inverse: Array, product: Array) -> float:
    """x_aᵀ V⁻¹ x_a: σ² times it is the posterior variance of the arm's mean.

    contexts (K, d[, n]), inverse (d, d[, n]); product (d, n) is room.
    """
    dimension = contexts.shape[1]
    if lanes is None and contexts.ndim == 2 and dimension >= WIDTH:
        return _width_of_one(contexts, arm, inverse, product)
    square = 0.0
    for i in range(dimension):  # V⁻¹ is symmetric: the upper triangle, twice
        x = entry(lanes, contexts, arm, i)
        half = 0.0
        for j in range(i + 1, dimension):
            half = fma(entry(lanes, inverse, i, j), entry(lanes, contexts, arm, j), half)
        square = fma(x, fma(2.0, half, entry(lanes, inverse, i, i) * x), square)
    return square


@stage
def sample(
    lanes: Lanes, inverse: Array, variance: Array, normals: Array, factor: Array, theta: Array
) -> None:
    """theta (d, n), which holds θ̂, ← a draw of N(θ̂, σ²V⁻¹): θ̂ + σ F z with V⁻¹ = F Fᵀ, F lower.

    inverse and factor (d, d, n), variance (n,), normals (d, n).
    """
    dimension = theta.shape[0]
    sd = sqrt(load(lanes, variance))
    for i in range(dimension):
        for j in range(i + 1):
            s = load(lanes, inverse, i, j)
            for k in range(j):
                s = fma(-load(lanes, factor, i, k), load(lanes, factor, j, k), s)
            if i == j:
                store(sqrt(larger(s, 0.0)), lanes, factor, i, i)
            else:
                store(s / larger(load(lanes, factor, j, j), 1e-300), lanes, factor, i, j)
    for i in range(dimension):
        s = 0.0
        for j in range(i + 1):
            s = fma(load(lanes, factor, i, j), load(lanes, normals, j), s)
        store(fma(sd, s, load(lanes, theta, i)), lanes, theta, i)


@glue
def learn_with_surprise(state: Learner, mean: Array, ridge: Array, surprise: Array) -> None:
    """Take the observation (chosen, reward) of every lane into its statistics, its V⁻¹ and `surprise`; O(d²).

    Alg. 1 lines 9 and 27, and e²/g into what σ is learnt from. Zeros change nothing.
    """
    lanes, dimension = state.lanes, state.chosen.shape[0]
    multiply(lanes, state.inverse, state.chosen, state.product)
    square = inner(lanes, state.product, state.chosen)
    moment, weight = state.statistics.shape[0] - dimension, load(lanes, ridge)
    error = load(lanes, state.reward)
    for j in range(dimension):  # x·θ̂ = (V⁻¹x)·(b + λ·mean), all of before
        pull = fma(weight, item(mean, j), load(lanes, state.statistics, moment + j))
        error = fma(-load(lanes, state.product, j), pull, error)
    growth = grow(lanes, state.inverse, state.chosen, state.product, square)
    store(load(lanes, surprise) + error * error / larger(growth, 1.0), lanes, surprise)
    store(growth, lanes, state.growth)
    add(lanes, state.statistics, state.chosen, state.reward)


def next_refresh(observed: int) -> int:
    """The number of own observations at which λ follows σ again: the next power of two."""
    return 1 << observed.bit_length()
