"""Why an action has its share: the contribution of each feature to its log merit.

A share is in proportion to merit, so ln(share) less its mean over the actions of a decision is the log merit
less its mean. For the exponential merit f(μ) = e^{cμ} log merit is a sum over features: c θ_j x_j at a
parameter θ or, in expectation over a posterior, c θ̂_j x_j + ½ c² x_j (Σx)_j · s²/(s² + xᵀΣx) with Σ the
posterior's covariance and s² where uncertainty saturates. The second part is what uncertainty adds. Of other
merits only the expected reward is a sum, Σ_j θ_j x_j, and so contributions are to that.

θ is stored with a decision, and Σ is not. While Σ is still that of the decision, which its shares show, the
second part is split by feature as well. Later, the whole of it follows from the shares.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedfairx.core.merit import Exponential, Merit
from fedfairx.core.merit_kernels import most_variance
from fedfairx.core.slates import Weights, exposures_of
from fedfairx.util.arrays import Array

_SAME = 1e-9  # the largest difference between shares by the same model
_SMALLEST = 1e-12  # a share above the minimum, below which its digits are lost


class Contributions(NamedTuple):
    """Of K actions, each less the mean over all of them."""

    features: Array  # (K, d) to log merit or, unless `adding`, to the expected reward
    uncertainty: Array | None  # (K,) to log merit; None if there is none, or if it can't be known
    by_feature: Array | None  # (K, d) the same, split
    log_merit: Array  # (K,) NaN where it can't be known
    adding: bool  # whether the contributions add up to log merit


def contributions(
    means: Array,
    policy: Array,
    merit: Merit,
    *,
    variances: Array | None = None,
    expecting: bool = True,
    minimum_share: float = 0.0,
    weights: Weights = (1.0,),
) -> Contributions:
    """Explain a policy (K,), or exposures for slots of these weights, by means θ_j x_j (K, d).

    variances: x_j (Σx)_j (K, d) by today's covariance; used if it gives this very policy.
    expecting: whether merit is its expectation over the posterior, and not its value at θ.

    >>> found = contributions(np.array([[0.3], [0.1]]), np.array([0.75, 0.25]), Exponential(5.0))
    >>> found.features.tolist(), found.uncertainty.round(3).tolist()
    ([[0.5], [-0.5]], [0.049, -0.049])
    """
    stored = _centred(_log_merits(policy, minimum_share, weights))
    if not isinstance(merit, Exponential):
        return Contributions(_centred(means), None, None, stored, adding=False)
    parts = merit.steepness * means
    features, logs = _centred(parts), parts.sum(axis=1)
    if not expecting:
        return Contributions(features, None, None, _centred(logs), adding=True)
    if variances is not None:
        most = most_variance(merit)
        spread = 0.5 * merit.steepness**2 * variances * most / (most + variances.sum(axis=1, keepdims=True))
        logs = logs + spread.sum(axis=1)
        if np.abs(_policy(logs, minimum_share, weights) - policy).max() < _SAME:
            split = _centred(spread)
            return Contributions(features, split.sum(axis=1), split, _centred(logs), adding=True)
    return Contributions(features, stored - features.sum(axis=1), None, stored, adding=True)


def _centred(values: Array) -> Array:
    return np.asarray(values - values.mean(axis=0))


def _policy(logs: Array, minimum_share: float, weights: Weights) -> Array:
    """Return the exposures (K,) by log merits."""
    due, arms, total = exposures_of(logs[None], np.array([weights]))[0], logs.size, sum(weights)
    return np.asarray(min(minimum_share, 1.0 / arms) * total + max(1.0 - arms * minimum_share, 0.0) * due)


def _log_merits(policy: Array, minimum_share: float, weights: Weights) -> Array:
    """Return log merits (K,) up to a constant; NaN where slots or the minimum share hide them.

    Where k actions fill the first k slots, nobody knows by how much they deserve them.
    """
    unknown = np.full(policy.size, np.nan)
    rest = 1.0 - policy.size * minimum_share
    if rest <= 0.0:
        return unknown
    due = (policy - minimum_share * sum(weights)) / rest
    room = np.cumsum(weights)[: policy.size]
    given = np.cumsum(np.sort(due)[::-1])[: room.size]
    filled = np.abs(given - room) < _SAME * room[-1]
    if filled[:-1].any() or not (due > _SMALLEST * minimum_share).all():
        return unknown
    return np.log(due)
