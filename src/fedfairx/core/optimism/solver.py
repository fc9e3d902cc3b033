"""The optimistic parameter: argmax over the confidence region of the fair policy's reward (Alg. 1 line 6).

One start, θ̂'s own gradient, climbs to a fixed point of u ↦ ∇g/‖∇g‖: a maximiser on the sphere is one.
Iteration converges linearly, so Anderson acceleration of depth one about halves the steps, and evens them out
between lanes. Where the point is proved to be the best of the region (`certificate`), which is the steady
state, the work is done; elsewhere every arm's own optimistic direction is a further start.

Differs from paper: projected gradient descent, which can stop at a poor local maximum, is an option.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fedfairx.core.merit_kernels import FIRST, exponential
from fedfairx.core.optimism.certificate import certify, certify_coarsely, half_widths
from fedfairx.core.optimism.problem import (
    ALONG,
    BEFORE,
    BEST,
    BEST_STEP,
    DONE,
    GAP_PULL,
    GAP_STEP,
    HALF_WIDTHS,
    HERE_PULL,
    HERE_STEP,
    INERTIA,
    LAST_PULL,
    LAST_STEP,
    MEANS,
    MEMORY,
    NORM,
    OBJECTIVE,
    POLICY,
    PROVED,
    PULL,
    RESIDUAL,
    STEP,
    THETA,
    TURN,
    WEIGHTS,
    Region,
    Scratch,
    Starts,
    evaluate,
    evaluate_again,
    scratch,
    starts_in,
)
from fedfairx.lanes.decorators import layout, stage
from fedfairx.lanes.linalg import blend, inner, lane_of, scores, take_lane
from fedfairx.lanes.rows import Rows, blocks, by_lane
from fedfairx.lanes.vector import absolute, all_above, any_above, fma, larger, smaller, sqrt, where_above
from fedfairx.lanes.vector_llvm import WIDTH

FAIR, FAIR_PGD, WINNER = range(3)
WHOLE_BALL = 2.0  # no two points of the unit ball are further apart
PARTS_OF_BALL = (1.4, 1.0, 0.5)  # tried in turn, until every lane has one
FLAT = 1e-12  # objectives that differ by less, relatively, count as equal
TINY = 1e-300
SHORT = 1e-12  # of a squared length: what two opposite unit vectors leave is rounding, without direction
SAME_POLICY = 0.3  # two points whose log merits differ by less lie in one basin
HOPE = 10.0  # a start ends when ten times what its gradient promises would not reach the best


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


# --- ascent from a start ----------------------------------------------------------------------------------


@stage
def image(contexts: Rows, region: Region, work: Scratch) -> None:
    """(PULL, STEP) ← the unit vector along ∇g (plus inertia along u where a lane has some)."""
    pull, step = work.model[PULL], work.model[STEP]
    blend(contexts, work.arms[WEIGHTS], pull)
    blend(region.inverse, pull, step)
    norm = sqrt(larger(inner(pull, step), 0.0))
    work.lane[NORM] = norm
    scale = where_above(norm, 0.0, 1.0 / norm, 0.0)
    for j in range(pull.shape[0]):
        pull[j] = pull[j] * scale
        step[j] = step[j] * scale
    if any_above(work.lane[INERTIA], 0.0):
        _slow_down(work)


@stage
def _slow_down(work: Scratch) -> None:
    """Move the image towards u in the lanes with inertia, which are rare."""
    lane, pull, step = by_lane(work.lane), by_lane(work.model[PULL]), by_lane(work.model[STEP])
    here_pull, here_step = by_lane(work.model[HERE_PULL]), by_lane(work.model[HERE_STEP])
    for l in range(lane.shape[1]):
        inertia = lane[INERTIA, l]
        if inertia > 0.0 and lane[NORM, l] > 0.0:
            length = 0.0
            for j in range(pull.shape[0]):
                pull[j, l] += inertia * here_pull[j, l]
                step[j, l] += inertia * here_step[j, l]
                length += pull[j, l] * step[j, l]
            scale = 1.0 / math.sqrt(length) if length > SHORT else 0.0
            for j in range(pull.shape[0]):
                pull[j, l] = scale * pull[j, l] if length > SHORT else here_pull[j, l]
                step[j, l] = scale * step[j, l] if length > SHORT else here_step[j, l]


@stage
def note_progress(work: Scratch) -> None:
    """Give inertia to lanes whose objective fell, and remember the better point before."""
    objective, before = work.lane[OBJECTIVE], work.lane[BEFORE]
    if any_above(before - objective, FLAT * (1.0 + absolute(before))):
        _note_fall(work)
    work.lane[BEFORE] = objective


@stage
def _note_fall(work: Scratch) -> None:
    """`note_progress` for the lanes that fell, which are rare.

    The point before is the last image less the last gap, so it need not be stored during the ascent.
    """
    lane, model = by_lane(work.lane), by_lane(work.model)
    for l in range(lane.shape[1]):
        before = lane[BEFORE, l]
        if before - lane[OBJECTIVE, l] > FLAT * (1.0 + abs(before)) and lane[DONE, l] == 0.0:
            if before > lane[BEST, l]:
                lane[BEST, l] = before
                for j in range(model.shape[1]):
                    model[BEST_STEP, j, l] = model[LAST_STEP, j, l] - model[GAP_STEP, j, l]
            # With enough inertia the map climbs a convex function on the sphere, hence never falls.
            lane[INERTIA, l] = max(1.0, 2.0 * lane[INERTIA, l])
            lane[MEMORY, l] = 0.0


@stage
def note_last(work: Scratch) -> None:
    """Include the present point, which has been evaluated, in BEST."""
    best_step, here = work.model[BEST_STEP], work.model[HERE_STEP]
    objective, best = work.lane[OBJECTIVE], work.lane[BEST]
    work.lane[BEST] = larger(objective, best)
    for j in range(best_step.shape[0]):
        best_step[j] = where_above(best, objective, best_step[j], here[j])


@stage
def measure(work: Scratch, tolerance: float) -> bool:
    """The gap between every lane's point and its image; True when every lane has arrived.

    ALONG and TURN get what `advance` needs: ⟨f, f - f₋⟩ and ‖f - f₋‖² of this gap f and the last one f₋.
    """
    pull, step = work.model[PULL], work.model[STEP]
    here_pull, here_step = work.model[HERE_PULL], work.model[HERE_STEP]
    gap_pull, gap_step = work.model[GAP_PULL], work.model[GAP_STEP]
    residual, along, turn = 0.0, 0.0, 0.0
    for j in range(pull.shape[0]):
        f_pull = pull[j] - here_pull[j]
        f_step = step[j] - here_step[j]
        d_pull = f_pull - gap_pull[j]
        d_step = f_step - gap_step[j]
        residual = fma(f_pull, f_step, residual)
        along = fma(f_pull, d_step, along)
        turn = fma(d_pull, d_step, turn)
        gap_pull[j] = f_pull
        gap_step[j] = f_step
    work.lane[RESIDUAL] = residual
    work.lane[ALONG] = along
    work.lane[TURN] = turn
    done = where_above(residual, tolerance * tolerance, work.lane[DONE], 1.0)
    done = where_above(work.lane[NORM], 0.0, done, 1.0)
    work.lane[DONE] = done
    return all_above(done, 0.0)


@stage
def advance(work: Scratch) -> None:
    """Step every unfinished lane towards its image, accelerated."""
    pull, step = work.model[PULL], work.model[STEP]
    here_pull, here_step = work.model[HERE_PULL], work.model[HERE_STEP]
    last_pull, last_step = work.model[LAST_PULL], work.model[LAST_STEP]
    # Anderson (1965), depth one: γ = ⟨f, f - f₋⟩ / ‖f - f₋‖², next u = G - γ (G - G₋).
    gamma = work.lane[ALONG] / larger(work.lane[TURN], TINY)
    gamma = work.lane[MEMORY] * smaller(larger(gamma, -4.0), 0.5)
    work.lane[MEMORY] = where_above(work.lane[INERTIA], 0.0, 0.0, 1.0)
    length = 0.0
    for j in range(pull.shape[0]):
        image_pull, image_step = pull[j], step[j]
        new_pull = fma(-gamma, image_pull - last_pull[j], image_pull)
        new_step = fma(-gamma, image_step - last_step[j], image_step)
        last_pull[j] = image_pull
        last_step[j] = image_step
        pull[j] = new_pull
        step[j] = new_step
        length = fma(new_pull, new_step, length)
    scale = 1.0 / sqrt(larger(length, TINY))
    done = work.lane[DONE]
    for j in range(pull.shape[0]):
        new_pull = where_above(length, SHORT, scale * pull[j], last_pull[j])
        new_step = where_above(length, SHORT, scale * step[j], last_step[j])
        here_pull[j] = where_above(done, 0.0, here_pull[j], new_pull)
        here_step[j] = where_above(done, 0.0, here_step[j], new_step)


@stage
def begin(work: Scratch) -> None:
    """Reset what an earlier ascent left; keep the present point.

    Without MEMORY the last image and gap have weight 0, but 0 · ∞ is NaN, and a workspace that was laid out
    for another number of arms may hold anything.
    """
    work.lane[BEST] = -math.inf
    work.lane[BEFORE] = -math.inf
    work.lane[INERTIA] = 0.0
    work.lane[MEMORY] = 0.0
    work.lane[DONE] = 0.0
    for j in range(work.model.shape[1]):
        work.model[LAST_PULL, j] = 0.0
        work.model[LAST_STEP, j] = 0.0
        work.model[GAP_PULL, j] = 0.0
        work.model[GAP_STEP, j] = 0.0


@stage
def unfinished(work: Scratch) -> bool:
    """Whether some lane has not arrived."""
    return not all_above(work.lane[DONE], 0.0)


@stage
def ascend(
    contexts: Rows, region: Region, merit: Rows, work: Scratch, tolerance: float, max_steps: int
) -> None:
    """Climb from the present (HERE_PULL, HERE_STEP) of every lane to a fixed point of u ↦ ∇g/‖∇g‖.

    `tolerance` bounds the last step ‖Δu‖, in units of the region's half-width. The lanes that have not
    arrived after `max_steps`, or arrived below a point that they saw, end at the best point that they saw.
    """
    begin(work)
    for _ in range(max_steps):
        evaluate(contexts, region, merit, work)
        note_progress(work)
        image(contexts, region, work)
        if measure(work, tolerance):
            break
        advance(work)
    settle(contexts, region, merit, work)


@stage
def settle(contexts: Rows, region: Region, merit: Rows, work: Scratch) -> None:
    """Move the lanes that are below the best that they saw to that point, and evaluate there."""
    if unfinished(work):
        evaluate_again(contexts, region, merit, work)  # the last advance of these lanes has not been seen yet
    note_last(work)
    best, objective = work.lane[BEST], work.lane[OBJECTIVE]
    # Near its maximum g is flat to rounding while u is not yet exact, so a last digit is no fall.
    if any_above(best - objective, FLAT * (1.0 + absolute(best))):
        lane, model = by_lane(work.lane), by_lane(work.model)
        for l in range(lane.shape[1]):
            if lane[BEST, l] - lane[OBJECTIVE, l] > FLAT * (1.0 + abs(lane[BEST, l])):
                lane[DONE, l] = 0.0
                for j in range(model.shape[1]):
                    model[HERE_STEP, j, l] = model[BEST_STEP, j, l]
        evaluate_again(contexts, region, merit, work)


@stage
def ascend_pgd(contexts: Rows, region: Region, merit: Rows, work: Scratch, rate: float, steps: int) -> None:
    """The paper's solver: `steps` of gradient ascent in u at `rate`, each projected onto the unit ball.

    It starts at the present point and ends at the best point that it saw. Its settings are not given in the
    paper, and from one start it can end at a poor local maximum.
    """
    begin(work)
    pull, step = work.model[PULL], work.model[STEP]
    here_pull, here_step = work.model[HERE_PULL], work.model[HERE_STEP]
    for _ in range(steps):
        evaluate(contexts, region, merit, work)
        note_last(work)
        image(contexts, region, work)
        # The gradient's length in u is √β times the norm.
        stride = rate * region.radius[0] * work.lane[NORM]
        for j in range(pull.shape[0]):
            here_pull[j] = fma(stride, pull[j], here_pull[j])
            here_step[j] = fma(stride, step[j], here_step[j])
        scale = 1.0 / larger(sqrt(larger(inner(here_pull, here_step), 0.0)), 1.0)
        for j in range(pull.shape[0]):
            here_pull[j] = scale * here_pull[j]
            here_step[j] = scale * here_step[j]
    settle(contexts, region, merit, work)  # no lane is marked done, so the last point is evaluated


# --- further starts, where one is not proved enough -------------------------------------------------------


@layout
def starts_of(block: Scratch, arms: int, dimension: int) -> Starts:
    """Lay out the starts of one lane in the block's spare workspace."""
    work = scratch(blocks(block.spare), arms, dimension)
    return starts_in(work.spare, work, arms, dimension)


