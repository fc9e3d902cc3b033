"""Synchronise the seeds that are due at the end of a round (Alg. 1 lines 10 to 25).

This is what `Agent.absorb` does, on the simulator's arrays. Where every agent decides from the same sum, the
noise of the sum is drawn once: m independent Gaussians add up to one of √m times the sd.
"""

from __future__ import annotations

import math

from fedfairx.core.learner import COUNT, NOISE_VARIANCE, OBSERVED, PARAMETER_NORM, RIDGE, radius_of
from fedfairx.core.noise_filter import filter_noise, size_of_parameter
from fedfairx.core.noisy_sums import add_by_worth, lift
from fedfairx.core.optimism.problem import Scratch
from fedfairx.core.optimism.solver import Solver
from fedfairx.core.posterior import posterior_mean
from fedfairx.lanes.decorators import stage
from fedfairx.lanes.rows import Rows, by_lane, floats, vectors
from fedfairx.lanes.vector import absolute, any_above, larger, where_above
from fedfairx.lanes.vector_llvm import WIDTH
from fedfairx.simulation.kernel.observe import derive_marked, own_records
from fedfairx.simulation.kernel.partners import judge_marked
from fedfairx.simulation.kernel.state import (
    LOG_GROWTH,
    MARKED,
    OWN_RELEASED,
    Counts,
    DecisionScratch,
    LaneState,
    PrivateReleases,
    Sharing,
    lane_state_of,
)
from fedfairx.util.arrays import Array

NOISE, SHIFT, ROOT_BETA = range(3)  # rows of the workspace by lane, where peers are weighed


