"""Why an action has its share: the part of each feature in its log merit, and what it changes in the share.

Every part is a difference from the other actions of the decision. A share is in proportion to merit. For the
exponential merit f(μ) = e^{cμ} log merit is c θ·x at a parameter θ or, in expectation over a posterior,
c θ̂·x + u(x) with u(x) = ½ c² v·s²/(v + s²), v = xᵀΣx, Σ the posterior's covariance and s² where uncertainty
saturates. So a feature has two parts: c θ_j (x_j less its mean over the others), and its part in u(x) less
the mean of the others' u. The latter is no sum over features. It is followed on the straight line from each
of the others to x, along which features change at the same pace (Aumann and Shapley): what all actions have
in common has no part, and parts add up. Of other merits only the expected reward is a sum, Σ_j θ_j x_j.

What a part changes in a share is the share, compared with what it would be if log merit were less by that
part. For c θ_j (x_j - x̄_j) that is the share with the feature at the mean of the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedfairx.core.merit import Exponential, Merit
from fedfairx.core.merit_kernels import most_variance
from fedfairx.core.slates import Weights, exposures_of
from fedfairx.util.arrays import Array, Coordinates

_SAME = 1e-9  # the largest difference between shares by the same model
_SMALLEST = 1e-12  # a share above the minimum, below which its digits are lost
_POINTS = 32  # of a quadrature along a line
MOST_SPLIT = 2_000  # actions whose pairs are compared


class Contributions(NamedTuple):
    """Of K actions and F features, each less the mean of the other actions."""

    features: Array  # (K, F) of log merit or, unless `adding`, of the expected reward
    uncertainty: Array | None  # (K,) of log merit; None if there is none, or if it can't be known
    by_feature: Array | None  # (K, F) the same, split
    log_merit: Array  # (K,) NaN where it can't be known
    adding: bool  # whether the parts add up to log merit


class Spread(NamedTuple):
    """What is needed to split uncertainty by feature.

    owners: (d,) the number of the feature that a column belongs to; -1 for those that all actions share.
    """

    contexts: Array  # (K, d)
    covariance: Array  # (d, d)
    owners: Coordinates


def contributions(
    means: Array,
    policy: Array,
    merit: Merit,
    *,
    spread: Spread | None = None,
    expecting: bool = True,
    minimum_share: float = 0.0,
    weights: Weights = (1.0,),
) -> Contributions:
    """Explain a policy (K,), or exposures for slots of these weights, by features' sums of θ_j x_j (K, F).

    spread: by a covariance that may be of another time; used if it gives this very policy.
    expecting: whether merit is its expectation over the posterior, and not its value at θ.

    >>> parts = contributions(np.array([[0.3], [0.1]]), np.array([0.75, 0.25]), Exponential(5.0))
    >>> parts.features.tolist(), parts.uncertainty.round(3).tolist()
    ([[1.0], [-1.0]], [0.099, -0.099])
    """
    stored = less_others(log_merits(policy, minimum_share, weights))
    if not isinstance(merit, Exponential):
        return Contributions(less_others(means), None, None, stored, adding=False)
    parts = merit.steepness * means
    features, logs = less_others(parts), parts.sum(axis=1)
    if not expecting:
        return Contributions(features, None, None, less_others(logs), adding=True)
    if spread is not None:
        bonus = _bonus(merit, (spread.contexts * (spread.contexts @ spread.covariance)).sum(axis=1))
        logs = logs + bonus
        if np.abs(shares(logs, minimum_share, weights) - policy).max() < _SAME:
            count, unsure = means.shape[1], less_others(bonus)
            split = None if len(means) > MOST_SPLIT and count > 1 else _split(merit, spread, unsure, count)
            return Contributions(features, unsure, split, less_others(logs), adding=True)
    return Contributions(features, stored - features.sum(axis=1), None, stored, adding=True)


def changes(
    log_merits: Array, action: int, parts: Array, *, minimum_share: float = 0.0, weights: Weights = (1.0,)
) -> Array:
    """By what part of itself each of these parts (n,) of its log merit changes the share of an action.

    log_merits: (K,) as in `Contributions`. NaN where the share would be 0 without a part.

    >>> changes(np.array([1.0, -1.0]), 0, np.array([1.0])).round(3).tolist()  # 0.731 instead of 0.5
    [0.462]
    """
    arms = log_merits.size
    logs, moved = log_merits * (arms - 1) / arms, np.array([0.0, *parts])
    if len(weights) == 1:  # one sum over the others is enough
        others = np.logaddexp.reduce(np.delete(logs, action)) - logs[action]
        due = weights[0] / (1.0 + np.exp(np.minimum(others + moved, 700.0)))
        exposures = _at_least(due, arms, minimum_share, weights)
    else:
        rows = np.repeat(logs[None], moved.size, axis=0)
        rows[:, action] -= moved
        exposures = shares(rows, minimum_share, weights)[:, action]
    with np.errstate(divide="ignore", invalid="ignore"):
        change = exposures[0] / exposures[1:] - 1.0
    return np.where(np.isfinite(change), change, np.nan)


def by_owner(columns: Array, owners: Coordinates, count: int) -> Array:
    """Sums (K, `count`) of the columns (K, d) that each feature owns; those of -1 are left out."""
    sums = np.zeros((count + 1, len(columns)))
    np.add.at(sums, owners, columns.T)
    return np.ascontiguousarray(sums[:count].T)


def less_others(values: Array) -> Array:
    """Values of K actions, each less the mean of the K - 1 others; 0 for a single one."""
    arms = len(values)
    return np.asarray((values - values.mean(axis=0)) * (arms / max(arms - 1, 1)))


def shares(logs: Array, minimum_share: float, weights: Weights) -> Array:
    """Return the exposures (…, K) by log merits (…, K)."""
    rows = np.atleast_2d(logs)
    due = exposures_of(rows, np.repeat([weights], len(rows), axis=0)).reshape(logs.shape)
    return _at_least(due, rows.shape[1], minimum_share, weights)


def _at_least(due: Array, arms: int, minimum_share: float, weights: Weights) -> Array:
    """Exposures where every action has the minimum share, and the rest is shared as is due."""
    least = min(minimum_share, 1.0 / arms) * sum(weights)
    return np.asarray(least + max(1.0 - arms * minimum_share, 0.0) * due)


def _bonus(merit: Exponential, variances: Array) -> Array:
    """u, what uncertainty adds to log merit."""
    most = most_variance(merit)
    return np.asarray(0.5 * merit.steepness**2 * variances * most / (most + variances))


def _split(merit: Exponential, spread: Spread, uncertainty: Array, count: int) -> Array:
    """Split the uncertainty (K,) by feature (K, F): the mean over lines from the others to each action.

    On the line from x_b to x_a the j-th part is ∫ u'(v) 2 (x_a - x_b)_j (Σ x(t))_j dt, and (Σ x(t))_j lies
    between (Σ x_b)_j and (Σ x_a)_j. So two integrals for each pair of actions are enough.
    """
    contexts, arms, most = spread.contexts, len(spread.contexts), most_variance(merit)
    if count < 2 or arms == 1:
        return np.repeat(uncertainty[:, None], count, axis=1)  # zeros, where one action is all there is
    products = contexts @ spread.covariance
    inner = products @ contexts.T
    own = np.diagonal(inner)
    from_other, from_own = np.zeros((arms, arms)), np.zeros((arms, arms))
    for point, weight in zip(*np.polynomial.legendre.leggauss(_POINTS), strict=True):
        t = 0.5 * (1.0 + point)
        variance = t**2 * own[:, None] + 2.0 * t * (1.0 - t) * inner + (1.0 - t) ** 2 * own
        slope = 0.5 * weight * (merit.steepness * most / (most + variance)) ** 2  # 2 u'(v) dt
        from_other += (1.0 - t) * slope
        from_own += t * slope
    columns = contexts * (from_other @ products + products * from_own.sum(axis=1)[:, None])
    columns -= from_other @ (contexts * products) + products * (from_own @ contexts)
    parts = by_owner(columns / (arms - 1), spread.owners, count)
    rest = uncertainty - parts.sum(axis=1)  # of the quadrature, far below a digit that is shown
    parts[np.arange(arms), np.abs(parts).argmax(axis=1)] += rest
    return parts


def log_merits(policy: Array, minimum_share: float, weights: Weights) -> Array:
    """Return log merits (K,) up to a constant; NaN where slots or the minimum share hide them.

    Where k actions fill the first k slots, nobody knows by how much they deserve them.
    """
    unknown = np.full(policy.size, np.nan)
    rest = 1.0 - policy.size * minimum_share
    if rest <= 0.0:
        return unknown
    due = (policy - minimum_share * sum(weights)) / rest
    room = np.cumsum(weights)[: policy.size]
    demand = np.cumsum(np.sort(due)[::-1])[: room.size]
    filled = np.abs(demand - room) < _SAME * room[-1]
    if filled[:-1].any() or not (due > _SMALLEST * minimum_share).all():
        return unknown
    return np.log(due)
