"""The optimistic parameter: argmax over the confidence region of the fair policy's reward (Alg. 1 line 6).

One start, θ̂'s own gradient, climbs to a fixed point (`ascent`). Where that point is proved best of the
region (`certificate`), which is the steady state, the work is done; elsewhere every arm's own optimistic
direction is a further start (`restarts`).

Differs from paper: projected gradient descent, which can stop at a poor local maximum, is an option.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fedfairx.core.arithmetic import fma
from fedfairx.core.ascent import ascend, ascend_pgd
from fedfairx.core.certificate import certify, coarse_half_widths, half_widths
from fedfairx.core.compile import glue, stage
from fedfairx.core.lanes import lane_count
from fedfairx.core.linear import multiply, scores, take_arm
from fedfairx.core.merit import MeritTable
from fedfairx.core.problem import (
    BEST,
    HERE_PULL,
    HERE_STEP,
    MEANS,
    OBJECTIVE,
    POLICY,
    PROVED,
    PULL,
    STEP,
    THETA,
    WIDTH,
    A,
    Region,
    Scratch,
    evaluate,
)
from fedfairx.core.restarts import restart
from fedfairx.core.statistics import Array

FAIR, FAIR_PGD, WINNER = range(3)
WHOLE_BALL = 2.0  # no two points of the unit ball are further apart
PARTS_OF_BALL = (1.4, 1.0, 0.5)  # tried in turn, until every lane has one


class Solver(NamedTuple):
    """How the policy follows from the region."""

    rule: int = FAIR
    tolerance: float = 1e-5  # last step ‖Δu‖, in half-widths; the objective is then exact to 1e-10 or so
    max_steps: int = 100
    rate: float = 1.0  # of projected gradient ascent
    floor: float = 0.0  # WINNER: every arm's least share, the rest goes to the largest upper bound


@glue
def optimise(contexts: Array, region: Region, merit: MeritTable, work: Scratch, solver: Solver) -> int:
    """Alg. 1 line 6 for every lane: θ, its policy and its means are left in `work`.

    One start where that is proved enough, many elsewhere; never below the objective at θ̂, where the
    first start begins. Returns the number of lanes that needed many starts.
    """
    lanes = lane_count(work.lanes)
    begin_at_estimate(work)
    ascend(contexts, region, merit, work, solver.tolerance, solver.max_steps)
    for l in range(lanes):
        work.lane[PROVED, l] = 0.0
    coarse_half_widths(contexts, region, work)
    unsure = lanes - certify(contexts, region, merit, work, WHOLE_BALL, False)
    if unsure == 0:
        return 0
    half_widths(contexts, region, work)
    unsure -= certify(contexts, region, merit, work, WHOLE_BALL, True)
    if unsure == 0:
        return 0
    open_lanes = unsure
    for distance in PARTS_OF_BALL:
        if open_lanes > 0:
            open_lanes -= certify(contexts, region, merit, work, distance, True)
    better = False
    for l in range(lanes):
        if work.lane[PROVED, l] < WHOLE_BALL and restart(
            contexts, region, merit, work, l, solver.tolerance, solver.max_steps
        ):
            better = True
    if better:
        evaluate(contexts, region, merit, work)
    return unsure


@stage
def begin_at_estimate(work: Scratch) -> None:
    """The present point of every lane ← u = 0, which is θ̂."""
    for j in range(work.model.shape[1]):
        for l in range(lane_count(work.lanes)):
            work.model[HERE_PULL, j, l] = 0.0
            work.model[HERE_STEP, j, l] = 0.0


@stage
def favour(contexts: Array, region: Region, work: Scratch, floor: float) -> None:
    """Winner takes all but a `floor` for every arm: LinUCB (Li et al. 2010), or a minimum share.

    The winner is the first arm of the largest upper bound; θ is that arm's own optimistic parameter. Among
    more than 1/floor arms all shares are equal.
    """
    arms = contexts.shape[0]
    dimension, lanes = region.estimate.shape[0], work.lanes
    means, policy, width = work.arms[MEANS], work.arms[POLICY], work.arms[WIDTH]
    chosen, product, theta = work.model[PULL], work.model[STEP], work.model[THETA]
    top, bound, radius, estimate = work.lane[BEST], work.lane[A], region.radius, region.estimate
    floor = min(floor, 1.0 / arms)
    scores(lanes, contexts, region.estimate, means)
    for a in range(arms):
        take_arm(lanes, contexts, a, chosen)
        multiply(lanes, region.inverse, chosen, product)
        for l in range(lane_count(lanes)):
            bound[l] = 0.0
        for j in range(dimension):
            for l in range(lane_count(lanes)):
                bound[l] = fma(chosen[j, l], product[j, l], bound[l])
        for l in range(lane_count(lanes)):
            width[a, l] = math.sqrt(max(bound[l], 0.0))
            bound[l] = fma(radius[l], width[a, l], means[a, l])
            policy[a, l] = floor
        for l in range(lane_count(lanes)):
            if a == 0 or bound[l] > top[l]:
                top[l] = bound[l]
                work.lane[OBJECTIVE, l] = a
                for j in range(dimension):
                    scale = radius[l] / width[a, l] if width[a, l] > 0.0 else 0.0
                    theta[j, l] = fma(scale, product[j, l], estimate[j, l])
    for l in range(lane_count(lanes)):
        policy[int(work.lane[OBJECTIVE, l]), l] += 1.0 - arms * floor


@glue
def choose(contexts: Array, region: Region, merit: MeritTable, work: Scratch, solver: Solver) -> None:
    """The policy of every lane, by the solver's rule: left in `work`, with θ and the optimistic means."""
    if solver.rule == FAIR:
        optimise(contexts, region, merit, work, solver)
    elif solver.rule == FAIR_PGD:
        begin_at_estimate(work)
        ascend_pgd(contexts, region, merit, work, solver.rate, solver.max_steps)
    else:
        favour(contexts, region, work, solver.floor)
