"""One decision from the posterior, on a live agent's memory (see `memory`): no solver, no iteration."""

from __future__ import annotations

from fedfairx.arrays import Array
from fedfairx.core.expectation import expose_by_posterior
from fedfairx.core.learner import RIDGE, learner, variance_of
from fedfairx.core.memory import LEAST_SHARE, RULE, all_sound, answer, mind_in
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
        variance_of(state),
        state.merit,
        rule == EXPECTED_MERIT,
        quadrature,
        state.product,
        policy,
    )
    return answer(x, policy, state.estimate, mind.settings[LEAST_SHARE], floats(out), uniform)


@compiled
def draw_parameter(memory: Array, normals: Array, room: Array) -> None:
    """Put a draw of the posterior where the next decision looks for θ. d normals, room for d·d."""
    dimension = normals.shape[0]
    state, _ = learner(floats(memory), dimension)
    posterior_mean(state.inverse, state.statistics, state.mean, state.numbers[RIDGE], state.estimate)
    factor, _ = cut(floats(room), dimension, dimension)
    sample(state.inverse, variance_of(state), flat(floats(normals)), factor, state.estimate)
