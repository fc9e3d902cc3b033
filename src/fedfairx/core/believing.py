"""One decision from the posterior, on a live agent's memory (see `memory`): no solver, no iteration."""

from __future__ import annotations

from fedfairx.arrays import Array, Coordinates
from fedfairx.core.expectation import expose_arms, expose_by_posterior
from fedfairx.core.learner import NOISE_VARIANCE, RIDGE, learner
from fedfairx.core.memory import LEAST_SHARE, RULE, all_sound, answer, draw_at_least, mind_in
from fedfairx.core.posterior import posterior_mean, sample
from fedfairx.core.rules import EXPECTED_MERIT, THOMPSON
from fedfairx.lanes.compile import compiled
from fedfairx.lanes.rows import cut, flat, floats


@compiled
def decide_by_posterior(
    contexts: Array, memory: Array, out: Array, uniform: float, quadrature: bool | None
) -> int:
    """The drawn action, or -1 when a context is not finite or beyond `LARGEST`; `out` as `answer` says.

    Thompson's parameter must have been drawn before (`draw_parameter`): it stands where θ̂ would.
    `quadrature` is as `expose_by_posterior` says.
    """
    x = floats(contexts)
    if not all_sound(x):
        return -1
    arms, dimension = x.shape
    mind = mind_in(floats(memory), dimension)
    state, rule = mind.learner, mind.settings[RULE]
    policy, _ = cut(floats(out), arms)
    if rule != THOMPSON:
        posterior_mean(state.inverse, state.statistics, state.mean, state.numbers[RIDGE], state.estimate)
    expose_by_posterior(
        x,
        state.estimate,
        state.inverse,
        state.numbers[NOISE_VARIANCE],
        state.merit,
        rule == EXPECTED_MERIT,
        quadrature,
        state.product,
        policy,
    )
    return answer(x, policy, state.estimate, mind.settings[LEAST_SHARE], floats(out), uniform)


@compiled
def decide_among_arms(
    arms: Coordinates, dimension: int, memory: Array, out: Array, uniform: float, quadrature: bool | None
) -> int:
    """`decide_by_posterior` where contexts are unit vectors, of which arms (K,) are the coordinates."""
    count, rows = arms.shape[0], floats(out)
    mind = mind_in(floats(memory), dimension)
    state, rule = mind.learner, mind.settings[RULE]
    policy, _ = cut(rows, count)
    if rule != THOMPSON:
        posterior_mean(state.inverse, state.statistics, state.mean, state.numbers[RIDGE], state.estimate)
    expose_arms(
        arms,
        state.estimate,
        state.inverse,
        state.numbers[NOISE_VARIANCE],
        state.merit,
        rule == EXPECTED_MERIT,
        quadrature,
        state.product,
        policy,
    )
    action = draw_at_least(policy, mind.settings[LEAST_SHARE], uniform)
    for j in range(dimension):
        rows[count + j] = state.estimate[j]
        rows[count + dimension + j] = 0.0
    rows[count + dimension + arms[action]] = 1.0
    return action


@compiled
def draw_parameter(memory: Array, normals: Array, room: Array) -> None:
    """Put a draw of the posterior where the next decision looks for θ. d normals, room for d·d."""
    dimension = normals.shape[0]
    state, _ = learner(floats(memory), dimension)
    posterior_mean(state.inverse, state.statistics, state.mean, state.numbers[RIDGE], state.estimate)
    factor, _ = cut(floats(room), dimension, dimension)
    sample(state.inverse, state.numbers[NOISE_VARIANCE], flat(floats(normals)), factor, state.estimate)
