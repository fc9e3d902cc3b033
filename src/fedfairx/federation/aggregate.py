"""From the agents' releases to the shared statistics: sum, shift, floor. All of it post-processing.

The noise of a private release can make the Gram matrix indefinite. One shift, known before any data, is
added to the diagonal of the sum, and what is still negative is floored at zero, so that V = λI + shared has
no eigenvalue below λ. Neither looks at anything but released values: both are free under differential
privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedfairx.core import noise_filter as weighing
from fedfairx.core import pooling
from fedfairx.core.confidence import Confidence
from fedfairx.core.statistics import dimension_of
from fedfairx.errors import require
from fedfairx.lanes.rows import Rows, floats
from fedfairx.util.arrays import Array


def combine(releases: Iterable[Array], size: int) -> Array:
    """The sum of packed statistics, in the order given (the same order gives the same bits)."""
    total = np.zeros(size)
    for packed in releases:
        total += packed
    return total


def lift(packed: Array, shift: float) -> Array:
    """A copy with `shift` added to the Gram diagonal, and negative eigenvalues then raised to zero."""
    lifted = packed.copy()
    pooling.lift(floats(lifted), shift, _room(packed))
    return lifted


def weigh(packed: Array, *, noise_sd: float, size: float, variance: float) -> Array:
    """A copy, weighed direction by direction beside its noise: see `core.weighing`. `size` is E‖θ‖²."""
    d = dimension_of(packed)
    weighed = packed.copy()
    room = floats(np.empty((d, d))), floats(np.empty((d, d + 1)))
    weighing.believe(floats(weighed), noise_sd, size, variance, *room)
    return weighed


def add_by_worth(
    own: Array,
    own_count: float,
    others: Array,
    others_count: float,
    *,
    noise_sd: float,
    shift: float,
    confidence: Confidence,
) -> tuple[Array, float]:
    """An agent's own exact statistics and the others' noisy ones by their worth, and how many records that
    counts for: see `core.pooling`."""
    both = others.copy()
    weight = pooling.add_by_worth(
        floats(own),
        own_count,
        floats(both),
        others_count,
        noise_sd,
        shift,
        confidence.radius(own_count + others_count, dimension_of(own)),
        confidence.regulariser,
        confidence.parameter_norm,
        _room(own),
    )
    return both, own_count + weight * others_count


def _room(packed: Array) -> Rows:
    d = dimension_of(packed)
    return floats(np.empty((2, d, d)))


@dataclass(frozen=True)
class NoiseBounds:
    """What the aggregate's noise stays below, at every release at once, with probability 1 - failure.

    With Υ = sup ‖N_t‖ and a shift of 2Υ on the sum, the noise acts as a regulariser between ρ_min = Υ and
    ρ_max = 3Υ, and the vector's noise costs z = sup ‖h_t‖ / √ρ_min (Shariff and Sheffet 2018, of one agent;
    here of the sum, once).
    """

    matrix: float  # Υ
    vector: float  # sup ‖h_t‖

    @property
    def shift(self) -> float:
        return 2.0 * self.matrix

    @property
    def smallest(self) -> float:
        return self.matrix

    @property
    def largest(self) -> float:
        return 3.0 * self.matrix

    @property
    def vector_cost(self) -> float:
        return self.vector / math.sqrt(self.smallest)


def noise_bounds(*, noise_sd: float, dimension: int, releases: int, failure: float) -> NoiseBounds:
    """Bounds on the noise of an aggregate whose noisiest entry has sd `noise_sd`."""
    require(noise_sd > 0, "noise_sd", "must be > 0", noise_sd)
    matrix = noise_sd * (2.0 * math.sqrt(dimension) + 2.0 * math.sqrt(math.log(2.0 * releases / failure)))
    vector = noise_sd * (math.sqrt(dimension) + math.sqrt(2.0 * math.log(releases / failure)))
    return NoiseBounds(matrix, vector)
