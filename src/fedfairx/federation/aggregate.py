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

from fedfairx.arrays import Array
from fedfairx.core import pooling, weighing
from fedfairx.core.statistics import dimension_of
from fedfairx.errors import require


def combine(releases: Iterable[Array], size: int) -> Array:
    """The sum of packed statistics, in the order given (the same order gives the same bits)."""
    total = np.zeros(size)
    for packed in releases:
        total += packed
    return total


def lift(packed: Array, shift: float) -> Array:
    """A copy with `shift` added to the Gram diagonal, and negative eigenvalues then raised to zero."""
    lifted = packed.copy()
    pooling.lift(lifted, dimension_of(packed), shift)
    return lifted


def weigh(packed: Array, *, noise_sd: float, size: float, variance: float) -> Array:
    """A copy, weighed direction by direction beside its noise: see `core.weighing`. `size` is E‖θ‖²."""
    d = dimension_of(packed)
    weighed = packed.copy()[:, None]
    kappa, floor = weighing.doubt(noise_sd, size, variance, d), weighing.noise_floor(noise_sd, d)
    room = np.empty((d, d, 1)), np.empty((d, d + 1, 1))
    weighing.quieten(None, weighed, floor, *room)
    weighing.weigh(None, weighed, kappa, *room)
    return weighed[:, 0]


def worth(
    own: Array, *, ratio: float, noise_sd: float, radius: float, regulariser: float, parameter_norm: float
) -> float:
    """The weight of the others' noisy statistics beside an agent's own: see `core.pooling.worth`."""
    return float(pooling.worth(own, dimension_of(own), ratio, noise_sd, radius, regulariser, parameter_norm))


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
