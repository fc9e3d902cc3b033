"""The black-box audit: tell two neighbouring worlds apart by what is released, and count how often it works.

Two worlds differ in one record of one leaf; all else is empty. The two records are those of the canaries
(`exact_checks.py`) that are furthest apart once the real privatizer has clipped them; what they do to each
release is read off that privatizer, run without noise. What hides it is the mechanism's own stream over the
agents' own keyed noise, run once with thousands of columns, each of them one run. A linear discriminant
learnt on half of the runs is tested on the other half, and Clopper–Pearson turns its errors into a lower
bound on μ and on ε that holds for any attack, however it was chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedfairx.privacy.audit.subject import AuditedConfig, Record
from fedfairx.privacy.mechanisms.factorization import Integers
from fedfairx.privacy.mechanisms.gaussian import Gaussian
from fedfairx.util.arrays import Array

# Work of one audit, in columns × releases: about half a minute.
_BUDGET = 4.0e8
_HISTORY_HORIZON = 512
_EVENLY = 100


@dataclass(frozen=True)
class Attack:
    """Result of the attack on one leaf. `scores` are the test half's, of the two worlds."""

    leaf: int
    mu: float
    epsilon: float
    false_positives: int
    false_negatives: int
    tested: int
    threshold: float
    scores: tuple[Array, Array]


