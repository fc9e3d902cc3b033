"""The black-box audit: tell two neighbouring worlds apart by what is released, and count how often it works.

Two worlds differ in one record of one leaf; all else is empty. What the record does to each release is
taken from the real privatizer (clip, leaf, sum), run in both worlds with the same noise; what hides it is
the mechanism's own noise stream, run once with thousands of columns, each of them one run. A linear
discriminant learnt on half of the runs is tested on the other half, and Clopper–Pearson turns its errors
into a lower bound on μ and on ε that holds for any attack, however it was chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedfairx.core.statistics import Array
from fedfairx.privacy.bounding import Bounds
from fedfairx.privacy.factors import Integers
from fedfairx.privacy.mechanisms import Gaussian
from fedfairx.privacy.noise import SimulatedNoise
from fedfairx.privacy.privatizer import Privatizer, StreamPrivatizer

__all__ = ["Attack", "attack"]

# Records come in too large by this factor; a privatizer that clips makes the worst allowed pair of them.
OVERSIZE = math.sqrt(5.0)
# Work of one audit, in columns × releases: about ten seconds.
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
    mechanism: Gaussian,
    *,
    bounds: Bounds,
    dimension: int,
    runs: int,
    seed: int,
    error_rate: float,
    privatizer: Callable[..., Privatizer] = StreamPrivatizer,
) -> tuple[Attack, ...]:
    """Attacks on the first, a middle and the last leaf; all bounds hold together but for `error_rate`."""
    scale = bounds.entry_scale(dimension)
    horizon = horizon_for(mechanism, columns=2 * runs * _entries_touched(bounds, dimension))
    # The middle leaf is an odd one off the centre, so that it is the first of no large block.
    leaves = sorted({1, min(horizon, (5 * horizon // 8) | 1), horizon})
    effects = {
        leaf: data_effect(
            mechanism, bounds=bounds, dimension=dimension, leaf=leaf, horizon=horizon, privatizer=privatizer
        )
        for leaf in leaves
    }
    watched = {leaf: _watched(leaf, horizon) for leaf in leaves}
    numbers = np.unique(np.concatenate(list(watched.values())))
    # ⟨release, Δ⟩ in the geometry of the noise, Δ being what the record does to the statistics.
    weights = effects[1][0] / scale**2
    noise = _noise(mechanism, scale, weights, numbers, runs=2 * runs, seed=seed)
    results = []
    for leaf in leaves:
        features = noise[np.searchsorted(numbers, watched[leaf])].T
        shift = effects[leaf][watched[leaf] - 1] @ weights
        worlds = features[:runs], features[runs:] + shift
        results.append(_tell_apart(*worlds, mechanism.delta, leaf=leaf, error_rate=error_rate / len(leaves)))
    return tuple(results)


def horizon_for(mechanism: Gaussian, *, columns: int) -> int:
    """Releases that an audit of so many columns runs: all of them where it can."""
    compact = mechanism.factor.memory(1).vectors() is not None
    longest = int(_BUDGET / columns) if compact else _HISTORY_HORIZON
    return min(mechanism.releases, max(64, longest))


def data_effect(
    mechanism: Gaussian,
    *,
    bounds: Bounds,
    dimension: int,
    leaf: int,
    horizon: int,
    privatizer: Callable[..., Privatizer] = StreamPrivatizer,
) -> Array:
    """(horizon, q): what changing one record of `leaf` does to each release of the real privatizer."""
    worlds = []
    for context, reward in bounds.worst_pair(dimension):
        agent = privatizer(dimension, mechanism=mechanism, bounds=bounds, noise=SimulatedNoise(0))
        releases = []
        for number in range(1, horizon + 1):
            if number == leaf and (context.any() or reward):
                agent.add(OVERSIZE * context, OVERSIZE * reward)
            releases.append(agent.release().packed)
        worlds.append(np.array(releases))
    difference = worlds[0] - worlds[1]
    # The grid's rounding may differ between the worlds by one step; that isn't the data's doing.
    difference[np.abs(difference) < 1e-5 * mechanism.base_sd] = 0.0
    return difference


def _entries_touched(bounds: Bounds, dimension: int) -> int:
    (x, y), (other_x, other_y) = bounds.worst_pair(dimension)
    gram = np.outer(x, x) - np.outer(other_x, other_x)
    return int(np.count_nonzero(np.triu(gram)) + np.count_nonzero(x * y - other_x * other_y))


def _watched(leaf: int, horizon: int) -> Integers:
    """Release numbers to look at: near the leaf, further off, at the ends of the tree's nodes, and evenly."""
    numbers = {leaf - 1, leaf, horizon, *np.linspace(leaf, horizon, _EVENLY).astype(int).tolist()}
    for level in range(horizon.bit_length()):
        size = 1 << level
        end = -(-leaf // size) * size
        numbers |= {end, end - size, leaf + size, leaf + size - 1, leaf - size}
    return np.array(sorted(number for number in numbers if 1 <= number <= horizon))


def _noise(
    mechanism: Gaussian, scale: Array, weights: Array, numbers: Integers, *, runs: int, seed: int
) -> Array:
    """(len(numbers), runs): ⟨noise, Δ⟩ at those releases, from the stream that agents use."""
    generator = np.random.default_rng([seed, 1])
    wanted = set(numbers.tolist())
    entries = np.flatnonzero(weights)
    stream = mechanism.stream(
        lambda _number, count: generator.standard_normal(count), entry_scale=np.repeat(scale[entries], runs)
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
