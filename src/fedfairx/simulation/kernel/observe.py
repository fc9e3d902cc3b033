"""Learn an observation, at once or when its delayed reward arrives (Alg. 1 line 9)."""

from __future__ import annotations

import math

import numpy as np

from fedfairx.core.estimate import derive
from fedfairx.core.learner import (
    COUNT,
    GROWTH,
    LEARNING,
    LEARNING_MEAN,
    NOISE_VARIANCE,
    OBSERVED,
    PRIOR_VARIANCE,
    REWARD,
    RIDGE,
    Learner,
    learn,
)
from fedfairx.core.marginal_likelihood import learnt_mean, learnt_sizes
from fedfairx.core.statistics import add
from fedfairx.lanes.decorators import stage
from fedfairx.lanes.rows import Rows, by_lane, floats, vectors
from fedfairx.lanes.vector import any_above, fma, larger, smaller, sqrt, where_above
from fedfairx.lanes.vector_math import log
from fedfairx.simulation.kernel.partners import judge_marked
from fedfairx.simulation.kernel.random import uniform
from fedfairx.simulation.kernel.state import (
    LOG_GROWTH,
    MARKED,
    REFIT,
    RELEASED,
    DecisionScratch,
    Delay,
    LaneEnvironment,
    LaneState,
    PrivateReleases,
    Sharing,
)


@stage
def clip(privacy: PrivateReleases, state: Learner) -> None:
    """Clip the current observation to the privatizer's bounds, around its public point.

    A zero context means no observation, and stays zero wherever the public point is.
    """
    chosen, centre = state.chosen, floats(privacy.centre)
    square, size = 1e-300, 0.0
    for j in range(chosen.shape[0]):
        chosen[j] = larger(chosen[j], privacy.context_low)
        offset = chosen[j] - centre[j]
        square = fma(offset, offset, square)
        size = fma(chosen[j], chosen[j], size)
    scale = where_above(size, 0.0, privacy.context_bound / sqrt(square), 1.0)
    for j in range(chosen.shape[0]):
        x = chosen[j]
        chosen[j] = where_above(1.0, scale, centre[j] + scale * (x - centre[j]), x)
    reward = smaller(larger(state.numbers[REWARD], privacy.reward_low), privacy.reward_high)
    state.numbers[REWARD] = reward
    if privacy.record_bound < math.inf:
        shrink(privacy, state)


@stage
def shrink(privacy: PrivateReleases, state: Learner) -> None:
    """Shrink the clipped observation as a whole towards the public point; a zero context stays zero."""
    chosen, centre = state.chosen, floats(privacy.centre)
    apart = state.numbers[REWARD] - privacy.reward_centre
    square, size = fma(privacy.gram_share * apart, apart, 1e-300), 0.0
    for j in range(chosen.shape[0]):
        offset = chosen[j] - centre[j]
        square = fma(offset, offset, square)
        size = fma(chosen[j], chosen[j], size)
    scale = where_above(size, 0.0, privacy.record_bound / sqrt(square), 1.0)
    for j in range(chosen.shape[0]):
        x = chosen[j]
        chosen[j] = where_above(1.0, scale, centre[j] + scale * (x - centre[j]), x)
    state.numbers[REWARD] = where_above(
        1.0, scale, privacy.reward_centre + scale * apart, state.numbers[REWARD]
    )


@stage
def own_records(lanes: LaneState, sharing: Sharing, privacy: PrivateReleases | None, block: int) -> Rows:
    """Exact sums (q,) of all own records of the lanes of a block."""
    own = lanes.learner.statistics  # of agents that never share
    if sharing.own.shape[1] > 0:
        own = vectors(sharing.own)[block]
    if privacy is not None and privacy.exact.shape[1] > 0:
        own = vectors(privacy.exact)[block]
    return own


@stage
def follow_own(
    lanes: LaneState,
    sharing: Sharing,
    privacy: PrivateReleases | None,
    differ: bool | None,
    agents: int,
    scratch: DecisionScratch,
    block: int,
) -> None:
    """When own observations have doubled, learn σ and sd, judge peers that may differ, and derive V⁻¹."""
    numbers, own = lanes.learner.numbers, own_records(lanes, sharing, privacy, block)
    doubled = any_above(numbers[OBSERVED], lanes.notes[REFIT] - 0.5)
    if doubled and any_above(numbers[LEARNING], 0.0):
        learn_sizes(lanes, own, scratch)
        if differ is not None:
            marked = lanes.notes[MARKED]
            derive_marked(lanes, scratch.work.square[0], True)  # peers are judged by what is known now
            lanes.notes[MARKED] = marked
            judge_marked(lanes, sharing, own, agents, block)
            shared, statistics = vectors(sharing.shared), lanes.learner.statistics
            for k in range(statistics.shape[0]):
                statistics[k] = where_above(lanes.notes[MARKED], 0.0, shared[k], statistics[k])
        derive_marked(lanes, scratch.work.square[0], True)


