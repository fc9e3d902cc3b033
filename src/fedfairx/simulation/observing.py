"""The end of a turn: an observation is learnt, at once or when its reward arrives (Alg. 1 line 9)."""

from __future__ import annotations

import math

import numpy as np

from fedfairx.core.learner import Learner
from fedfairx.core.posterior import Assumed, learn_with_surprise
from fedfairx.core.statistics import add
from fedfairx.lanes.arithmetic import log
from fedfairx.lanes.block import BLOCK
from fedfairx.lanes.compile import glue, leaf
from fedfairx.lanes.registers import WIDTH
from fedfairx.lanes.vector import any_above, fma, larger, load, smaller, sqrt, store, where_above
from fedfairx.simulation.deriving import derive_adopted, double_refresh
from fedfairx.simulation.draws import uniform
from fedfairx.simulation.state import RELEASED, Minds, Room, Sharing, World


@leaf
def clip(sharing: Sharing, mind: Learner) -> None:
    """Move the observation at hand inside the privatizer's bounds, around its public point.

    A zero context stands for no observation, and stays zero wherever the public point is.
    """
    chosen, centre = mind.chosen, sharing.centre
    square, size = 1e-300, 0.0
    for j in range(chosen.shape[0]):
        x = load(BLOCK, chosen, j)
        offset = x - centre[j]
        square = fma(offset, offset, square)
        size = fma(x, x, size)
    scale = where_above(size, 0.0, sharing.context_bound / sqrt(square), 1.0)
    for j in range(chosen.shape[0]):
        x = load(BLOCK, chosen, j)
        store(where_above(1.0, scale, centre[j] + scale * (x - centre[j]), x), BLOCK, chosen, j)
    reward = smaller(larger(load(BLOCK, mind.reward), sharing.reward_low), sharing.reward_high)
    store(reward, BLOCK, mind.reward)


@glue
def take_in(minds: Minds, mind: Learner, prior: Assumed, sharing: Sharing, room: Room, block: int) -> None:
    """Learn the observation at hand in every lane of a block; a zero context stands for none."""
    if sharing.decide_from != RELEASED:
        learn_with_surprise(mind, prior.mean, minds.ridge[block], minds.surprise[block])
        if prior.learning > 0.0 and any_above(
            load(BLOCK, minds.observed, block), load(BLOCK, minds.refresh, block) - 0.5
        ):
            double_refresh(minds, room.exchange.adopted, block)
            derive_adopted(minds, prior, room, block)
        if sharing.threshold > 0.0:
            grown = load(BLOCK, minds.growth, block) + log(load(BLOCK, mind.growth))
            store(grown, BLOCK, minds.growth, block)
    if minds.exact.shape[1] > 0:
        add(BLOCK, minds.exact[block], mind.chosen, mind.reward)
    if minds.own.shape[1] > 0:
        if sharing.private:  # clip, never assert
            clip(sharing, mind)
        add(BLOCK, minds.own[block], mind.chosen, mind.reward)


@leaf
def deliver(
    world: World,
    minds: Minds,
    mind: Learner,
    prior: Assumed,
    sharing: Sharing,
    room: Room,
    block: int,
    t: int,
) -> None:
    """Learn now, or put the observations on their way and learn those that arrive in round t."""
    dimension = mind.chosen.shape[0]
    if world.longest_delay == 0:
        learnt = 1.0 if sharing.decide_from != RELEASED else 0.0
        store(load(BLOCK, minds.observed, block) + 1.0, BLOCK, minds.observed, block)
        store(load(BLOCK, minds.inside, block) + learnt, BLOCK, minds.inside, block)
        take_in(minds, mind, prior, sharing, room, block)
        return
    size = room.history.shape[0]
    for l in range(WIDTH):
        for j in range(dimension):
            room.history[t % size, block, j, l] = mind.chosen[j, l]
        room.history[t % size, block, dimension, l] = mind.reward[l]
    stay = world.delay / (1.0 + world.delay)
    for age in range(min(t, world.longest_delay) + 1):
        some = False
        for l in range(WIDTH):
            position = np.uint64(t - age) * np.uint64(world.agents) + world.agent[block, l]
            u = uniform(world.delay_keys[block, l], position)
            wait = min(int(math.log(1.0 - u) / math.log(stay)), world.longest_delay)
            arrives = 1.0 if wait == age else 0.0
            some = some or wait == age
            for j in range(dimension):
                mind.chosen[j, l] = arrives * room.history[(t - age) % size, block, j, l]
            mind.reward[l] = arrives * room.history[(t - age) % size, block, dimension, l]
            minds.observed[block, l] += arrives
            if sharing.decide_from != RELEASED:
                minds.inside[block, l] += arrives
        if some:
            take_in(minds, mind, prior, sharing, room, block)
