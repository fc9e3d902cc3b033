"""The radius √β of the agents' confidence region; `theory` has the lemma's for a private sum."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedfairx.errors import require
from fedfairx.lanes.decorators import stage

# Beyond these the region's squares may overflow, and no decision would be finite.
SMALLEST_SETTING, LARGEST_SETTING = 1e-30, 1e30


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

    regulariser: float = 1.0  # λ
    noise_sd: float = 0.1  # σ
    failure: float = 0.1  # α
    parameter_norm: float = 1.0  # c
    scale: float = 1.0  # s

    def __post_init__(self) -> None:
        for name in ("regulariser", "parameter_norm", "scale"):
            value = getattr(self, name)
            rule = f"must be from {SMALLEST_SETTING:g} to {LARGEST_SETTING:g}"
            require(SMALLEST_SETTING <= value <= LARGEST_SETTING, name, rule, value)
        rule = f"must be from 0 to {LARGEST_SETTING:g}"
        require(0 <= self.noise_sd <= LARGEST_SETTING, "noise_sd", rule, self.noise_sd)
        rule = f"must be in (0, 1) and at least {SMALLEST_SETTING:g}"
        require(SMALLEST_SETTING <= self.failure < 1, "failure", rule, self.failure)

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