@stage
def take_in(
    lanes: LaneState,
    posterior: bool | None,
    sharing: Sharing,
    privacy: PrivateReleases | None,
    differ: bool | None,
    agents: int,
    scratch: DecisionScratch,
    block: int,
) -> None:
    """Learn the current observation in every lane of a block; a zero context means none."""
    state, notes = lanes.learner, lanes.notes
    chosen, numbers = state.chosen, state.numbers
    if learns_own(privacy):
        learn(state)
        if sharing.threshold > 0.0:
            notes[LOG_GROWTH] = notes[LOG_GROWTH] + log(numbers[GROWTH])
    if privacy is not None:
        if privacy.exact.shape[1] > 0:
            add(vectors(privacy.exact)[block], chosen, numbers[REWARD])
        clip(privacy, state)  # clip, never assert
    if sharing.own.shape[1] > 0:
        add(vectors(sharing.own)[block], chosen, numbers[REWARD])
    if posterior is not None:
        follow_own(lanes, sharing, privacy, differ, agents, scratch, block)


@stage
def learns_own(privacy: PrivateReleases | None) -> bool:
    """Whether an agent's own records drive its decisions before they are released."""
    own = True
    if privacy is not None:
        own = privacy.decide_from != RELEASED
    return own


@stage
def send(world: LaneEnvironment, lanes: LaneState, delay: Delay, block: int, t: int) -> None:
    """Queue the current observations, with the rounds that they take; -1 if they never come."""
    dimension, now = lanes.learner.chosen.shape[0], t % delay.history.shape[0]
    each, chosen = by_lane(lanes.learner.numbers), by_lane(lanes.learner.chosen)
    history = floats(delay.history)
    for l in range(each.shape[1]):
        wait, lost = 0, 0.0
        if delay.mean > 0.0:
            position = np.uint64(t) * np.uint64(world.agents) + world.agent[block, l]
            u = uniform(delay.keys[block, l], position)
            wait = min(int(math.log(1.0 - u) / math.log(delay.mean / (1.0 + delay.mean))), delay.longest)
            if delay.fixed:
                wait = delay.longest
        for j in range(dimension):
            history[now, block, j, l] = chosen[j, l]
            lost += chosen[j, l] * delay.silent[block, j, l]
        history[now, block, dimension, l] = each[REWARD, l]
        history[now, block, dimension + 1, l] = -1.0 if lost > 0.0 else float(wait)


@stage
def receive(lanes: LaneState, delay: Delay, learnt: float, block: int, t: int, age: int) -> bool:
    """Make the observations of age `age` that arrive in round t the current ones; False when none does."""
    dimension, place = lanes.learner.chosen.shape[0], (t - age) % delay.history.shape[0]
    each, chosen = by_lane(lanes.learner.numbers), by_lane(lanes.learner.chosen)
    history, some = floats(delay.history), False
    for l in range(each.shape[1]):
        some = some or history[place, block, dimension + 1, l] == age
    if not some:
        return False
    for l in range(each.shape[1]):
        arrives = 1.0 if history[place, block, dimension + 1, l] == age else 0.0
        for j in range(dimension):
            chosen[j, l] = arrives * history[place, block, j, l]
        each[REWARD, l] = arrives * history[place, block, dimension, l]
        each[OBSERVED, l] += arrives
        each[COUNT, l] += learnt * arrives
    return True


@stage
def deliver(
    world: LaneEnvironment,
    lanes: LaneState,
    posterior: bool | None,
    sharing: Sharing,
    privacy: PrivateReleases | None,
    differ: bool | None,
    delay: Delay,
    scratch: DecisionScratch,
    block: int,
    t: int,
) -> None:
    """Learn the observations now, or queue them and learn those that arrive in round t."""
    learnt, numbers = 1.0 if learns_own(privacy) else 0.0, lanes.learner.numbers
    if delay.longest > 0:
        send(world, lanes, delay, block, t)
    for age in range(min(t, delay.longest) + 1):
        some = True
        if delay.longest > 0:
            some = receive(lanes, delay, learnt, block, t, age)
        else:
            numbers[OBSERVED] = numbers[OBSERVED] + 1.0
            numbers[COUNT] = numbers[COUNT] + learnt
        if some:
            take_in(lanes, posterior, sharing, privacy, differ, world.agents, scratch, block)


@stage
def learn_sizes(lanes: LaneState, own: Rows, scratch: DecisionScratch) -> None:
    """Learn σ and sd again in the lanes whose own observations have doubled, from their own records (q,),
    and mark them for `derive_marked`."""
    numbers, notes = lanes.learner.numbers, lanes.notes
    variance, ridge, _ = learnt_sizes(lanes.learner, own, scratch.turned, None, None)
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
def derive_marked(lanes: LaneState, fresh: Rows, learning: bool) -> None:
    """Derive V⁻¹ of the marked lanes from their sums and, if `learning`, the prior's mean from both.

    fresh (d, d) is workspace.
    """
    state, inverse = lanes.learner, lanes.learner.inverse
    derive(state.statistics, state.numbers[RIDGE], fresh)
    marked = lanes.notes[MARKED]
    if learning and any_above(state.numbers[LEARNING_MEAN], 0.0):
        mean, learns = learnt_mean(state, fresh), marked * state.numbers[LEARNING_MEAN]
        for j in range(state.mean.shape[0]):
            state.mean[j] = where_above(learns * state.common[j], 0.0, mean, state.mean[j])
    for i in range(inverse.shape[0]):
        for j in range(inverse.shape[0]):
            inverse[i, j] = where_above(marked, 0.0, fresh[i, j], inverse[i, j])
    lanes.notes[MARKED] = 0.0
