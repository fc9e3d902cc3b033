"""The radius √β of the confidence region that agents use; `theory` has the lemma's for a private sum."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedfairx.core.compile import stage
from fedfairx.errors import require


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
            require(math.isfinite(value) and value > 0, name, "must be finite and > 0", value)
        require(
            math.isfinite(self.noise_sd) and self.noise_sd >= 0,
            "noise_sd",
            "must be finite and >= 0",
            self.noise_sd,
        )
        require(
            math.isfinite(self.noise_share) and self.noise_share >= 0,
            "noise_share",
            "must be finite and >= 0",
            self.noise_share,
        )
        require(0 < self.failure < 1, "failure", "must be in (0, 1)", self.failure)

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
