"""Build contexts: disjoint blocks for arms without features, an intercept, scaling to the unit ball."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedfairx.errors import InvalidInput, require
from fedfairx.util.arrays import Array, as_floats


def disjoint(context: ArrayLike, arms: int) -> Array:
    """Per-arm contexts (K, K·d) from one shared context (d,): row a holds it in block a, zeros elsewhere.

    Each arm then has its own block of θ, so that arms share nothing: the disjoint linear model of Li et al.
    2010. With the context [1.0] each arm has its own mean reward, and the agent's dimension is K.

    >>> disjoint([1.0, 0.5], arms=2)
    array([[1. , 0.5, 0. , 0. ],
           [0. , 0. , 1. , 0.5]])
    """
    whole = isinstance(arms, int | np.integer) and not isinstance(arms, bool)
    require(bool(whole and arms >= 1), "arms", "must be an integer >= 1", arms)
    shared = as_floats(context)
    if shared is None:
        raise InvalidInput("context must be a (d,) array of numbers, got another type")
    fits = shared.ndim == 1 and shared.size >= 1
    require(fits, "context", "must have shape (d,) with d >= 1", f"array of shape {shared.shape}")
    finite = bool(np.isfinite(shared).all())
    require(finite, "context", "must be finite", f"array of shape {shared.shape} with NaN or infinity")
    rows = np.zeros((int(arms), int(arms), shared.size))
    rows[np.arange(int(arms)), np.arange(int(arms))] = shared
    return rows.reshape(int(arms), -1)


def intercept(contexts: ArrayLike) -> Array:
    """Append a column of ones to contexts (K, d), so that rewards may differ from 0 where features are 0.

    Contexts become longer; scale them afterwards: `unit_ball(intercept(x), norm=…)`.

    >>> intercept([[0.2], [0.4]])
    array([[0.2, 1. ],
           [0.4, 1. ]])
    """
    rows = _rows(contexts)
    return np.column_stack([rows, np.ones(len(rows))])


def unit_ball(contexts: ArrayLike, *, norm: float) -> Array:
    """Divide contexts (K, d) by `norm`, a known bound on their length; longer ones get length 1.

    `norm` must be chosen without looking at the data where they are private, and be the same in every call:
    what an agent learns is about scaled contexts.

    >>> unit_ball([[3.0, 4.0], [30.0, 40.0]], norm=10.0)
    array([[0.3, 0.4],
           [0.6, 0.8]])
    """
    number = isinstance(norm, int | float | np.number) and not isinstance(norm, bool)
    require(bool(number and 0 < norm < np.inf), "norm", "must be a finite number > 0", norm)
    scaled = _rows(contexts) / float(norm)
    lengths = np.hypot.reduce(scaled, axis=1, keepdims=True)  # which no square can make overflow
    return np.asarray(scaled / np.maximum(lengths, 1.0))


def _rows(contexts: ArrayLike) -> Array:
    """A finite (K, d) array."""
    rows = as_floats(contexts)
    if rows is None:
        raise InvalidInput("contexts must be a (K, d) array of numbers, got another type")
    fits = rows.ndim == 2 and rows.size >= 1
    require(fits, "contexts", "must have shape (K, d) with K, d >= 1", f"array of shape {rows.shape}")
    odd = ~np.isfinite(rows).all(axis=1)
    where = f"array of shape {rows.shape} with NaN or infinity in row {int(odd.argmax())}"
    require(not odd.any(), "contexts", "must be finite", where)
    return rows
