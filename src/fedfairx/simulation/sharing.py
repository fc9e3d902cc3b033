"""The end of a round: the seeds that are due synchronise (Alg. 1 lines 10 to 25).

What `Agent.absorb` does, on the simulator's arrays. Where every agent decides
from the same sum, the noise of the sum is drawn as one: m independent Gaussians add up to one of √m times
the sd.
"""

from __future__ import annotations

from fedfairx.arrays import Array
from fedfairx.core.confidence import practical_radius
from fedfairx.core.estimate import derive
from fedfairx.core.pooling import lift, worth
from fedfairx.lanes.compile import glue, leaf, stage
from fedfairx.lanes.registers import WIDTH
from fedfairx.simulation.state import OWN_RELEASED, Belief, Counts, Exchange, Minds, Sharing


@leaf
def believed_radius(belief: Belief, count: float, dimension: int) -> float:
    """√β with `count` observations inside V, by what all agents believe."""
    radius: float = practical_radius(
        count,
        dimension,
        belief.regulariser,
        belief.noise_sd,
        belief.failure,
        belief.parameter_norm,
        belief.scale,
    )
    return radius


@leaf
def is_due(minds: Minds, sharing: Sharing, syncs: Counts, agents: int, seed: int, t: int) -> bool:
    """Whether this seed synchronises at the end of round t (from 0)."""
    if sharing.threshold == 0.0:
        return bool(sharing.due[t])
    if syncs[seed] >= sharing.most:
        return False
    for i in range(agents):
        lane = seed * agents + i
        if minds.growth[lane // WIDTH, lane % WIDTH] * (t + 1 - sharing.last[seed]) > sharing.threshold:
            return True
    return False


@stage
def differs(statistics: Array, lane: int, packed: Array) -> bool:
    """Whether a lane's statistics are other than these."""
    for k in range(packed.shape[0]):  # noqa: SIM110 - a generator would not compile
        if statistics[lane // WIDTH, k, lane % WIDTH] != packed[k, 0]:
            return True
    return False


@leaf
def adopt(minds: Minds, first: int, last: int, room: Exchange, count: float) -> None:
    """Give the lanes `first` to `last` (exclusive) the statistics in the room.

    Where nothing is new, nothing is derived: a federation of one stays what a lone agent is, bit for bit.
    """
    packed, inverse = room.packed, room.inverse
    new = False
    for lane in range(first, last):
        minds.inside[lane // WIDTH, lane % WIDTH] = count
        minds.growth[lane // WIDTH, lane % WIDTH] = 0.0
        new = new or differs(minds.statistics, lane, packed)
    if not new:
        return
    derive(None, packed, minds.ridge[first // WIDTH, first % WIDTH :], inverse)
    for block in range(first // WIDTH, (last - 1) // WIDTH + 1):
        low, high = max(first - block * WIDTH, 0), min(last - block * WIDTH, WIDTH)
        statistics, inverses = minds.statistics[block], minds.inverse[block]
        for k in range(packed.shape[0]):
            for l in range(low, high):
                statistics[k, l] = packed[k, 0]
        for i in range(inverse.shape[0]):
            for j in range(inverse.shape[0]):
                for l in range(low, high):
                    inverses[i, j, l] = inverse[i, j, 0]


@leaf
def add_up(minds: Minds, sharing: Sharing, seed: int, agents: int, release: int, total: Array) -> float:
    """total (q,) ← the sum of what the agents of a seed release; returns how many observations are in it."""
    q, count = total.shape[0], 0.0
    for k in range(q):
        total[k] = 0.0
    for lane in range(seed * agents, (seed + 1) * agents):
        own = minds.own[lane // WIDTH]
        count += minds.observed[lane // WIDTH, lane % WIDTH]
        for k in range(q):
            total[k] += own[k, lane % WIDTH]
        if sharing.decide_from == OWN_RELEASED:
            for k in range(q):
                total[k] += sharing.noise[lane, release, k]
    if sharing.private and sharing.decide_from != OWN_RELEASED:
        for k in range(q):
            total[k] += sharing.noise[seed, release, k]
    return count


@glue
def share(
    minds: Minds, sharing: Sharing, belief: Belief, syncs: Counts, room: Exchange, agents: int, t: int
) -> None:
    """Synchronise every seed that is due at the end of round t."""
    if minds.own.shape[1] == 0 or (sharing.threshold == 0.0 and not sharing.due[t]):
        return
    for seed in range(syncs.shape[0]):
        if is_due(minds, sharing, syncs, agents, seed, t):
            release = syncs[seed]
            count = add_up(minds, sharing, seed, agents, release, room.total)
            if sharing.decide_from == OWN_RELEASED:
                share_with_own(minds, sharing, belief, room, count, seed * agents, agents, release)
            else:
                if sharing.private:
                    lift(room.total, minds.estimate.shape[1], sharing.shift[release])
                for k in range(room.total.shape[0]):
                    room.packed[k, 0] = room.total[k]
                adopt(minds, seed * agents, (seed + 1) * agents, room, count)
            syncs[seed] += 1
            sharing.last[seed] = t + 1


@glue
def share_with_own(
    minds: Minds,
    sharing: Sharing,
    belief: Belief,
    room: Exchange,
    count: float,
    first: int,
    agents: int,
    release: int,
) -> None:
    """`own+released`: each agent's exact statistics, and the others' noisy ones by their worth."""
    packed, others, total = room.packed, room.others, room.total
    q, dimension = total.shape[0], minds.estimate.shape[1]
    radius = believed_radius(belief, count, dimension)
    for lane in range(first, first + agents):
        block, l = lane // WIDTH, lane % WIDTH
        own = minds.observed[block, l]
        for k in range(q):
            packed[k, 0] = minds.exact[block, k, l]
            others[k] = total[k] - (minds.own[block, k, l] + sharing.noise[lane, release, k])
        weight = worth(
            packed[:, 0],
            dimension,
            (count - own) / max(own, 1.0),
            sharing.sum_sd[release],
            radius,
            belief.regulariser,
            belief.parameter_norm,
        )
        if weight > 0.0:
            lift(others, dimension, sharing.shift[release])
            for k in range(q):
                packed[k, 0] += weight * others[k]
        adopt(minds, lane, lane + 1, room, own + weight * (count - own))
