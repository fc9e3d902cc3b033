"""Climbing: from a start to a fixed point of u ↦ ∇g/‖∇g‖, or by the paper's projected gradient.

A maximiser on the sphere is a fixed point of that map. It converges linearly, so Anderson's acceleration
of depth one about halves the steps, and evens them out between lanes.
"""

from __future__ import annotations

import math

from fedfairx.arrays import Array
from fedfairx.core.merit_table import MeritTable
from fedfairx.core.optimism.problem import (
    ALONG,
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
    TURN,
    WEIGHTS,
    Region,
    Scratch,
    evaluate,
)
from fedfairx.lanes.block import lane_count
from fedfairx.lanes.compile import leaf, stage
from fedfairx.lanes.linear import blend, inner, multiply
from fedfairx.lanes.vector import (
    absolute,
    all_above,
    any_above,
    fma,
    larger,
    load,
    smaller,
    sqrt,
    store,
    where_above,
)

FLAT = 1e-12  # objectives that differ by less, relatively, count as equal
TINY = 1e-300
SHORT = 1e-12  # of a squared length: what two opposite unit vectors leave is rounding, without direction


@leaf
def image(contexts: Array, region: Region, work: Scratch) -> None:
    """(PULL, STEP) ← the unit vector along ∇g (plus inertia along u where a lane has some)."""
    lanes, pull, step = work.lanes, work.model[PULL], work.model[STEP]
    blend(lanes, contexts, work.arms[WEIGHTS], pull)
    multiply(lanes, region.inverse, pull, step)
    norm = sqrt(larger(inner(lanes, pull, step), 0.0))
    store(norm, lanes, work.lane, NORM)
    scale = where_above(norm, 0.0, 1.0 / norm, 0.0)
    for j in range(pull.shape[0]):
        store(load(lanes, pull, j) * scale, lanes, pull, j)
        store(load(lanes, step, j) * scale, lanes, step, j)
    if any_above(load(lanes, work.lane, INERTIA), 0.0):
        _slow_down(work)


@stage
def _slow_down(work: Scratch) -> None:
    """Draw the image towards u in the lanes that have inertia: rare."""
    pull, step = work.model[PULL], work.model[STEP]
    here_pull, here_step = work.model[HERE_PULL], work.model[HERE_STEP]
    for l in range(lane_count(work.lanes)):
        inertia = work.lane[INERTIA, l]
        if inertia > 0.0 and work.lane[NORM, l] > 0.0:
            length = 0.0
            for j in range(pull.shape[0]):
                pull[j, l] += inertia * here_pull[j, l]
                step[j, l] += inertia * here_step[j, l]
                length += pull[j, l] * step[j, l]
            scale = 1.0 / math.sqrt(length) if length > SHORT else 0.0
            for j in range(pull.shape[0]):
                pull[j, l] = scale * pull[j, l] if length > SHORT else here_pull[j, l]
                step[j, l] = scale * step[j, l] if length > SHORT else here_step[j, l]


@leaf
def note_progress(work: Scratch) -> None:
    """Give inertia to a lane whose objective fell, and remember the better point that it left."""
    objective, before = load(work.lanes, work.lane, OBJECTIVE), load(work.lanes, work.lane, BEFORE)
    if any_above(before - objective, FLAT * (1.0 + absolute(before))):
        _note_fall(work)
    store(objective, work.lanes, work.lane, BEFORE)


