"""V⁻¹ anew from the sums, in some lanes of a block: the others keep theirs, to the bit."""

from __future__ import annotations

from fedfairx.core.estimate import derive
from fedfairx.core.learner import OBSERVED, PRIOR_VARIANCE, RIDGE, variance_of
from fedfairx.lanes.compile import stage
from fedfairx.lanes.rows import Rows, by_lane
from fedfairx.lanes.vector import where_above
from fedfairx.simulation.state import MARKED, REFRESH, Mind


@stage
def mark_doubled(mind: Mind) -> None:
    """Mark the lanes whose own observations have doubled since λ last followed σ."""
    notes = mind.notes
    doubled = where_above(mind.learner.numbers[OBSERVED], notes[REFRESH] - 0.5, 1.0, 0.0)
    notes[MARKED] = where_above(doubled, 0.0, 1.0, notes[MARKED])


@stage
def follow_noise(mind: Mind) -> None:
    """λ ← σ²/sd² in the marked lanes that have a posterior, and when next: at the next power of two of own
    observations."""
    numbers, marked = mind.learner.numbers, mind.notes[MARKED]
    variance = numbers[PRIOR_VARIANCE]
    ridge = where_above(variance, 0.0, variance_of(mind.learner) / variance, numbers[RIDGE])
    numbers[RIDGE] = where_above(marked, 0.0, ridge, numbers[RIDGE])
    notes, each = by_lane(mind.notes), by_lane(numbers)
    for l in range(notes.shape[1]):
        while notes[MARKED, l] > 0.0 and notes[REFRESH, l] <= each[OBSERVED, l]:
            notes[REFRESH, l] *= 2.0


@stage
def derive_marked(mind: Mind, fresh: Rows) -> None:
    """V⁻¹ of the marked lanes from their sums, with λ as the noise learnt until now makes it.

    fresh (d, d) is room.
    """
    state, inverse = mind.learner, mind.learner.inverse
    follow_noise(mind)
    derive(state.statistics, state.numbers[RIDGE], fresh)
    marked = mind.notes[MARKED]
    for i in range(inverse.shape[0]):
        for j in range(inverse.shape[0]):
            inverse[i, j] = where_above(marked, 0.0, fresh[i, j], inverse[i, j])
    mind.notes[MARKED] = 0.0