@stage
def take_decision(
    contexts: Rows, region: Region, merit: Rows, block: Scratch, lane: int, starts: Starts
) -> None:
    """Copy the decision of one lane of a block to the starts."""
    estimate, radius, each = by_lane(region.estimate), by_lane(region.radius), by_lane(merit)
    model, ours = by_lane(block.model), starts.region
    take_lane(contexts, lane, starts.contexts)
    take_lane(region.inverse, lane, ours.inverse)
    ours.radius[0] = radius[0, lane_of(region.radius, lane)]
    for row in range(each.shape[0]):
        starts.merit[row] = each[row, lane_of(merit, lane)]
    for j in range(contexts.shape[1]):
        starts.here_pull[j] = model[HERE_PULL, j, lane]
        starts.here_step[j] = model[HERE_STEP, j, lane]
        ours.estimate[j] = estimate[j, lane_of(region.estimate, lane)]


@stage
def find_starts(starts: Starts, best: float, distance: float) -> None:
    """The upper bound of every arm whose optimistic direction x_a/‖x_a‖ could lead to more than `best`.

    An arm whose upper bound is below `best` is no start: where g is larger, some mean is larger still. Nor is
    one whose direction lies within `distance` of the present point.
    """
    contexts, steps, bounds = starts.contexts, starts.steps, starts.bounds
    region = starts.region
    for a in range(contexts.shape[0]):
        blend(region.inverse, contexts[a], steps[a])
        width = math.sqrt(max(inner(contexts[a], steps[a]), 0.0))
        along, mean = inner(contexts[a], starts.here_step), inner(contexts[a], region.estimate)
        apart = 2.0 * (width - along) > distance * distance * width  # ‖u_a - u‖² = 2 - 2⟨u_a, u⟩
        bound = mean + region.radius[0] * width
        bounds[a] = bound if width > 0.0 and apart and bound > best else -math.inf


