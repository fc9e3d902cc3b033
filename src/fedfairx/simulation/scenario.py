"""Scenarios: the contexts, true parameter and rewards that agents meet."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from fedfairx.agent.by_name import MERITS
from fedfairx.agent.options import SCALE, Options
from fedfairx.core.confidence import Confidence
from fedfairx.core.merit import Exponential, Merit
from fedfairx.errors import require
from fedfairx.privacy import Bounds, Centring
from fedfairx.simulation.kernel.random import generator
from fedfairx.simulation.recorded import Recorded
from fedfairx.util.arrays import Array
from fedfairx.util.config import COUNT, Limits, check_fields, details, option

CONTEXTS = ("unit-ball", "raw", "unit-norm", "persistent", "one-hot")  # in the order of state.py
THETAS = ("uniform", "sphere", "box")
NOISES = ("gaussian", "bounded", "heteroscedastic")
DELAYS = ("geometric", "fixed")
AMOUNT = Limits(ge=0)
LONGEST_DELAY = 12  # in mean delays: of a geometric law, all but 6 in a million come sooner


@dataclass(frozen=True)
class Scenario:
    """One simulated world. The defaults are the paper's section 5, as docs/paper/reproduction.md reads it.

    agents: how many there are, which all learn the same θ* (but for `distance`).
    arms: how many actions they choose from, in a round where all are there.
    dimension: how many numbers describe an action.
    horizon: rounds, in each of which every agent chooses once.
    contexts: what actions look like: a name, or `Recorded` ones (on the command line a file of them: .npy,
        .npz, .csv or .parquet; FILE:scale=unit-ball scales them).
    theta: the law of θ*, or its coordinates.
    noise: the law of the rewards' noise: Gaussian; uniform with the same sd ("bounded"); or with sd
        noise_sd·(0.5 + |mean|) ("heteroscedastic").
    noise_sd: the sd of the rewards' noise.
    merit: what an expected reward is worth, by which actions are due their shares; one for all agents, or one
        for each.
    presence: the probability that an action but the first is there in a round.
    newcomers: how many of the actions that stay join later, one by one, at even intervals.
    delay: rounds that a reward takes, by the law of delays their mean.
    delays: the law of delays: geometric, or as many rounds for every reward ("fixed").
    silent: how many of one-hot actions, the weakest (as the run begins), never have their rewards come.
    drift: sd per round and coordinate of a random walk of θ* on the sphere.
    distance: of each agent's own θ* from the seed's, in a direction of its own; the paper has one for all.

    Contexts: "unit-ball" is x/√d with x uniform on [0, 1]^d, "raw" is that x itself (norms up to √d: the
    theory and the sensitivity want 1), "unit-norm" is x/‖x‖, all redrawn for every action, agent and round.
    "persistent" actions stay: numbered 0 to K - 1, the same for all agents of a seed, their contexts drawn
    once by the law of "unit-ball". "one-hot": they stay, and action a is the unit vector e_a (dimension =
    arms). θ* is uniform on [0, 1]^d, scaled to norm 1 ("uniform"), uniform on the sphere ("sphere"), uniform
    on [0, 1]^d as it is ("box"), or what is given. With `presence` below 1 the number of actions is the same
    for all agents in a round; of actions that stay or are recorded, each agent meets a uniformly random
    subset.

    >>> world = Scenario(agents=3, arms=4, dimension=2, horizon=1000)
    >>> world.parameter(seed=0).shape
    (2,)
    """

    agents: int = option(10, limits=COUNT)
    arms: int = option(10, limits=COUNT)
    dimension: int = option(5, limits=COUNT)
    horizon: int = option(100_000, limits=COUNT)
    contexts: str | Recorded = option("unit-ball", choices=CONTEXTS)
    theta: str | tuple[float, ...] = option("uniform", choices=THETAS)
    noise: str = option("gaussian", choices=NOISES)
    noise_sd: float = option(0.1, limits=AMOUNT)
    merit: Merit | tuple[Merit, ...] = field(
        default_factory=Exponential, metadata=details(choices=tuple(MERITS))
    )
    presence: float = option(1.0, limits=Limits(gt=0, le=1))
    newcomers: int = option(0, limits=AMOUNT)
    delay: float = option(0.0, limits=AMOUNT)
    delays: str = option("geometric", choices=DELAYS)
    silent: int = option(0, limits=AMOUNT)
    drift: float = option(0.0, limits=AMOUNT)
    distance: float = option(0.0, limits=AMOUNT)

    def __post_init__(self) -> None:
        check_fields(self, Scenario)
        self._check_contexts()
        if isinstance(self.theta, str):
            require(self.theta in THETAS, "theta", f"must be one of {', '.join(THETAS)}", self.theta)
        else:
            fits = len(self.theta) == self.dimension
            require(fits, "theta", f"must be {self.dimension} finite numbers", self.theta)
        walks = self.drift == 0 or self.theta != "box"
        require(walks, "drift", 'must be 0 for theta="box", since θ* walks on the sphere', self.drift)
        fits = self.delays == "geometric" or float(self.delay).is_integer()
        require(fits, "delay", "must be a whole number of rounds where delays are fixed", self.delay)
        self._check_arms()
        typed = all(isinstance(each, Merit) for each in self.merits)
        require(typed, "merit", "must be a merit function of fedfairx.merit", self.merit)
        count = len(self.merits)
        require(count == self.agents, "merit", f"must be one, or {self.agents} for the agents", count)

    def _check_arms(self) -> None:
        for name, allowed, which in (
            ("newcomers", self.arms_stay, "actions that stay"),
            ("silent", self.contexts == "one-hot", "one-hot contexts"),
        ):
            value = getattr(self, name)
            require(value < self.arms, name, f"must be at most {self.arms - 1}, one below the actions", value)
            require(value == 0 or allowed, name, f"must be 0 without {which}", value)
        alone = self.newcomers == 0 or self.presence == 1
        require(alone, "newcomers", "must be 0 where presence is below 1", self.newcomers)

    def _check_contexts(self) -> None:
        if isinstance(self.contexts, Recorded):
            rounds, arms, dimension = self.contexts.shape
            text = f"must be that of the recorded contexts, {{}}, which have {rounds} rounds"
            require(self.arms == arms, "arms", text.format(arms), self.arms)
            require(self.dimension == dimension, "dimension", text.format(dimension), self.dimension)
            return
        named = isinstance(self.contexts, str)
        valid = named and self.contexts in CONTEXTS
        got = self.contexts if named else type(self.contexts).__name__
        require(valid, "contexts", f"must be one of {', '.join(CONTEXTS)}, or Recorded(…)", got)
        if self.contexts == "one-hot":
            fits = self.dimension == self.arms
            text = f"must be the number of actions, {self.arms}, for one-hot contexts"
            require(fits, "dimension", text, self.dimension)

    @property
    def arms_stay(self) -> bool:
        """Whether actions are known by a number through the whole run."""
        return self.contexts in ("persistent", "one-hot")

    @property
    def merits(self) -> tuple[Merit, ...]:
        """The merit of every agent."""
        return self.merit if isinstance(self.merit, tuple) else (self.merit,) * self.agents

    @property
    def context_norm(self) -> float:
        """Bound on the contexts' norms, the privatizer's L; of recorded contexts the largest norm."""
        if isinstance(self.contexts, Recorded):
            return self.contexts.norm
        return math.sqrt(self.dimension) if self.contexts == "raw" else 1.0

    @cached_property
    def reward_range(self) -> tuple[float, float]:
        """The range of all but the rarest rewards, by the laws of contexts, θ* and noise."""
        low, high = reward_range(self)
        further = self.distance * self.context_norm  # of an agent's own θ*
        return low - further, high + further

    @property
    def bounds(self) -> Bounds:
        """Bounds of a private run that clips around zero."""
        return Bounds(context_norm=self.context_norm, reward=max(abs(end) for end in self.reward_range))

    @property
    def centring(self) -> Centring | None:
        """The public point that the laws give: the middle of the box, where contexts fill one."""
        if self.contexts not in ("unit-ball", "raw", "persistent"):
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

    def options(
        self, *, centring: Centring | Literal["scenario"] | None = "scenario", **given: Any
    ) -> Options:
        """Complete the given options by what the scenario's laws tell.

        That is where records lie (`bounds`, and the public point in `centring`) and the σ of the rewards. A
        federation does not know its world unless it is given these.
        """
        asked, changes = Options(**given), dict[str, Any]()
        if asked.merit is None and not isinstance(self.merit, tuple):
            changes["merit"] = self.merit
        if asked.optimistic and asked.confidence is None:
            changes["confidence"] = Confidence(noise_sd=self.noise_sd, scale=SCALE)
        if asked.private and asked.bounds is None:
            changes["bounds"] = self.bounds
        if isinstance(centring, str):
            require(centring == "scenario", "centring", 'must be a Centring, "scenario" or None', centring)
            centring = self.centring if asked.private else None
        return replace(asked, centring=centring, **changes)

    @property
    def longest_delay(self) -> int:
        """Rounds after which every reward has come."""
        if self.delay == 0:
            return 1 if self.silent else 0  # observations are then kept until they are learnt
        return min(self.horizon, math.ceil(self.delay * (1 if self.delays == "fixed" else LONGEST_DELAY)))

    def parameter(self, seed: int) -> Array:
        """θ* (d,) of a seed."""
        if not isinstance(self.theta, str):
            return np.array(self.theta, dtype=np.float64)
        rng = generator(seed, "parameter")
        if self.theta == "box":
            return rng.random(self.dimension)
        theta = rng.random(self.dimension) if self.theta == "uniform" else rng.normal(size=self.dimension)
        return np.asarray(theta / np.linalg.norm(theta))

    def parameters(self, seed: int) -> Array:
        """θ* (agents, d) of each agent of a seed."""
        common = np.tile(self.parameter(seed), (self.agents, 1))
        if self.distance == 0.0:
            return common
        directions = generator(seed, "distance").normal(size=common.shape)
        return np.asarray(common + self.distance * directions / np.linalg.norm(directions, axis=1)[:, None])

    def features(self, seed: int) -> Array:
        """(K, d): the contexts of the actions that stay, of a seed.

        A subclass's own lie in [0, 1]^d/√d too, or it has its own `context_norm` and `centring`.
        """
        if self.contexts == "one-hot":
            return np.eye(self.arms)
        uniforms = generator(seed, "contexts").random((self.arms, self.dimension))
        return uniforms / math.sqrt(self.dimension)

    def arms_per_round(self) -> np.ndarray:
        """(T,) how many actions are there in each round; the same for every seed."""
        if self.presence == 1.0:
            joined = np.arange(self.horizon, dtype=np.int64) * (self.newcomers + 1) // self.horizon
            return self.arms - self.newcomers + joined
        rng = np.random.default_rng(20_240_613)
        return 1 + rng.binomial(self.arms - 1, self.presence, self.horizon).astype(np.int64)


BEYOND = 0.01  # fraction of rewards outside the range: above (best arm) or below (any arm)
STEPS = 20  # in one: ends are rounded outwards to them, so that the last bits of a quantile don't matter
ROUNDS = 4096
CHUNK = 2**20  # numbers drawn at a time


def reward_range(scenario: Scenario) -> tuple[float, float]:
    """The range of the means, and of all but the rarest rewards."""
    low, high = mean_range(scenario)
    rarest, commonest = _quantiles(scenario)
    return min(low, _outwards(rarest)), max(high, _outwards(commonest), 1.0 / STEPS)


def mean_range(scenario: Scenario) -> tuple[float, float]:
    """The range of the actions' means over all θ* of the law; a given θ* counts by its norm."""
    norm = 1.0 if isinstance(scenario.theta, str) else math.hypot(*scenario.theta)
    if scenario.theta == "box" and scenario.contexts != "one-hot":
        norm = math.sqrt(scenario.dimension)
    high = norm * scenario.context_norm
    negative = isinstance(scenario.contexts, Recorded) and float(scenario.contexts.contexts.min()) < 0.0
    return (-high if negative or _signed(scenario) else 0.0), high


