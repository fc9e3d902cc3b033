"""Beginning again at every arm's own optimistic direction, where one start is not proved enough."""

from __future__ import annotations

import math
from typing import NamedTuple

from fedfairx.arrays import Array
from fedfairx.core.merit import EXPONENTIAL
from fedfairx.core.merit_table import MeritTable, repeat_merit
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
    ARM_ROWS,
    BEST,
    BEST_STEP,
    DONE,
    HERE_PULL,
    HERE_STEP,
    LANE_ROWS,
    MERIT_ROWS,
    MODEL_ROWS,
    NORM,
    OBJECTIVE,
    PROVED,
    RESIDUAL,
    WIDTHS,
    Region,
    Scratch,
    evaluate,
)
from fedfairx.lanes.block import BLOCK
from fedfairx.lanes.compile import glue, leaf, stage
from fedfairx.lanes.linear import inner, multiply, take_lane
from fedfairx.lanes.registers import WIDTH
from fedfairx.lanes.vector import absolute, fma, load, store, where_above

SAME_POLICY = 0.3  # two points whose log merits differ by less lie in one basin
HOPE = 10.0  # a start ends when ten times what its gradient promises would not reach the best


class Choice(NamedTuple):
    """One decision of a block, on its own, and the block of starts that it gets."""

    contexts: Array  # (K, d)
    steps: Array  # (K, d) V⁻¹ x_a
    bounds: Array  # (K,) upper bound of each arm that is worth a start, -inf of the others
    here_pull: Array  # (d,) the point in hand
    here_step: Array  # (d,)
    region: Region  # of every start: the same
    merit: MeritTable  # likewise
    work: Scratch


@glue
def choice_of(contexts: Array, region: Region, merit: MeritTable, block: Scratch, lane: int) -> Choice:
    """The decision of one lane of a block, in the block's spare room."""
    arms, dimension, spare = contexts.shape[0], contexts.shape[1], block.spare
    # What has lanes comes first, so that it stays at addresses that a Vector divides.
    at = ARM_ROWS * arms * WIDTH
    arm_rows = spare[:at].reshape(ARM_ROWS, arms, WIDTH)
    size = MODEL_ROWS * dimension * WIDTH
    model = spare[at : at + size].reshape(MODEL_ROWS, dimension, WIDTH)
    at += size
    lane_rows = spare[at : at + LANE_ROWS * WIDTH].reshape(LANE_ROWS, WIDTH)
    at += LANE_ROWS * WIDTH
    estimate = spare[at : at + dimension * WIDTH].reshape(dimension, WIDTH)
    at += dimension * WIDTH
    radius = spare[at : at + WIDTH]
    at += WIDTH
    rows = MeritTable(
        merit.kind[lane] == EXPONENTIAL,
        block.codes[:WIDTH],
        spare[at : at + WIDTH],
        spare[at + WIDTH : at + 2 * WIDTH],
        spare[at + 2 * WIDTH : at + 3 * WIDTH],
        spare[at + 3 * WIDTH : at + 4 * WIDTH],
        spare[at + 4 * WIDTH : at + 5 * WIDTH],
        block.codes[WIDTH:],
    )
    at += MERIT_ROWS * WIDTH
    size = arms * dimension
    shared = spare[at : at + size].reshape(arms, dimension)
    steps = spare[at + size : at + 2 * size].reshape(arms, dimension)
    at += 2 * size
    inverse = spare[at : at + dimension * dimension].reshape(dimension, dimension)
    at += dimension * dimension
    here_pull, here_step = spare[at : at + dimension], spare[at + dimension : at + 2 * dimension]
    at += 2 * dimension
    bounds = spare[at : at + arms]
    # Starts need no room for the certificate or for further starts.
    work = Scratch(arm_rows, model, lane_rows, block.square, spare, block.codes, BLOCK)
    take_lane(contexts, lane, shared)
    take_lane(region.inverse, lane, inverse)
    repeat_merit(merit, lane, rows)
    for l in range(WIDTH):
        radius[l] = region.radius[lane]
    for j in range(dimension):
        here_pull[j] = block.model[HERE_PULL, j, lane]
        here_step[j] = block.model[HERE_STEP, j, lane]
        for l in range(WIDTH):
            estimate[j, l] = region.estimate[j, lane]
    return Choice(shared, steps, bounds, here_pull, here_step, Region(estimate, inverse, radius), rows, work)


@stage
def find_starts(choice: Choice, best: float, distance: float) -> None:
    """The upper bound of every arm whose optimistic direction x_a/‖x_a‖ could lead to more than `best`.

    An arm whose own upper bound is below `best` is no start: where g is larger, some mean is larger still.
    Nor is one whose direction lies within `distance` of the point in hand.
    """
    contexts, steps, bounds = choice.contexts, choice.steps, choice.bounds
    inverse, estimate, radius = choice.region.inverse, choice.region.estimate, choice.region.radius[0]
    arms, dimension = contexts.shape
    here = choice.here_step.reshape(dimension, 1)
    for a in range(arms):
        x, step = contexts[a].reshape(dimension, 1), steps[a].reshape(dimension, 1)
        multiply(None, inverse, x, step)
        width = math.sqrt(max(inner(None, x, step), 0.0))
        along, mean = inner(None, x, here), 0.0
        for j in range(dimension):
            mean = fma(contexts[a, j], estimate[j, 0], mean)
        apart = 2.0 * (width - along) > distance * distance * width  # ‖u_a - u‖² = 2 - 2⟨u_a, u⟩
        bound = mean + radius * width
        bounds[a] = bound if width > 0.0 and apart and bound > best else -math.inf


