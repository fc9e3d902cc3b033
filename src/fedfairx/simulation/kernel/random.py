"""Counter-based random numbers: number c of a stream is a hash of (key, c), independent of order.

So contexts, noise and draws depend on the seed, the agent and the round alone: runs of different algorithms
are paired, and neither the number of workers nor the order of work can change a byte. The hash is that of
SplitMix64 (Steele et al. 2014), which passes BigCrush; for simulation only, never for privacy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfairx.lanes.decorators import stage
from fedfairx.lanes.rows import Rows
from fedfairx.lanes.vector import fma, from_bits, sqrt
from fedfairx.lanes.vector_math import cosine_of_turn, log

Keys = NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
S30, S27, S31, S12 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(12)
ONE, TWO = np.uint64(1), np.uint64(2)
ONE_POINT = np.uint64(1023 << 52)  # the bits of 1.0

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
    return _mixed(key + GOLDEN * (counter + ONE))


@stage
def _mixed(z: np.uint64) -> float:
    """A uniform number from a state of SplitMix64."""
    z = (z ^ (z >> S30)) * MIX_1
    z = (z ^ (z >> S27)) * MIX_2
    z = z ^ (z >> S31)
    # 52 random bits after the point of a number in [1, 2), less 1.
    return from_bits((z >> S12) | ONE_POINT) - 1.0


@stage
def normal(key: np.uint64, counter: np.uint64) -> float:
    """Number `counter` of the stream `key`, standard normal (Box and Muller 1958)."""
    radius = uniform(key, TWO * counter)
    angle = uniform(key, TWO * counter + ONE)
    return sqrt(-2.0 * log(1.0 - radius)) * cosine_of_turn(angle)


@stage
def fill_uniform(key: np.uint64, counter: np.uint64, scale: float, block: Rows) -> None:
    """block (rows, columns) ← scale · uniforms, number counter + row·columns + column of the stream `key`."""
    state = key + GOLDEN * (counter + ONE)
    for i in range(block.shape[0]):
        for j in range(block.shape[1]):
            block[i, j] = scale * _mixed(state)
            state = state + GOLDEN


@stage
def normalise_rows(block: Rows) -> None:
    """Scale every row (over axis 1) of every lane to norm 1."""
    for i in range(block.shape[0]):
        square = 1e-300
        for j in range(block.shape[1]):
            square = fma(block[i, j], block[i, j], square)
        scale = 1.0 / sqrt(square)
        for j in range(block.shape[1]):
            block[i, j] = scale * block[i, j]
