"""θ → fair policy π → drawn action (Solanki et al., Alg. 1 lines 7 and 8)."""

from __future__ import annotations

from fedfairx.core.merit_kernels import log_merits
from fedfairx.lanes.decorators import stage
from fedfairx.lanes.rows import Rows, one_lane, put_run, run_at
from fedfairx.lanes.vector import fma, larger, smaller, where_above
from fedfairx.lanes.vector_llvm import WIDTH
from fedfairx.lanes.vector_math import exp


@stage
def merits(policy: Rows, top: float) -> float:
    """Replace log merits in policy (K,) by e^(log merit - top); return their sum."""
    arms, total, first = policy.shape[0], 0.0, 0
    if one_lane(policy):  # WIDTH arms at a time
        while first + WIDTH <= arms:
            put_run(exp(run_at(policy, first) - top), policy, first)
            first += WIDTH
        for a in range(first):
            total = total + policy[a]
    for a in range(first, arms):
        merit_now = exp(policy[a] - top)
        policy[a] = merit_now
        total = total + merit_now
    return total


@stage
def normalize(policy: Rows) -> None:
    """Replace log merits in policy (K,) by shares."""
    scale = _scale(policy)
    for a in range(policy.shape[0]):
        policy[a] = policy[a] * scale


@stage
def _scale(policy: Rows) -> float:
    """Replace log merits by merits over the largest; return the factor that makes them shares."""
    top = policy[0]
    for a in range(1, policy.shape[0]):
        top = larger(top, policy[a])
    return 1.0 / merits(policy, top)


@stage
def expose(merit: Rows, means: Rows, policy: Rows, slopes: Rows) -> float:
    """π(a) = f(μ_a) / Σ f(μ_a'); returns the expected reward Σ π(a) μ_a.

    Alg. 1 line 7, in log space: f only ever appears as exp(log f - max log f). `slopes` gets f'/f as
    `log_merits` says. means, policy and slopes (K,).
    """
    log_merits(merit, means, policy, slopes)
    scale, objective = _scale(policy), 0.0
    for a in range(means.shape[0]):
        share = policy[a] * scale
        policy[a] = share
        objective = fma(share, means[a], objective)
    return objective


@stage
def at_least(policy: Rows, share: float) -> None:
    """Give every arm `share` and the rest by the policy; with more than 1/share arms all get the same."""
    arms = policy.shape[0]
    least, rest = smaller(share, 1.0 / arms), larger(1.0 - arms * share, 0.0)
    for a in range(arms):
        policy[a] = least + rest * policy[a]


@stage
def draw(policy: Rows, uniform: float) -> int:
    """The action that `uniform` in [0, 1) picks: the first a with π(0) + … + π(a) > uniform. One lane."""
    arms: int = policy.shape[0]
    cumulative = 0.0
    for a in range(arms):
        cumulative += policy[a]
        if uniform < cumulative:
            return a
    return arms - 1  # the sum fell short of 1 by rounding


@stage
def draw_rows(contexts: Rows, policy: Rows, means: Rows, uniform: float, chosen: Rows) -> float:
    """`draw` for every lane: the drawn arm's context becomes `chosen` (d,); returns its mean."""
    dimension = contexts.shape[1]
    cumulative = policy[0]
    for j in range(dimension):
        chosen[j] = contexts[0, j]
    mean = means[0]
    for a in range(1, contexts.shape[0]):
        passed = where_above(cumulative, uniform, 0.0, 1.0)  # skip the arms before this one
        for j in range(dimension):
            chosen[j] = where_above(passed, 0.0, contexts[a, j], chosen[j])
        mean = where_above(passed, 0.0, means[a], mean)
        cumulative = cumulative + policy[a]
    return mean
