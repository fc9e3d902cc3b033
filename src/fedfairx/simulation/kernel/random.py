"""Counter-based random numbers: number c of a stream is a hash of (key, c), independent of order.

So contexts, noise and draws depend on the seed, the agent and the round alone: runs of different algorithms
are paired, and neither the number of workers nor the order of work can change a byte. For simulation only,
never for privacy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfairx.core.splitmix import GOLDEN, uniform_of
from fedfairx.lanes.decorators import stage
from fedfairx.lanes.rows import Rows
from fedfairx.lanes.vector import fma, sqrt
from fedfairx.lanes.vector_math import cosine_of_turn, log

Keys = NDArray[np.uint64]

ONE, TWO = np.uint64(1), np.uint64(2)

STREAMS = (
    "contexts",
    "actions",
    "rewards",
    "delays",
    "drift",
    "parameter",
    "privacy",
    "thompson",
    "distance",
)


def stream_key(seed: int, stream: str) -> int:
    """The 64-bit key of one stream of a seed."""
    sequence = np.random.SeedSequence(seed, spawn_key=(STREAMS.index(stream),))
    return int(sequence.generate_state(1, np.uint64)[0])


def generator(seed: int, stream: str, part: int = 0) -> np.random.Generator:
    """A NumPy generator for what is drawn once, outside the round loop."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(STREAMS.index(stream), part)))


@stage
def uniform(key: np.uint64, counter: np.uint64) -> float:
    """Number `counter` of the stream `key`, uniform on [0, 1); of many streams where the two are Words."""
    return uniform_of(key + GOLDEN * (counter + ONE))


@stage
def normal(key: np.uint64, counter: np.uint64) -> float:
    """Number `counter` of the stream `key`, standard normal (Box and Muller 1958)."""
    radius = uniform(key, TWO * counter)
    angle = uniform(key, TWO * counter + ONE)
    return sqrt(-2.0 * log(1.0 - radius)) * cosine_of_turn(angle)


@stage
def fill_uniform(key: np.uint64, counter: np.uint64, scale: float, columns: int, block: Rows) -> None:
    """The first `columns` of block ← scale · uniforms, number counter + row·columns + column of `key`."""
    state = key + GOLDEN * (counter + ONE)
    for i in range(block.shape[0]):
        for j in range(columns):
            block[i, j] = scale * uniform_of(state)
            state = state + GOLDEN


@stage
def normalise_rows(columns: int, block: Rows) -> None:
    """Scale the first `columns` of every row of every lane to norm 1."""
    for i in range(block.shape[0]):
        square = 1e-300
        for j in range(columns):
            square = fma(block[i, j], block[i, j], square)
        scale = 1.0 / sqrt(square)
        for j in range(columns):
            block[i, j] = scale * block[i, j]