def attack(
    subject: AuditedConfig,
    *,
    pair: tuple[Record | None, Record | None],
    delta: float,
    runs: int,
    seed: int,
    look: int,
    error_rate: float,
) -> tuple[Attack, ...]:
    """Attacks on the first, a middle and the last leaf; all bounds hold together but for `error_rate`."""
    scale = subject.scale
    alone = [subject.sums([[] if record is None else [record]])[0] for record in pair]
    change = np.where(np.abs(alone[0] - alone[1]) > subject.step, alone[0] - alone[1], 0.0)
    # ⟨release, Δ⟩ in the geometry of the noise, Δ being what the record does to the statistics.
    weights = change / scale**2
    horizon = horizon_for(subject.mechanism, columns=2 * runs * int(np.count_nonzero(weights)))
    # The middle leaf is an odd one off the centre, so that it is the first of no large block.
    leaves = sorted({1, min(horizon, (5 * horizon // 8) | 1), horizon})
    watched = {leaf: _watched(leaf, horizon) for leaf in leaves}
    numbers = np.unique(np.concatenate(list(watched.values())))
    noise = _noise(subject, weights, numbers, runs=2 * runs, key=f"{seed}, look {look}, attack")
    results = []
    for leaf in leaves:
        features = noise[np.searchsorted(numbers, watched[leaf])].T
        shift = _effect(subject, pair, leaf=leaf, horizon=horizon)[watched[leaf] - 1] @ weights
        worlds = features[:runs], features[runs:] + shift
        results.append(_tell_apart(*worlds, delta, leaf=leaf, error_rate=error_rate / len(leaves)))
    return tuple(results)


def horizon_for(mechanism: Gaussian, *, columns: int) -> int:
    """Number of releases that an audit of `columns` columns runs: all of them if it can."""
    compact = mechanism.factor.memory(1).vectors() is not None
    longest = int(_BUDGET / columns) if compact else _HISTORY_HORIZON
    return min(mechanism.releases, max(64, longest))


def _effect(
    subject: AuditedConfig, pair: tuple[Record | None, Record | None], *, leaf: int, horizon: int
) -> Array:
    """(horizon, q): what changing one record of `leaf` does to each release of the real privatizer."""
    worlds = []
    for record in pair:
        leaves: list[list[Record]] = [[] for _ in range(horizon)]
        leaves[leaf - 1] = [] if record is None else [record]
        worlds.append(subject.sums(leaves))
    difference = worlds[0] - worlds[1]
    difference[np.abs(difference) < subject.step] = 0.0  # the grid's doing, not the data's
    return np.cumsum(difference, axis=0)


def _watched(leaf: int, horizon: int) -> Integers:
    """Release numbers to observe: near the leaf, further off, at the ends of the tree's nodes, and evenly."""
    numbers = {leaf - 1, leaf, horizon, *np.linspace(leaf, horizon, _EVENLY).astype(int).tolist()}
    for level in range(horizon.bit_length()):
        size = 1 << level
        end = -(-leaf // size) * size
        numbers |= {end, end - size, leaf + size, leaf + size - 1, leaf - size}
    return np.array(sorted(number for number in numbers if 1 <= number <= horizon))


def _noise(subject: AuditedConfig, weights: Array, numbers: Integers, *, runs: int, key: str) -> Array:
    """(len(numbers), runs): ⟨noise, Δ⟩ at those releases, from the stream and the keyed noise of agents."""
    wanted = set(numbers.tolist())
    entries = np.flatnonzero(weights)
    stream = subject.mechanism.stream(
        subject.drawn(key, agent="0"), entry_scale=np.repeat(subject.scale[entries], runs)
    )
    kept = []
    for number in range(1, int(numbers.max()) + 1):
        if number in wanted:
            kept.append(weights[entries] @ stream.next().reshape(entries.size, runs))
        else:
            stream.advance(1)
    return np.array(kept)


def _tell_apart(first: Array, second: Array, delta: float, *, leaf: int, error_rate: float) -> Attack:
    """Learn on the first half of the runs, test on the second; four bounds share the error rate."""
    half = len(first) // 2
    rate = error_rate / 4
    mean = second[:half].mean(axis=0) - first[:half].mean(axis=0)
    spread = np.atleast_2d(np.cov(first[:half], rowvar=False) + np.cov(second[:half], rowvar=False))
    # A ridge far below any noise keeps the direction finite where a broken mechanism leaves no noise at all.
    ridge = 1e-12 * max(float(np.trace(spread)), 1e-300) * np.eye(mean.size)
    direction = np.linalg.solve(spread + ridge, mean)
    learnt = first[:half] @ direction, second[:half] @ direction
    scores = first[half:] @ direction, second[half:] @ direction
    candidates = np.quantile(np.concatenate(learnt), np.linspace(0.002, 0.998, 250))
    guesses = _errors(*learnt, candidates, rate)
    # One threshold serves μ best and another ε; both are fixed before the test half is looked at.
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
    """Upper bounds on the false positives and false negatives of each threshold."""
    positives = len(first) - np.searchsorted(np.sort(first), thresholds, side="right")
    negatives = np.searchsorted(np.sort(second), thresholds, side="right")
    return upper_bound(positives, len(first), error_rate), upper_bound(negatives, len(second), error_rate)


def upper_bound(errors: int | Integers, trials: int, error_rate: float) -> Array:
    """Clopper–Pearson: a bound on the error probability that fails with probability `error_rate` at most."""
    from scipy.special import betaincinv

    count = np.asarray(errors, dtype=np.float64)
    bound = betaincinv(count + 1.0, np.maximum(trials - count, 1e-9), 1.0 - error_rate)
    return np.asarray(np.where(count >= trials, 1.0, bound))


def _mu_bound(alpha: Array, beta: Array) -> Array:
    """μ-GDP forces β ≥ Φ(Φ⁻¹(1−α) − μ), so μ ≥ −Φ⁻¹(α) − Φ⁻¹(β)."""
    from scipy.special import ndtri

    with np.errstate(invalid="ignore"):
        bound = -ndtri(alpha) - ndtri(beta)
    return np.asarray(np.where(np.isnan(bound), -np.inf, bound))


def _epsilon_bound(alpha: Array, beta: Array, delta: float) -> Array:
    """(ε, δ)-DP forces 1 − β ≤ e^ε α + δ, and the same with α and β exchanged."""
    ratios = [(1.0 - delta - b) / a for a, b in ((alpha, beta), (beta, alpha))]
    return np.asarray(np.log(np.maximum(np.maximum(*ratios), 1e-300)))
