"""Ascent from a start to a fixed point of u ↦ ∇g/‖∇g‖, or by the paper's projected gradient.

A maximiser on the sphere is a fixed point of that map. Iteration converges linearly, so Anderson acceleration
of depth one about halves the steps, and evens them out between lanes.
"""

from __future__ import annotations

import math

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
    evaluate_again,
)
from fedfairx.lanes.decorators import stage
from fedfairx.lanes.linalg import blend, inner
from fedfairx.lanes.rows import Rows, by_lane
from fedfairx.lanes.vector import absolute, all_above, any_above, fma, larger, smaller, sqrt, where_above

FLAT = 1e-12  # objectives that differ by less, relatively, count as equal
TINY = 1e-300
SHORT = 1e-12  # of a squared length: what two opposite unit vectors leave is rounding, without direction


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
    kept, here = work.model[BEST_STEP], work.model[HERE_STEP]
    objective, best = work.lane[OBJECTIVE], work.lane[BEST]
    work.lane[BEST] = larger(objective, best)
    for j in range(kept.shape[0]):
        kept[j] = where_above(best, objective, kept[j], here[j])


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
