"""Lanes whose partners may differ: what `federation.partners.listen` does, on the simulator's arrays."""

from __future__ import annotations

import math
from typing import NamedTuple

from fedfairx.core.learner import PRIOR_VARIANCE, RIDGE, variance_of
from fedfairx.core.listening import Ear, ear_in, listen
from fedfairx.core.posterior import posterior_mean
from fedfairx.core.weighing import size_of_parameter
from fedfairx.lanes.compile import layout, stage
from fedfairx.lanes.registers import WIDTH
from fedfairx.lanes.rows import Rows, by_lane, cut, floats, put_run
from fedfairx.simulation.state import MARKED, Counts, Mind, Privacy, Sharing


class Hearing(NamedTuple):
    """Room for lanes whose partners may differ."""

    variance: Rows  # (n,) σ²
    size: Rows  # (n,) E‖θ‖²
    ear: Ear


@layout
def hearing_in(memory: Rows, dimension: int, agents: int) -> Hearing:
    """All of it, in flat rows."""
    variance, rest = cut(memory, WIDTH)
    size, rest = cut(rest, WIDTH)
    return Hearing(variance, size, ear_in(rest, dimension, agents - 1))


@stage
def collect(
    sharing: Sharing, privacy: Privacy | None, agents: int, syncs: Counts, lane: int, ear: Ear
) -> None:
    """releases ← what the others of a lane's seed release now."""
    own, seed, j = floats(sharing.own), lane // agents, 0
    for other in range(seed * agents, (seed + 1) * agents):
        if other != lane:
            ear.noise_sd[j] = 0.0
            for k in range(own.shape[1]):
                ear.releases[j, k] = own[other // WIDTH, k, other % WIDTH]
            if privacy is not None:
                ear.noise_sd[j] = privacy.sum_sd[syncs[seed]] / math.sqrt(agents - 1.0)
                for k in range(own.shape[1]):
                    ear.releases[j, k] += privacy.noise[other, syncs[seed], k]
            j += 1


@stage
def listen_by_lane(
    mind: Mind, sharing: Sharing, privacy: Privacy | None, own: Rows, agents: int, syncs: Counts, block: int
) -> None:
    """Of partners who may differ: shared ← what the others say of each lane's own θ. own (q, n) by lane."""
    state, shared = mind.learner, floats(sharing.shared)
    numbers, mean = by_lane(state.numbers), by_lane(state.mean)
    room = hearing_in(floats(sharing.hearing), mean.shape[0], agents)
    variance = variance_of(state)
    posterior_mean(state.inverse, state.statistics, state.mean, state.numbers[RIDGE], state.estimate)
    put_run(variance, room.variance, 0)
    put_run(size_of_parameter(state.estimate, state.inverse, variance), room.size, 0)
    for l in range(WIDTH):
        if by_lane(mind.notes)[MARKED, l] > 0.0:
            ear = room.ear
            for k in range(own.shape[0]):
                ear.own[k] = own[k, l]
            for j in range(mean.shape[0]):
                ear.mean[j] = mean[j, l]
            collect(sharing, privacy, agents, syncs, block * WIDTH + l, ear)
            ridge = room.variance[l] / numbers[PRIOR_VARIANCE, l]
            listen(ear, room.size[l], ridge, room.variance[l])
            for k in range(own.shape[0]):
                shared[k, l] = ear.told[k]
