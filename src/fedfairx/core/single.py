"""A learner of one lane, in one flat memory: what a live agent calls.

Handing an array to compiled code costs about as long as a whole step of the solver, so everything that a
decision needs lies in two arrays, `memory` (numbers) and `codes` (integers), and one more for the room.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfairx.core.compile import glue, stage
from fedfairx.core.confidence import Confidence, practical_radius
from fedfairx.core.estimate import derive, estimate
from fedfairx.core.exposure import draw
from fedfairx.core.learner import Learner, learn
from fedfairx.core.merit import EXPONENTIAL, Merit
from fedfairx.core.merit_table import MeritTable, table
from fedfairx.core.optimism import Solver, choose
from fedfairx.core.problem import (
    ARM_ROWS,
    LANE_ROWS,
    MODEL_ROWS,
    POLICY,
    SPARE_CODES,
    SQUARE_ROWS,
    THETA,
    Region,
    Scratch,
    spare_size,
)
from fedfairx.core.statistics import Array, add, packed_size
from fedfairx.core.vector import zeros

# Settings at the head of the memory.
REGULARISER, NOISE_SD, FAILURE, PARAMETER_NORM, SCALE, COUNT = range(6)
TOLERANCE, RATE, FLOOR = range(6, 9)
MERIT = 9  # five parameters
RADIUS, GROWTH, REWARD, SPREAD = range(14, 18)
HEAD = 18
LARGEST = 1e100  # of a context's or a reward's size: beyond it sums of products may overflow
# Integers.
KIND, ADDRESS, RULE, MAX_STEPS, SPARE = range(5)


@glue
def _columns(memory: Array, dimension: int) -> tuple[Learner, Array]:
    """The learner inside the memory, and the packed sums of what it learnt since they were last emptied."""
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
    return state, fresh


@stage
def decide_one(
    contexts: Array, memory: Array, codes: NDArray[np.int64], room: Array, out: Array, uniform: float
) -> int:
    """Alg. 1 lines 5 to 8: the drawn action, or -1 when a context is not finite or beyond `LARGEST`.

    `out` gets the policy (K numbers), θ (d) and the chosen context (d).
    """
    arms, dimension = contexts.shape
    for a in range(arms):
        for j in range(dimension):
            if not abs(contexts[a, j]) <= LARGEST:
                return -1
    state, _ = _columns(memory, dimension)
    merit = MeritTable(
        codes[KIND] == EXPONENTIAL,
        codes[KIND : KIND + 1],
        memory[MERIT : MERIT + 1],
        memory[MERIT + 1 : MERIT + 2],
        memory[MERIT + 2 : MERIT + 3],
        memory[MERIT + 3 : MERIT + 4],
        memory[MERIT + 4 : MERIT + 5],
        codes[ADDRESS : ADDRESS + 1],
    )
    solver = Solver(codes[RULE], memory[TOLERANCE], codes[MAX_STEPS], memory[RATE], memory[FLOOR])
    spare = spare_size(arms, dimension)
    first = spare + ARM_ROWS * arms
    second = first + MODEL_ROWS * dimension
    work = Scratch(
        room[spare:first].reshape(ARM_ROWS, arms, 1),
        room[first:second].reshape(MODEL_ROWS, dimension, 1),
        room[second : second + LANE_ROWS].reshape(LANE_ROWS, 1),
        room[second + LANE_ROWS :].reshape(SQUARE_ROWS, dimension, dimension, 1),
        room[:spare],
        codes[SPARE:],
        None,
    )
    estimate(None, state.inverse, state.statistics, state.estimate)
    state.radius[0] = _radius(memory, dimension)
    inverse = state.inverse.reshape(dimension, dimension)  # "shared", which is faster for one lane
    choose(contexts, Region(state.estimate, inverse, state.radius), merit, work, solver)
    action = draw(work.arms[POLICY], 0, uniform)
    for a in range(arms):
        out[a] = work.arms[POLICY, a, 0]
    for j in range(dimension):
        out[arms + j] = work.model[THETA, j, 0]
        out[arms + dimension + j] = contexts[action, j]
    return action


@stage
def learn_one(memory: Array, context: Array, reward: float) -> float:
    """Take one observation. Returns log(1 + xᵀV⁻¹x), by which log det V grew; below 0 V⁻¹ must be derived."""
    state, fresh = _columns(memory, context.shape[0])
    for j in range(context.shape[0]):
        state.chosen[j, 0] = context[j]
    state.reward[0] = reward
    learn(state)
    add(None, fresh, state.chosen, state.reward)
    memory[COUNT] += 1.0
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
def learn_and_add(memory: Array, sums: Array, context: Array, reward: float) -> float:
    """`learn_one` and `add_one`."""
    add_one(sums, context, reward)
    return learn_one(memory, context, reward)


@stage
def _radius(memory: Array, dimension: int) -> float:
    theorem: float = practical_radius(
        memory[COUNT],
        dimension,
        memory[REGULARISER],
        memory[NOISE_SD],
        memory[FAILURE],
        memory[PARAMETER_NORM],
        memory[SCALE],
    )
    return theorem + float(memory[SPREAD])


@stage
def _derive(memory: Array, dimension: int) -> None:
    state, _ = _columns(memory, dimension)
    derive(None, state.statistics, memory[REGULARISER], state.inverse)


@dataclass(frozen=True)
class Single:
    """The memory of one learner, and named views into it."""

    memory: Array
    codes: NDArray[np.int64]
    statistics: Array  # (q,) packed sums that decisions come from
    fresh: Array  # (q,) packed sums of what was learnt since the owner last emptied it
    inverse: Array  # (d, d)
    dimension: int

    @classmethod
    def start(cls, dimension: int, *, merit: Merit, confidence: Confidence, solver: Solver) -> Single:
        """A learner that has seen nothing."""
        q = packed_size(dimension)
        memory = np.zeros(HEAD + 2 * q + dimension * dimension + 3 * dimension)
        memory[REGULARISER] = confidence.regulariser
        memory[NOISE_SD] = confidence.noise_sd
        memory[FAILURE] = confidence.failure
        memory[PARAMETER_NORM] = confidence.parameter_norm
        memory[SCALE] = confidence.scale
        memory[TOLERANCE], memory[RATE], memory[FLOOR] = solver.tolerance, solver.rate, solver.floor
        memory[MERIT : MERIT + 5] = merit.parameters()
        address = int(table([merit]).address[0])
        codes = np.zeros(SPARE + SPARE_CODES, dtype=np.int64)
        codes[:SPARE] = merit.kind, address, solver.rule, solver.max_steps
        inverse = memory[HEAD + 2 * q : HEAD + 2 * q + dimension * dimension].reshape(dimension, dimension)
        inverse[:] = np.eye(dimension) / confidence.regulariser
        fresh = memory[HEAD + q : HEAD + 2 * q]
        return cls(memory, codes, memory[HEAD : HEAD + q], fresh, inverse, dimension)

    @property
    def count(self) -> float:
        """Observations inside V, which the radius depends on."""
        return float(self.memory[COUNT])

    def set_count(self, value: float) -> None:
        """Say how many observations are inside V."""
        self.memory[COUNT] = value

    @property
    def spread(self) -> float:
        """What privacy noise adds to the radius."""
        return float(self.memory[SPREAD])

    def set_spread(self, value: float) -> None:
        """Say how wide the noise inside the statistics makes the region."""
        self.memory[SPREAD] = value

    @property
    def radius(self) -> float:
        """√β as the next decision will use it."""
        return float(_radius(self.memory, self.dimension))

    def derive(self) -> None:
        """V⁻¹ from the sums."""
        _derive(self.memory, self.dimension)


def room_for(arms: int, dimension: int) -> Array:
    """Room for one decision among `arms` arms."""
    rows = ARM_ROWS * arms + MODEL_ROWS * dimension + LANE_ROWS
    room: Array = zeros(rows + SQUARE_ROWS * dimension * dimension + spare_size(arms, dimension))
    return room
