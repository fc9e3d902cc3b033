"""One decision by optimism, on a live agent's memory (see `memory`): the paper's rule."""

from __future__ import annotations

from fedfairx.arrays import Array
from fedfairx.core.estimate import estimate
from fedfairx.core.learner import COUNT, radius_of
from fedfairx.core.memory import (
    FLOOR,
    LEAST_SHARE,
    MAX_STEPS,
    RATE,
    SOLVER_RULE,
    TOLERANCE,
    all_sound,
    answer,
    mind_in,
)
from fedfairx.core.optimism.choose import Solver, choose
from fedfairx.core.optimism.problem import POLICY, THETA, Region, scratch, scratch_size
from fedfairx.lanes.compile import releasing
from fedfairx.lanes.rows import by_lane, floats, zeros


@releasing
def decide_one(
    contexts: Array,
    memory: Array,
    room: Array,
    out: Array,
    uniform: float,
    fair: bool | None,
    pgd: bool | None,
    winner: bool | None,
) -> int:
    """Alg. 1 lines 5 to 8: the drawn action, or -1 when a context is not finite or beyond `LARGEST`.

    `out` gets the policy (K numbers), θ (d) and the chosen context (d). `fair`, `pgd` and `winner` are the
    solver's `variant`.
    """
    x = floats(contexts)
    if not all_sound(x):
        return -1
    arms, dimension = x.shape
    mind = mind_in(floats(memory), dimension)
    state, settings = mind.learner, mind.settings
    solver = Solver(
        int(settings[SOLVER_RULE]),
        settings[TOLERANCE],
        int(settings[MAX_STEPS]),
        settings[RATE],
        settings[FLOOR],
    )
    work = scratch(floats(room), arms, dimension)
    estimate(state.inverse, state.statistics, state.estimate)
    state.radius[0] = radius_of(by_lane(state.numbers), 0, state.numbers[COUNT], dimension)
    region = Region(state.estimate, state.inverse, state.radius)
    choose(x, region, state.merit, work, solver, fair, pgd, winner)
    return answer(x, work.arms[POLICY], work.model[THETA], settings[LEAST_SHARE], floats(out), uniform)


def room_for(arms: int, dimension: int) -> Array:
    """Room for one decision among `arms` arms."""
    room: Array = zeros(scratch_size(arms, dimension, lanes=1))
    return room
