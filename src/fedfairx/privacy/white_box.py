"""The white-box audit: with the factorisation known, take the noise apart and look at its pieces.

B⁻¹·(release − truth) must be independent normals of the stated size on every entry. Real privatizers with
real keyed noise are run on random records, some too large; the truth is summed up here, on its own. `data
path` and `calibration` are exact checks; the others are tests, each failing by chance with the
probability `error_rate`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedfairx.core.statistics import Array, diagonal_entries, packed_size
from fedfairx.privacy.black_box import data_effect
from fedfairx.privacy.bounding import Bounds
from fedfairx.privacy.mechanisms import Gaussian
from fedfairx.privacy.noise import KeyedNoise
from fedfairx.privacy.privatizer import Privatizer, StreamPrivatizer

__all__ = ["Check", "inspect"]

_SAMPLES = 12_000


@dataclass(frozen=True)
class Check:
    """One question asked of the mechanism: what was found, what is allowed, and whether it holds."""

    name: str
    found: float
    allowed: str
    ok: bool


def inspect(
    mechanism: Gaussian,
    *,
    bounds: Bounds,
    dimension: int,
    seed: int,
    error_rate: float,
    privatizer: Callable[..., Privatizer] = StreamPrivatizer,
) -> tuple[Check, ...]:
    """All white-box checks; the seven that are tests fail a correct mechanism with `error_rate` each."""
    base = base_noise(mechanism, bounds=bounds, dimension=dimension, seed=seed, privatizer=privatizer)
    return (
        _calibration(mechanism, bounds),
        _data_path(mechanism, bounds=bounds, dimension=dimension, privatizer=privatizer),
        *_size(base, dimension, error_rate),
        *_correlations(base, error_rate),
        _shape(base, error_rate),
    )


def base_noise(
    mechanism: Gaussian,
    *,
    bounds: Bounds,
    dimension: int,
    seed: int,
    privatizer: Callable[..., Privatizer] = StreamPrivatizer,
) -> Array:
    """(agents, releases, q): what should be independent standard normals, from real privatizers."""
    q = packed_size(dimension)
    horizon = min(mechanism.releases, int(np.clip(_SAMPLES // (2 * q), 32, 2000)))
    agents = min(1000, max(2, -(-_SAMPLES // (horizon * q))))
    generator = np.random.default_rng([seed, 2])
    key = hashlib.sha256(f"audit {seed}".encode()).digest()
    scale = mechanism.base_sd * bounds.entry_scale(dimension)
    residuals = np.empty((horizon, agents, q))
    for index in range(agents):
        noise = KeyedNoise(key, agent=str(index), run="audit")
        agent = privatizer(dimension, mechanism=mechanism, bounds=bounds, noise=noise)
        counts = generator.integers(0, 3, horizon)
        contexts = generator.standard_normal((counts.sum(), dimension)) * (2.0 * bounds.context_norm)
        rewards = generator.standard_normal(counts.sum()) * (2.0 * bounds.reward)
        truth = np.zeros((counts.sum() + 1, q))
        truth[1:] = np.cumsum(_clipped_statistics(contexts, rewards, bounds), axis=0)
        start = 0
        for number, count in enumerate(counts):
            for record in range(start, start + count):
                agent.add(contexts[record], rewards[record])
            start += count
            residuals[number, index] = agent.release().packed - truth[start]
    return np.swapaxes(mechanism.factor.decorrelate(residuals) / scale, 0, 1)


def _clipped_statistics(contexts: Array, rewards: Array, bounds: Bounds) -> Array:
    """The packed statistics of each record, clipped by the definition and not by the code under audit."""
    if bounds.nonnegative:
        contexts, rewards = np.maximum(contexts, 0.0), np.maximum(rewards, 0.0)
    norms = np.maximum(np.linalg.norm(contexts, axis=1, keepdims=True), 1e-300)
    x = contexts * np.minimum(1.0, bounds.context_norm / norms)
    y = np.clip(rewards, -bounds.reward, bounds.reward)
    rows, cols = np.triu_indices(contexts.shape[1])
    return np.concatenate([x[:, rows] * x[:, cols], x * y[:, None]], axis=1)


def _calibration(mechanism: Gaussian, bounds: Bounds) -> Check:
    """μ from the first column of C = B⁻¹A: the prefix sums of a unit leaf, taken apart."""
    column = mechanism.factor.decorrelate(np.ones((mechanism.releases, 1)))
    mu = bounds.sensitivity * float(np.linalg.norm(column)) / mechanism.base_sd
    return Check("calibration: μ", mu, f"≤ {mechanism.mu:.6g}", mu <= mechanism.mu * (1 + 1e-6))


def _data_path(
    mechanism: Gaussian, *, bounds: Bounds, dimension: int, privatizer: Callable[..., Privatizer]
) -> Check:
    """What one oversize record changes, over all leaves, in units of the off-diagonal noise."""
    horizon = min(mechanism.releases, 256)
    scale = bounds.entry_scale(dimension)
    found = 0.0
    for leaf in {1, (horizon + 1) // 2, horizon}:
        effect = data_effect(
            mechanism, bounds=bounds, dimension=dimension, leaf=leaf, horizon=horizon, privatizer=privatizer
        )
        change = np.diff(effect, axis=0, prepend=0.0) / scale
        # Releases lie on a grid of about 1e-6 of the noise, so a change is seen no finer than that.
        change[np.abs(change) < 1e-5 * mechanism.base_sd] = 0.0
        found = max(found, float(np.linalg.norm(change, axis=1).sum()))
    allowed = bounds.sensitivity + 1e-4 * mechanism.base_sd
    return Check("data path: sensitivity", found, f"≤ {bounds.sensitivity:.6g}", found <= allowed)


def _size(base: Array, dimension: int, error_rate: float) -> list[Check]:
    """Noise sd of each kind of entry over the stated one, and the GOE's diagonal to off-diagonal variance."""
    from scipy.special import fdtri, gammaincinv

    entries = np.arange(base.shape[-1])
    diagonal = diagonal_entries(dimension)
    moment = entries[-dimension:]
    kinds = {
        "off-diagonal": np.setdiff1d(entries, [*diagonal, *moment]),
        "diagonal": diagonal,
        "moment": moment,
    }
    checks = []
    squares: dict[str, Array] = {}
    for kind, members in kinds.items():
        if members.size == 0:
            continue
        squares[kind] = np.square(base[..., members]).ravel()
        count = squares[kind].size
        found = float(np.sqrt(squares[kind].mean()))
        least = float(np.sqrt(2.0 * gammaincinv(0.5 * count, error_rate) / count))
        checks.append(Check(f"noise sd over the stated, {kind}", found, f"≥ {least:.4f}", found >= least))
    other = np.concatenate([values for kind, values in squares.items() if kind != "diagonal"])
    ratio = float(squares["diagonal"].mean() / other.mean())
    low, high = (
        float(fdtri(diagonal.size * base[..., 0].size, other.size, p))
        for p in (error_rate / 2, 1 - error_rate / 2)
    )
    checks.append(
        Check(
            "variance diagonal : off-diagonal",
            2 * ratio,
            f"{2 * low:.3f}..{2 * high:.3f}",
            low <= ratio <= high,
        )
    )
    return checks