@stage
def is_due(
    lane_states: Array, sharing: Sharing, syncs: Counts, agents: int, dimension: int, seed: int, t: int
) -> bool:
    """Whether this seed synchronises at the end of round t (from 0)."""
    if sharing.threshold == 0.0:
        return bool(sharing.due[t])
    if syncs[seed] >= sharing.most:
        return False
    rounds = t + 1 - sharing.last[seed]
    for lane in range(seed * agents, (seed + 1) * agents):
        notes = by_lane(lane_state_of(lane_states, lane // WIDTH, dimension).notes)
        if notes[LOG_GROWTH, lane % WIDTH] * rounds > sharing.threshold:
            return True
    return False


@stage
def add_up(
    lane_states: Array,
    sharing: Sharing,
    privacy: PrivateReleases | None,
    seed: int,
    agents: int,
    dimension: int,
    release: int,
) -> None:
    """Sum the releases of a seed's agents, and count the observations in it."""
    total, own = floats(sharing.totals)[seed], floats(sharing.own)
    q, count = total.shape[0], 0.0
    for k in range(q):
        total[k] = 0.0
    for lane in range(seed * agents, (seed + 1) * agents):
        numbers = by_lane(lane_state_of(lane_states, lane // WIDTH, dimension).learner.numbers)
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
def lift_totals(sharing: Sharing, privacy: PrivateReleases, syncs: Counts, work: Scratch) -> None:
    """`lift` the sums of the seeds that synchronise, a seed in each lane."""
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
    lanes: LaneState,
    sharing: Sharing,
    privacy: PrivateReleases | None,
    agents: int,
    syncs: Counts,
    block: int,
) -> None:
    """shared ← the sum of releases for every lane of a block; mark the lanes whose seed synchronises.

    A lane's own release is left out where it decides from its own exact statistics.
    """
    shared, own, totals = floats(sharing.shared), floats(sharing.own), floats(sharing.totals)
    notes, numbers = by_lane(lanes.notes), by_lane(lanes.learner.numbers)
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
def filter_shared(
    lanes: LaneState,
    sharing: Sharing,
    privacy: PrivateReleases,
    scratch: DecisionScratch,
    agents: int,
    syncs: Counts,
    block: int,
) -> None:
    """For a posterior: filter the noise of `shared` in every lane."""
    state, shared, lane = lanes.learner, vectors(sharing.shared), by_lane(scratch.work.lane)
    for l in range(WIDTH):
        seed = (block * WIDTH + l) // agents
        here = by_lane(lanes.notes)[MARKED, l] > 0.0
        lane[0, l] = privacy.sum_sd[syncs[seed]] if here else privacy.sum_sd[0]
    variance = state.numbers[NOISE_VARIANCE]
    posterior_mean(state.inverse, state.statistics, state.mean, state.numbers[RIDGE], state.estimate)
    size = size_of_parameter(state)
    filter_noise(shared, scratch.work.lane[0], size, variance, scratch.work.square[0], scratch.turned)


@stage
def add_own(shared: Rows, own: Rows) -> None:
    """Add own statistics to the peers'."""
    for k in range(shared.shape[0]):
        shared[k] = shared[k] + own[k]


@stage
def weigh_others(
    lanes: LaneState,
    sharing: Sharing,
    privacy: PrivateReleases,
    work: Scratch,
    agents: int,
    syncs: Counts,
    block: int,
) -> None:
    """For optimism with `own+released`: shared ← own exact statistics plus the peers' weighted ones."""
    state, lane = lanes.learner, by_lane(work.lane)
    numbers, each, dimension = state.numbers, by_lane(state.numbers), state.mean.shape[0]
    for l in range(WIDTH):
        here = by_lane(lanes.notes)[MARKED, l] > 0.0
        release = syncs[(block * WIDTH + l) // agents] if here else 0
        lane[NOISE, l], lane[SHIFT, l] = privacy.sum_sd[release], privacy.shift[release]
        lane[ROOT_BETA, l] = radius_of(each, l, each[COUNT, l], dimension)
    own_count, count = numbers[OBSERVED], numbers[COUNT]
    weight = add_by_worth(
        vectors(privacy.exact)[block],
        own_count,
        vectors(sharing.shared),
        count - own_count,
        work.lane[NOISE],
        work.lane[SHIFT],
        work.lane[ROOT_BETA],
        numbers[RIDGE],
        numbers[PARAMETER_NORM],
        work.square,
    )
    numbers[COUNT] = where_above(lanes.notes[MARKED], 0.0, own_count + weight * (count - own_count), count)


@stage
def adopt(lanes: LaneState, shared: Rows) -> None:
    """Give the marked lanes their new statistics; unmark those without news.

    These derive nothing, so that a federation of one stays a lone agent, bit for bit.
    """
    notes, statistics = lanes.notes, lanes.learner.statistics
    marked, news = notes[MARKED], 0.0
    for k in range(shared.shape[0]):
        old = statistics[k]
        new = where_above(marked, 0.0, shared[k], old)
        news = larger(absolute(new - old), news)
        statistics[k] = new
    notes[LOG_GROWTH] = where_above(marked, 0.0, 0.0, notes[LOG_GROWTH])
    notes[MARKED] = where_above(news, 0.0, 1.0, 0.0)


@stage
def publish(sharing: Sharing, privacy: PrivateReleases | None, agents: int, syncs: Counts) -> None:
    """Keep the releases of the seeds that synchronise, by which peers are judged, unless they are one."""
    own, latest = floats(sharing.own), floats(sharing.latest)
    for seed in range(syncs.shape[0]):
        if sharing.counts[seed] >= 0.0:
            for lane in range(seed * agents, (seed if sharing.together else seed + 1) * agents):
                for k in range(own.shape[1]):
                    latest[lane // WIDTH, k, lane % WIDTH] = own[lane // WIDTH, k, lane % WIDTH]
                    if privacy is not None:
                        latest[lane // WIDTH, k, lane % WIDTH] += privacy.noise[lane, syncs[seed], k]
            if privacy is not None:
                of_each = 1.0 if sharing.together else math.sqrt(max(agents - 1.0, 1.0))
                sharing.noise_sd[seed] = privacy.sum_sd[syncs[seed]] / of_each


@stage
def hold_others(lanes: LaneState, sharing: Sharing, block: int) -> None:
    """Keep the sum of the others' releases, by which they are judged as one, in the marked lanes."""
    latest, shared = vectors(sharing.latest)[block], vectors(sharing.shared)
    marked = lanes.notes[MARKED]
    for k in range(shared.shape[0]):
        latest[k] = where_above(marked, 0.0, shared[k], latest[k])


@stage
def share(
    lane_states: Array,
    solver: Solver | None,
    sharing: Sharing,
    privacy: PrivateReleases | None,
    weighing: bool | None,
    differ: bool | None,
    syncs: Counts,
    scratch: DecisionScratch,
    agents: int,
    t: int,
) -> None:
    """Synchronise every seed that is due at the end of round t."""
    if sharing.threshold == 0.0 and not sharing.due[t]:
        return
    some, dimension = False, scratch.turned.shape[0]
    for seed in range(syncs.shape[0]):
        sharing.counts[seed] = -1.0
        if is_due(lane_states, sharing, syncs, agents, dimension, seed, t):
            some = True
            add_up(lane_states, sharing, privacy, seed, agents, dimension, syncs[seed])
    if not some:
        return
    if privacy is not None and solver is not None and privacy.decide_from != OWN_RELEASED:
        lift_totals(sharing, privacy, syncs, scratch.work)
    if differ is not None:
        publish(sharing, privacy, agents, syncs)
    for block in range(lane_states.shape[0]):
        lanes = lane_state_of(lane_states, block, dimension)
        gather(lanes, sharing, privacy, agents, syncs, block)
        if weighing is not None and privacy is not None:
            filter_shared(lanes, sharing, privacy, scratch, agents, syncs, block)
            if privacy.decide_from == OWN_RELEASED:
                add_own(vectors(sharing.shared), vectors(privacy.exact)[block])
        if differ is not None:
            if sharing.together:
                hold_others(lanes, sharing, block)
            judge_marked(lanes, sharing, own_records(lanes, sharing, privacy, block), agents, block)
        if solver is not None and privacy is not None and privacy.decide_from == OWN_RELEASED:
            weigh_others(lanes, sharing, privacy, scratch.work, agents, syncs, block)
        adopt(lanes, vectors(sharing.shared))
        if any_above(lanes.notes[MARKED], 0.0):
            derive_marked(lanes, scratch.work.square[0], True)
    for seed in range(syncs.shape[0]):
        if sharing.counts[seed] >= 0.0:
            syncs[seed] += 1
            sharing.last[seed] = t + 1
