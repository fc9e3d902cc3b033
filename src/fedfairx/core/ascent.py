"""Climbing: from a start to a fixed point of u ↦ ∇g/‖∇g‖, or by the paper's projected gradient.

A maximiser on the sphere is a fixed point of that map. It converges linearly, so Anderson's acceleration
of depth one about halves the steps, and evens them out between lanes.
"""

from __future__ import annotations

import math

from fedfairx.core.arithmetic import fma
from fedfairx.core.compile import stage
from fedfairx.core.lanes import Lanes, lane_count
from fedfairx.core.linear import blend, multiply
from fedfairx.core.merit import MeritTable
from fedfairx.core.problem import (
    BEFORE,
    BEST,
    BEST_STEP,
    DONE,
    GAP_PULL,
    GAP_STEP,
    HERE_PULL,
    HERE_STEP,
    INERTIA,
    LAST_PULL,
    LAST_STEP,
    MEMORY,
    NORM,
    OBJECTIVE,
    PULL,
    RESIDUAL,
    STEP,
    WEIGHTS,
    A,
    B,
    Region,
    Scratch,
    evaluate,
)
from fedfairx.core.statistics import Array

FLAT = 1e-12  # objectives that differ by less, relatively, count as equal


@stage
def image(contexts: Array, region: Region, work: Scratch) -> None:
    """(PULL, STEP) ← the unit vector along ∇g (plus inertia along u where a lane has some)."""
    pull, step = work.model[PULL], work.model[STEP]
    here_pull, here_step = work.model[HERE_PULL], work.model[HERE_STEP]
    norm, inertia, square = work.lane[NORM], work.lane[INERTIA], work.lane[A]
    dimension, lanes = pull.shape[0], work.lanes
    blend(lanes, contexts, work.arms[WEIGHTS], pull)
    multiply(lanes, region.inverse, pull, step)
    for l in range(lane_count(lanes)):
        square[l] = 0.0
    for j in range(dimension):
        for l in range(lane_count(lanes)):
            square[l] = fma(pull[j, l], step[j, l], square[l])
    for l in range(lane_count(lanes)):
        norm[l] = math.sqrt(max(square[l], 0.0))
    for l in range(lane_count(lanes)):
        inverse = 1.0 / norm[l]
        square[l] = inverse if norm[l] > 0.0 else 0.0
    for j in range(dimension):
        for l in range(lane_count(lanes)):
            pull[j, l] *= square[l]
            step[j, l] *= square[l]
    for l in range(lane_count(lanes)):
        if inertia[l] > 0.0 and norm[l] > 0.0:  # rare: its objective fell, so it moves more slowly
            length = 0.0
            for j in range(dimension):
                pull[j, l] += inertia[l] * here_pull[j, l]
                step[j, l] += inertia[l] * here_step[j, l]
                length += pull[j, l] * step[j, l]
            scale = 1.0 / math.sqrt(max(length, 1e-300))
            for j in range(dimension):
                pull[j, l] *= scale
                step[j, l] *= scale


@stage
def note_progress(work: Scratch) -> None:
    """Give inertia to a lane whose objective fell, and remember the better point that it left.

    That point is the last image less the last gap, so nothing need be kept while a lane only climbs.
    """
    objective, best, before = work.lane[OBJECTIVE], work.lane[BEST], work.lane[BEFORE]
    inertia, memory, done = work.lane[INERTIA], work.lane[MEMORY], work.lane[DONE]
    for l in range(lane_count(work.lanes)):
        if before[l] - objective[l] > FLAT * (1.0 + abs(before[l])) and done[l] == 0.0:
            if before[l] > best[l]:
                best[l] = before[l]
                for j in range(work.model.shape[1]):
                    work.model[BEST_STEP, j, l] = work.model[LAST_STEP, j, l] - work.model[GAP_STEP, j, l]
            # With enough inertia the map climbs a convex function on the sphere, hence never falls.
            inertia[l] = max(1.0, 2.0 * inertia[l])
            memory[l] = 0.0
    for l in range(lane_count(work.lanes)):
        before[l] = objective[l]


@stage
def note_last(work: Scratch) -> None:
    """Count the present point, which has been evaluated, among those that BEST is taken over."""
    for l in range(lane_count(work.lanes)):
        if work.lane[OBJECTIVE, l] >= work.lane[BEST, l]:
            work.lane[BEST, l] = work.lane[OBJECTIVE, l]
            for j in range(work.model.shape[1]):
                work.model[BEST_STEP, j, l] = work.model[HERE_STEP, j, l]


@stage
def unfinished(lanes: Lanes, done: Array) -> bool:
    """Whether some lane has not arrived."""
    for l in range(lane_count(lanes)):  # noqa: SIM110 - a generator would not compile
        if done[l] == 0.0:
            return True
    return False


@stage
def measure(work: Scratch, tolerance: float) -> bool:
    """The gap between every lane's point and its image; True when every lane has arrived.

    A and B get what `advance` needs: ⟨f, f - f₋⟩ and ‖f - f₋‖² of this gap f and the last one f₋.
    """
    pull, step = work.model[PULL], work.model[STEP]
    here_pull, here_step = work.model[HERE_PULL], work.model[HERE_STEP]
    gap_pull, gap_step = work.model[GAP_PULL], work.model[GAP_STEP]
    norm, residual, done = work.lane[NORM], work.lane[RESIDUAL], work.lane[DONE]
    along, square = work.lane[A], work.lane[B]
    dimension, lanes = pull.shape[0], work.lanes
    for l in range(lane_count(lanes)):
        residual[l] = 0.0
        along[l] = 0.0
        square[l] = 0.0
    for j in range(dimension):
        for l in range(lane_count(lanes)):
            f_pull = pull[j, l] - here_pull[j, l]
            f_step = step[j, l] - here_step[j, l]
            d_pull = f_pull - gap_pull[j, l]
            d_step = f_step - gap_step[j, l]
            residual[l] = fma(f_pull, f_step, residual[l])
            along[l] = fma(f_pull, d_step, along[l])
            square[l] = fma(d_pull, d_step, square[l])
            gap_pull[j, l] = f_pull
            gap_step[j, l] = f_step
    for l in range(lane_count(lanes)):
        done[l] = 1.0 if residual[l] <= tolerance * tolerance else done[l]
    for l in range(lane_count(lanes)):
        done[l] = 1.0 if norm[l] == 0.0 else done[l]
    return not unfinished(lanes, done)