def _correlations(base: Array, error_rate: float) -> list[Check]:
    """Lag-1 within an agent and between two agents: a product of independent normals sums to a normal."""
    from scipy.special import ndtri

    checks = []
    pairs = {
        "lag-1 correlation": (base[:, 1:], base[:, :-1]),
        "cross-agent correlation": (base[1:], base[:-1]),
    }
    for name, (first, second) in pairs.items():
        if first.size == 0:
            continue
        scale = np.sqrt(np.square(first).sum() * np.square(second).sum())
        found = float((first * second).sum() / scale)
        most = float(-ndtri(error_rate / 2) / np.sqrt(first.size))
        checks.append(Check(name, found, f"within ±{most:.4f}", abs(found) <= most))
    return checks


def _shape(base: Array, error_rate: float) -> Check:
    """Kolmogorov–Smirnov distance to the normal; the size is put right first, since `_size` has judged it."""
    from scipy.special import kolmogi, ndtr

    values = np.sort((base / np.sqrt(np.square(base).mean(axis=(0, 1)))).ravel())
    expected = ndtr(values)
    steps = np.arange(values.size + 1) / values.size
    found = float(max((steps[1:] - expected).max(), (expected - steps[:-1]).max()))
    most = float(kolmogi(error_rate)) / values.size**0.5
    return Check("distance to the normal", found, f"≤ {most:.4f}", found <= most)
