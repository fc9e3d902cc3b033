"""The end of a round: the seeds that are due synchronise (Alg. 1 lines 10 to 25).

What `Agent.absorb` does, on the simulator's arrays. Where every agent decides
from the same sum, the noise of the sum is drawn as one: m independent Gaussians add up to one of √m times
the sd.
"""

from __future__ import annotations

import numpy as np

from fedfairx.core.compile import glue, stage
from fedfairx.core.confidence import practical_radius
from fedfairx.core.estimate import derive
from fedfairx.core.pooling import lift, worth
from fedfairx.core.statistics import Array
from fedfairx.simulation.state import OWN_RELEASED, Belief, Counts, Minds, Sharing


@stage
def is_due(minds: Minds, sharing: Sharing, syncs: Counts, agents: int, seed: int, t: int) -> bool:
    """Whether this seed synchronises at the end of round t (from 0)."""
    if sharing.threshold == 0.0:
        return bool(sharing.due[t])
    if syncs[seed] >= sharing.most:
        return False
    lanes = minds.growth.shape[1]
    for i in range(agents):
        lane = seed * agents + i
        if minds.growth[lane // lanes, lane % lanes] * (t + 1 - sharing.last[seed]) > sharing.threshold:
            return True
    return False


@stage
def adopt(
    minds: Minds, belief: Belief, lane: int, packed: Array, inverse: Array, known: bool, count: float
) -> bool:
    """Give a lane new statistics; its V⁻¹ is derived into `inverse` unless that is known already.

    Where nothing is new, nothing is derived: a federation of one stays what a lone agent is, bit for bit.
    Returns whether `inverse` holds the inverse of `packed` now.
    """
    lanes = minds.radius.shape[1]
    block, l = lane // lanes, lane % lanes
    q, dimension = packed.shape[0], inverse.shape[0]
    minds.inside[block, l] = count
    minds.growth[block, l] = 0.0
    same = True
    for k in range(q):
        same = same and minds.statistics[block, k, l] == packed[k, 0]
    if same:
        return known
    if not known:
        derive(packed, belief.regulariser, inverse)
    for k in range(q):
        minds.statistics[block, k, l] = packed[k, 0]
    for i in range(dimension):
        for j in range(dimension):
            minds.inverse[block, i, j, l] = inverse[i, j, 0]
    return True


@glue
def share(minds: Minds, sharing: Sharing, belief: Belief, syncs: Counts, agents: int, t: int) -> None:
    """Synchronise every seed that is due at the end of round t."""
    if minds.own.shape[1] == 0 or (sharing.threshold == 0.0 and not sharing.due[t]):
        return
    q, lanes = minds.statistics.shape[1], minds.statistics.shape[2]
    dimension = minds.estimate.shape[1]
    packed, inverse = np.empty((q, 1)), np.empty((dimension, dimension, 1))
    for seed in range(syncs.shape[0]):
        if not is_due(minds, sharing, syncs, agents, seed, t):
            continue
        release = syncs[seed]
        total, count = np.zeros(q), 0.0
        for i in range(agents):
            lane = seed * agents + i
            count += minds.observed[lane // lanes, lane % lanes]
            for k in range(q):
                total[k] += minds.own[lane // lanes, k, lane % lanes]
                if sharing.decide_from == OWN_RELEASED:
                    total[k] += sharing.noise[lane, release, k]
        if sharing.decide_from == OWN_RELEASED:
            share_with_own(minds, sharing, belief, total, count, seed * agents, agents, release)
        else:
            if sharing.private:
                for k in range(q):
                    total[k] += sharing.noise[seed, release, k]
                lift(total, dimension, sharing.shift[release])
            packed[:, 0] = total
            known = False
            for i in range(agents):
                known = adopt(minds, belief, seed * agents + i, packed, inverse, known, count)
        syncs[seed] += 1
        sharing.last[seed] = t + 1


@glue
def share_with_own(
    minds: Minds,
    sharing: Sharing,
    belief: Belief,
    total: Array,
    count: float,
    first: int,
    agents: int,
    release: int,
) -> None:
    """`own+released`: each agent's exact statistics, and the others' noisy ones by their worth."""
    q, lanes = minds.statistics.shape[1], minds.statistics.shape[2]
    dimension = minds.estimate.shape[1]
    packed, inverse, others = np.empty((q, 1)), np.empty((dimension, dimension, 1)), np.empty(q)
    radius = practical_radius(
        count,
        dimension,
        belief.regulariser,
        belief.noise_sd,
        belief.failure,
        belief.parameter_norm,
        belief.scale,
    )
    for i in range(agents):
        lane = first + i
        block, l = lane // lanes, lane % lanes
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
        adopt(minds, belief, lane, packed, inverse, False, own + weight * (count - own))
