"""The white-box audit: decorrelate the noise with the known factorisation, and test the base noise.

B⁻¹·(release − truth) must be independent normals of the stated size on every entry. Real privatizers with
real keyed noise run on random records, half of them too large; the truth is summed here, independently.

The result is compared exactly with the draws of the keyed noise: each release must carry its own draw, and no
draw may be requested twice, or returned for two releases, agents, runs or keys. Then the draws themselves are
tested statistically: each test fails by chance with probability `error_rate`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import fdtri, gammaincinv, kolmogi, ndtr, ndtri

from fedfairx.core.statistics import diagonal_entries
from fedfairx.privacy.audit.subject import AuditedConfig, Check, RecordingNoise
from fedfairx.util.arrays import Array

TESTS = 10
_SAMPLES = 12_000
_LONGEST = 2_048
_LONGEST_HISTORY = 512  # where memory is the whole history, and time grows with the square of the length
_RELEASES = [*range(1, 65), *(1 << power for power in range(7, 33))]
_FEWEST = 400  # products that make the law of a correlation nearly normal


@dataclass(frozen=True)
class Noise:
    """Noise in the releases of several agents, and the draws for it."""

    base: Array  # (agents, releases, q): B⁻¹(release − truth), in units of the stated sd
    sources: tuple[RecordingNoise, ...]
    related: Array  # (n, 4): draws for the same releases under other keys, agents and runs
    unexplained: float  # largest deviation of a message from the public function of the noisy sums


def recorded_noise(subject: AuditedConfig, *, seed: int, look: int) -> Noise:
    """Run several agents of one key over random records."""
    mechanism, size = subject.mechanism, subject.size
    compact = mechanism.factor.memory(1).vectors() is not None
    horizon = min(mechanism.releases, _LONGEST if compact else _LONGEST_HISTORY)
    agents = min(1_000, max(4, -(-_SAMPLES // (horizon * size))))
    generator = np.random.default_rng([seed, look])
    key = f"{seed}, look {look}, noise"
    sources = [RecordingNoise(subject.keyed(key, agent=str(name))) for name in range(agents)]
    residuals = np.empty((horizon, agents, size))
    unexplained = 0.0
    for index, source in enumerate(sources):
        agent = subject.agent(source)
        counts = generator.integers(0, 3, horizon)
        contexts, rewards = subject.random_records(generator, int(counts.sum()))
        truth = np.zeros((len(rewards) + 1, size))
        truth[1:] = np.cumsum(subject.truth(contexts, rewards), axis=0)
        start = 0
        for number, count in enumerate(counts):
            for record in range(start, start + count):
                subject.add(agent, (contexts[record], rewards[record]))
            start += count
            packed, rest = subject.release(agent)
            residuals[number, index] = packed - truth[start]
            unexplained = max(unexplained, rest)
    base = mechanism.factor.decorrelate(residuals) / (mechanism.base_sd * subject.scale)
    return Noise(np.swapaxes(base, 0, 1), tuple(sources), _related(subject, key), unexplained)


def _related(subject: AuditedConfig, key: str) -> Array:
    """Return draws that differ in key, agent, run or release alone."""
    key = f"{key}, related"
    sources = [
        subject.drawn(key, agent="0"),
        subject.drawn(f"another {key}", agent="0"),
        subject.drawn(key, agent="1"),
        subject.drawn(key, agent="0", run="another"),
    ]
    return np.array([source(number, 4) for source in sources for number in _RELEASES])


def noise_path(noise: Noise) -> tuple[Check, ...]:
    """Check exactly that each release carries its own draw, and that no draw is used twice."""
    agents, horizon, size = noise.base.shape
    worst = math.inf
    if all([draw.size for draw in source.given] == [size] * horizon for source in noise.sources):
        worst = float(np.abs(noise.base - [source.given for source in noise.sources]).max())
    asked = sum(len(source.asked) - len(set(source.asked)) for source in noise.sources)
    # By chance two consecutive numbers occur again, up to signs, with probability below 1e-15 over all pairs.
    draws = [draw for source in noise.sources for draw in source.given]
    rows = [np.stack([draw[:-1], draw[1:]], axis=1) for draw in (*draws, *noise.related)]
    pairs = np.round(np.abs(np.concatenate(rows)), 12)
    given = len(pairs) - len(np.unique(pairs, axis=0))
    rest = noise.unexplained
    return (
        Check("noise path: from the draw of its release", worst, "≤ 0.001", worst <= 1e-3),
        Check("noise path: draws requested twice", float(asked), "= 0", asked == 0),
        Check(f"noise path: draws returned twice, {agents} agents", float(given), "= 0", given == 0),
        Check("noise path: messages not from the noisy sums", rest, "= 0", rest <= 1e-9),
    )


def noise_tests(noise: Noise, dimension: int, error_rate: float) -> tuple[Check, ...]:
    """Run at most `TESTS` tests of the draws; each fails by chance with probability `error_rate`."""
    base = noise.base
    unit = base / math.sqrt(max(float(np.square(base).mean()), 1e-300))  # `_size` tests the size
    return (
        *_size(base, dimension, error_rate),
        _least("entry", np.square(base).mean(axis=(0, 1)), base[..., 0].size, error_rate),
        _least("release", np.square(base).mean(axis=(0, 2)), base[:, 0].size, error_rate),
        *_lags(unit, error_rate),
        _between_agents(unit, error_rate),
        *_between_entries(unit, error_rate),
        _shape(base, error_rate),
    )


def _size(base: Array, dimension: int, error_rate: float) -> list[Check]:
    """Test the noise sd of each kind of entry, and the GOE's ratio of diagonal to off-diagonal variance."""
    entries = np.arange(base.shape[-1])
    diagonal = diagonal_entries(dimension)
    moment = entries[-dimension:]
    kinds = {
        "off-diagonal": np.setdiff1d(entries, [*diagonal, *moment]),
        "diagonal": diagonal,
        "moment": moment,
    }
    checks = []
    squares = {kind: np.square(base[..., members]).ravel() for kind, members in kinds.items() if members.size}
    for kind, values in squares.items():
        found, least = float(np.sqrt(values.mean())), _least_sd(values.size, error_rate)
        checks.append(Check(f"noise sd over the stated, {kind}", found, f"≥ {least:.4f}", found >= least))
    other = np.concatenate([values for kind, values in squares.items() if kind != "diagonal"])
    ratio = float(squares["diagonal"].mean() / other.mean())
    tails = (error_rate / 2, 1 - error_rate / 2)
    low, high = (float(fdtri(squares["diagonal"].size, other.size, p)) for p in tails)
    name, allowed = "variance diagonal : off-diagonal", f"{2 * low:.3f}..{2 * high:.3f}"
    return [*checks, Check(name, 2 * ratio, allowed, low <= ratio <= high)]


