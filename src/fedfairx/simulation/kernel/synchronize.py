"""The end of a round: the seeds that are due synchronise (Alg. 1 lines 10 to 25).

What `Agent.absorb` does, on the simulator's arrays. Where every agent decides
from the same sum, the noise of the sum is drawn as one: m independent Gaussians add up to one of √m times
the sd.
"""

from __future__ import annotations

import math

from fedfairx.core.learner import COUNT, NOISE_VARIANCE, OBSERVED, PARAMETER_NORM, RIDGE, radius_of
from fedfairx.core.noise_filter import believe, size_of_parameter
from fedfairx.core.optimism.problem import Scratch
from fedfairx.core.optimism.solver import Solver
from fedfairx.core.pooling import add_by_worth, lift
from fedfairx.core.posterior import posterior_mean
from fedfairx.lanes.decorators import stage
from fedfairx.lanes.rows import Rows, by_lane, floats, vectors
from fedfairx.lanes.vector import absolute, any_above, larger, where_above
from fedfairx.lanes.vector_lowering import WIDTH
from fedfairx.simulation.kernel.observe import derive_marked, own_records
from fedfairx.simulation.kernel.partners import judge_marked
from fedfairx.simulation.kernel.state import (
    LOG_GROWTH,
    MARKED,
    OWN_RELEASED,
    Counts,
    Desk,
    Mind,
    Privacy,
    Sharing,
    mind_of,
)
from fedfairx.util.arrays import Array

NOISE, SHIFT, ROOT_BETA = range(3)  # rows of a decision's room by lane, where others are weighed


