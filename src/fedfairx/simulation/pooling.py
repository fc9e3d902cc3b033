"""The end of a round for the rules of the posterior: what `Agent.absorb` does there, on the simulator's
arrays.
"""

from __future__ import annotations

from fedfairx.core.posterior import Assumed, noise_variance, posterior_mean
from fedfairx.core.weighing import doubt, noise_floor, quieten, size_of_parameter, weigh
from fedfairx.lanes.block import BLOCK
from fedfairx.lanes.compile import leaf, stage
from fedfairx.lanes.registers import WIDTH
from fedfairx.lanes.vector import absolute, any_above, larger, load, store, where_above
from fedfairx.simulation.deriving import derive_adopted
from fedfairx.simulation.sharing import add_up, is_due
from fedfairx.simulation.state import OWN_RELEASED, Counts, Exchange, Minds, Room, Sharing


@leaf
def gather(minds: Minds, sharing: Sharing, syncs: Counts, room: Exchange, agents: int, block: int) -> None:
    """shared ← what is released to every lane of a block, and mark the lanes whose seed synchronises.

    Without one's own release where decisions come from one's own exact statistics beside it.
    """
    beside = sharing.decide_from == OWN_RELEASED
    for l in range(WIDTH):
        lane = block * WIDTH + l
        seed = lane // agents
        here = seed < room.due.shape[0] and room.due[seed] > 0.0
        room.adopted[block, l] = 1.0 if here else 0.0
        release = syncs[seed] if here else 0
        room.noise_sd[l] = sharing.sum_sd[release] if sharing.private else 0.0
        for k in range(room.shared.shape[0]):
            value = room.totals[seed, k] if here else 0.0
            if here and beside:
                value -= minds.own[block, k, l] + sharing.noise[lane, release, k]
            room.shared[k, l] = value


@leaf
def weigh_block(minds: Minds, prior: Assumed, room: Room, block: int) -> None:
    """shared ← what of it is worth believing to every lane."""
    exchange, dimension = room.exchange, minds.estimate.shape[1]
    factor = room.square[: dimension * dimension * WIDTH].reshape(dimension, dimension, WIDTH)
    estimate, inverse = minds.estimate[block], minds.inverse[block]
    variance = noise_variance(prior, load(BLOCK, minds.surprise, block), load(BLOCK, minds.observed, block))
    posterior_mean(BLOCK, inverse, minds.statistics[block], prior.mean, minds.ridge[block], estimate)
    size = size_of_parameter(BLOCK, estimate, inverse, variance)
    noise_sd = load(BLOCK, exchange.noise_sd)
    kappa = doubt(noise_sd, size, variance, dimension)
    quieten(BLOCK, exchange.shared, noise_floor(noise_sd, dimension), factor, exchange.turned)
    weigh(BLOCK, exchange.shared, kappa, factor, exchange.turned)


@leaf
def adopt(minds: Minds, sharing: Sharing, room: Exchange, block: int) -> None:
    """Give the marked lanes their new statistics; where nothing is new, the mark is taken away.

    Then nothing is derived: a federation of one stays what a lone agent is, bit for bit.
    """
    marked, news, statistics = load(BLOCK, room.adopted, block), 0.0, minds.statistics[block]
    for k in range(room.shared.shape[0]):
        old, new = load(BLOCK, statistics, k), load(BLOCK, room.shared, k)
        if sharing.decide_from == OWN_RELEASED:
            new = new + load(BLOCK, minds.exact, block, k)
        new = where_above(marked, 0.0, new, old)
        news = larger(absolute(new - old), news)
        store(new, BLOCK, statistics, k)
    store(where_above(marked, 0.0, 0.0, load(BLOCK, minds.growth, block)), BLOCK, minds.growth, block)
    store(where_above(news, 0.0, 1.0, 0.0), BLOCK, room.adopted, block)


@stage
def share_beliefs(
    minds: Minds, prior: Assumed, sharing: Sharing, syncs: Counts, room: Room, agents: int, t: int
) -> None:
    """Synchronise every seed that is due at the end of round t."""
    if minds.own.shape[1] == 0 or (sharing.threshold == 0.0 and not sharing.due[t]):
        return
    exchange, some = room.exchange, False
    for seed in range(syncs.shape[0]):
        due = is_due(minds, sharing, syncs, agents, seed, t)
        exchange.due[seed] = 1.0 if due else 0.0
        if due:
            some = True
            add_up(minds, sharing, seed, agents, syncs[seed], exchange.totals[seed])
    if not some:
        return
    for block in range(minds.radius.shape[0]):
        gather(minds, sharing, syncs, exchange, agents, block)
        if sharing.private:
            weigh_block(minds, prior, room, block)
        adopt(minds, sharing, exchange, block)
        if any_above(load(BLOCK, exchange.adopted, block), 0.0):
            derive_adopted(minds, prior, room, block)
    for seed in range(syncs.shape[0]):
        if exchange.due[seed] > 0.0:
            syncs[seed] += 1
            sharing.last[seed] = t + 1
