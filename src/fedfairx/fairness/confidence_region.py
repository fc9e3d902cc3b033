"""Confidence ellipsoid for θ* that holds at all times, from exact sums of records, with no bound on ‖θ*‖.

docs/explanation/exposure-proofs.md has the inequality and the proof. G = Σxxᵀ has eigenvalues g_k, b = Σxy,
and λ = σ²/sd².
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedfairx.util.arrays import Array

_UNSEEN = 1e30  # stands for the width of a direction without data
_ROUNDING = 1e-11  # of the largest eigenvalue: below it a direction counts as without data
_NONE = 1e-7  # of a row's length: as much as that of it in a direction without data is rounding


@dataclass(frozen=True)
class Ellipsoid:
    """{θ̂ + radius · W u : ‖u‖ ≤ 1}."""

    centre: Array  # (d,) θ̂
    root: Array  # (d, d) W, with W Wᵀ = G⁻¹; where that is diagonal, (d,) its diagonal
    radius: float

    @cached_property
    def unseen(self) -> NDArray[np.bool_]:
        """Which columns of a W (d, d) are of directions without data."""
        return np.asarray(np.square(self.root).sum(axis=0) > (0.5 * _UNSEEN) ** 2)

    def rooted(self, directions: Array) -> Array:
        """Multiply directions (..., d) by W."""
        if self.root.ndim == 1:
            return directions * self.root
        rooted = np.asarray(directions @ self.root)
        if self.unseen.any():
            lengths = np.sqrt(np.square(directions).sum(axis=-1, keepdims=True))
            none = np.abs(rooted[..., self.unseen]) <= _NONE * _UNSEEN * lengths
            rooted[..., self.unseen] = np.where(none, 0.0, rooted[..., self.unseen])
        return rooted

    def widths(self, directions: Array) -> Array:
        """Return max |direction · (θ - θ̂)| over the region, for each of directions (..., d)."""
        squares = np.square(self.rooted(directions)).sum(axis=-1)
        return np.asarray(self.radius * np.sqrt(squares))


def region(gram: Array, moment: Array, *, noise_sd: float, error: float, prior_sd: float = 1.0) -> Ellipsoid:
    """Compute the region from G and b. It holds at all times with probability at least 1 - error.

    It is narrowest if `prior_sd` is about the size of a coordinate of θ*, and valid for any θ*.
    """
    regulariser = (noise_sd / prior_sd) ** 2
    diagonal = np.diagonal(gram)
    if np.count_nonzero(gram) == np.count_nonzero(diagonal):  # actions without features
        eigenvalues, vectors, along = diagonal, None, moment
    else:
        eigenvalues, vectors = np.linalg.eigh(gram)
        along = vectors.T @ moment
    eigenvalues = np.maximum(eigenvalues, 0.0)
    seen = eigenvalues > _ROUNDING * max(float(eigenvalues.max()), 1e-300)
    g = np.where(seen, eigenvalues, 1.0)
    r = np.where(seen, along, 0.0)
    spread = noise_sd**2 * (2.0 * math.log(1.0 / error) + float(np.log1p(eigenvalues / regulariser).sum()))
    bias = float((regulariser * r * r / (g * (regulariser + g))).sum())
    root, centre = np.where(seen, 1.0 / np.sqrt(g), _UNSEEN), r / g
    if vectors is not None:
        root, centre = vectors * root, vectors @ centre
    return Ellipsoid(centre, root, math.sqrt(spread + bias))
