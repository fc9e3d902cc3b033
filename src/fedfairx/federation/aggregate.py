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

from fedfairx.core.statistics import Array, diagonal_entries, dimension_of, pack, unpack
from fedfairx.errors import require

#: Share of the radius that shows in the policy, and steps in which a weight is sought.
OPTIMISM = 0.8
WEIGHTS = 41


def combine(releases: Iterable[Array], size: int) -> Array:
    """The sum of packed statistics, in the order given (the same order gives the same bits)."""
    total = np.zeros(size)
    for packed in releases:
        total += packed
    return total


def lift(packed: Array, shift: float) -> Array:
    """Add `shift` to the Gram diagonal, then raise negative eigenvalues to zero."""
    lifted = packed.copy()
    lifted[diagonal_entries(dimension_of(packed))] += shift
    gram, moment = unpack(lifted)
    values, vectors = np.linalg.eigh(gram)
    if values[0] >= 0.0:
        return lifted
    return pack((vectors * np.maximum(values, 0.0)) @ vectors.T, moment)


def worth(
    own: Array, *, ratio: float, noise_sd: float, radius: float, regulariser: float, parameter_norm: float
) -> float:
    """The weight in [0, 1] that the others' noisy statistics deserve beside an agent's own exact ones.

    `own` is the agent's packed statistics; the others are taken to hold `ratio` times as much in every
    direction. In a direction where V = λ + a (1 + w·ratio), optimism costs about `OPTIMISM`·√β/√V, and the
    noise moves θ̂ by about w s √(1 + 2c²) / V: the vector's own noise, and the matrix's times θ. The weight is
    the one that makes the sum of the two, over all directions, least.

    One weight for all directions, and not one for each: what is known much better in one direction turns
    the optimism into the others, where it costs fairness (docs/privacy.md has the figures).
    """
    gram, _ = unpack(own)
    information = np.maximum(np.linalg.eigvalsh(gram), 0.0)
    weights = np.linspace(0.0, 1.0, WEIGHTS)[:, None]
    known = regulariser + information * (1.0 + weights * ratio)
    spoilt = noise_sd * math.sqrt(1.0 + 2.0 * parameter_norm**2)
    cost = (OPTIMISM * radius / np.sqrt(known) + weights * spoilt / known).sum(axis=1)
    return float(weights[int(np.argmin(cost)), 0])


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
