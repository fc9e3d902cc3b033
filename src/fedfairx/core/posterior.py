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

import numpy as np

from fedfairx.arrays import Array
from fedfairx.core.confidence import LARGEST_SETTING, SMALLEST_SETTING
from fedfairx.errors import require
from fedfairx.lanes.compile import stage
from fedfairx.lanes.registers import WIDTH
from fedfairx.lanes.rows import Rows, one_lane, put_run, run_at
from fedfairx.lanes.vector import fma, larger, sqrt

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


@stage
def noise_variance(variance: float, noise: float, learning: float, surprise: float, observed: float) -> float:
    """σ² as known now, from the sum of e²/g over `observed` rewards of one's own.

    variance: sd² of the prior; noise: σ² assumed beforehand; learning: 1 where the noise is learnt, else 0.
    """
    told = fma(learning, surprise, ASSUMED_WEIGHT * noise)
    least = LEAST_NOISE * LEAST_NOISE * variance
    return larger(told / fma(learning, observed, ASSUMED_WEIGHT), least)


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
    """x_aᵀ V⁻¹ x_a: σ² times it is the posterior variance of the arm's mean.

    contexts (K, d), inverse (d, d); product (d,) is room.
    """
    dimension = contexts.shape[1]
    square = 0.0
    if one_lane(product) and dimension >= WIDTH:  # many features: WIDTH coordinates of V⁻¹x at a time
        whole = dimension - dimension % WIDTH
        for j in range(0, whole, WIDTH):
            run = 0.0
            for i in range(dimension):
                run = fma(run_at(inverse, i, j), contexts[arm, i], run)
            put_run(run, product, j)
        for j in range(whole, dimension):
            s = 0.0
            for i in range(dimension):
                s = fma(inverse[i, j], contexts[arm, i], s)
            product[j] = s
        for j in range(dimension):
            square = fma(contexts[arm, j], product[j], square)
        return square
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


def next_refresh(observed: int) -> int:
    """The number of own observations at which λ follows σ again: the next power of two."""
    return 1 << observed.bit_length()
