"""θ → fair policy π → drawn action (Solanki et al., Alg. 1 lines 7 and 8)."""

from __future__ import annotations

from fedfairx.arrays import Array
from fedfairx.core.merit_table import MeritTable, log_merits
from fedfairx.lanes.arithmetic import exp
from fedfairx.lanes.block import Lanes
from fedfairx.lanes.compile import leaf, stage
from fedfairx.lanes.registers import WIDTH
from fedfairx.lanes.vector import fma, item, larger, load, load_run, store, store_run, where_above


@leaf
def _merits(lanes: Lanes, policy: Array, top: float) -> float:
    """policy (K, n), which holds log merits, ← e^(log merit - top); returns their sum."""
    arms, total, first = policy.shape[0], 0.0, 0
    if lanes is None:  # one lane: WIDTH arms at a time
        row = policy.reshape(arms)
        while first + WIDTH <= arms:
            store_run(exp(load_run(row, first) - top), row, first)
            first += WIDTH
        for a in range(first):
            total = total + item(row, a)
    for a in range(first, arms):
        merit_now = exp(load(lanes, policy, a) - top)
        store(merit_now, lanes, policy, a)
        total = total + merit_now
    return total


@leaf
def share_out(lanes: Lanes, policy: Array) -> None:
    """policy (K, n), which holds log merits, ← shares."""
    scale = _scale(lanes, policy)
    for a in range(policy.shape[0]):
        store(load(lanes, policy, a) * scale, lanes, policy, a)


@leaf
def _scale(lanes: Lanes, policy: Array) -> float:
    """policy, which holds log merits, ← merits over the largest; returns what makes shares of them."""
    top = load(lanes, policy, 0)
    for a in range(1, policy.shape[0]):
        top = larger(top, load(lanes, policy, a))
    return 1.0 / _merits(lanes, policy, top)


@leaf
def expose(lanes: Lanes, merit: MeritTable, means: Array, policy: Array, slopes: Array) -> float:
    """π(a) = f(μ_a) / Σ f(μ_a'); returns the expected reward Σ π(a) μ_a.

    Alg. 1 line 7, in log space: f only ever appears as exp(log f - max log f). `slopes` gets f'/f as
    `log_merits` says. means, policy and slopes (K, n).
    """
    log_merits(lanes, merit, means, policy, slopes)
    scale, objective = _scale(lanes, policy), 0.0
    for a in range(means.shape[0]):
        share = load(lanes, policy, a) * scale
        store(share, lanes, policy, a)
        objective = fma(share, load(lanes, means, a), objective)
    return objective


@stage
def at_least(policy: Array, lane: int, share: float) -> None:
    """Give every arm `share`, and the rest by the policy; where there are too many arms, all get the same."""
    arms = policy.shape[0]
    rest = max(1.0 - arms * share, 0.0)
    for a in range(arms):
        policy[a, lane] = min(share, 1.0 / arms) + rest * policy[a, lane]


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


@leaf
def draw_rows(
    lanes: Lanes,
    contexts: Array,
    policy: Array,
    means: Array,
    uniform: float,
    chosen: Array,
    chosen_mean: Array,
) -> None:
    """`draw` for every lane: the drawn arm's context and mean become the observation at hand."""
    dimension = contexts.shape[1]
    cumulative = load(lanes, policy, 0)
    for j in range(dimension):
        store(load(lanes, contexts, 0, j), lanes, chosen, j)
    mean = load(lanes, means, 0)
    for a in range(1, contexts.shape[0]):
        passed = where_above(cumulative, uniform, 0.0, 1.0)  # the arms before this one are passed over
        for j in range(dimension):
            other = load(lanes, chosen, j)
            store(where_above(passed, 0.0, load(lanes, contexts, a, j), other), lanes, chosen, j)
        mean = where_above(passed, 0.0, load(lanes, means, a), mean)
        cumulative = cumulative + load(lanes, policy, a)
    store(mean, lanes, chosen_mean)