@stage
def _note_fall(work: Scratch) -> None:
    """`note_progress` of the lanes that fell: rare.

    The point that a lane left is the last image less the last gap, so nothing need be kept while it climbs.
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


@leaf
def note_last(work: Scratch) -> None:
    """Count the present point, which has been evaluated, among those that BEST is taken over."""
    lanes, kept, here = work.lanes, work.model[BEST_STEP], work.model[HERE_STEP]
    objective, best = load(lanes, work.lane, OBJECTIVE), load(lanes, work.lane, BEST)
    store(larger(objective, best), lanes, work.lane, BEST)
    for j in range(kept.shape[0]):
        store(where_above(best, objective, load(lanes, kept, j), load(lanes, here, j)), lanes, kept, j)


@leaf
def measure(work: Scratch, tolerance: float) -> bool:
    """The gap between every lane's point and its image; True when every lane has arrived.

    ALONG and TURN get what `advance` needs: ⟨f, f - f₋⟩ and ‖f - f₋‖² of this gap f and the last one f₋.
    """
    lanes, pull, step = work.lanes, work.model[PULL], work.model[STEP]
    here_pull, here_step = work.model[HERE_PULL], work.model[HERE_STEP]
    gap_pull, gap_step = work.model[GAP_PULL], work.model[GAP_STEP]
    residual, along, turn = 0.0, 0.0, 0.0
    for j in range(pull.shape[0]):
        f_pull = load(lanes, pull, j) - load(lanes, here_pull, j)
        f_step = load(lanes, step, j) - load(lanes, here_step, j)
        d_pull = f_pull - load(lanes, gap_pull, j)
        d_step = f_step - load(lanes, gap_step, j)
        residual = fma(f_pull, f_step, residual)
        along = fma(f_pull, d_step, along)
        turn = fma(d_pull, d_step, turn)
        store(f_pull, lanes, gap_pull, j)
        store(f_step, lanes, gap_step, j)
    store(residual, lanes, work.lane, RESIDUAL)
    store(along, lanes, work.lane, ALONG)
    store(turn, lanes, work.lane, TURN)
    done = where_above(residual, tolerance * tolerance, load(lanes, work.lane, DONE), 1.0)
    done = where_above(load(lanes, work.lane, NORM), 0.0, done, 1.0)
    store(done, lanes, work.lane, DONE)
    return all_above(done, 0.0)


@leaf
def advance(work: Scratch) -> None:
    """Step every unfinished lane towards its image, accelerated."""
    lanes, pull, step = work.lanes, work.model[PULL], work.model[STEP]
    here_pull, here_step = work.model[HERE_PULL], work.model[HERE_STEP]
    last_pull, last_step = work.model[LAST_PULL], work.model[LAST_STEP]
    # Anderson (1965), depth one: γ = ⟨f, f - f₋⟩ / ‖f - f₋‖², next u = G - γ (G - G₋).
    gamma = load(lanes, work.lane, ALONG) / larger(load(lanes, work.lane, TURN), TINY)
    gamma = load(lanes, work.lane, MEMORY) * smaller(larger(gamma, -4.0), 0.5)
    store(where_above(load(lanes, work.lane, INERTIA), 0.0, 0.0, 1.0), lanes, work.lane, MEMORY)
    length = 0.0
    for j in range(pull.shape[0]):
        image_pull, image_step = load(lanes, pull, j), load(lanes, step, j)
        new_pull = fma(-gamma, image_pull - load(lanes, last_pull, j), image_pull)
        new_step = fma(-gamma, image_step - load(lanes, last_step, j), image_step)
        store(image_pull, lanes, last_pull, j)
        store(image_step, lanes, last_step, j)
        store(new_pull, lanes, pull, j)
        store(new_step, lanes, step, j)
        length = fma(new_pull, new_step, length)
    scale = 1.0 / sqrt(larger(length, TINY))
    done = load(lanes, work.lane, DONE)
    for j in range(pull.shape[0]):
        new_pull = where_above(length, SHORT, scale * load(lanes, pull, j), load(lanes, last_pull, j))
        new_step = where_above(length, SHORT, scale * load(lanes, step, j), load(lanes, last_step, j))
        store(where_above(done, 0.0, load(lanes, here_pull, j), new_pull), lanes, here_pull, j)
        store(where_above(done, 0.0, load(lanes, here_step, j), new_step), lanes, here_step, j)


@leaf
def begin(work: Scratch) -> None:
    """Forget what an earlier ascent left behind; the present point stays.

    Without MEMORY the last image and gap count nothing, but 0 · ∞ would be NaN, and a room that was laid out
    for another number of arms may hold anything.
    """
    store(-math.inf, work.lanes, work.lane, BEST)
    store(-math.inf, work.lanes, work.lane, BEFORE)
    store(0.0, work.lanes, work.lane, INERTIA)
    store(0.0, work.lanes, work.lane, MEMORY)
    store(0.0, work.lanes, work.lane, DONE)
    for j in range(work.model.shape[1]):
        store(0.0, work.lanes, work.model[LAST_PULL], j)
        store(0.0, work.lanes, work.model[LAST_STEP], j)
        store(0.0, work.lanes, work.model[GAP_PULL], j)
        store(0.0, work.lanes, work.model[GAP_STEP], j)


@leaf
def unfinished(work: Scratch) -> bool:
    """Whether some lane has not arrived."""
    return not all_above(load(work.lanes, work.lane, DONE), 0.0)


@leaf
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


@leaf
def settle(contexts: Array, region: Region, merit: MeritTable, work: Scratch) -> None:
    """Move the lanes that are below the best that they saw to that point, and evaluate there."""
    if unfinished(work):
        evaluate(contexts, region, merit, work)  # the last advance of these lanes has not been seen yet
    note_last(work)
    best, objective = load(work.lanes, work.lane, BEST), load(work.lanes, work.lane, OBJECTIVE)
    # Near its maximum g is flat to rounding while u is not yet exact, so a last digit is no fall.
    if any_above(best - objective, FLAT * (1.0 + absolute(best))):
        for l in range(lane_count(work.lanes)):
            if work.lane[BEST, l] - work.lane[OBJECTIVE, l] > FLAT * (1.0 + abs(work.lane[BEST, l])):
                work.lane[DONE, l] = 0.0
                for j in range(work.model.shape[1]):
                    work.model[HERE_STEP, j, l] = work.model[BEST_STEP, j, l]
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
    lanes, pull, step = work.lanes, work.model[PULL], work.model[STEP]
    here_pull, here_step = work.model[HERE_PULL], work.model[HERE_STEP]
    for _ in range(steps):
        evaluate(contexts, region, merit, work)
        note_last(work)
        image(contexts, region, work)
        # The gradient's length in u is √β times the norm.
        stride = rate * load(lanes, region.radius) * load(lanes, work.lane, NORM)
        for j in range(pull.shape[0]):
            store(fma(stride, load(lanes, pull, j), load(lanes, here_pull, j)), lanes, here_pull, j)
            store(fma(stride, load(lanes, step, j), load(lanes, here_step, j)), lanes, here_step, j)
        scale = 1.0 / larger(sqrt(larger(inner(lanes, here_pull, here_step), 0.0)), 1.0)
        for j in range(pull.shape[0]):
            store(scale * load(lanes, here_pull, j), lanes, here_pull, j)
            store(scale * load(lanes, here_step, j), lanes, here_step, j)
    settle(contexts, region, merit, work)  # no lane is marked done, so the last point is evaluated
