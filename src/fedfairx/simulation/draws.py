"""Counter-based random numbers: number c of a stream is a hash of (key, c), whoever asks and whenever.

So contexts, noise and draws depend on the seed, the agent and the round alone: runs of different algorithms
are paired, and neither the number of workers nor the order of work can change a byte. The hash is that of
SplitMix64 (Steele et al. 2014), which passes BigCrush; for simulation only, never for privacy.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedfairx.core.arithmetic import fma
from fedfairx.core.compile import stage
from fedfairx.core.statistics import Array

Keys = NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
S30, S27, S31, S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
UNIT = 2.0**-53

STREAMS = ("contexts", "actions", "rewards", "delays", "drift", "parameter", "privacy")


def stream_key(seed: int, stream: str) -> int:
    """The 64-bit key of one stream of a seed."""
    sequence = np.random.SeedSequence(seed, spawn_key=(STREAMS.index(stream),))
    return int(sequence.generate_state(1, np.uint64)[0])


def generator(seed: int, stream: str, part: int = 0) -> np.random.Generator:
    """A NumPy generator for what is drawn once, outside the round loop."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(STREAMS.index(stream), part)))


@stage
def uniform(key: np.uint64, counter: np.uint64) -> float:
    """Number `counter` of the stream `key`, uniform on [0, 1)."""
    z = key + GOLDEN * (counter + np.uint64(1))
    z = (z ^ (z >> S30)) * MIX_1
    z = (z ^ (z >> S27)) * MIX_2
    z = z ^ (z >> S31)
    return np.float64(z >> S11) * UNIT


@stage
def normal(key: np.uint64, counter: np.uint64) -> float:
    """Number `counter` of the stream `key`, standard normal (Box and Muller 1958)."""
    radius = uniform(key, np.uint64(2) * counter)
    angle = uniform(key, np.uint64(2) * counter + np.uint64(1))
    return math.sqrt(-2.0 * math.log(1.0 - radius)) * math.cos(2.0 * math.pi * angle)


@stage
def fill_uniform(keys: Keys, base: Keys, scale: float, block: Array) -> None:
    """block (rows, columns, n) ← scale · uniforms, number base[l] + row·columns + column of keys[l]."""
    rows, columns, lanes = block.shape
    for i in range(rows):
        for j in range(columns):
            offset = np.uint64(i * columns + j + 1)
            for l in range(lanes):
                z = keys[l] + GOLDEN * (base[l] + offset)
                z = (z ^ (z >> S30)) * MIX_1
                z = (z ^ (z >> S27)) * MIX_2
                z = z ^ (z >> S31)
                block[i, j, l] = scale * (np.float64(z >> S11) * UNIT)


@stage
def normalise_rows(block: Array, norms: Array) -> None:
    """Scale every row (over axis 1) of every lane to norm 1; norms (n,) is room to work in."""
    rows, columns, lanes = block.shape
    for i in range(rows):
        for l in range(lanes):
            norms[l] = 1e-300
        for j in range(columns):
            for l in range(lanes):
                norms[l] = fma(block[i, j, l], block[i, j, l], norms[l])
        for l in range(lanes):
            norms[l] = 1.0 / math.sqrt(norms[l])
        for j in range(columns):
            for l in range(lanes):
                block[i, j, l] *= norms[l]
