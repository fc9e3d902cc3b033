"""Beginning again at every arm's own optimistic direction, where one start is not proved enough."""

from __future__ import annotations

import math

import numpy as np

from fedfairx.core.arithmetic import fma
from fedfairx.core.ascent import FLAT, advance, begin, image, measure, note_last, note_progress, unfinished
from fedfairx.core.compile import allocating_stage, stage
from fedfairx.core.linear import take_lane
from fedfairx.core.merit import MeritTable, repeat_merit
from fedfairx.core.problem import (
    ARM_ROWS,
    BEST,
    BEST_STEP,
    DONE,
    HERE_PULL,
    HERE_STEP,
    LANE_ROWS,
    MODEL_ROWS,
    NORM,
    OBJECTIVE,
    PROVED,
    RESIDUAL,
    SQUARE_ROWS,
    WIDTH,
    Region,
    Scratch,
    evaluate,
)
from fedfairx.core.statistics import Array

SAME_POLICY = 0.3  # two points whose log merits differ by less lie in one basin
MOST_STARTS = 16  # those of the largest upper bounds: the leader of a better answer is among them
HOPE = 10.0  # a start ends when ten times what its gradient promises would not reach the best


@stage
def find_starts(
    contexts: Array,
    one: Region,
    best: float,
    here_step: Array,
    distance: float,
    pulls: Array,
    steps: Array,
    bounds: Array,
) -> int:
    """The optimistic direction x_a/‖x_a‖ of every arm that could lead to more than `best`; how many.

    An arm whose own upper bound is below `best` is no start: where g is larger, some mean is larger still.
    Nor is one whose direction lies within `distance` of the point in hand, whose step is `here_step` (d,).
    contexts (K, d); the region has one lane and an inverse (d, d); pulls and steps (d, K); `bounds` (K,) gets
    the upper bounds.
    """
    arms, dimension = contexts.shape
    inverse, estimate, radius = one.inverse, one.estimate, one.radius[0]
    count = 0
    for a in range(arms):
        square, mean, along = 0.0, 0.0, 0.0
        for i in range(dimension):
            row = 0.0
            for j in range(dimension):
                row = fma(inverse[i, j], contexts[a, j], row)
            steps[i, count] = row
            square = fma(row, contexts[a, i], square)
            mean = fma(estimate[i, 0], contexts[a, i], mean)
            along = fma(here_step[i], contexts[a, i], along)
        width = math.sqrt(max(square, 0.0))
        apart = 2.0 * (width - along) > distance * distance * width  # ‖u_a - u‖² = 2 - 2⟨u_a, u⟩
        if width > 0.0 and apart and mean + radius * width > best:
            for i in range(dimension):
                steps[i, count] /= width
                pulls[i, count] = contexts[a, i] / width
            bounds[count] = mean + radius * width
            count += 1
    return count


@stage
def keep_largest(count: int, most: int, pulls: Array, steps: Array, bounds: Array) -> int:
    """Of `count` starts keep the `most` of the largest upper bounds; how many there are then."""
    while count > most:
        lowest = 0
        for s in range(1, count):
            if bounds[s] < bounds[lowest]:
                lowest = s
        count -= 1
        bounds[lowest] = bounds[count]
        for i in range(pulls.shape[0]):
            pulls[i, lowest] = pulls[i, count]
            steps[i, lowest] = steps[i, count]
    return count


@stage
def give_up(work: Scratch, best: float, radius: float, pull: Array, step: Array, distance: float) -> None:
    """End the starts that are near the point in hand, and those that can't hope to reach the best.

    A step from u to its image G gains about ½ √β n ‖G - u‖², and the steps after it less and less.
    """
    here_pull, here_step = work.model[HERE_PULL], work.model[HERE_STEP]
    dimension = here_pull.shape[0]
    for l in range(here_pull.shape[1]):
        best = max(best, work.lane[OBJECTIVE, l])
    for l in range(here_pull.shape[1]):
        square = 0.0
        for j in range(dimension):
            square = fma(here_pull[j, l] - pull[j], here_step[j, l] - step[j], square)
        promise = 0.5 * radius * work.lane[NORM, l] * work.lane[RESIDUAL, l]
        hopeless = work.lane[OBJECTIVE, l] + HOPE * promise < best - 1e-10 * (1.0 + abs(best))
        if square < distance * distance or hopeless:
            work.lane[DONE, l] = 1.0