def _signed(scenario: Scenario) -> bool:
    if isinstance(scenario.theta, str):
        return scenario.theta == "sphere"
    return min(scenario.theta) < 0.0


def _quantiles(scenario: Scenario) -> tuple[float, float]:
    """Quantiles: `BEYOND` of any action's rewards lie below the first, of the best's above the second."""
    rng = np.random.default_rng(20_240_614)
    size = max(1, CHUNK // (scenario.arms * scenario.dimension))
    parts = [_rewards(scenario, rng, min(size, ROUNDS - begin)) for begin in range(0, ROUNDS, size)]
    any_arm, best = (np.concatenate(part) for part in zip(*parts, strict=True))
    return float(np.quantile(any_arm, BEYOND)), float(np.quantile(best, 1.0 - BEYOND))


def _rewards(scenario: Scenario, rng: np.random.Generator, rounds: int) -> tuple[Array, Array]:
    """Rewards of the first and of the best action in `rounds` rounds, each with its own θ*."""
    d = scenario.dimension
    contexts = _contexts(scenario, rng, rounds)
    theta = rng.normal(size=(rounds, d)) if _signed(scenario) else rng.random((rounds, d))
    if scenario.theta != "box":
        theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    if scenario.drift > 0:  # as it may be at some time of the run
        walked = scenario.drift * np.sqrt(scenario.horizon * rng.random((rounds, 1)))
        theta += walked * rng.normal(size=(rounds, d))
        theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    elif not isinstance(scenario.theta, str):
        theta *= math.hypot(*scenario.theta)
    means = np.einsum("rkd,rd->rk", contexts, theta)
    if scenario.noise == "bounded":
        noise = scenario.noise_sd * math.sqrt(3.0) * rng.uniform(-1.0, 1.0, (2, rounds))
    else:
        noise = scenario.noise_sd * rng.normal(size=(2, rounds))
    chosen = np.stack([means[:, 0], means.max(axis=1)])
    if scenario.noise == "heteroscedastic":
        noise *= 0.5 + np.abs(chosen)
    rewards = chosen + noise
    return rewards[0], rewards[1]


def _contexts(scenario: Scenario, rng: np.random.Generator, rounds: int) -> Array:
    """Contexts (rounds, K, d) by the scenario's law; where actions stay, each round has its own."""
    if isinstance(scenario.contexts, Recorded):
        records = scenario.contexts.contexts
        return np.asarray(records[rng.integers(len(records), size=rounds)])
    if scenario.contexts == "one-hot":
        return np.tile(np.eye(scenario.dimension), (rounds, 1, 1))
    contexts = rng.random((rounds, scenario.arms, scenario.dimension))
    if scenario.contexts == "unit-norm":
        return np.asarray(contexts / np.linalg.norm(contexts, axis=2, keepdims=True))
    return contexts if scenario.contexts == "raw" else contexts / math.sqrt(scenario.dimension)


def _outwards(value: float) -> float:
    """Round away from zero to one of the `STEPS`."""
    return math.copysign(math.ceil(abs(value) * STEPS) / STEPS, value)
