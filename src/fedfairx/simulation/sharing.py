"""The end of a round: the seeds that are due synchronise (Alg. 1 lines 10 to 25).

The same as `federation.aggregate` and `Agent.absorb`, on the simulator's arrays. Where every agent decides
from the same sum, the noise of the sum is drawn as one: m independent Gaussians add up to one of √m times
the sd.
"""

from __future__ import annotations

import math

import numpy as np

from fedfairx.core.compile import allocating_stage, glue, stage
from fedfairx.core.confidence import practical_radius
from fedfairx.core.eigen import jacobi
from fedfairx.core.estimate import derive
from fedfairx.core.statistics import Array
from fedfairx.federation.aggregate import OPTIMISM, WEIGHTS
from fedfairx.simulation.state import OWN_RELEASED, Belief, Counts, Minds, Sharing


@allocating_stage
def positive(packed: Array, dimension: int) -> bool:
    """Whether the Gram matrix is positive definite (Cholesky goes through)."""
    factor = np.empty((dimension, dimension))
    entry = 0
    for i in range(dimension):
        for j in range(i, dimension):
            factor[j, i] = packed[entry]
            entry += 1
    for i in range(dimension):
        for j in range(i + 1):
            s = factor[i, j]
            for k in range(j):
                s -= factor[i, k] * factor[j, k]
            if i == j:
                if not s > 0.0:
                    return False
                factor[i, i] = np.sqrt(s)
            else:
                factor[i, j] = s / factor[j, j]
    return True


@allocating_stage
def gram_of(packed: Array, dimension: int) -> Array:
    """The (d, d) Gram matrix of packed statistics."""
    gram = np.empty((dimension, dimension))
    entry = 0
    for i in range(dimension):
        for j in range(i, dimension):
            gram[i, j] = packed[entry]
            gram[j, i] = packed[entry]
            entry += 1
    return gram


@stage
def set_spectrum(packed: Array, values: Array, vectors: Array) -> None:
    """Write Σ_k values_k v_k v_kᵀ into the Gram part of packed statistics."""
    dimension = values.shape[0]
    entry = 0
    for i in range(dimension):
        for j in range(i, dimension):
            packed[entry] = 0.0
            for k in range(dimension):
                packed[entry] += values[k] * vectors[i, k] * vectors[j, k]
            entry += 1


@allocating_stage
def lift(packed: Array, dimension: int, shift: float) -> None:
    """`federation.aggregate.lift`, in place."""
    entry = 0
    for i in range(dimension):
        packed[entry] += shift
        entry += dimension - i
    if positive(packed, dimension):
        return
    gram, vectors, values = gram_of(packed, dimension), np.empty((dimension, dimension)), np.empty(dimension)
    jacobi(gram, vectors)
    for k in range(dimension):
        values[k] = max(gram[k, k], 0.0)
    set_spectrum(packed, values, vectors)


@allocating_stage
def worth(
    own: Array,
    dimension: int,
    ratio: float,
    noise_sd: float,
    radius: float,
    regulariser: float,
    parameter_norm: float,
) -> float:
    """`federation.aggregate.worth`."""
    gram = gram_of(own, dimension)
    jacobi(gram, np.empty((dimension, dimension)))
    spoilt = noise_sd * math.sqrt(1.0 + 2.0 * parameter_norm**2)
    least, weight = math.inf, 0.0
    for step in range(WEIGHTS):
        w = step / (WEIGHTS - 1)
        cost = 0.0
        for k in range(dimension):
            known = regulariser + max(gram[k, k], 0.0) * (1.0 + w * ratio)
            cost += OPTIMISM * radius / math.sqrt(known) + w * spoilt / known
        if cost < least:
            least, weight = cost, w
    return weight


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
