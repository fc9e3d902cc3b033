"""Lanes whose partners may differ: what `federation.partners.Judge` does, on the simulator's arrays."""

from __future__ import annotations

import math
from typing import NamedTuple

from fedfairx.core.learner import NOISE_VARIANCE, RIDGE
from fedfairx.core.noise_filter import size_of_parameter
from fedfairx.core.partners import BEFOREHAND, LEVELS, Room, believed_power, room_in
from fedfairx.core.posterior import posterior_mean
from fedfairx.lanes.decorators import layout, stage
from fedfairx.lanes.rows import Rows, by_lane, cut, floats, put_run
from fedfairx.lanes.vector_lowering import WIDTH
from fedfairx.simulation.kernel.state import MARKED, Mind, Sharing


class Hearing(NamedTuple):
    """Room for lanes whose partners may differ."""

    size: Rows  # (n,) E‖θ‖²
    told: Rows  # (q,) what one partner has released, and then what all of them say
    powers: Rows  # (agents,)
    weights: Rows  # (agents, LEVELS)
    room: Room


@layout
def hearing_in(memory: Rows, dimension: int, agents: int) -> Hearing:
    """All of it, in flat rows."""
    size, rest = cut(memory, WIDTH)
    told, rest = cut(rest, dimension * (dimension + 3) // 2)
    powers, rest = cut(rest, agents)
    weights, rest = cut(rest, agents, LEVELS)
    room, rest = room_in(rest, dimension)
    return Hearing(size, told, powers, weights, room)


@stage
def judge_lane(
    sharing: Sharing, agents: int, lane: int, size: float, ridge: float, variance: float, heard: Hearing
) -> None:
    """told ← what the others of a lane's seed say of its own θ, by what they have released so far."""
    held, told, room = floats(sharing.held), heard.told, heard.room
    first, noise_sd, largest = lane // agents * agents, sharing.noise_sd[lane // agents], 1e-300
    for k in range(LEVELS):
        room.beforehand[k] = BEFOREHAND[k]
    for j in range(agents):
        heard.powers[j] = 0.0
        if first + j != lane:
            for k in range(told.shape[0]):
                told[k] = held[(first + j) // WIDTH, k, (first + j) % WIDTH]
            heard.powers[j] = believed_power(told, noise_sd, size, ridge, variance, room)
            largest = max(largest, heard.powers[j])
            for k in range(LEVELS):
                heard.weights[j, k] = room.weights[k]
    total, square = 1e-300, 0.0
    for k in range(LEVELS):
        room.beforehand[k] = 0.0
    for k in range(told.shape[0]):
        told[k] = 0.0
    for j in range(agents):
        power = heard.powers[j] / largest
        total += power
        square += (power * noise_sd) ** 2
        for k in range(LEVELS):
            room.beforehand[k] += power * heard.weights[j, k]
        for k in range(told.shape[0]):
            told[k] += power * held[(first + j) // WIDTH, k, (first + j) % WIDTH]
    for k in range(LEVELS):
        room.beforehand[k] /= total
    common = believed_power(told, math.sqrt(square), size, ridge, variance, room)
    for k in range(told.shape[0]):
        told[k] *= common


@stage
def judge_marked(mind: Mind, sharing: Sharing, own: Rows, agents: int, block: int) -> None:
    """shared ← own records (q, n) and what the others say beside them, in each marked lane of a block."""
    state, shared = mind.learner, floats(sharing.shared)
    numbers, mean = by_lane(state.numbers), by_lane(state.mean)
    heard = hearing_in(floats(sharing.hearing), mean.shape[0], agents)
    posterior_mean(state.inverse, state.statistics, state.mean, state.numbers[RIDGE], state.estimate)
    size = size_of_parameter(state.estimate, state.inverse, state.numbers[NOISE_VARIANCE])
    put_run(size, heard.size, 0)
    records = by_lane(own)
    for l in range(WIDTH):
        if by_lane(mind.notes)[MARKED, l] > 0.0:
            for k in range(shared.shape[0]):
                heard.room.own[k] = records[k, l]
            for j in range(mean.shape[0]):
                heard.room.mean[j] = mean[j, l]
            ridge, variance = numbers[RIDGE, l], numbers[NOISE_VARIANCE, l]
            judge_lane(sharing, agents, block * WIDTH + l, heard.size[l], ridge, variance, heard)
            for k in range(shared.shape[0]):
                shared[k, l] = records[k, l] + heard.told[k]
