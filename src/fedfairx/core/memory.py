"""A learner of one lane, in one flat memory: what a live agent holds, and how it learns.

Handing an array to compiled code costs about as long as a whole decision, so everything that one needs lies
in one array, `memory`, and one more for room to work in. How a decision comes from it is another file's
matter: `believing` for the rules of the posterior, `single` for optimism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfairx.arrays import Array
from fedfairx.core.confidence import Confidence, practical_radius
from fedfairx.core.estimate import derive
from fedfairx.core.exposure import at_least, draw
from fedfairx.core.learner import Learner
from fedfairx.core.merit import EXPONENTIAL, Merit
from fedfairx.core.merit_table import MeritTable, table
from fedfairx.core.optimism.choose import Solver
from fedfairx.core.optimism.problem import SPARE_CODES
from fedfairx.core.posterior import Assumed, Prior, assumed, learn_with_surprise, noise_variance
from fedfairx.core.rules import OPTIMISM, RULES
from fedfairx.core.statistics import add, packed_size
from fedfairx.lanes.compile import glue, leaf, stage

# Settings at the head of the memory.
REGULARISER, NOISE_SD, FAILURE, PARAMETER_NORM, SCALE, COUNT = range(6)
TOLERANCE, RATE, FLOOR = range(6, 9)
MERIT = 9  # five parameters
RADIUS, GROWTH, REWARD = range(14, 17)
PRIOR_VARIANCE, ASSUMED_NOISE, LEARNING, SURPRISE, OBSERVED, LEAST_SHARE = range(17, 23)
CODES = 23  # from here on as many integers as there are codes, in the bits of floats
LARGEST = 1e100  # of a context's or a reward's size: beyond it sums of products may overflow
# Integers.
KIND, ADDRESS, SOLVER_RULE, MAX_STEPS, RULE, SPARE = range(6)
HEAD = CODES + SPARE + SPARE_CODES


@glue
def columns(memory: Array, dimension: int) -> tuple[Learner, Array, Array]:
    """The learner inside the memory, the packed sums of what it learnt since they were last emptied, and the
    prior's mean."""
    q = dimension * (dimension + 3) // 2
    at = HEAD
    statistics = memory[at : at + q].reshape(q, 1)
    at += q
    fresh = memory[at : at + q].reshape(q, 1)
    at += q
    inverse = memory[at : at + dimension * dimension].reshape(dimension, dimension, 1)
    at += dimension * dimension
    theta = memory[at : at + dimension].reshape(dimension, 1)
    at += dimension
    chosen = memory[at : at + dimension].reshape(dimension, 1)
    at += dimension
    product = memory[at : at + dimension].reshape(dimension, 1)
    at += dimension
    mean = memory[at : at + dimension]
    state = Learner(
        statistics,
        inverse,
        theta,
        memory[RADIUS : RADIUS + 1],
        chosen,
        memory[REWARD : REWARD + 1],
        product,
        memory[GROWTH : GROWTH + 1],
        None,
    )
    return state, fresh, mean


@glue
def codes_in(memory: Array) -> NDArray[np.int64]:
    """The integers inside the memory."""
    return memory[CODES:HEAD].view(np.int64)


@leaf
def merit_in(memory: Array) -> MeritTable:
    """The merit inside the memory."""
    codes = codes_in(memory)
    return MeritTable(
        codes[KIND] == EXPONENTIAL,
        codes[KIND : KIND + 1],
        memory[MERIT : MERIT + 1],
        memory[MERIT + 1 : MERIT + 2],
        memory[MERIT + 2 : MERIT + 3],
        memory[MERIT + 3 : MERIT + 4],
        memory[MERIT + 4 : MERIT + 5],
        codes[ADDRESS : ADDRESS + 1],
    )


@leaf
def all_sound(contexts: Array) -> bool:
    """Whether every number is finite and at most `LARGEST` in size."""
    for a in range(contexts.shape[0]):
        for j in range(contexts.shape[1]):
            if not abs(contexts[a, j]) <= LARGEST:
                return False
    return True


