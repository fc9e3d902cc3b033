"""Random decisions to solve, and one way to solve them: through the compiled code that a live agent calls."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import reference as ref
from fedfairx.core import merit as kinds
from fedfairx.core import noisy_sums
from fedfairx.core import policy as exposure
from fedfairx.core.agent_kernels import AgentMemory, decide_one, decision_workspace
from fedfairx.core.confidence import Confidence
from fedfairx.core.estimate import estimate, grow
from fedfairx.core.learner import Learner, learner, start
from fedfairx.core.merit_kernels import table
from fedfairx.core.optimism.problem import Region, Scratch, scratch, scratch_size
from fedfairx.core.optimism.solver import Solver
from fedfairx.core.posterior import Prior
from fedfairx.core.statistics import dimension_of, pack
from fedfairx.lanes import linalg
from fedfairx.lanes.rows import Rows, floats, size_of, vectors, zeros
from fedfairx.lanes.vector_llvm import WIDTH
from stored_oracle import stored

#: f(μ) = 1 + μ²: not monotone, so that nothing may lean on that.
CUSTOM = kinds.Custom(
    lambda mu: 1.0 + mu * mu, minimum_merit=1.0, lipschitz_constant=4.0, reward_range=(-2.0, 2.0)
)


@dataclass(frozen=True)
class Instance:
    """A confidence region and the contexts of one decision."""

    contexts: np.ndarray
    gram: np.ndarray  # V
    estimate: np.ndarray  # θ̂
    radius: float


def wild(rng: np.random.Generator) -> Instance:
    """K 1-100, d 1-50, condition up to 1e8, duplicate arms, zero contexts, any radius."""
    arms, dimension = int(rng.integers(1, 101)), int(rng.integers(1, 51))
    contexts = rng.normal(size=(arms, dimension)) if rng.random() < 0.5 else rng.random((arms, dimension))
    if rng.random() < 0.5:
        contexts /= np.maximum(1, np.linalg.norm(contexts, axis=1, keepdims=True))
    else:
        contexts /= np.sqrt(dimension)
    if rng.random() < 0.3:
        contexts[rng.integers(arms, size=arms // 2)] = contexts[rng.integers(arms)]
    if rng.random() < 0.2:
        contexts[rng.integers(arms)] = 0
    axes = np.linalg.qr(rng.normal(size=(dimension, dimension)))[0]
    eigenvalues = 10 ** rng.uniform(0, rng.uniform(0, 8), size=dimension)
    gram = (axes * eigenvalues) @ axes.T
    theta = rng.normal(size=dimension)
    theta *= rng.uniform(0, 1.5) / np.linalg.norm(theta)
    return Instance(contexts, (gram + gram.T) / 2, theta, 10 ** rng.uniform(-1, 1))


def realistic(rng: np.random.Generator, *, arms: int = 30, dimension: int = 10) -> Instance:
    """What an agent meets: contexts in [0,1]^d/√d, θ̂ fitted to n rewards, the practical radius."""
    arms, dimension = int(rng.integers(1, arms + 1)), int(rng.integers(1, dimension + 1))
    contexts = rng.random((arms, dimension)) / np.sqrt(dimension)
    truth = rng.random(dimension)
    truth /= np.linalg.norm(truth)
    count = int(10 ** rng.uniform(0, 4))
    seen = rng.random((count, dimension)) / np.sqrt(dimension)
    gram = np.eye(dimension) + seen.T @ seen
    rewards = seen @ truth + 0.1 * rng.normal(size=count)
    radius = ref.radius(count, dimension=dimension, scale=float(rng.choice([0.5, 1.0])))
    return Instance(contexts, gram, np.linalg.solve(gram, seen.T @ rewards), radius)


def tame(rng: np.random.Generator) -> Instance:
    """Few arms, contexts of either sign, small samples: means that leave the range of a merit often."""

    def inside_ball(rows: int) -> np.ndarray:
        x = rng.normal(size=(rows, dimension))
        return x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))

    arms, dimension = int(rng.integers(2, 11)), int(rng.integers(1, 6))
    contexts, seen = inside_ball(arms), inside_ball(int(rng.integers(1, 60)))
    theta = rng.normal(size=dimension)
    theta *= rng.uniform(0, 1) / np.linalg.norm(theta)
    return Instance(contexts, np.eye(dimension) + seen.T @ seen, theta, float(rng.uniform(0.2, 1.5)))


@stored(Path(__file__).with_name("brute_force.json"))
def brute_force(instance: Instance, merit: object, starts: int, seed: int) -> float:
    """The largest objective that the oracle finds."""
    known = instance.estimate, instance.gram, instance.radius, instance.contexts
    return ref.optimistic_bruteforce(*known, merit, starts, seed)[1]


def merits(rng: np.random.Generator) -> dict[str, tuple[Any, Any]]:
    """One of each kind, as the library's and as the oracle's."""
    steepness, offset = 10 ** rng.uniform(0, 1.5), rng.uniform(0.05, 0.5)
    exponent, midpoint, floor = rng.uniform(0.5, 5), rng.uniform(0, 1), 10 ** rng.uniform(-2, 0)
    return {
        "exponential": (kinds.Exponential(steepness), ref.Exponential(steepness)),
        "affine": (kinds.Affine(offset, 1.0, (0.0, 1.0)), ref.Affine(offset, 1.0)),
        "power": (kinds.Power(exponent, offset), ref.Power(exponent, offset)),
        "logistic": (kinds.Logistic(steepness, midpoint, floor), ref.Logistic(steepness, midpoint, floor)),
        "custom": (CUSTOM, ref.General(lambda mu: 1.0 + mu * mu, lambda mu: 2.0 * mu, -2.0, 2.0)),
    }


def expose(merit: kinds.Merit, means: np.ndarray) -> tuple[np.ndarray, float]:
    """The library's fair policy for these means, and its expected reward."""
    column = np.ascontiguousarray(means, dtype=float)
    policy, slopes = np.zeros_like(column), np.zeros_like(column)
    value = exposure.expose(merit_rows(merit), floats(column), floats(policy), floats(slopes))
    return policy, float(value)


