"""Uniform numbers by the hash of SplitMix64 (Steele et al. 2014), which passes BigCrush; not for privacy."""

from __future__ import annotations

import numpy as np

from fedfairx.lanes.decorators import stage
from fedfairx.lanes.vector import from_bits

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # from one state of SplitMix64 to the next
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
S30, S27, S31, S12 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(12)
ONE_POINT = np.uint64(1023 << 52)  # the bits of 1.0


@stage
def uniform_of(state: np.uint64) -> float:
    """The number on [0, 1) that belongs to a state; many numbers where it is Words."""
    z = (state ^ (state >> S30)) * MIX_1
    z = (z ^ (z >> S27)) * MIX_2
    z = z ^ (z >> S31)
    # 52 random bits after the point of a number in [1, 2), less 1.
    return from_bits((z >> S12) | ONE_POINT) - 1.0