@leaf
def answer(
    contexts: Array, policy: Array, theta: Array, least_share: float, out: Array, uniform: float
) -> int:
    """Draw an action from policy (K, 1), once every arm has its least share.

    `out` gets the policy (K numbers), θ (d) and the chosen context (d).
    """
    arms, dimension = contexts.shape
    if least_share > 0.0:
        at_least(policy, 0, least_share)
    action = draw(policy, 0, uniform)
    for a in range(arms):  # which may be there already
        out[a] = policy[a, 0]
    for j in range(dimension):
        out[arms + j] = theta[j, 0]
        out[arms + dimension + j] = contexts[action, j]
    return action


@stage
def learn_one(memory: Array, context: Array, reward: float) -> float:
    """Take one observation. Returns log(1 + xᵀV⁻¹x), by which log det V grew; below 0 V⁻¹ must be derived."""
    state, fresh, mean = columns(memory, context.shape[0])
    for j in range(context.shape[0]):
        state.chosen[j, 0] = context[j]
    state.reward[0] = reward
    ridge, surprise = memory[REGULARISER : REGULARISER + 1], memory[SURPRISE : SURPRISE + 1]
    learn_with_surprise(state, mean, ridge, surprise)
    add(None, fresh, state.chosen, state.reward)
    memory[COUNT] += 1.0
    memory[OBSERVED] += 1.0
    return math.log(state.growth[0]) if state.growth[0] > 0.0 else -math.inf


@stage
def add_one(sums: Array, context: Array, reward: float) -> None:
    """One observation into packed sums (q,): `statistics.add` without a learner."""
    dimension = context.shape[0]
    entry = 0
    for i in range(dimension):
        for j in range(i, dimension):
            sums[entry] += context[i] * context[j]
            entry += 1
    for i in range(dimension):
        sums[entry] += context[i] * reward
        entry += 1


@stage
def learn_and_add(memory: Array, sums: Array, values: Array, at: int, reward: float) -> float:
    """`learn_one` and `add_one` of the context that begins at values[at]."""
    context = values[at:]
    add_one(sums, context, reward)
    return learn_one(memory, context, reward)


@stage
def radius_in(memory: Array, dimension: int) -> float:
    radius: float = practical_radius(
        memory[COUNT],
        dimension,
        memory[REGULARISER],
        memory[NOISE_SD],
        memory[FAILURE],
        memory[PARAMETER_NORM],
        memory[SCALE],
    )
    return radius


@leaf
def variance_in(memory: Array) -> float:
    """σ² as the posterior in the memory has it."""
    before = Assumed(memory[:0], memory[PRIOR_VARIANCE], memory[ASSUMED_NOISE], memory[LEARNING])
    return noise_variance(before, memory[SURPRISE], memory[OBSERVED])


@stage
def _noise_variance(memory: Array) -> float:
    return variance_in(memory)


@stage
def _derive(memory: Array, dimension: int) -> None:
    state, _, _ = columns(memory, dimension)
    derive(None, state.statistics, memory[REGULARISER : REGULARISER + 1], state.inverse)