@stage
def begin_starts(choice: Choice, best: float) -> int:
    """Put the arms of the largest bounds above `best` into the block of starts, and strike them out."""
    contexts, steps, bounds, work = choice.contexts, choice.steps, choice.bounds, choice.work
    arms, dimension = contexts.shape
    begin(work)
    count = 0
    for l in range(WIDTH):
        arm = 0
        for a in range(1, arms):
            if bounds[a] > bounds[arm]:
                arm = a
        if bounds[arm] > best:
            count += 1
        else:
            work.lane[DONE, l] = 1.0  # no start: it goes along and is never looked at
        bounds[arm] = -math.inf
        square = 0.0
        for j in range(dimension):
            square = fma(steps[arm, j], contexts[arm, j], square)
        scale = 1.0 / math.sqrt(max(square, TINY))
        for j in range(dimension):
            work.model[HERE_PULL, j, l] = scale * contexts[arm, j]
            work.model[HERE_STEP, j, l] = scale * steps[arm, j]
    return count


@leaf
def give_up(choice: Choice, best: float, distance: float) -> None:
    """End the starts that are near the point in hand, and those that can't hope to reach the best.

    A step from u to its image G gains about ½ √β n ‖G - u‖², and the steps after it less and less. So it is
    for the exponential merit; where a merit has kinks or levels off, a slope may grow again: all go on.
    """
    work, lanes = choice.work, choice.work.lanes
    objective = load(lanes, work.lane, OBJECTIVE)
    square = 0.0
    for j in range(choice.here_pull.shape[0]):
        away_pull = load(lanes, work.model[HERE_PULL], j) - choice.here_pull[j]
        away_step = load(lanes, work.model[HERE_STEP], j) - choice.here_step[j]
        square = fma(away_pull, away_step, square)
    promise = load(lanes, work.lane, NORM) * load(lanes, work.lane, RESIDUAL)
    hope = fma(HOPE * 0.5 * choice.region.radius[0], promise, objective)
    done = load(lanes, work.lane, DONE)
    done = where_above(distance * distance, square, 1.0, done)
    if choice.merit.exponential:
        done = where_above(best - 1e-10 * (1.0 + absolute(best)), hope, 1.0, done)
    store(done, lanes, work.lane, DONE)


@stage
def largest_objective(work: Scratch, count: int, best: float) -> float:
    """The largest of `best` and the objectives of the first `count` starts."""
    for l in range(count):
        best = max(best, work.lane[OBJECTIVE, l])
    return best


@stage
def climb(choice: Choice, count: int, best: float, distance: float, tolerance: float, max_steps: int) -> None:
    """`ascend` for a block of `count` starts, of which those without hope are given up."""
    contexts, region, merit, work = choice.contexts, choice.region, choice.merit, choice.work
    for _ in range(max_steps):
        evaluate(contexts, region, merit, work)
        note_progress(work)
        image(contexts, region, work)
        if measure(work, tolerance):
            break
        give_up(choice, largest_objective(work, count, best), distance)
        if not unfinished(work):
            break
        advance(work)
    if unfinished(work):
        evaluate(contexts, region, merit, work)  # the last advance has not been seen yet
    note_last(work)


@stage
def restart(
    contexts: Array,
    region: Region,
    merit: MeritTable,
    block: Scratch,
    lane: int,
    tolerance: float,
    max_steps: int,
) -> bool:
    """Start again for one lane of a block that has been through `ascend`; True when that found more.

    The starts are the lanes of a block of their own, with contexts and inverse in common: the arms of the
    largest upper bounds. The lane's present point becomes the better one, and its owner evaluates there.
    """
    choice = choice_of(contexts, region, merit, block, lane)
    work = choice.work
    widest = 1e-12
    for a in range(contexts.shape[0]):
        widest = max(widest, block.arms[WIDTHS, a, lane])
    distance = block.lane[PROVED, lane]
    if choice.merit.exponential:
        distance = max(distance, SAME_POLICY / (merit.first[lane] * widest))
    best = block.lane[BEST, lane]
    find_starts(choice, best, distance)
    count = begin_starts(choice, best)
    if count == 0:
        return False
    climb(choice, count, best, distance, tolerance, max_steps)
    winner = -1
    for s in range(count):
        # By a last digit is not better: the point in hand has arrived, and is the more exact in u.
        if work.lane[BEST, s] - best > FLAT * (1.0 + abs(best)):
            best = work.lane[BEST, s]
            winner = s
    if winner < 0:
        return False
    # Where the winner arrived, its last point: the best that it saw is less exact in u.
    arrived = work.lane[RESIDUAL, winner] <= tolerance * tolerance
    arrived = arrived and best - work.lane[OBJECTIVE, winner] <= FLAT * (1.0 + abs(best))
    for j in range(contexts.shape[1]):
        block.model[HERE_STEP, j, lane] = work.model[HERE_STEP if arrived else BEST_STEP, j, winner]
    block.lane[BEST, lane] = best
    return True
