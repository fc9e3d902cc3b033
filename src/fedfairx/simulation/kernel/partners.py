"""Judge peers that may differ, in lanes: what `agent.partners.Judge` does, on the simulator's arrays."""

from __future__ import annotations

import math
from typing import NamedTuple

from fedfairx.core.learner import NOISE_VARIANCE, RIDGE
from fedfairx.core.noise_filter import size_of_parameter
from fedfairx.core.partners import LEVELS, PRIOR_WEIGHTS, PartnerEvidence, believed_power, partner_evidence
from fedfairx.core.posterior import posterior_mean
from fedfairx.lanes.decorators import layout, stage
from fedfairx.lanes.rows import Rows, by_lane, cut, floats, put_run
from fedfairx.lanes.vector_llvm import WIDTH
from fedfairx.simulation.kernel.state import MARKED, LaneState, Sharing


class PartnerScratch(NamedTuple):
    """Workspace for judging the peers of a lane."""

    size: Rows  # (n,) E‖θ‖²
    release: Rows  # (q,) the release of one peer, and then the weighted sum of all
    powers: Rows  # (agents,)
    weights: Rows  # (agents, LEVELS)
    evidence: PartnerEvidence


@layout
def partner_scratch(memory: Rows, dimension: int, agents: int) -> PartnerScratch:
    """Lay out the workspace in flat rows."""
    size, rest = cut(memory, WIDTH)
    release, rest = cut(rest, dimension * (dimension + 3) // 2)
    powers, rest = cut(rest, agents)
    weights, rest = cut(rest, agents, LEVELS)
    evidence, rest = partner_evidence(rest, dimension)
    return PartnerScratch(size, release, powers, weights, evidence)


@stage
def judge_lane(
    sharing: Sharing, agents: int, lane: int, size: float, ridge: float, variance: float, work: PartnerScratch
) -> None:
    """release ← the weighted sum of what a lane's peers have released so far.

    Peers that are seen only as a sum are one peer: the lane itself holds it.
    """
    held, release, evidence = floats(sharing.held), work.release, work.evidence
    first, noise_sd, largest = lane // agents * agents, sharing.noise_sd[lane // agents], 1e-300
    for k in range(LEVELS):
        evidence.prior_weights[k] = PRIOR_WEIGHTS[k]
    for j in range(agents):
        work.powers[j] = 0.0
        if (first + j == lane) == sharing.together:
            for k in range(release.shape[0]):
                release[k] = held[(first + j) // WIDTH, k, (first + j) % WIDTH]
            work.powers[j] = believed_power(release, noise_sd, size, ridge, variance, evidence)
            largest = max(largest, work.powers[j])
            for k in range(LEVELS):
                work.weights[j, k] = evidence.weights[k]
    total, square = 1e-300, 0.0
    for k in range(LEVELS):
        evidence.prior_weights[k] = 0.0
    for k in range(release.shape[0]):
        release[k] = 0.0
    for j in range(agents):
        power = work.powers[j] / largest
        total += power
        square += (power * noise_sd) ** 2
        for k in range(LEVELS):
            evidence.prior_weights[k] += power * work.weights[j, k]
        for k in range(release.shape[0]):
            release[k] += power * held[(first + j) // WIDTH, k, (first + j) % WIDTH]
    for k in range(LEVELS):
        evidence.prior_weights[k] /= total
    common = believed_power(release, math.sqrt(square), size, ridge, variance, evidence)
    for k in range(release.shape[0]):
        release[k] *= common


@stage
def judge_marked(lanes: LaneState, sharing: Sharing, own: Rows, agents: int, block: int) -> None:
    """shared ← own records (q, n) plus the peers' weighted releases, in each marked lane of a block."""
    state, shared = lanes.learner, floats(sharing.shared)
    numbers, mean = by_lane(state.numbers), by_lane(state.mean)
    work = partner_scratch(floats(sharing.partner_memory), mean.shape[0], agents)
    posterior_mean(state.inverse, state.statistics, state.mean, state.numbers[RIDGE], state.estimate)
    size = size_of_parameter(state.estimate, state.inverse, state.numbers[NOISE_VARIANCE])
    put_run(size, work.size, 0)
    records = by_lane(own)
    for l in range(WIDTH):
        if by_lane(lanes.notes)[MARKED, l] > 0.0:
            for k in range(shared.shape[0]):
                work.evidence.own[k] = records[k, l]
            for j in range(mean.shape[0]):
                work.evidence.mean[j] = mean[j, l]
            ridge, variance = numbers[RIDGE, l], numbers[NOISE_VARIANCE, l]
            judge_lane(sharing, agents, block * WIDTH + l, work.size[l], ridge, variance, work)
            for k in range(shared.shape[0]):
                shared[k, l] = records[k, l] + work.release[k]