def in_rows(array: np.ndarray) -> Rows:
    """Rows of an array whose last axis are the lanes: WIDTH of them, or one."""
    return vectors(array) if array.shape[-1] == WIDTH else floats(array.reshape(array.shape[:-1]))


def merit_rows(*merits: kinds.Merit) -> Rows:
    """The merit of one lane, or of a block."""
    return in_rows(table(merits))


def each_merit(*merits: kinds.Merit) -> Rows:
    """The same, lane by lane."""
    return floats(table(merits))


def blank(dimension: int, lanes: int, regulariser: float) -> Learner:
    """A learner by optimism that has seen nothing, of one lane or a block."""
    size = size_of(learner, dimension)
    return start(
        zeros(size) if lanes == 1 else zeros(size, lanes),
        dimension,
        merits=table([kinds.Exponential(10.0)] * lanes),
        rule="optimism",
        confidence=Confidence(regulariser=regulariser),
        priors=[Prior()] * lanes,
        learning=False,
    )


def worth(packed: np.ndarray, **given: float) -> float:
    """`noisy_sums.worth` of packed statistics."""
    d = dimension_of(packed)
    names = ("ratio", "noise_sd", "radius", "regulariser", "parameter_norm")
    return noisy_sums.worth(floats(packed), *(given[name] for name in names), floats(np.empty((2, d, d))))


def region_of(instance: Instance) -> Region:
    inverse = np.linalg.inv(instance.gram)
    return Region(floats(instance.estimate.copy()), floats(inverse), floats(np.array([instance.radius])))


def scratch_of(arms: int, dimension: int, lanes: int = 1) -> Scratch:
    size = scratch_size(arms, dimension, lanes=lanes)
    return scratch(floats(zeros(size)) if lanes == 1 else vectors(zeros(size, lanes)), arms, dimension)


def follow(inverse: np.ndarray, chosen: np.ndarray) -> Any:
    """`grow` from a context alone, in the steps in which a learner takes it. Of one lane."""
    product = np.zeros(chosen.size)
    rows = floats(inverse), floats(chosen), floats(product)
    linalg.multiply(*rows)
    return grow(*rows, linalg.inner(floats(product), floats(chosen)))


@dataclass(frozen=True)
class Answer:
    """What the solver made of an instance, with everything else computed by the oracle at its θ."""

    theta: np.ndarray
    policy: np.ndarray
    action: int
    value: float  # g(θ)
    value_at_estimate: float
    excess: float  # ‖θ - θ̂‖_V / √β - 1: above 0 it left the region


def solve(
    instance: Instance, pair: tuple[Any, Any], solver: Solver | None = None, uniform: float = 0.5
) -> Answer:
    """Solve through `decide_one`: a learner whose V⁻¹, θ̂ and radius are those of the instance."""
    ours, theirs = pair
    x, V = instance.contexts, instance.gram
    arms, dimension = x.shape
    confidence = Confidence(regulariser=1.0, noise_sd=0.0, parameter_norm=1.0, scale=instance.radius)
    learner = AgentMemory.start(dimension, merit=ours, confidence=confidence, solver=solver)
    learner.inverse[:] = np.linalg.inv(V)
    learner.inverse[:] = (learner.inverse + learner.inverse.T) / 2
    learner.statistics[:] = pack(V, V @ instance.estimate)
    used = np.zeros(dimension)  # θ̂ as that code sees it: at condition 1e8 not to the last digit
    estimate(floats(learner.inverse), floats(learner.statistics), floats(used))
    out = np.zeros(arms + 2 * dimension)
    action = decide_one(
        x, learner.memory, decision_workspace(arms, dimension), out, uniform, *learner.variant
    )
    theta = out[arms : arms + dimension].copy()
    away = theta - used
    return Answer(
        theta,
        out[:arms].copy(),
        action,
        ref.objective(theta, x, theirs),
        ref.objective(used, x, theirs),
        float(np.sqrt(max(away @ V @ away, 0.0)) / instance.radius - 1.0),
    )
