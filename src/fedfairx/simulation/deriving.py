"""σ, the prior's sd and V⁻¹ from the sums, in some lanes of a block: the others keep theirs, to the bit."""

from __future__ import annotations

from fedfairx.core.estimate import derive
from fedfairx.core.learner import LEARNING, NOISE_VARIANCE, OBSERVED, PRIOR_VARIANCE, RIDGE
from fedfairx.core.marginal_likelihood import learnt_sizes
from fedfairx.lanes.decorators import stage
from fedfairx.lanes.rows import Rows, by_lane
from fedfairx.lanes.vector import where_above
from fedfairx.simulation.state import MARKED, REFIT, Desk, Mind


@stage
def learn_sizes(mind: Mind, own: Rows, desk: Desk) -> None:
    """Learn σ and sd again in the lanes whose own observations have doubled, from their own records (q,),
    and mark them: V⁻¹ is to be derived then."""
    numbers, notes = mind.learner.numbers, mind.notes
    variance, ridge = learnt_sizes(mind.learner, own, desk.turned)
    due = where_above(numbers[OBSERVED], notes[REFIT] - 0.5, numbers[LEARNING], 0.0)
    numbers[NOISE_VARIANCE] = where_above(due, 0.0, variance, numbers[NOISE_VARIANCE])
    numbers[PRIOR_VARIANCE] = where_above(due, 0.0, variance / ridge, numbers[PRIOR_VARIANCE])
    numbers[RIDGE] = where_above(due, 0.0, ridge, numbers[RIDGE])
    notes[MARKED] = where_above(due, 0.0, 1.0, notes[MARKED])
    each, observed = by_lane(notes), by_lane(numbers)
    for l in range(each.shape[1]):
        while each[MARKED, l] > 0.0 and each[REFIT, l] <= observed[OBSERVED, l]:
            each[REFIT, l] *= 2.0


@stage
def derive_marked(mind: Mind, fresh: Rows) -> None:
    """V⁻¹ of the marked lanes from their sums. fresh (d, d) is room."""
    state, inverse = mind.learner, mind.learner.inverse
    derive(state.statistics, state.numbers[RIDGE], fresh)
    marked = mind.notes[MARKED]
    for i in range(inverse.shape[0]):
        for j in range(inverse.shape[0]):
            inverse[i, j] = where_above(marked, 0.0, fresh[i, j], inverse[i, j])
    mind.notes[MARKED] = 0.0
