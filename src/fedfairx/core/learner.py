"""What a learner holds, how its memory is laid out, and how it learns: a live agent's, or a block of them.

A live agent's memory is one flat array of floats, since handing an array to compiled code costs about as long
as a whole decision. The simulator's is the same with Vectors: a block of agents, lane by lane.
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

# A learner's numbers: what it knows,
RIDGE = 0  # λ inside V
COUNT = 1  # observations inside V
OBSERVED = 2  # rewards of its own that it has learnt
SQUARES = 3  # the sum of their squares
GROWTH = 4  # 1 + xᵀV⁻¹x of the last observation: what det V grew by
REWARD = 5  # the reward being learnt
NOISE_VARIANCE, PRIOR_VARIANCE = range(6, 8)  # σ² and sd² of a posterior, as they are known now; else 0
# and what it assumed: the constants of `Confidence` and of `Prior`.
NOISE_SD, FAILURE, PARAMETER_NORM, SCALE = range(8, 12)
ASSUMED_NOISE, ASSUMED_VARIANCE, LEARNING = range(12, 15)
NUMBERS = 15


class Learner(NamedTuple):
    """The statistics that decisions come from, what is derived from them, and the observation at hand."""

    numbers: Rows  # (NUMBERS,)
    radius: Rows  # (1,) √β
    merit: Rows  # (MERIT_ROWS,)
    mean: Rows  # (d,) of the prior
    statistics: Rows  # (q,) packed Gram and moment, without the regulariser
    inverse: Rows  # (d, d) V⁻¹
    estimate: Rows  # (d,) θ̂, or what a decision takes for θ
    chosen: Rows  # (d,) the context being learnt
    product: Rows  # (d,) V⁻¹x


@layout
def learner(memory: Rows, dimension: int) -> tuple[Learner, Rows]:
    """The learner at the head of flat rows, and the rows that are left."""
    numbers, rest = cut(memory, NUMBERS)
    radius, rest = cut(rest, 1)
    merit, rest = cut(rest, MERIT_ROWS)
    mean, rest = cut(rest, dimension)
    statistics, rest = cut(rest, dimension * (dimension + 3) // 2)
    inverse, rest = cut(rest, dimension, dimension)
    estimate, rest = cut(rest, dimension)
    chosen, rest = cut(rest, dimension)
    product, rest = cut(rest, dimension)
    return Learner(numbers, radius, merit, mean, statistics, inverse, estimate, chosen, product), rest


def start(
    memory: Array,
    dimension: int,
    *,
    merits: Array,
    rule: str,
    confidence: Confidence,
    priors: Sequence[Prior],
    learning: bool,
) -> Learner:
    """Write into zeros, (size,) of one lane or (size, n) of a block, a learner that has seen nothing.

    `merits` is a `merit_table.table`; `confidence` is optimism's, `priors`, one for each lane, the other
    rules'. `learning` may forbid to learn σ and sd where the prior would allow it.
    """
    state, _ = learner(floats(memory) if memory.ndim == 1 else vectors(memory), dimension)
    numbers = state.numbers
    numbers[RIDGE] = confidence.regulariser
    numbers[NOISE_SD], numbers[FAILURE] = confidence.noise_sd, confidence.failure
    numbers[PARAMETER_NORM], numbers[SCALE] = confidence.parameter_norm, confidence.scale
    if rule != OPTIMISM:
        ridge, sd, noise_sd, learns = np.array([(p.ridge, p.sd, p.noise_sd, p.learn) for p in priors]).T
        means = np.array([prior.means(dimension) for prior in priors]).T
        if memory.ndim == 1:
            ridge, sd, noise_sd, learns, means = ridge[0], sd[0], noise_sd[0], learns[0], means[:, 0]
        numbers[RIDGE], numbers[NOISE_VARIANCE], numbers[PRIOR_VARIANCE] = ridge, ridge * sd**2, sd**2
        numbers[ASSUMED_VARIANCE], numbers[ASSUMED_NOISE] = sd**2, noise_sd**2
        numbers[LEARNING] = learns * learning
        for j in range(dimension):
            state.mean[j] = means[j]
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
    """Take the observation at hand of every lane into its statistics and its V⁻¹; O(d²).

    Alg. 1 lines 9 and 27. A zero context and reward change nothing.
    """
    numbers = state.numbers
    multiply(state.inverse, state.chosen, state.product)
    square = inner(state.product, state.chosen)
    numbers[GROWTH] = grow(state.inverse, state.chosen, state.product, square)
    numbers[SQUARES] = fma(numbers[REWARD], numbers[REWARD], numbers[SQUARES])
    add(state.statistics, state.chosen, numbers[REWARD])
