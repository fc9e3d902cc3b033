"""The world that agents meet: contexts, the true parameter, rewards."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedfairx.core.merit import Exponential, Merit
from fedfairx.core.statistics import Array
from fedfairx.errors import require
from fedfairx.privacy import Bounds, Centring
from fedfairx.simulation.draws import generator
from fedfairx.simulation.ranges import reward_range

CONTEXTS = ("unit-ball", "raw", "unit-norm")
THETAS = ("uniform", "sphere")
NOISES = ("gaussian", "bounded", "heteroscedastic")
LONGEST_DELAY = 12  # in mean delays: of a geometric law, all but 6 in a million come sooner


@dataclass(frozen=True)
class Scenario:
    """One simulated world. The defaults are the paper's section 5, as docs/reproduction.md reads it.

    contexts: "unit-ball" is x/√d with x uniform on [0, 1]^d, "raw" is that x itself (norms up to √d: the
    theory and the sensitivity want 1), "unit-norm" is x/‖x‖. theta: θ* is uniform on [0, 1]^d, scaled to
    norm 1 ("uniform"), uniform on the sphere ("sphere"), or what is given.
    noise: Gaussian; uniform with the same sd ("bounded"); or with sd noise_sd·(0.5 + |mean|)
    ("heteroscedastic"). presence: the probability that an arm but the first is there in a round (their
    number is the same for all agents in a round). delay: the mean of a geometric law of rounds that a reward
    takes. drift: sd per round and coordinate of a random walk of θ* on the sphere.
    """

    agents: int = 10
    arms: int = 10
    dimension: int = 5
    horizon: int = 100_000
    contexts: str = "unit-ball"
    theta: str | tuple[float, ...] = "uniform"
    noise: str = "gaussian"
    noise_sd: float = 0.1
    merit: Merit | tuple[Merit, ...] = field(default_factory=Exponential)
    presence: float = 1.0
    delay: float = 0.0
    drift: float = 0.0

    def __post_init__(self) -> None:
        for name in ("agents", "arms", "dimension", "horizon"):
            value = getattr(self, name)
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            require(whole and value >= 1, name, "must be an integer >= 1", value)
        require(self.contexts in CONTEXTS, "contexts", f"must be one of {', '.join(CONTEXTS)}", self.contexts)
        if isinstance(self.theta, str):
            require(self.theta in THETAS, "theta", f"must be one of {', '.join(THETAS)}", self.theta)
        else:
            fits = len(self.theta) == self.dimension and all(math.isfinite(x) for x in self.theta)
            require(fits, "theta", f"must be {self.dimension} finite numbers", self.theta)
        require(self.noise in NOISES, "noise", f"must be one of {', '.join(NOISES)}", self.noise)
        for name in ("noise_sd", "delay", "drift"):
            value = getattr(self, name)
            require(math.isfinite(value) and value >= 0, name, "must be finite and >= 0", value)
        require(0 < self.presence <= 1, "presence", "must be in (0, 1]", self.presence)
        if isinstance(self.merit, tuple):
            count = len(self.merit)
            require(count == self.agents, "merit", f"must be one, or {self.agents} for the agents", count)

    @property
    def merits(self) -> tuple[Merit, ...]:
        """The merit of every agent."""
        return self.merit if isinstance(self.merit, tuple) else (self.merit,) * self.agents

    @property
    def context_norm(self) -> float:
        """What no context's norm exceeds: the privatizer's L."""
        return math.sqrt(self.dimension) if self.contexts == "raw" else 1.0

    @cached_property
    def reward_range(self) -> tuple[float, float]:
        """Where rewards lie, but for the rarest, by the laws of contexts, θ* and noise."""
        return reward_range(self)

    @property
    def bounds(self) -> Bounds:
        """What a private run clips records to where it clips around zero."""
        return Bounds(context_norm=self.context_norm, reward=max(abs(end) for end in self.reward_range))

    @property
    def centring(self) -> Centring | None:
        """The public point that the laws give: the middle of the box; None for unit-norm contexts."""
        if self.contexts == "unit-norm":
            return None
        box, stretch = Centring.unit_box(self.dimension), self.context_norm
        low, high = self.reward_range
        return Centring(
            context=tuple(stretch * x for x in box.context),
            context_radius=stretch * box.context_radius,
            reward=0.5 * (low + high),
            reward_radius=0.5 * (high - low),
            constant=stretch * box.constant,
        )

    @property
    def longest_delay(self) -> int:
        """Rounds after which every reward has come."""
        return 0 if self.delay == 0 else min(self.horizon, math.ceil(LONGEST_DELAY * self.delay))

    def parameter(self, seed: int) -> Array:
        """θ* (d,) of a seed."""
        if not isinstance(self.theta, str):
            return np.array(self.theta, dtype=np.float64)
        rng = generator(seed, "parameter")
        theta = rng.random(self.dimension) if self.theta == "uniform" else rng.normal(size=self.dimension)
        return np.asarray(theta / np.linalg.norm(theta))

    def arms_per_round(self) -> np.ndarray:
        """(T,) how many arms are there in each round; the same for every seed."""
        if self.presence == 1.0:
            return np.full(self.horizon, self.arms, dtype=np.int64)
        rng = np.random.default_rng(20_240_613)
        return 1 + rng.binomial(self.arms - 1, self.presence, self.horizon).astype(np.int64)
