"""One decision by optimism, on a live agent's memory (see `memory`): the paper's rule."""

from __future__ import annotations

from fedfairx.arrays import Array
from fedfairx.core.estimate import estimate
from fedfairx.core.memory import (
    FLOOR,
    LEAST_SHARE,
    MAX_STEPS,
    RATE,
    SOLVER_RULE,
    SPARE,
    TOLERANCE,
    all_sound,
    answer,
    codes_in,
    columns,
    merit_in,
    radius_in,
)
from fedfairx.core.optimism.choose import Solver, choose
from fedfairx.core.optimism.problem import (
    ARM_ROWS,
    LANE_ROWS,
    MODEL_ROWS,
    POLICY,
    SQUARE_ROWS,
    THETA,
    Region,
    Scratch,
    spare_size,
)
from fedfairx.lanes.compile import stage
from fedfairx.lanes.vector import zeros


@stage
def decide_one(contexts: Array, memory: Array, room: Array, out: Array, uniform: float) -> int:
    """Alg. 1 lines 5 to 8: the drawn action, or -1 when a context is not finite or beyond `LARGEST`.

    `out` gets the policy (K numbers), θ (d) and the chosen context (d).
    """
    arms, dimension = contexts.shape
    if not all_sound(contexts):
        return -1
    state, _, _ = columns(memory, dimension)
    merit, codes = merit_in(memory), codes_in(memory)
    solver = Solver(codes[SOLVER_RULE], memory[TOLERANCE], codes[MAX_STEPS], memory[RATE], memory[FLOOR])
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
    state.radius[0] = radius_in(memory, dimension)
    inverse = state.inverse.reshape(dimension, dimension)  # "shared", which is faster for one lane
    choose(contexts, Region(state.estimate, inverse, state.radius), merit, work, solver)
    return answer(contexts, work.arms[POLICY], work.model[THETA], memory[LEAST_SHARE], out, uniform)


def room_for(arms: int, dimension: int) -> Array:
    """Room for one decision among `arms` arms."""
    rows = ARM_ROWS * arms + MODEL_ROWS * dimension + LANE_ROWS
    room: Array = zeros(rows + SQUARE_ROWS * dimension * dimension + spare_size(arms, dimension))
    return room