@allocating_stage
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

    The starts are the lanes of a block of their own, with contexts and inverse in common. The lane's present
    point becomes the better one, and its owner evaluates there.
    """
    arms, dimension = contexts.shape[0], contexts.shape[1]
    shared, inverse = np.empty((arms, dimension)), np.empty((dimension, dimension))
    take_lane(contexts, lane, shared)
    take_lane(region.inverse, lane, inverse)
    one = Region(np.empty((dimension, 1)), inverse, np.full(1, region.radius[lane]))
    pull, step = np.empty(dimension), np.empty(dimension)
    for j in range(dimension):
        one.estimate[j, 0] = region.estimate[j, lane]
        pull[j] = block.model[HERE_PULL, j, lane]
        step[j] = block.model[HERE_STEP, j, lane]
    best = block.lane[BEST, lane]
    pulls, steps = np.empty((dimension, arms)), np.empty((dimension, arms))
    widest = 1e-12
    for a in range(arms):
        widest = max(widest, block.arms[WIDTH, a, lane])
    distance = block.lane[PROVED, lane]
    if merit.exponential:
        distance = max(distance, SAME_POLICY / (merit.first[lane] * widest))
    bounds = np.empty(arms)
    count = find_starts(shared, one, best, step, distance, pulls, steps, bounds)
    count = keep_largest(count, MOST_STARTS, pulls, steps, bounds)
    if count == 0:
        return False
    starts = Region(np.empty((dimension, count)), inverse, np.full(count, region.radius[lane]))
    rows = repeat_merit(merit, lane, count)
    work = Scratch(
        np.zeros((ARM_ROWS, arms, count)),
        np.zeros((MODEL_ROWS, dimension, count)),
        np.zeros((LANE_ROWS, count)),
        np.zeros((SQUARE_ROWS, 1, 1, 1)),  # for the certificate, which starts do not need
        count,
    )
    for j in range(dimension):
        for s in range(count):
            starts.estimate[j, s] = region.estimate[j, lane]
            work.model[HERE_PULL, j, s] = pulls[j, s]
            work.model[HERE_STEP, j, s] = steps[j, s]
    begin(work)
    for _ in range(max_steps):
        evaluate(shared, starts, rows, work)
        note_progress(work)
        image(shared, starts, work)
        if measure(work, tolerance):
            break
        give_up(work, best, region.radius[lane], pull, step, distance)
        if not unfinished(count, work.lane[DONE]):
            break
        advance(work)
    if unfinished(count, work.lane[DONE]):
        evaluate(shared, starts, rows, work)  # the last advance has not been seen yet
    note_last(work)
    winner = -1
    for s in range(count):
        # By a last digit is not better: the point in hand has arrived, and is the more exact in u.
        if work.lane[BEST, s] - best > FLAT * (1.0 + abs(best)):
            best = work.lane[BEST, s]
            winner = s
    if winner < 0:
        return False
    # Where the winner arrived, its last point: the best that it saw is no higher, and less exact in u.
    arrived = work.lane[RESIDUAL, winner] <= tolerance * tolerance
    arrived = arrived and best - work.lane[OBJECTIVE, winner] <= FLAT * (1.0 + abs(best))
    for j in range(dimension):
        block.model[HERE_STEP, j, lane] = work.model[HERE_STEP if arrived else BEST_STEP, j, winner]
    block.lane[BEST, lane] = best
    return True