@stage
def is_due(
    minds: Array, sharing: Sharing, syncs: Counts, agents: int, dimension: int, seed: int, t: int
) -> bool:
    """Whether this seed synchronises at the end of round t (from 0)."""
    if sharing.threshold == 0.0:
        return bool(sharing.due[t])
    if syncs[seed] >= sharing.most:
        return False
    rounds = t + 1 - sharing.last[seed]
    for lane in range(seed * agents, (seed + 1) * agents):
        notes = by_lane(mind_of(minds, lane // WIDTH, dimension).notes)
        if notes[LOG_GROWTH, lane % WIDTH] * rounds > sharing.threshold:
            return True
    return False


@stage
def add_up(
    minds: Array,
    sharing: Sharing,
    privacy: Privacy | None,
    seed: int,
    agents: int,
    dimension: int,
    release: int,
) -> None:
    """The sum of what the agents of a seed release, and how many observations are in it."""
    total, own = floats(sharing.totals)[seed], floats(sharing.own)
    q, count = total.shape[0], 0.0
    for k in range(q):
        total[k] = 0.0
    for lane in range(seed * agents, (seed + 1) * agents):
        numbers = by_lane(mind_of(minds, lane // WIDTH, dimension).learner.numbers)
        count += numbers[OBSERVED, lane % WIDTH]
        for k in range(q):
            total[k] += own[lane // WIDTH, k, lane % WIDTH]
        if privacy is not None and privacy.decide_from == OWN_RELEASED:
            for k in range(q):
                total[k] += privacy.noise[lane, release, k]
    if privacy is not None and privacy.decide_from != OWN_RELEASED:
        for k in range(q):
            total[k] += privacy.noise[seed, release, k]
    sharing.counts[seed] = count


@stage
def lift_totals(sharing: Sharing, privacy: Privacy, syncs: Counts, work: Scratch) -> None:
    """The sums of the seeds that synchronise, fit to be inverted: a lane for each, many at a time."""
    totals, sums, shift = floats(sharing.totals), floats(sharing.shared), by_lane(work.lane)
    seeds, q = totals.shape[0], totals.shape[1]
    for first in range(0, seeds, WIDTH):
        for l in range(WIDTH):
            seed = min(first + l, seeds - 1)
            here = first + l < seeds and sharing.counts[seed] >= 0.0
            shift[SHIFT, l] = privacy.shift[syncs[seed]] if here else 1.0
            for k in range(q):
                sums[k, l] = totals[seed, k] if here else 0.0
        lift(vectors(sharing.shared), work.lane[SHIFT], work.square)
        for l in range(min(WIDTH, seeds - first)):
            if sharing.counts[first + l] >= 0.0:
                for k in range(q):
                    totals[first + l, k] = sums[k, l]


@stage
def gather(
    mind: Mind,
    sharing: Sharing,
    privacy: Privacy | None,
    agents: int,
    syncs: Counts,
    block: int,
) -> None:
    """shared ← what is released to every lane of a block, and mark the lanes whose seed synchronises.

    Without one's own release where decisions come from one's own exact statistics beside it.
    """
    shared, own, totals = floats(sharing.shared), floats(sharing.own), floats(sharing.totals)
    notes, numbers = by_lane(mind.notes), by_lane(mind.learner.numbers)
    for l in range(WIDTH):
        lane = block * WIDTH + l
        seed = lane // agents
        here = seed < totals.shape[0] and sharing.counts[seed] >= 0.0
        notes[MARKED, l] = 1.0 if here else 0.0
        if here:
            numbers[COUNT, l] = sharing.counts[seed]
        for k in range(shared.shape[0]):
            value = totals[seed, k] if here else 0.0
            if privacy is not None and here and privacy.decide_from == OWN_RELEASED:
                value -= own[block, k, l] + privacy.noise[lane, syncs[seed], k]
            shared[k, l] = value


@stage
def weigh(
    mind: Mind, sharing: Sharing, privacy: Privacy, desk: Desk, agents: int, syncs: Counts, block: int
) -> None:
    """Of a posterior: shared ← what of it is worth believing to every lane."""
    state, shared, lane = mind.learner, vectors(sharing.shared), by_lane(desk.work.lane)
    for l in range(WIDTH):
        seed = (block * WIDTH + l) // agents
        here = by_lane(mind.notes)[MARKED, l] > 0.0
        lane[0, l] = privacy.sum_sd[syncs[seed]] if here else privacy.sum_sd[0]
    variance = state.numbers[NOISE_VARIANCE]
    posterior_mean(state.inverse, state.statistics, state.mean, state.numbers[RIDGE], state.estimate)
    size = size_of_parameter(state.estimate, state.inverse, variance)
    believe(shared, desk.work.lane[0], size, variance, desk.work.square[0], desk.turned)


@stage
def add_own(shared: Rows, own: Rows) -> None:
    """One's own statistics beside the others'."""
    for k in range(shared.shape[0]):
        shared[k] = shared[k] + own[k]


@stage
def weigh_others(
    mind: Mind, sharing: Sharing, privacy: Privacy, work: Scratch, agents: int, syncs: Counts, block: int
) -> None:
    """Of optimism, `own+released`: shared ← each lane's exact statistics, and the others' by their worth."""
    state, lane = mind.learner, by_lane(work.lane)
    numbers, each, dimension = state.numbers, by_lane(state.numbers), state.mean.shape[0]
    for l in range(WIDTH):
        here = by_lane(mind.notes)[MARKED, l] > 0.0
        release = syncs[(block * WIDTH + l) // agents] if here else 0
        lane[NOISE, l], lane[SHIFT, l] = privacy.sum_sd[release], privacy.shift[release]
        lane[ROOT_BETA, l] = radius_of(each, l, each[COUNT, l], dimension)
    made, all_made = numbers[OBSERVED], numbers[COUNT]
    weight = add_by_worth(
        vectors(privacy.exact)[block],
        made,
        vectors(sharing.shared),
        all_made - made,
        work.lane[NOISE],
        work.lane[SHIFT],
        work.lane[ROOT_BETA],
        numbers[RIDGE],
        numbers[PARAMETER_NORM],
        work.square,
    )
    numbers[COUNT] = where_above(mind.notes[MARKED], 0.0, made + weight * (all_made - made), all_made)


@stage
def adopt(mind: Mind, shared: Rows) -> None:
    """Give the marked lanes their new statistics; where nothing is new, the mark is taken away.

    Then nothing is derived: a federation of one stays what a lone agent is, bit for bit.
    """
    notes, statistics = mind.notes, mind.learner.statistics
    marked, news = notes[MARKED], 0.0
    for k in range(shared.shape[0]):
        old = statistics[k]
        new = where_above(marked, 0.0, shared[k], old)
        news = larger(absolute(new - old), news)
        statistics[k] = new
    notes[LOG_GROWTH] = where_above(marked, 0.0, 0.0, notes[LOG_GROWTH])
    notes[MARKED] = where_above(news, 0.0, 1.0, 0.0)


@stage
def publish(sharing: Sharing, privacy: Privacy | None, agents: int, syncs: Counts) -> None:
    """Keep what each agent of the seeds that synchronise releases: partners are judged by it."""
    own, held = floats(sharing.own), floats(sharing.held)
    for seed in range(syncs.shape[0]):
        if sharing.counts[seed] >= 0.0:
            for lane in range(seed * agents, (seed + 1) * agents):
                for k in range(own.shape[1]):
                    held[lane // WIDTH, k, lane % WIDTH] = own[lane // WIDTH, k, lane % WIDTH]
                    if privacy is not None:
                        held[lane // WIDTH, k, lane % WIDTH] += privacy.noise[lane, syncs[seed], k]
            if privacy is not None:
                sharing.noise_sd[seed] = privacy.sum_sd[syncs[seed]] / math.sqrt(max(agents - 1.0, 1.0))


@stage
def share(
    minds: Array,
    solver: Solver | None,
    sharing: Sharing,
    privacy: Privacy | None,
    weighing: bool | None,
    differ: bool | None,
    syncs: Counts,
    desk: Desk,
    agents: int,
    t: int,
) -> None:
    """Synchronise every seed that is due at the end of round t."""
    if sharing.threshold == 0.0 and not sharing.due[t]:
        return
    some, dimension = False, desk.turned.shape[0]
    for seed in range(syncs.shape[0]):
        sharing.counts[seed] = -1.0
        if is_due(minds, sharing, syncs, agents, dimension, seed, t):
            some = True
            add_up(minds, sharing, privacy, seed, agents, dimension, syncs[seed])
    if not some:
        return
    if privacy is not None and solver is not None and privacy.decide_from != OWN_RELEASED:
        lift_totals(sharing, privacy, syncs, desk.work)
    if differ is not None:
        publish(sharing, privacy, agents, syncs)
    for block in range(minds.shape[0]):
        mind = mind_of(minds, block, dimension)
        gather(mind, sharing, privacy, agents, syncs, block)
        if weighing is not None and privacy is not None:
            weigh(mind, sharing, privacy, desk, agents, syncs, block)
            if privacy.decide_from == OWN_RELEASED:
                add_own(vectors(sharing.shared), vectors(privacy.exact)[block])
        if differ is not None:
            judge_marked(mind, sharing, own_records(mind, sharing, privacy, block), agents, block)
        if solver is not None and privacy is not None and privacy.decide_from == OWN_RELEASED:
            weigh_others(mind, sharing, privacy, desk.work, agents, syncs, block)
        adopt(mind, vectors(sharing.shared))
        if any_above(mind.notes[MARKED], 0.0):
            derive_marked(mind, desk.work.square[0])
    for seed in range(syncs.shape[0]):
        if sharing.counts[seed] >= 0.0:
            syncs[seed] += 1
            sharing.last[seed] = t + 1
