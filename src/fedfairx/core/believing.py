"""One decision from the posterior, on a live agent's memory (see `memory`): no solver, no iteration."""

from __future__ import annotations

from fedfairx.arrays import Array
from fedfairx.core.expectation import expose_by_posterior
from fedfairx.core.memory import (
    LEAST_SHARE,
    RADIUS,
    REGULARISER,
    RULE,
    all_sound,
    answer,
    codes_in,
    columns,
    merit_in,
    variance_in,
)
from fedfairx.core.posterior import posterior_mean, sample
from fedfairx.core.rules import EXPECTED_MERIT, THOMPSON
from fedfairx.lanes.compile import stage


@stage
def decide_by_posterior(contexts: Array, memory: Array, out: Array, uniform: float) -> int:
    """The drawn action, or -1 when a context is not finite or beyond `LARGEST`; `out` as `answer` says.

    Thompson's parameter must have been drawn before (`draw_parameter`): it stands where θ̂ would.
    """
    arms, dimension = contexts.shape
    if not all_sound(contexts):
        return -1
    state, _, mean = columns(memory, dimension)
    merit, rule = merit_in(memory), codes_in(memory)[RULE]
    policy = out[:arms].reshape(arms, 1)
    theta = state.estimate
    inverse = state.inverse.reshape(dimension, dimension)  # "shared", which is faster for one lane
    if rule != THOMPSON:
        ridge = memory[REGULARISER : REGULARISER + 1]
        posterior_mean(None, inverse, state.statistics, mean, ridge, theta)
    doubt = memory[RADIUS : RADIUS + 1]
    expecting = rule == EXPECTED_MERIT
    expose_by_posterior(
        None, contexts, theta, inverse, variance_in(memory), merit, expecting, state.product, doubt, policy
    )
    return answer(contexts, policy, theta, memory[LEAST_SHARE], out, uniform)


@stage
def draw_parameter(memory: Array, normals: Array, room: Array) -> None:
    """Put a draw of the posterior where the next decision looks for θ. normals (d, 1), room (d·d + 1,)."""
    dimension = normals.shape[0]
    state, _, mean = columns(memory, dimension)
    ridge, variance = memory[REGULARISER : REGULARISER + 1], room[:1]
    variance[0] = variance_in(memory)
    posterior_mean(None, state.inverse, state.statistics, mean, ridge, state.estimate)
    factor = room[1:].reshape(dimension, dimension, 1)
    sample(None, state.inverse, variance, normals, factor, state.estimate)
