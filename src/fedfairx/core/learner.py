"""What a learner holds, how its memory is laid out, and how it learns: a live agent's, or a block of them.

A live agent's memory is one flat array of floats, since handing an array to compiled code costs about as long
as a whole decision. The simulator's is the same with Vectors: a block of agents, lane by lane.
"""

from __future__ import annotations

from typing import NamedTuple

from fedfairx.arrays import Array
from fedfairx.core.confidence import Confidence, practical_radius
from fedfairx.core.estimate import grow
from fedfairx.core.merit_table import MERIT_ROWS
from fedfairx.core.posterior import Prior, noise_variance
from fedfairx.core.rules import OPTIMISM
from fedfairx.core.statistics import add
from fedfairx.lanes.compile import layout, stage
from fedfairx.lanes.linear import inner, multiply
from fedfairx.lanes.rows import Rows, cut, floats, vectors
from fedfairx.lanes.vector import fma, larger

# A learner's numbers: what it knows,
RIDGE = 0  # λ inside V
COUNT = 1  # observations inside V
OBSERVED = 2  # rewards of its own that it has learnt
SURPRISE = 3  # the sum that σ is learnt from: see `posterior`
GROWTH = 4  # 1 + xᵀV⁻¹x of the last observation: what det V grew by
REWARD = 5  # the reward being learnt
# and what it believes: the constants of `Confidence` and of `Prior`.
NOISE_SD, FAILURE, PARAMETER_NORM, SCALE = range(6, 10)
PRIOR_VARIANCE, ASSUMED_NOISE, LEARNING = range(10, 13)
NUMBERS = 13


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
    prior: Prior,
    learning: bool,
) -> Learner:
    """Write into zeros, (size,) of one lane or (size, n) of a block, a learner that has seen nothing.

    `merits` is a `merit_table.table`; `confidence` is optimism's, `prior` the other rules'. `learning` may
    forbid to learn the noise where the prior would allow it.
    """
    state, _ = learner(floats(memory) if memory.ndim == 1 else vectors(memory), dimension)
    numbers = state.numbers
    numbers[RIDGE] = confidence.regulariser if rule == OPTIMISM else prior.ridge
    numbers[NOISE_SD], numbers[FAILURE] = confidence.noise_sd, confidence.failure
    numbers[PARAMETER_NORM], numbers[SCALE] = confidence.parameter_norm, confidence.scale
    if rule != OPTIMISM:
        numbers[PRIOR_VARIANCE], numbers[ASSUMED_NOISE] = prior.sd**2, prior.noise_sd**2
        numbers[LEARNING] = float(prior.learn_noise and learning)
        for j, mean in enumerate(prior.means(dimension)):
            state.mean[j] = mean
    for row in range(MERIT_ROWS):
        state.merit[row] = merits[row] if memory.ndim == 2 else merits[row, 0]
    for j in range(dimension):
        state.inverse[j, j] = 1.0 / numbers[RIDGE]
    return state


@stage
def variance_of(state: Learner) -> float:
    """σ² as a posterior has it now."""
    numbers = state.numbers
    return noise_variance(
        numbers[PRIOR_VARIANCE],
        numbers[ASSUMED_NOISE],
        numbers[LEARNING],
        numbers[SURPRISE],
        numbers[OBSERVED],
    )


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
    """Take the observation at hand of every lane into its statistics, its V⁻¹ and its surprise; O(d²).

    Alg. 1 lines 9 and 27, and e²/g into what σ is learnt from. A zero context and reward change nothing.
    """
    numbers, dimension = state.numbers, state.chosen.shape[0]
    multiply(state.inverse, state.chosen, state.product)
    square = inner(state.product, state.chosen)
    moment, ridge, error = state.statistics.shape[0] - dimension, numbers[RIDGE], numbers[REWARD]
    for j in range(dimension):  # x·θ̂ = (V⁻¹x)·(b + λ·mean), all of before
        pull = fma(ridge, state.mean[j], state.statistics[moment + j])
        error = fma(-state.product[j], pull, error)
    growth = grow(state.inverse, state.chosen, state.product, square)
    numbers[SURPRISE] = numbers[SURPRISE] + error * error / larger(growth, 1.0)
    numbers[GROWTH] = growth
    add(state.statistics, state.chosen, numbers[REWARD])