@dataclass(frozen=True)
class Single:
    """The memory of one learner, and named views into it."""

    memory: Array
    statistics: Array  # (q,) packed sums that decisions come from
    fresh: Array  # (q,) packed sums of what was learnt since the owner last emptied it
    inverse: Array  # (d, d)
    dimension: int

    @classmethod
    def start(
        cls,
        dimension: int,
        *,
        merit: Merit,
        rule: str = OPTIMISM,
        confidence: Confidence | None = None,
        solver: Solver | None = None,
        prior: Prior | None = None,
        learning: bool = True,
        minimum_share: float = 0.0,
    ) -> Single:
        """A learner that has seen nothing. `confidence` and `solver` are optimism's, `prior` the others'."""
        confidence, solver, prior = confidence or Confidence(), solver or Solver(), prior or Prior()
        q = packed_size(dimension)
        memory = np.zeros(HEAD + 2 * q + dimension * dimension + 4 * dimension)
        memory[REGULARISER] = confidence.regulariser if rule == OPTIMISM else prior.ridge
        memory[NOISE_SD] = confidence.noise_sd
        memory[FAILURE] = confidence.failure
        memory[PARAMETER_NORM] = confidence.parameter_norm
        memory[SCALE] = confidence.scale
        memory[TOLERANCE], memory[RATE], memory[FLOOR] = solver.tolerance, solver.rate, solver.floor
        memory[MERIT : MERIT + 5] = merit.parameters()
        address = int(table([merit]).address[0])
        codes = memory[CODES:HEAD].view(np.int64)
        codes[:SPARE] = merit.kind, address, solver.rule, solver.max_steps, RULES.index(rule)
        if rule != OPTIMISM:
            before = assumed(prior, dimension, learning=learning)
            memory[PRIOR_VARIANCE], memory[ASSUMED_NOISE] = before.variance, before.noise
            memory[LEARNING], memory[-dimension:] = before.learning, before.mean
        memory[LEAST_SHARE] = minimum_share
        inverse = memory[HEAD + 2 * q : HEAD + 2 * q + dimension * dimension].reshape(dimension, dimension)
        inverse[:] = np.eye(dimension) / memory[REGULARISER]
        fresh = memory[HEAD + q : HEAD + 2 * q]
        return cls(memory, memory[HEAD : HEAD + q], fresh, inverse, dimension)

    @property
    def count(self) -> float:
        """Observations inside V, which the radius depends on."""
        return float(self.memory[COUNT])

    def set_count(self, value: float) -> None:
        """Say how many observations are inside V."""
        self.memory[COUNT] = value

    @property
    def observed(self) -> int:
        """Rewards that this learner has learnt itself."""
        return int(self.memory[OBSERVED])

    @property
    def surprise(self) -> float:
        """The sum that σ is learnt from."""
        return float(self.memory[SURPRISE])

    def set_noise(self, *, ridge: float, surprise: float, observed: int) -> None:
        """Say what has been learnt of the noise, and the λ inside V⁻¹."""
        self.memory[REGULARISER], self.memory[SURPRISE], self.memory[OBSERVED] = ridge, surprise, observed

    @property
    def believes(self) -> bool:
        """Whether decisions come from a posterior; optimism has none."""
        return bool(self.memory[CODES:HEAD].view(np.int64)[RULE] != RULES.index(OPTIMISM))

    @property
    def ridge(self) -> float:
        """λ inside V."""
        return float(self.memory[REGULARISER])

    @property
    def moment(self) -> Array:
        """b, and what the prior's mean adds to it: V⁻¹ times it is θ̂."""
        pulled: Array = self.statistics[-self.dimension :] + self.ridge * self.memory[-self.dimension :]
        return pulled

    @property
    def noise_variance(self) -> float:
        """σ² as the posterior has it."""
        return float(_noise_variance(self.memory))

    def size_of_parameter(self) -> float:
        """E‖θ‖² under the posterior."""
        estimate = self.inverse @ self.moment
        return float(estimate @ estimate + self.noise_variance * np.trace(self.inverse))

    @property
    def radius(self) -> float:
        """√β as the next decision will use it; of a posterior σ, one of its sds in the norm of V."""
        if self.believes:
            return math.sqrt(self.noise_variance)
        return float(radius_in(self.memory, self.dimension))

    def derive(self) -> None:
        """V⁻¹ from the sums, with λ as the noise learnt until now makes it."""
        if self.believes:
            self.memory[REGULARISER] = self.noise_variance / self.memory[PRIOR_VARIANCE]
        _derive(self.memory, self.dimension)