@stage
def begin_starts(starts: Starts, best: float) -> int:
    """Move the arms with the largest bounds above `best` into the block of starts."""
    contexts, steps, bounds = starts.contexts, starts.steps, starts.bounds
    arms, dimension = contexts.shape
    begin(starts.work)
    each, model = by_lane(starts.work.lane), by_lane(starts.work.model)
    count = 0
    for l in range(WIDTH):
        arm = 0
        for a in range(1, arms):
            if bounds[a] > bounds[arm]:
                arm = a
        if bounds[arm] > best:
            count += 1
        else:
            each[DONE, l] = 1.0  # no start: its result is ignored
        bounds[arm] = -math.inf
        scale = 1.0 / math.sqrt(max(inner(steps[arm], contexts[arm]), TINY))
        for j in range(dimension):
            model[HERE_PULL, j, l] = scale * contexts[arm, j]
            model[HERE_STEP, j, l] = scale * steps[arm, j]
    return count


@stage
def give_up(starts: Starts, best: float, distance: float) -> None:
    """End the starts that are near the present point, and those that can't reach the best.

    A step from u to its image G gains about ½ √β n ‖G - u‖², and later steps less and less. This holds for
    the exponential merit; with kinks or plateaus a slope may grow again, and all starts go on.
    """
    work = starts.work
    objective = work.lane[OBJECTIVE]
    square = 0.0
    for j in range(starts.here_pull.shape[0]):
        away_pull = work.model[HERE_PULL, j] - starts.here_pull[j]
        away_step = work.model[HERE_STEP, j] - starts.here_step[j]
        square = fma(away_pull, away_step, square)
    promise = work.lane[NORM] * work.lane[RESIDUAL]
    hope = fma(HOPE * 0.5 * starts.region.radius[0], promise, objective)
    done = work.lane[DONE]
    done = where_above(distance * distance, square, 1.0, done)
    if exponential(starts.merit):
        done = where_above(best - 1e-10 * (1.0 + absolute(best)), hope, 1.0, done)
    work.lane[DONE] = done


