"""The protocol of a factorisation A = BC of prefix sums, and the simplest one, the binary tree.

A is the τ×τ matrix of ones on and below the diagonal: it turns leaves (sums between two releases) into
prefix sums (the releases). A mechanism releases B(Cx + σz) = Ax + σBz with z standard
normal. One record changes one leaf, by at most Δ, so the whole transcript costs μ = Δ·‖C‖₁→₂/σ, also when
leaves are chosen adaptively (Denisov et al. 2022, Thm 2.1), and release t carries noise of sd σ‖B_t‖, B_t
the t-th row.

Every B here is square and lower triangular with ones on its diagonal, so exactly one new base vector z_t
enters at release t, and the noise of release t given all earlier ones has the sd of the base noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedfairx.util.arrays import Array

Integers = NDArray[np.int64]


class Memory(Protocol):
    """Memory of a noise stream: z_1 … z_t in, row t of Bz out."""

    def absorb(self, base: Array) -> None:
        """Add z_t."""

    def output(self) -> Array:
        """Return (Bz)_t for the last t absorbed, as a new array."""


class Factor(Protocol):
    """One factorisation A = BC for a fixed number of releases τ.

    Guarantees:
    - B·C is the prefix-sum matrix; `column_norm` and `row_norm` are those of the coefficients in use.
    - B has ones on its diagonal, and so has C.
    """

    @property
    def releases(self) -> int: ...

    @property
    def column_norm(self) -> float:
        """‖C‖₁→₂, the largest column norm of C."""

    def row_norm(self, number: Integers) -> Array:
        """Return ‖B_t‖ for release numbers t in 1…τ."""

    def parameters(self) -> dict[str, object]:
        """Return what defines the factor besides τ, as plain values, for the digest."""

    def memory(self, width: int) -> Memory:
        """Make an empty memory for vectors of length `width`."""

    def correlate(self, base: Array) -> Array:
        """Return B·base for the first releases, shape (n, width); may overwrite `base`."""

    def decorrelate(self, noise: Array) -> Array:
        """Return B⁻¹·noise for the first releases, shape (n, …); a white-box audit tests it."""


@dataclass(frozen=True)
class Tree:
    """The binary tree: a prefix is the sum of the complete nodes in the binary expansion of its length.

    The node that ends at leaf t and covers as many leaves as the lowest set bit of t says is first needed at
    release t, so it owns z_t: (Bz)_t = z_t + (Bz)_{t − lowbit(t)}.

    Guarantees:
    - A leaf lies in at most 1 + ⌊log₂ τ⌋ nodes that are ever used, and leaf 1 lies in exactly that many.
    - Memory is one vector per set bit of the release number.
    """

    releases: int

    @property
    def levels(self) -> int:
        """ℓ = 1 + ⌊log₂ τ⌋, the levels on which a node is ever complete."""
        return self.releases.bit_length()

    @property
    def column_norm(self) -> float:
        return float(np.sqrt(self.levels))

    def row_norm(self, number: Integers) -> Array:
        return np.sqrt(np.bitwise_count(np.asarray(number, dtype=np.int64)).astype(np.float64))

    def parameters(self) -> dict[str, object]:
        return {"factor": "tree"}

    def memory(self, width: int) -> TreeMemory:
        return TreeMemory(width)

    def correlate(self, base: Array) -> Array:
        # From the top level down: t = 2^j(2i+1) needs t − 2^j = 2^{j+1}·i, whose lowest bit is higher.
        for level in reversed(range(self.levels)):
            step = 1 << level
            rows = base[3 * step - 1 :: 2 * step]
            rows += base[2 * step - 1 :: 2 * step][: len(rows)]
        return base

    def decorrelate(self, noise: Array) -> Array:
        number = np.arange(1, len(noise) + 1)
        before = number - (number & -number)
        padded = np.concatenate([np.zeros_like(noise[:1]), noise])
        return np.asarray(noise - padded[before])


class TreeMemory:
    """The noise of the nodes that make up the present prefix, oldest first."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._number = 0
        self._nodes: list[Array] = []

    def absorb(self, base: Array) -> None:
        # Counting up by one clears the trailing ones of the number: those nodes merge into the new one.
        merged = (~self._number & (self._number + 1)).bit_length() - 1
        del self._nodes[len(self._nodes) - merged :]
        self._nodes.append(base)
        self._number += 1

    def output(self) -> Array:
        return np.asarray(sum(self._nodes, np.zeros(self._width)))
