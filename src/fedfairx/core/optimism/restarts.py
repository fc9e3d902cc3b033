"""Further starts at every arm's optimistic direction, where one start is not proved enough."""

from __future__ import annotations

import math

from fedfairx.core.merit_kernels import FIRST, exponential
from fedfairx.core.optimism.ascent import (
    FLAT,
    TINY,
    advance,
    begin,
    image,
    measure,
    note_last,
    note_progress,
    unfinished,
)
from fedfairx.core.optimism.problem import (
    BEST,
    BEST_STEP,
    DONE,
    HALF_WIDTHS,
    HERE_PULL,
    HERE_STEP,
    NORM,
    OBJECTIVE,
    PROVED,
    RESIDUAL,
    Region,
    Scratch,
    Starts,
    evaluate_again,
    scratch,
    starts_in,
)
from fedfairx.lanes.decorators import layout, stage
from fedfairx.lanes.linalg import blend, inner, lane_of, take_lane
from fedfairx.lanes.rows import Rows, blocks, by_lane
from fedfairx.lanes.vector import absolute, fma, where_above
from fedfairx.lanes.vector_llvm import WIDTH

SAME_POLICY = 0.3  # two points whose log merits differ by less lie in one basin
HOPE = 10.0  # a start ends when ten times what its gradient promises would not reach the best


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
        square = 0.0
        for j in range(dimension):
            square = fma(steps[arm, j], contexts[arm, j], square)
        scale = 1.0 / math.sqrt(max(square, TINY))
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
    contexts: Rows, region: Region, merit: Rows, block: Scratch, lane: int, tolerance: float, max_steps: int
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
    found, model = by_lane(starts.work.lane), by_lane(starts.work.model)
    winner = -1
    for s in range(count):
        # A last digit does not count: the present point has converged, and is more exact in u.
        if found[BEST, s] - best > FLAT * (1.0 + abs(best)):
            best = found[BEST, s]
            winner = s
    if winner < 0:
        return False
    # If the winner converged, its last point: the best one that it saw is less exact in u.
    arrived = found[RESIDUAL, winner] <= tolerance * tolerance
    arrived = arrived and best - found[OBJECTIVE, winner] <= FLAT * (1.0 + abs(best))
    here = by_lane(block.model)
    for j in range(contexts.shape[1]):
        here[HERE_STEP, j, lane] = model[HERE_STEP if arrived else BEST_STEP, j, winner]
    own[BEST, lane] = best
    return True
