"""The square-root factorisation: B = C = A^{1/2}, lower-triangular Toeplitz.

Its coefficients are those of (1−z)^{-1/2}: f₀ = 1, f_k = f_{k−1}(2k−1)/(2k) (Henzinger & Upadhyay 2023;
Fichtenberger, Henzinger & Upadhyay 2023). No Toeplitz factorisation has a smaller largest sd. A stream
has to store every z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedfairx.privacy.mechanisms.factorization import Integers
from fedfairx.util.arrays import Array

_CHUNK = 512
_COLUMNS = 16


@lru_cache(maxsize=8)
def root_coefficients(count: int) -> Array:
    """Return the first `count` coefficients of (1−z)^{-1/2}, read only."""
    k = np.arange(1, count)
    coefficients = np.concatenate([[1.0], np.cumprod((2.0 * k - 1.0) / (2.0 * k))])
    coefficients.flags.writeable = False
    return coefficients


def inverse_root_coefficients(count: int) -> Array:
    """Return the first `count` coefficients of (1−z)^{1/2}."""
    k = np.arange(1, count)
    return np.concatenate([[1.0], np.cumprod((2.0 * k - 3.0) / (2.0 * k))])


@lru_cache(maxsize=8)
def _sums_of_squares(count: int) -> Array:
    sums = np.cumsum(np.square(root_coefficients(count)))
    sums.flags.writeable = False
    return sums


@dataclass(frozen=True)
class SqrtToeplitz:
    """A = A^{1/2}·A^{1/2}; ‖B_t‖² = S_t = Σ_{k<t} f_k² and ‖C‖² = S_τ.

    Guarantees:
    - Release t carries noise of sd (Δ/μ)·√(S_τ S_t).
    - Memory grows by one vector a release: choose `blt` for long streams on real agents.
    """

    releases: int

    @property
    def column_norm(self) -> float:
        return float(np.sqrt(_sums_of_squares(self.releases)[-1]))

    def row_norm(self, number: Integers) -> Array:
        return np.asarray(np.sqrt(_sums_of_squares(self.releases)[np.asarray(number, dtype=np.int64) - 1]))

    def parameters(self) -> dict[str, object]:
        return {"factor": "sqrt-toeplitz"}

    def memory(self, width: int) -> SqrtToeplitzMemory:
        return SqrtToeplitzMemory(width, self.releases)

    def correlate(self, base: Array) -> Array:
        return _convolve(root_coefficients(self.releases)[: len(base)], base)

    def decorrelate(self, noise: Array) -> Array:
        flat = noise.reshape(len(noise), -1)
        return _convolve(inverse_root_coefficients(len(noise)), flat).reshape(noise.shape)


class SqrtToeplitzMemory:
    """All base vectors so far."""

    def __init__(self, width: int, releases: int) -> None:
        self._releases = releases
        self._history = np.empty((min(64, releases), width))
        self._number = 0

    def absorb(self, base: Array) -> None:
        if self._number == len(self._history):
            longer = np.empty((min(2 * self._number, self._releases), self._history.shape[1]))
            longer[: self._number] = self._history
            self._history = longer
        self._history[self._number] = base
        self._number += 1

    def output(self) -> Array:
        # Not a matrix product: a plain sum over rows gives the same bits every time, on every machine.
        weights = root_coefficients(self._releases)[: self._number][::-1, None]
        total = np.zeros(self._history.shape[1])
        for start in range(0, self._number, _CHUNK):
            rows = slice(start, min(start + _CHUNK, self._number))
            total += (weights[rows] * self._history[rows]).sum(axis=0)
        return total

    def vectors(self) -> None:
        return None

    def load(self, number: int, vectors: Sequence[Array]) -> None:
        raise NotImplementedError  # `vectors` returns none


def _convolve(coefficients: Array, rows: Array) -> Array:
    """Return the first len(rows) rows of the causal convolution, by FFT over some columns at a time."""
    from scipy.fft import irfft, next_fast_len, rfft

    count, width = rows.shape
    length = next_fast_len(2 * count - 1, real=True)
    spectrum = rfft(coefficients, length)
    out = np.empty((count, width))
    for start in range(0, width, _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        # Transposed, so that each transform reads memory in order: twice as fast as along the first axis.
        block = np.ascontiguousarray(rows[:, columns].T)
        out[:, columns] = irfft(rfft(block, length) * spectrum, length)[:, :count].T
    return out