@stage
def largest_objective(work: Scratch, count: int, best: float) -> float:
    """The largest of `best` and the objectives of the first `count` starts."""
    lane = by_lane(work.lane)
    for l in range(count):
        best = max(best, lane[OBJECTIVE, l])
    return best


@stage
def climb(starts: Starts, count: int, best: float, distance: float, tolerance: float, max_steps: int) -> None:
    """`ascend` for a block of `count` starts, ending the hopeless ones early."""
    contexts, region, merit, work = starts.contexts, starts.region, starts.merit, starts.work
    for _ in range(max_steps):
        evaluate_again(contexts, region, merit, work)
        note_progress(work)
        image(contexts, region, work)
        if measure(work, tolerance):
            break
        give_up(starts, largest_objective(work, count, best), distance)
        if not unfinished(work):
            break
        advance(work)
    if unfinished(work):
        evaluate_again(contexts, region, merit, work)  # the last advance has not been evaluated yet
    note_last(work)


@stage
def restart(
    contexts: Rows,
    region: Region,
    merit: Rows,
    block: Scratch,
    lane: int,
    tolerance: float,
    max_steps: int,
) -> bool:
    """Run further starts for one lane after `ascend`; True if one found a larger objective.

    The starts, arms with the largest upper bounds, are the lanes of another block and share contexts and
    inverse. The lane's present point becomes the better one, which the caller evaluates.
    """
    starts = starts_of(block, contexts.shape[0], contexts.shape[1])
    take_decision(contexts, region, merit, block, lane, starts)
    own, widths = by_lane(block.lane), by_lane(block.arms)
    widest = 1e-12
    for a in range(contexts.shape[0]):
        widest = max(widest, widths[HALF_WIDTHS, a, lane])
    distance, best = own[PROVED, lane], own[BEST, lane]
    if exponential(starts.merit):
        distance = max(distance, SAME_POLICY / (starts.merit[FIRST] * widest))
    find_starts(starts, best, distance)
    count = begin_starts(starts, best)
    if count == 0:
        return False
    climb(starts, count, best, distance, tolerance, max_steps)
    values, model = by_lane(starts.work.lane), by_lane(starts.work.model)
    winner = -1
    for s in range(count):
        # A last digit does not count: the present point has converged, and is more exact in u.
        if values[BEST, s] - best > FLAT * (1.0 + abs(best)):
            best = values[BEST, s]
            winner = s
    if winner < 0:
        return False
    # If the winner converged, its last point: the best one that it saw is less exact in u.
    arrived = values[RESIDUAL, winner] <= tolerance * tolerance
    arrived = arrived and best - values[OBJECTIVE, winner] <= FLAT * (1.0 + abs(best))
    here = by_lane(block.model)
    for j in range(contexts.shape[1]):
        here[HERE_STEP, j, lane] = model[HERE_STEP if arrived else BEST_STEP, j, winner]
    own[BEST, lane] = best
    return True


