"""Contexts for users whose arms have no features of their own."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedfairx.core.statistics import Array
from fedfairx.errors import InvalidInput, require

__all__ = ["disjoint"]


def disjoint(context: ArrayLike, arms: int) -> Array:
    """Per-arm contexts (K, K·d) from one shared context (d,): row a holds it in block a, zeros elsewhere.

    Each arm then has its own block of θ, so that arms share nothing: the disjoint linear model of Li et al.
    2010. With the context [1.0] an arm's reward is a number of its own, and the agent's dimension is K.

    >>> disjoint([1.0, 0.5], arms=2)
    array([[1. , 0.5, 0. , 0. ],
           [0. , 0. , 1. , 0.5]])
    """
    whole = isinstance(arms, int | np.integer) and not isinstance(arms, bool)
    require(bool(whole and arms >= 1), "arms", "must be an integer >= 1", arms)
    try:
        shared = np.asarray(context, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput("context must be a (d,) array of numbers, got something else") from None
    fits = shared.ndim == 1 and shared.size >= 1
    require(fits, "context", "must have shape (d,) with d >= 1", f"array of shape {shared.shape}")
    finite = bool(np.isfinite(shared).all())
    require(finite, "context", "must be finite", f"array of shape {shared.shape} with NaN or infinity")
    rows = np.zeros((int(arms), int(arms), shared.size))
    rows[np.arange(int(arms)), np.arange(int(arms))] = shared
    return rows.reshape(int(arms), -1)