@stage
def advance(work: Scratch) -> None:
    """Step every unfinished lane towards its image, accelerated."""
    pull, step = work.model[PULL], work.model[STEP]
    here_pull, here_step = work.model[HERE_PULL], work.model[HERE_STEP]
    last_pull, last_step = work.model[LAST_PULL], work.model[LAST_STEP]
    memory, inertia, done = work.lane[MEMORY], work.lane[INERTIA], work.lane[DONE]
    along, square = work.lane[A], work.lane[B]
    dimension, lanes = pull.shape[0], work.lanes
    for l in range(lane_count(lanes)):
        # Anderson (1965), depth one: γ = ⟨f, f - f₋⟩ / ‖f - f₋‖², next u = G - γ (G - G₋).
        gamma = along[l] / max(square[l], 1e-300)
        along[l] = memory[l] * min(max(gamma, -4.0), 0.5)
    for l in range(lane_count(lanes)):
        memory[l] = 1.0 if inertia[l] == 0.0 else 0.0
        square[l] = 0.0
    for j in range(dimension):
        for l in range(lane_count(lanes)):
            new_pull = fma(-along[l], pull[j, l] - last_pull[j, l], pull[j, l])
            new_step = fma(-along[l], step[j, l] - last_step[j, l], step[j, l])
            last_pull[j, l] = pull[j, l]
            last_step[j, l] = step[j, l]
            pull[j, l] = new_pull
            step[j, l] = new_step
            square[l] = fma(new_pull, new_step, square[l])
    for l in range(lane_count(lanes)):
        square[l] = 1.0 / math.sqrt(max(square[l], 1e-300))
    for j in range(dimension):
        for l in range(lane_count(lanes)):
            here_pull[j, l] = here_pull[j, l] if done[l] > 0.0 else square[l] * pull[j, l]
            here_step[j, l] = here_step[j, l] if done[l] > 0.0 else square[l] * step[j, l]


@stage
def begin(work: Scratch) -> None:
    """Forget what an earlier ascent left behind; the present point stays."""
    for l in range(lane_count(work.lanes)):
        work.lane[BEST, l] = -math.inf
        work.lane[BEFORE, l] = -math.inf
        work.lane[INERTIA, l] = 0.0
        work.lane[MEMORY, l] = 0.0
        work.lane[DONE, l] = 0.0


@stage
def ascend(
    contexts: Array, region: Region, merit: MeritTable, work: Scratch, tolerance: float, max_steps: int
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
def settle(contexts: Array, region: Region, merit: MeritTable, work: Scratch) -> None:
    """Move the lanes that are below the best that they saw to that point, and evaluate there."""
    if unfinished(work.lanes, work.lane[DONE]):
        evaluate(contexts, region, merit, work)  # the last advance of these lanes has not been seen yet
    note_last(work)
    worse = False
    for l in range(lane_count(work.lanes)):
        # Near its maximum g is flat to rounding while u is not yet exact, so a last digit is no fall.
        if work.lane[BEST, l] - work.lane[OBJECTIVE, l] > FLAT * (1.0 + abs(work.lane[BEST, l])):
            work.lane[DONE, l] = 0.0
            worse = True
            for j in range(work.model.shape[1]):
                work.model[HERE_STEP, j, l] = work.model[BEST_STEP, j, l]
    if worse:
        evaluate(contexts, region, merit, work)


@stage
def ascend_pgd(
    contexts: Array, region: Region, merit: MeritTable, work: Scratch, rate: float, steps: int
) -> None:
    """The paper's solver: `steps` of gradient ascent in u at `rate`, each projected onto the unit ball.

    It starts at the present point and ends at the best point that it saw. Its settings are not given in the
    paper, and from one start it can end at a poor local maximum.
    """
    begin(work)
    here_pull, here_step = work.model[HERE_PULL], work.model[HERE_STEP]
    pull, step = work.model[PULL], work.model[STEP]
    norm, square, radius = work.lane[NORM], work.lane[A], region.radius
    dimension, lanes = pull.shape[0], work.lanes
    for _ in range(steps):
        evaluate(contexts, region, merit, work)
        note_last(work)
        image(contexts, region, work)
        for l in range(lane_count(lanes)):
            square[l] = 0.0
        for j in range(dimension):
            for l in range(lane_count(lanes)):
                stride = rate * radius[l] * norm[l]  # the gradient's length in u is √β times the norm
                here_pull[j, l] = fma(stride, pull[j, l], here_pull[j, l])
                here_step[j, l] = fma(stride, step[j, l], here_step[j, l])
                square[l] = fma(here_pull[j, l], here_step[j, l], square[l])
        for l in range(lane_count(lanes)):
            square[l] = 1.0 / max(math.sqrt(max(square[l], 0.0)), 1.0)
        for j in range(dimension):
            for l in range(lane_count(lanes)):
                here_pull[j, l] *= square[l]
                here_step[j, l] *= square[l]
    settle(contexts, region, merit, work)  # no lane is marked done, so the last point is evaluated
