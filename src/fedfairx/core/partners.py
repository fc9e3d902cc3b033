"""Partners who may differ: how far another's statistics are believed, learnt from the agent's own rewards.

Another's packed statistics (Gram H, moment h) enter with a power α from 0 to 1 (a power prior). With V = λI +
αH, own Gram G and moment b, own rewards have, up to what does not depend on α, the log likelihood

    ln p(α) = ½ ln|V| - ½ ln|V + G| + [(αh + b)ᵀ(V + G)⁻¹(αh + b) - αhᵀV⁻¹αh]/2σ².

docs/explanation/partners.md has the two steps, each partner by itself and all together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedfairx.core.marginal_likelihood import less_mean, solve
from fedfairx.core.noise_filter import believe
from fedfairx.lanes.decorators import layout, releasing, stage
from fedfairx.lanes.rows import Rows, cut, floats
from fedfairx.util.arrays import Array

#: What may be taken for granted of the others: that θ is one for all, as in the paper, or nothing.
PARTNERS = ALIKE, DIFFER = "alike", "differ"
#: α that are looked at,
POWERS = np.concatenate([[0.0], 4.0 ** np.arange(-5.0, 1.0)])
LEVELS = POWERS.shape[0]
#: and their weights before any reward.
BEFOREHAND = np.full(LEVELS, 0.5 / (LEVELS - 1))
BEFOREHAND[0] = 0.5


class Room(NamedTuple):
    """What is judged by, and room to work in."""

    own: Rows  # (q,) one's own packed statistics
    mean: Rows  # (d,) of the prior
    beforehand: Rows  # (LEVELS,) weights of the powers without own rewards
    weights: Rows  # (LEVELS,) the same with them
    mine: Rows  # (d,) own moment, less the Gram times the mean
    theirs: Rows  # (d,) the other's
    moment: Rows  # (d,)
    sums: Rows  # (q,)
    factor: Rows  # (d, d)
    turned: Rows  # (d, d + 1)


@layout
def room_in(memory: Rows, dimension: int) -> tuple[Room, Rows]:
    """The room at the head of flat rows, and the rows that are left."""
    size = dimension * (dimension + 3) // 2
    own, rest = cut(memory, size)
    mean, rest = cut(rest, dimension)
    beforehand, rest = cut(rest, LEVELS)
    weights, rest = cut(rest, LEVELS)
    mine, rest = cut(rest, dimension)
    theirs, rest = cut(rest, dimension)
    moment, rest = cut(rest, dimension)
    sums, rest = cut(rest, size)
    factor, rest = cut(rest, dimension, dimension)
    turned, rest = cut(rest, dimension, dimension + 1)
    return Room(own, mean, beforehand, weights, mine, theirs, moment, sums, factor, turned), rest


@stage
def log_evidence(others: Rows, power: float, ridge: float, variance: float, room: Room) -> float:
    """ln p of own rewards if others (q,) count with this power; `mine` and `theirs` are known."""
    for k in range(others.shape[0]):
        room.sums[k] = power * others[k]
    for j in range(room.moment.shape[0]):
        room.moment[j] = power * room.theirs[j]
    told, volume = solve(room.sums, ridge, room.moment, room.turned)
    for k in range(others.shape[0]):
        room.sums[k] += room.own[k]
    for j in range(room.moment.shape[0]):
        room.moment[j] += room.mine[j]
    both, whole = solve(room.sums, ridge, room.moment, room.turned)
    return 0.5 * (volume - whole) + 0.5 * (both - told) / variance


@stage
def believed_power(
    others: Rows, noise_sd: float, size: float, ridge: float, variance: float, room: Room
) -> float:
    """The power of others' statistics (q,), of which what stands out of its noise is left there; `weights`
    ← those of the powers, by `beforehand`.

    noise_sd: of an entry of them, 0 where they are exact; size: E‖θ‖²; ridge λ, variance σ².
    """
    if noise_sd > 0.0:
        believe(others, noise_sd, size, variance, room.factor, room.turned)
    less_mean(room.own, room.mean, room.mine)
    less_mean(others, room.mean, room.theirs)
    best, total, power = -math.inf, 0.0, 0.0
    for k in range(LEVELS):
        room.weights[k] = log_evidence(others, POWERS[k], ridge, variance, room)
        best = max(best, room.weights[k])
    for k in range(LEVELS):
        room.weights[k] = room.beforehand[k] * math.exp(room.weights[k] - best)
        total += room.weights[k]
    for k in range(LEVELS):
        room.weights[k] /= total
        power += room.weights[k] * POWERS[k]
    return power


@releasing
def power_in(
    others: Array, memory: Array, dimension: int, noise_sd: float, size: float, ridge: float, variance: float
) -> float:
    """`believed_power` of others (q,), which are filtered, in the room that `room_in` finds in memory."""
    room, _ = room_in(floats(memory), dimension)
    return believed_power(floats(others), noise_sd, size, ridge, variance, room)
