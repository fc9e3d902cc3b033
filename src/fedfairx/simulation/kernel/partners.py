"""Judge peers that may differ, in lanes: what `agent.partners.Judge` does, on the simulator's arrays."""

from __future__ import annotations

import math
from typing import NamedTuple

from fedfairx.core.learner import NOISE_VARIANCE, OBSERVED, RIDGE
from fedfairx.core.noise_filter import size_of_parameter
from fedfairx.core.partners import (
    FEW,
    LEVELS,
    POWERS,
    PRIOR_WEIGHTS,
    PartnerEvidence,
    Peers,
    believed_power,
    judge_by_each_other,
    partner_evidence,
    peers_of,
)
from fedfairx.core.posterior import posterior_mean
from fedfairx.lanes.decorators import layout, stage
from fedfairx.lanes.rows import Rows, by_lane, cut, floats, put_run
from fedfairx.lanes.vector_llvm import WIDTH
from fedfairx.simulation.kernel.state import MARKED, LaneState, Sharing


class PartnerScratch(NamedTuple):
    """Workspace for judging the peers of a lane."""

    size: Rows  # (n,) E‖θ‖²
    weighted_sum: Rows  # (q,) of all that peers have released
    powers: Rows  # (peers,)
    peers: Peers
    evidence: PartnerEvidence


@layout
def partner_scratch(memory: Rows, dimension: int, count: int) -> PartnerScratch:
    """Lay out the workspace for this number of peers in flat rows."""
    size, rest = cut(memory, WIDTH)
    weighted_sum, rest = cut(rest, dimension * (dimension + 3) // 2)
    powers, rest = cut(rest, count)
    peers, rest = peers_of(rest, dimension, count)
    evidence, rest = partner_evidence(rest, dimension)
    return PartnerScratch(size, weighted_sum, powers, peers, evidence)


@stage
def number_of_peers(agents: int, together: bool) -> int:
    """How many releases an agent judges: one if it sees the others only as a sum."""
    return 1 if together else agents - 1


@stage
def lane_of(peer: int, agents: int, lane: int, together: bool) -> int:
    """The lane that holds what this peer of a lane has released; the lane itself holds the sum of all."""
    if together:
        return lane
    first = lane // agents * agents
    return first + peer if first + peer < lane else first + peer + 1


@stage
def judge_lane(
    sharing: Sharing,
    agents: int,
    lane: int,
    few: bool,
    size: float,
    ridge: float,
    variance: float,
    work: PartnerScratch,
) -> None:
    """weighted_sum ← that of what a lane's peers have released so far; `few`: own rewards are `FEW`."""
    latest, weighted_sum = floats(sharing.latest), work.weighted_sum
    peers, evidence = work.peers, work.evidence
    noise_sd, largest, count = sharing.noise_sd[lane // agents], 1e-300, work.powers.shape[0]
    for k in range(LEVELS):
        evidence.prior_weights[k] = PRIOR_WEIGHTS[k]
    for j in range(count):
        other = lane_of(j, agents, lane, sharing.together)
        for k in range(weighted_sum.shape[0]):
            peers.releases[j, k] = latest[other // WIDTH, k, other % WIDTH]
        believed_power(peers.releases[j], noise_sd, size, ridge, variance, evidence)
        for k in range(LEVELS):
            peers.weights[j, k] = evidence.weights[k]
    if few and count > 1:
        judge_by_each_other(peers, ridge, variance, evidence)
    for j in range(count):
        work.powers[j] = 0.0
        for k in range(LEVELS):
            work.powers[j] += peers.weights[j, k] * POWERS[k]
        largest = max(largest, work.powers[j])
    total, square = 1e-300, 0.0
    for k in range(LEVELS):
        evidence.prior_weights[k] = 0.0
    for k in range(weighted_sum.shape[0]):
        weighted_sum[k] = 0.0
    for j in range(count):
        other, power = lane_of(j, agents, lane, sharing.together), work.powers[j] / largest
        total += power
        square += (power * noise_sd) ** 2
        for k in range(LEVELS):
            evidence.prior_weights[k] += power * peers.weights[j, k]
        for k in range(weighted_sum.shape[0]):
            weighted_sum[k] += power * latest[other // WIDTH, k, other % WIDTH]
    for k in range(LEVELS):
        evidence.prior_weights[k] /= total
    common = believed_power(weighted_sum, math.sqrt(square), size, ridge, variance, evidence)
    for k in range(weighted_sum.shape[0]):
        weighted_sum[k] *= common


@stage
def judge_marked(lanes: LaneState, sharing: Sharing, own: Rows, agents: int, block: int) -> None:
    """shared ← own records (q, n) plus the peers' weighted releases, in each marked lane of a block."""
    state, shared = lanes.learner, floats(sharing.shared)
    numbers, mean = by_lane(state.numbers), by_lane(state.mean)
    count = number_of_peers(agents, sharing.together)
    work = partner_scratch(floats(sharing.partner_memory), mean.shape[0], count)
    posterior_mean(state.inverse, state.statistics, state.mean, state.numbers[RIDGE], state.estimate)
    size = size_of_parameter(state)
    put_run(size, work.size, 0)
    records = by_lane(own)
    for l in range(WIDTH):
        if by_lane(lanes.notes)[MARKED, l] > 0.0:
            for k in range(shared.shape[0]):
                work.evidence.own[k] = records[k, l]
            for j in range(mean.shape[0]):
                work.evidence.mean[j] = mean[j, l]
            ridge, variance = numbers[RIDGE, l], numbers[NOISE_VARIANCE, l]
            few = numbers[OBSERVED, l] < FEW
            judge_lane(sharing, agents, block * WIDTH + l, few, work.size[l], ridge, variance, work)
            for k in range(shared.shape[0]):
                shared[k, l] = records[k, l] + work.weighted_sum[k]
