"""θ → fair policy π → drawn action (Solanki et al., Alg. 1 lines 7 and 8)."""

from __future__ import annotations

from fedfairx.core.arithmetic import exp, fma
from fedfairx.core.compile import stage
from fedfairx.core.lanes import Lanes, lane_count
from fedfairx.core.merit import MeritTable, log_merits
from fedfairx.core.statistics import Array


@stage
def expose(
    lanes: Lanes,
    merit: MeritTable,
    means: Array,
    policy: Array,
    slopes: Array,
    objective: Array,
    total: Array,
) -> None:
    """π(a) = f(μ_a) / Σ f(μ_a'), and the expected reward Σ π(a) μ_a, for every lane.

    Alg. 1 line 7, in log space: f only ever appears as exp(log f - max log f). `slopes` gets f'/f as
    `log_merits` says; total (n,) is room to work in.
    """
    arms = means.shape[0]
    log_merits(lanes, merit, means, policy, slopes)
    top = objective  # holds the largest log merit until the objective is known
    for l in range(lane_count(lanes)):
        top[l] = policy[0, l]
    for a in range(1, arms):
        for l in range(lane_count(lanes)):
            top[l] = max(top[l], policy[a, l])
    for l in range(lane_count(lanes)):
        total[l] = 0.0
    for a in range(arms):
        for l in range(lane_count(lanes)):
            merit_now = exp(policy[a, l] - top[l])
            policy[a, l] = merit_now
            total[l] += merit_now
    for l in range(lane_count(lanes)):
        total[l] = 1.0 / total[l]
        objective[l] = 0.0
    for a in range(arms):
        for l in range(lane_count(lanes)):
            share = policy[a, l] * total[l]
            policy[a, l] = share
            objective[l] = fma(share, means[a, l], objective[l])


@stage
def draw(policy: Array, lane: int, uniform: float) -> int:
    """The action that `uniform` in [0, 1) picks: the first a with π(0) + … + π(a) > uniform."""
    arms: int = policy.shape[0]
    cumulative = 0.0
    for a in range(arms):
        cumulative += policy[a, lane]
        if uniform < cumulative:
            return a
    return arms - 1  # the sum fell short of 1 by rounding
