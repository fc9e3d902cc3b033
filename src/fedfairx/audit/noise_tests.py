"""Tests of the draws of keyed noise, of which all noise is made: they are independent standard normals.

Each test fails by chance with probability `error_rate`.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import gammaincinv, kolmogi, ndtr, ndtri

from fedfairx.audit.subject import AuditedConfig, CheckResult
from fedfairx.util.arrays import Array

TESTS = 8
_SAMPLES = 12_000
_TAIL_SAMPLES = 1 << 18
_LONGEST = 2_048
_FEWEST = 400  # products that make the law of a correlation nearly normal


def sample(subject: AuditedConfig, *, key: str) -> Array:
    """Draw (agents, releases, q) as agents of one key do."""
    size = subject.size
    horizon = min(subject.releases, _LONGEST)
    agents = min(1_000, max(4, -(-_SAMPLES // (horizon * size))))
    sources = [subject.drawn(key, agent=str(name)) for name in range(agents)]
    return np.array([[source(number, size) for number in range(1, horizon + 1)] for source in sources])


def noise_tests(
    subject: AuditedConfig, draws: Array, error_rate: float, *, key: str
) -> tuple[CheckResult, ...]:
    """Run at most `TESTS` tests; each fails by chance with probability `error_rate`."""
    unit = draws / math.sqrt(max(float(np.square(draws).mean()), 1e-300))  # the sd has its own tests
    return (
        _least("", np.square(draws).mean(keepdims=True), draws.size, error_rate),
        _least(", least entry", np.square(draws).mean(axis=(0, 1)), draws[..., 0].size, error_rate),
        _least(", least release", np.square(draws).mean(axis=(0, 2)), draws[:, 0].size, error_rate),
        *_lags(unit, error_rate),
        _between_agents(unit, error_rate),
        *_between_entries(unit, error_rate),
        _shape(unit, error_rate),
        _tails(subject, error_rate, key=key),
    )


def _least(which: str, variances: Array, samples: int, error_rate: float) -> CheckResult:
    """Test the smallest of several sds, each of as many normals."""
    rate = error_rate / variances.size
    sd = float(np.sqrt(variances.min()))
    least = float(np.sqrt(2.0 * gammaincinv(0.5 * samples, rate) / samples))
    return CheckResult(f"draws: sd{which}", sd, f"≥ {least:.4f}", sd >= least)


def _lags(base: Array, error_rate: float) -> list[CheckResult]:
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
    return [_largest("draws: correlation in time, any lag", sums / np.sqrt(counts), error_rate)]


def _between_agents(base: Array, error_rate: float) -> CheckResult:
    """Test that sums over agents have the variance of independent ones."""
    agents = len(base)
    total = np.square(base.sum(axis=0)).ravel()
    variance = float(total.mean() / agents)
    tails = (error_rate / 2, 1 - error_rate / 2)
    low, high = (float(2.0 * gammaincinv(0.5 * total.size, p) / total.size) for p in tails)
    return CheckResult(
        "draws: variance of agents' sum", variance, f"{low:.3f}..{high:.3f}", low <= variance <= high
    )


def _between_entries(base: Array, error_rate: float) -> list[CheckResult]:
    """Test the correlation of any two entries of a release."""
    rows = base.reshape(-1, base.shape[-1])
    if len(rows) < _FEWEST:
        return []
    products = (rows.T @ rows)[np.triu_indices(rows.shape[1], 1)] / math.sqrt(len(rows))
    return [_largest("draws: correlation of any two entries", products, error_rate)]


def _largest(name: str, standardised: Array, error_rate: float) -> CheckResult:
    """Test the largest of several sums of products of normals, each of mean 0 and variance 1."""
    largest = float(np.abs(standardised).max())
    # Such a sum has slightly heavier tails than the normal: 5 % of the sd at 400 products.
    most = 1.05 * float(-ndtri(error_rate / (2 * standardised.size)))
    return CheckResult(name, largest, f"within ±{most:.3f} sd", largest <= most)


def _shape(draws: Array, error_rate: float) -> CheckResult:
    """Test the Kolmogorov–Smirnov distance to the normal."""
    values = np.sort(draws.ravel())
    expected = ndtr(values)
    steps = np.arange(values.size + 1) / values.size
    distance = float(max((steps[1:] - expected).max(), (expected - steps[:-1]).max()))
    most = float(kolmogi(error_rate)) / values.size**0.5
    return CheckResult("draws: distance to the normal", distance, f"≤ {most:.4f}", distance <= most)


def _tails(subject: AuditedConfig, error_rate: float, *, key: str) -> CheckResult:
    """Test the size of the largest of many draws, by its distribution."""
    count = min(_TAIL_SAMPLES, 1 << 12)
    draw = subject.drawn(f"{key}, tails", agent="0")
    largest = max(float(np.abs(draw(number, count)).max()) for number in range(1, _TAIL_SAMPLES // count + 1))
    # The largest of n is below z with probability (1 - 2Φ(-z))ⁿ.
    low, high = (
        -float(ndtri(-np.expm1(np.log(p) / _TAIL_SAMPLES) / 2)) for p in (error_rate / 2, 1 - error_rate / 2)
    )
    allowed = f"{low:.3f}..{high:.3f}"
    return CheckResult(f"draws: largest of {_TAIL_SAMPLES}", largest, allowed, low <= largest <= high)
