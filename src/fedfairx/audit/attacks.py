"""The black-box audit: distinguish two neighbouring worlds by their releases, and count the successes.

The two worlds differ in one record of one leaf; all other leaves are empty. The two records are the canaries
(`exact_checks.py`) that are furthest apart after the real privatizer has clipped them; their effect on the
next releases is read off that privatizer, run without noise. The noise is the mechanism's own stream over
the agents' own keyed noise, run once with thousands of columns, each of them one run. With secure aggregation
it is the sum of the streams of all members that do not collude. A linear discriminant is trained on half of
the runs and tested on the other half, and Clopper–Pearson turns its errors into a lower bound on μ and on ε
that holds for any attack, however it was chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, ndtri

from fedfairx.audit.subject import AuditedConfig, Pair, Record
from fedfairx.privacy.mechanisms.factorization import Integers
from fedfairx.privacy.mechanisms.gaussian import Gaussian
from fedfairx.util.arrays import Array

# Work of one audit, in columns × releases: about half a minute
_BUDGET = 4.0e8
_EVENLY = 100
_FOLLOWING = 8  # releases in which a record's effect is followed; from then on it stays


@dataclass(frozen=True)
class Attack:
    """Result of the attack on one leaf. `scores` are those of the test half, for each world."""

    leaf: int
    mu: float
    epsilon: float
    false_positives: int
    false_negatives: int
    tested: int
    threshold: float
    scores: tuple[Array, Array]


def attack(
    subject: AuditedConfig, *, pair: Pair, delta: float, runs: int, key: str, error_rate: float
) -> tuple[Attack, ...]:
    """Attack the first, a middle and the last leaf; all bounds hold with probability 1 - `error_rate`."""
    scale = subject.scale
    effect = _effect(subject, pair, releases=subject.mechanism.releases)
    # The score is ⟨release, Δ⟩ in the geometry of the noise, Δ being the record's effect on the statistics.
    weights = effect[0] / scale**2
    columns = 2 * runs * int(np.count_nonzero(weights)) * subject.seen
    horizon = horizon_for(subject.mechanism, columns=columns)
    # The middle leaf is odd and off the centre, so that no large block begins with it.
    leaves = sorted({1, min(horizon, (5 * horizon // 8) | 1), horizon})
    watched = {leaf: _watched(leaf, horizon) for leaf in leaves}
    numbers = np.unique(np.concatenate(list(watched.values())))
    noise = _noise(subject, weights, numbers, runs=2 * runs, key=key)
    results = []
    for leaf in leaves:
        features = noise[np.searchsorted(numbers, watched[leaf])].T
        since = watched[leaf] - leaf
        shift = np.where(since < 0, 0.0, effect[np.clip(since, 0, len(effect) - 1)] @ weights)
        worlds = features[:runs], features[runs:] + shift
        results.append(_tell_apart(*worlds, delta, leaf=leaf, error_rate=error_rate / len(leaves)))
    return tuple(results)


def horizon_for(mechanism: Gaussian, *, columns: int) -> int:
    """Return the number of releases that an audit of `columns` columns runs: all of them if possible."""
    return min(mechanism.releases, max(64, int(_BUDGET / columns)))


def _effect(subject: AuditedConfig, pair: Pair, *, releases: int) -> Array:
    """Return (n, q), how changing one record of the first leaf changes each of the first n releases."""
    worlds = []
    for record in pair:
        leaves: list[list[Record]] = [[] for _ in range(min(releases, _FOLLOWING))]
        leaves[0] = [] if record is None else [record]
        worlds.append(subject.sums(leaves))
    difference = worlds[0] - worlds[1]
    difference[np.abs(difference) < subject.step] = 0.0  # caused by the grid, not by the data
    return np.cumsum(difference, axis=0)


def _watched(leaf: int, horizon: int) -> Integers:
    """Release numbers to observe: near the leaf, at the ends of the tree's nodes, and evenly spaced."""
    numbers = {leaf - 1, leaf, horizon, *np.linspace(leaf, horizon, _EVENLY).astype(int).tolist()}
    for level in range(horizon.bit_length()):
        size = 1 << level
        end = -(-leaf // size) * size
        numbers |= {end, end - size, leaf + size, leaf + size - 1, leaf - size}
    return np.array(sorted(number for number in numbers if 1 <= number <= horizon))


def _noise(subject: AuditedConfig, weights: Array, numbers: Integers, *, runs: int, key: str) -> Array:
    """Return (len(numbers), runs) of ⟨noise, Δ⟩, from the agents' stream and keyed noise."""
    wanted = set(numbers.tolist())
    entries = np.flatnonzero(weights)
    scale = np.repeat(subject.scale[entries], runs)
    total = np.zeros((numbers.size, runs))
    for agent in range(subject.seen):
        stream = subject.mechanism.stream(subject.drawn(key, agent=str(agent)), entry_scale=scale)
        scores = []
        for number in range(1, int(numbers.max()) + 1):
            if number in wanted:
                scores.append(weights[entries] @ stream.next().reshape(entries.size, runs))
            else:
                stream.advance(1)
        total += np.array(scores)
    return total


def _tell_apart(first: Array, second: Array, delta: float, *, leaf: int, error_rate: float) -> Attack:
    """Train on the first half of the runs, test on the second; four bounds share the error rate."""
    half = len(first) // 2
    rate = error_rate / 4
    mean = second[:half].mean(axis=0) - first[:half].mean(axis=0)
    spread = np.atleast_2d(np.cov(first[:half], rowvar=False) + np.cov(second[:half], rowvar=False))
    # A ridge far below any noise keeps the direction finite if a broken mechanism adds no noise at all.
    ridge = 1e-12 * max(float(np.trace(spread)), 1e-300) * np.eye(mean.size)
    direction = np.linalg.solve(spread + ridge, mean)
    learnt = first[:half] @ direction, second[:half] @ direction
    scores = first[half:] @ direction, second[half:] @ direction
    candidates = np.quantile(np.concatenate(learnt), np.linspace(0.002, 0.998, 250))
    guesses = _errors(*learnt, candidates, rate)
    # One threshold is best for μ and another for ε; both are fixed before the test half is used.
    threshold = float(candidates[np.argmax(_mu_bound(*guesses))])
    other = float(candidates[np.argmax(_epsilon_bound(*guesses, delta))])
    mu = float(_mu_bound(*_errors(*scores, np.array([threshold]), rate))[0])
    epsilon = float(_epsilon_bound(*_errors(*scores, np.array([other]), rate), delta)[0])
    return Attack(
        leaf=leaf,
        mu=max(0.0, mu),
        epsilon=max(0.0, epsilon),
        false_positives=int((scores[0] > threshold).sum()),
        false_negatives=int((scores[1] <= threshold).sum()),
        tested=len(scores[0]),
        threshold=threshold,
        scores=scores,
    )


def _errors(first: Array, second: Array, thresholds: Array, error_rate: float) -> tuple[Array, Array]:
    """Bound the false positive and false negative rates of each threshold from above."""
    positives = len(first) - np.searchsorted(np.sort(first), thresholds, side="right")
    negatives = np.searchsorted(np.sort(second), thresholds, side="right")
    return upper_bound(positives, len(first), error_rate), upper_bound(negatives, len(second), error_rate)


def upper_bound(errors: int | Integers, trials: int, error_rate: float) -> Array:
    """Clopper–Pearson bound on the error probability; it fails with probability at most `error_rate`."""
    count = np.asarray(errors, dtype=np.float64)
    bound = betaincinv(count + 1.0, np.maximum(trials - count, 1e-9), 1.0 - error_rate)
    return np.asarray(np.where(count >= trials, 1.0, bound))


def _mu_bound(alpha: Array, beta: Array) -> Array:
    """μ-GDP forces β ≥ Φ(Φ⁻¹(1−α) − μ), so μ ≥ −Φ⁻¹(α) − Φ⁻¹(β)."""
    with np.errstate(invalid="ignore"):
        bound = -ndtri(alpha) - ndtri(beta)
    return np.asarray(np.where(np.isnan(bound), -np.inf, bound))


def _epsilon_bound(alpha: Array, beta: Array, delta: float) -> Array:
    """(ε, δ)-DP forces 1 − β ≤ e^ε α + δ, and the same with α and β exchanged."""
    ratios = [(1.0 - delta - b) / a for a, b in ((alpha, beta), (beta, alpha))]
    return np.asarray(np.log(np.maximum(np.maximum(*ratios), 1e-300)))
