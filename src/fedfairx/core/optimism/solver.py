"""The optimistic parameter: argmax over the confidence region of the fair policy's reward (Alg. 1 line 6).

One start, θ̂'s own gradient, climbs to a fixed point (`ascent`). Where that point is proved best of the
region (`certificate`), which is the steady state, the work is done; elsewhere every arm's own optimistic
direction is a further start (`restarts`).

Differs from paper: projected gradient descent, which can stop at a poor local maximum, is an option.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fedfairx.core.optimism.ascent import ascend, ascend_pgd
from fedfairx.core.optimism.certificate import certify, certify_coarsely, half_widths
from fedfairx.core.optimism.problem import (
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
    Region,
    Scratch,
    evaluate_again,
)
from fedfairx.core.optimism.restarts import restart
from fedfairx.lanes.decorators import stage
from fedfairx.lanes.linalg import blend, inner, scores
from fedfairx.lanes.rows import Rows, by_lane
from fedfairx.lanes.vector import fma, larger, sqrt, where_above

FAIR, FAIR_PGD, WINNER = range(3)
WHOLE_BALL = 2.0  # no two points of the unit ball are further apart
PARTS_OF_BALL = (1.4, 1.0, 0.5)  # tried in turn, until every lane has one


class Solver(NamedTuple):
    """The rule by which the policy follows from the region, and its numerical settings."""

    rule: int = FAIR
    tolerance: float = 1e-5  # last step ‖Δu‖, in half-widths; the objective is then exact to 1e-10 or so
    max_steps: int = 100
    rate: float = 1.0  # of projected gradient ascent
    floor: float = 0.0  # WINNER: every arm's least share, the rest goes to the largest upper bound

    @property
    def variant(self) -> Variant:
        """The rule as flags for `choose`."""
        fair, pgd, winner = (True if self.rule == rule else None for rule in (FAIR, FAIR_PGD, WINNER))
        return fair, pgd, winner


Variant = tuple[bool | None, bool | None, bool | None]  # `fair`, `pgd` and `winner` of `choose`


@stage
def optimise(contexts: Rows, region: Region, merit: Rows, work: Scratch, solver: Solver) -> None:
    """Alg. 1 line 6 for every lane: put θ, its policy and its means into `work`.

    One start where that is proved enough, many elsewhere; never below the objective at θ̂, where the
    first start begins.
    """
    begin_at_estimate(work)
    ascend(contexts, region, merit, work, solver.tolerance, solver.max_steps)
    work.lane[PROVED] = 0.0
    if certify_coarsely(contexts, region, merit, work, WHOLE_BALL):
        return
    half_widths(contexts, region, work)
    if certify(contexts, region, merit, work, WHOLE_BALL):
        return
    for distance in PARTS_OF_BALL:
        if certify(contexts, region, merit, work, distance):
            break
    better = False
    proved = by_lane(work.lane)
    for l in range(proved.shape[1]):
        if proved[PROVED, l] < WHOLE_BALL and restart(
            contexts, region, merit, work, l, solver.tolerance, solver.max_steps
        ):
            better = True
    if better:
        evaluate_again(contexts, region, merit, work)


@stage
def begin_at_estimate(work: Scratch) -> None:
    """The present point of every lane ← u = 0, which is θ̂."""
    for j in range(work.model.shape[1]):
        work.model[HERE_PULL, j] = 0.0
        work.model[HERE_STEP, j] = 0.0


@stage
def favour(contexts: Rows, region: Region, work: Scratch, floor: float) -> None:
    """Winner takes all but a `floor` for every arm: LinUCB (Li et al. 2010), or a minimum share.

    The winner is the first arm of the largest upper bound; θ is that arm's own optimistic parameter. Among
    more than 1/floor arms all shares are equal.
    """
    arms = contexts.shape[0]
    means, policy = work.arms[MEANS], work.arms[POLICY]
    chosen, product, theta = work.model[PULL], work.model[STEP], work.model[THETA]
    radius = region.radius[0]
    floor = min(floor, 1.0 / arms)
    scores(contexts, region.estimate, means)
    work.lane[BEST] = -math.inf
    work.lane[OBJECTIVE] = 0.0
    for a in range(arms):
        for j in range(chosen.shape[0]):
            chosen[j] = contexts[a, j]
        blend(region.inverse, chosen, product)
        width = sqrt(larger(inner(chosen, product), 0.0))
        bound, top = fma(radius, width, means[a]), work.lane[BEST]
        scale = where_above(width, 0.0, radius / width, 0.0)
        for j in range(theta.shape[0]):
            own = fma(scale, product[j], region.estimate[j])
            theta[j] = where_above(bound, top, own, theta[j])
        winner = where_above(bound, top, float(a), work.lane[OBJECTIVE])
        work.lane[OBJECTIVE] = winner
        work.lane[BEST] = larger(bound, top)
        policy[a] = floor
    lane, share = by_lane(work.lane), by_lane(policy)
    for l in range(lane.shape[1]):
        share[int(lane[OBJECTIVE, l]), l] += 1.0 - arms * floor


@stage
def choose(
    contexts: Rows,
    region: Region,
    merit: Rows,
    work: Scratch,
    solver: Solver,
    fair: bool | None,
    pgd: bool | None,
    winner: bool | None,
) -> None:
    """Compute the policy of every lane by the solver's rule; put it, θ and the optimistic means into `work`.

    `fair`, `pgd` and `winner` are the solver's `variant`: only the chosen rule is compiled.
    """
    if fair is not None:
        optimise(contexts, region, merit, work, solver)
    if pgd is not None:
        begin_at_estimate(work)
        ascend_pgd(contexts, region, merit, work, solver.rate, solver.max_steps)
    if winner is not None:
        favour(contexts, region, work, solver.floor)
