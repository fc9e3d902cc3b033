"""The radius √β of the confidence region that agents use; `theory` has the lemma's for a private sum."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedfairx.core.compile import stage
from fedfairx.errors import require

# Beyond these the region's squares may overflow, and no decision would be finite.
SMALLEST_SETTING, LARGEST_SETTING = 1e-30, 1e30


@dataclass(frozen=True)
class Confidence:
    """What the radius is made of. The defaults are the theorem's, with c = 1 and noise of sd 0.1."""

    regulariser: float = 1.0  # λ of V = λI + Gram
    noise_sd: float = 0.1  # σ of the rewards' sub-Gaussian noise
    failure: float = 0.1  # α: the region misses θ* with at most this probability
    parameter_norm: float = 1.0  # c ≥ ‖θ*‖
    scale: float = 1.0  # s: below 1 the region is narrower than the theorem's
    noise_share: float = 0.0  # of the privacy noise's own spread, which private agents add to the radius

    def __post_init__(self) -> None:
        for name in ("regulariser", "parameter_norm", "scale"):
            value = getattr(self, name)
            rule = f"must be from {SMALLEST_SETTING:g} to {LARGEST_SETTING:g}"
            require(SMALLEST_SETTING <= value <= LARGEST_SETTING, name, rule, value)
        for name in ("noise_sd", "noise_share"):
            value = getattr(self, name)
            require(0 <= value <= LARGEST_SETTING, name, f"must be from 0 to {LARGEST_SETTING:g}", value)
        rule = f"must be in (0, 1) and at least {SMALLEST_SETTING:g}"
        require(SMALLEST_SETTING <= self.failure < 1, "failure", rule, self.failure)

    def radius(self, count: float, dimension: int) -> float:
        """√β with `count` observations inside V."""
        return practical_radius(
            count, dimension, self.regulariser, self.noise_sd, self.failure, self.parameter_norm, self.scale
        )


@stage
def practical_radius(
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