def _least(kind: str, variances: Array, samples: int, error_rate: float) -> Check:
    """Test the smallest sd of any entry, or of any release."""
    found, least = float(np.sqrt(variances.min())), _least_sd(samples, error_rate / variances.size)
    return Check(f"noise sd over the stated, least {kind}", found, f"≥ {least:.4f}", found >= least)


def _least_sd(samples: int, error_rate: float) -> float:
    """Return the quantile of the sd estimated from that many normals, over the true one."""
    return float(np.sqrt(2.0 * gammaincinv(0.5 * samples, error_rate) / samples))


def _lags(base: Array, error_rate: float) -> list[Check]:
    """Test the correlation in time at every lag that has enough products."""
    agents, horizon, size = base.shape
    lags = np.arange(1, horizon)
    counts = agents * size * (horizon - lags)
    lags, counts = lags[counts >= _FEWEST], counts[counts >= _FEWEST]
    if lags.size == 0:
        return []
    length = next_fast_len(2 * horizon, real=True)
    power = np.square(np.abs(rfft(base, length, axis=1))).sum(axis=(0, 2))
    sums = irfft(power, length)[lags]
    return [_largest("correlation in time, any lag", sums / np.sqrt(counts), error_rate)]


def _between_agents(base: Array, error_rate: float) -> Check:
    """Test that sums over agents have the variance of independent ones."""
    agents = len(base)
    total = np.square(base.sum(axis=0)).ravel()
    found = float(total.mean() / agents)
    tails = (error_rate / 2, 1 - error_rate / 2)
    low, high = (float(2.0 * gammaincinv(0.5 * total.size, p) / total.size) for p in tails)
    return Check("variance of agents' sum", found, f"{low:.3f}..{high:.3f}", low <= found <= high)


def _between_entries(base: Array, error_rate: float) -> list[Check]:
    """Test the correlation of any two entries of a release."""
    rows = base.reshape(-1, base.shape[-1])
    if len(rows) < _FEWEST:
        return []
    products = (rows.T @ rows)[np.triu_indices(rows.shape[1], 1)] / math.sqrt(len(rows))
    return [_largest("correlation of any two entries", products, error_rate)]


def _largest(name: str, standardised: Array, error_rate: float) -> Check:
    """Test the largest of several sums of products of normals, each of mean 0 and variance 1."""
    found = float(np.abs(standardised).max())
    # Such a sum has slightly heavier tails than the normal: 5 % of the sd at 400 products.
    most = 1.05 * float(-ndtri(error_rate / (2 * standardised.size)))
    return Check(name, found, f"within ±{most:.3f} sd", found <= most)


def _shape(base: Array, error_rate: float) -> Check:
    """Test the Kolmogorov–Smirnov distance to the normal, after scaling: `_size` tests the size."""
    spread = np.sqrt(np.maximum(np.square(base).mean(axis=(0, 1)), 1e-300))
    values = np.sort((base / spread).ravel())
    expected = ndtr(values)
    steps = np.arange(values.size + 1) / values.size
    found = float(max((steps[1:] - expected).max(), (expected - steps[:-1]).max()))
    most = float(kolmogi(error_rate)) / values.size**0.5
    return Check("distance to the normal", found, f"≤ {most:.4f}", found <= most)
