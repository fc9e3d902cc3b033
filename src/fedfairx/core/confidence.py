"""The radius √β of the agents' confidence region."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedfairx.lanes.decorators import stage
from fedfairx.util.config import Limits, check_fields, option

# Beyond these the region's squares may overflow, and no decision would be finite.
SMALLEST_SETTING, LARGEST_SETTING = 1e-30, 1e30
SIZE = Limits(ge=SMALLEST_SETTING, le=LARGEST_SETTING)


@dataclass(frozen=True)
class Confidence:
    """Parameters of the confidence region's radius, for `rule="optimism"`.

    The defaults are the theorem's, with c = 1 and noise of sd 0.1, for contexts of norm at most 1.

    regulariser: λ of V = λI + Gram, in [1e-30, 1e30]. How many observations' worth of "θ is near zero" an
        agent starts with: larger is steadier at first and slower to learn.
    noise_sd: σ of the rewards' sub-Gaussian noise, in [0, 1e30]. If it is too small, the region misses θ*.
    failure: α in [1e-30, 1): the region misses θ* with at most this probability, ever.
    parameter_norm: c ≥ ‖θ*‖, in [1e-30, 1e30].
    scale: s in [1e-30, 1e30], a factor of the radius. Below 1 an agent explores less than the theorem asks
        for, which then guarantees nothing; simulations use 0.5.

    >>> round(Confidence(noise_sd=0.5).radius(count=100, dimension=5), 2)
    3.23
    """

    regulariser: float = option(1.0, limits=SIZE)  # λ
    noise_sd: float = option(0.1, limits=Limits(ge=0, le=LARGEST_SETTING))  # σ
    failure: float = option(0.1, limits=Limits(ge=SMALLEST_SETTING, lt=1))  # α
    parameter_norm: float = option(1.0, limits=SIZE)  # c
    scale: float = option(1.0, limits=SIZE)  # s

    def __post_init__(self) -> None:
        check_fields(self, Confidence)

    def radius(self, count: float, dimension: int) -> float:
        """√β with `count` observations inside V."""
        return _radius(
            count, dimension, self.regulariser, self.noise_sd, self.failure, self.parameter_norm, self.scale
        )


def _radius(
    count: float,
    dimension: int,
    regulariser: float,
    noise_sd: float,
    failure: float,
    parameter_norm: float,
    scale: float,
) -> float:
    """√β = s (σ √(2 ln(1/α) + d ln(1 + N/(dλ))) + √λ c), N the observations inside V.

    Abbasi-Yadkori et al. 2011, Theorem 2, with contexts of norm at most 1; s = 1 is the theorem.
    """
    spread = 2.0 * math.log(1.0 / failure) + dimension * math.log(1.0 + count / (dimension * regulariser))
    return scale * (noise_sd * math.sqrt(spread) + math.sqrt(regulariser) * parameter_norm)


practical_radius = stage(_radius)  # the few calls from Python need not wait for the compiler