# --- the policy -------------------------------------------------------------------------------------------


@stage
def begin_at_estimate(work: Scratch) -> None:
    """The present point of every lane ← u = 0, which is θ̂."""
    for j in range(work.model.shape[1]):
        work.model[HERE_PULL, j] = 0.0
        work.model[HERE_STEP, j] = 0.0


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
def favour(contexts: Rows, region: Region, work: Scratch, floor: float) -> None:
    """Winner takes all but a `floor` for every arm: LinUCB (Li et al. 2010), or a minimum share.

    The winner is the first arm of the largest upper bound; θ is that arm's own optimistic parameter. Among
    more than 1/floor arms all shares are equal.
    """
    arms = contexts.shape[0]
    means, policy = work.arms[MEANS], work.arms[POLICY]
    product, theta = work.model[STEP], work.model[THETA]
    radius = region.radius[0]
    floor = min(floor, 1.0 / arms)
    scores(contexts, region.estimate, means)
    work.lane[BEST] = -math.inf
    work.lane[OBJECTIVE] = 0.0
    for a in range(arms):
        blend(region.inverse, contexts[a], product)
        width = sqrt(larger(inner(contexts[a], product), 0.0))
        bound, top = fma(radius, width, means[a]), work.lane[BEST]
        scale = where_above(width, 0.0, radius / width, 0.0)
        for j in range(theta.shape[0]):
            own = fma(scale, product[j], region.estimate[j])
            theta[j] = where_above(bound, top, own, theta[j])
        work.lane[OBJECTIVE] = where_above(bound, top, float(a), work.lane[OBJECTIVE])
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
