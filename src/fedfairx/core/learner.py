"""A learner's memory layout and its update by an observation, for a live agent or a block of lanes.

A live agent's memory is one flat array of floats, because passing each array to compiled code takes about as
long as a decision. The simulator's has the same layout with Vectors: a block of agents, one in each lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedfairx.core.confidence import Confidence, practical_radius
from fedfairx.core.estimate import grow
from fedfairx.core.merit_kernels import MERIT_ROWS
from fedfairx.core.posterior import Prior
from fedfairx.core.rules import OPTIMISM
from fedfairx.core.statistics import add
from fedfairx.lanes.decorators import layout, stage
from fedfairx.lanes.linalg import inner, multiply
from fedfairx.lanes.rows import Rows, cut, floats, vectors
from fedfairx.lanes.vector import fma
from fedfairx.util.arrays import Array

# A learner's numbers: what it has learnt,
RIDGE = 0  # λ inside V
COUNT = 1  # observations inside V
OBSERVED = 2  # number of its own rewards
SQUARES = 3  # sum of their squares
GROWTH = 4  # 1 + xᵀV⁻¹x of the last observation: the growth of det V
REWARD = 5  # the reward being learnt
NOISE_VARIANCE, PRIOR_VARIANCE = range(6, 8)  # σ² and sd² of a posterior, as learnt so far; else 0
# and its assumptions: the constants of `Confidence` and of `Prior`.
NOISE_SD, FAILURE, PARAMETER_NORM, SCALE = range(8, 12)
ASSUMED_NOISE, ASSUMED_VARIANCE, ASSUMED_MEAN, LEARNING, LEARNING_MEAN, MEAN_VARIANCE, CENTRE = range(12, 19)
NUMBERS = 19

#: How far an intercept may be from its first guess, in sizes of rewards. Shares then do not depend on it.
FAR = 1e15


class Learner(NamedTuple):
    """The statistics that decisions come from, what is derived from them, and the current observation."""

    numbers: Rows  # (NUMBERS,)
    radius: Rows  # (1,) √β
    merit: Rows  # (MERIT_ROWS,)
    mean: Rows  # (d,) of the prior
    common: Rows  # (d,) 1 in the coordinates whose mean is learnt, which have one mean; else 0
    statistics: Rows  # (q,) packed Gram and moment, without the regulariser
    inverse: Rows  # (d, d) V⁻¹
    estimate: Rows  # (d,) θ̂, or the θ that a decision uses
    chosen: Rows  # (d,) the context being learnt
    product: Rows  # (d,) V⁻¹x


@layout
def learner(memory: Rows, dimension: int) -> tuple[Learner, Rows]:
    """Cut a learner off flat rows; return it and the remaining rows."""
    numbers, rest = cut(memory, NUMBERS)
    radius, rest = cut(rest, 1)
    merit, rest = cut(rest, MERIT_ROWS)
    mean, rest = cut(rest, dimension)
    common, rest = cut(rest, dimension)
    statistics, rest = cut(rest, dimension * (dimension + 3) // 2)
    inverse, rest = cut(rest, dimension, dimension)
    estimate, rest = cut(rest, dimension)
    chosen, rest = cut(rest, dimension)
    product, rest = cut(rest, dimension)
    return Learner(numbers, radius, merit, mean, common, statistics, inverse, estimate, chosen, product), rest


def start(
    memory: Array,
    dimension: int,
    *,
    merits: Array,
    rule: str,
    confidence: Confidence,
    priors: Sequence[Prior],
    learning: bool,
    common: Sequence[int] = (),
    centre: float = 0.0,
) -> Learner:
    """Initialise a learner in zeros, (size,) for one lane or (size, n) for a block.

    `merits` is a `merit_kernels.table`. Optimism uses `confidence`, other rules `priors`, one for each lane.
    `learning=False` keeps σ and sd fixed even if the prior would learn them. In the coordinates of `common`
    the mean is learnt as well, if the prior has one mean for all: see `marginal_likelihood`. `centre` is the
    first guess of an intercept, around which rewards are released.
    """
    state, _ = learner(floats(memory) if memory.ndim == 1 else vectors(memory), dimension)
    numbers = state.numbers
    numbers[RIDGE] = confidence.regulariser
    numbers[NOISE_SD], numbers[FAILURE] = confidence.noise_sd, confidence.failure
    numbers[PARAMETER_NORM], numbers[SCALE] = confidence.parameter_norm, confidence.scale
    if rule != OPTIMISM:
        ridge, sd, noise_sd, learns = np.array([(p.ridge, p.sd, p.noise_sd, p.learn) for p in priors]).T
        means = np.array([prior.means(dimension) for prior in priors]).T
        one_mean = np.array([not isinstance(prior.mean, tuple) for prior in priors])
        if memory.ndim == 1:
            ridge, sd, noise_sd, learns, means = ridge[0], sd[0], noise_sd[0], learns[0], means[:, 0]
            one_mean = one_mean[0]
        numbers[RIDGE], numbers[NOISE_VARIANCE], numbers[PRIOR_VARIANCE] = ridge, ridge * sd**2, sd**2
        numbers[ASSUMED_VARIANCE], numbers[ASSUMED_NOISE] = sd**2, noise_sd**2
        numbers[LEARNING] = learns * learning
        numbers[ASSUMED_MEAN], numbers[CENTRE] = means[0] + centre, centre
        numbers[LEARNING_MEAN] = learns * learning * one_mean * bool(len(common))
        far = FAR if learning and len(common) < dimension else 1.0  # noise alone must not make it large
        numbers[MEAN_VARIANCE] = far**2 * (sd**2 + noise_sd**2)
        for j in range(dimension):
            state.mean[j] = means[j]
        for j in common:
            state.common[j] = 1.0
            state.mean[j] = means[j] + centre
    for row in range(MERIT_ROWS):
        state.merit[row] = merits[row] if memory.ndim == 2 else merits[row, 0]
    for j in range(dimension):
        state.inverse[j, j] = 1.0 / numbers[RIDGE]
    return state


@stage
def radius_of(numbers: Rows, lane: int, count: float, dimension: int) -> float:
    """√β of one lane with `count` observations inside V. numbers (NUMBERS, n) `by_lane`."""
    return practical_radius(
        count,
        dimension,
        numbers[RIDGE, lane],
        numbers[NOISE_SD, lane],
        numbers[FAILURE, lane],
        numbers[PARAMETER_NORM, lane],
        numbers[SCALE, lane],
    )


@stage
def learn(state: Learner) -> None:
    """Add the current observation of every lane to its statistics and its V⁻¹; O(d²).

    Alg. 1 lines 9 and 27. A zero context and reward change nothing.
    """
    numbers = state.numbers
    multiply(state.inverse, state.chosen, state.product)
    square = inner(state.product, state.chosen)
    numbers[GROWTH] = grow(state.inverse, state.chosen, state.product, square)
    numbers[SQUARES] = fma(numbers[REWARD], numbers[REWARD], numbers[SQUARES])
    add(state.statistics, state.chosen, numbers[REWARD])
