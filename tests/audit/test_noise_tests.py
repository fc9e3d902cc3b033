"""The tests of draws: limits fit the stated error rate."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedfairx.agent.options import Options
from fedfairx.audit import noise_tests
from fedfairx.audit.noise_tests import sample
from fedfairx.audit.subject import AuditedConfig, CheckResult

SUBJECT = AuditedConfig(
    options=Options(algorithm="priv-fairx-bayes", epsilon=2.0, delta=0.1), dimension=2, releases=40
)


def _ends(check: CheckResult) -> tuple[float, float]:
    low, _, high = check.allowed.partition("..")
    return float(low), float(high)


def _run(draws: np.ndarray, error_rate: float, key: str = "k") -> dict[str, CheckResult]:
    return {each.name: each for each in noise_tests.noise_tests(SUBJECT, draws, error_rate, key=key)}


def test_limits_are_quantiles_of_the_stated_error_rate() -> None:
    """Each against SciPy's distributions."""
    draws, rate = sample(SUBJECT, key="limits"), 1e-3
    checks = _run(draws, rate)
    assert len(checks) == noise_tests.TESTS
    n = draws.size
    assert float(checks["draws: sd"].allowed[2:]) == pytest.approx(
        (stats.chi2.ppf(rate, n) / n) ** 0.5, abs=1e-4
    )
    entries, each = draws.shape[-1], draws[..., 0].size
    assert float(checks["draws: sd, least entry"].allowed[2:]) == pytest.approx(
        (stats.chi2.ppf(rate / entries, each) / each) ** 0.5, abs=1e-4
    )
    assert float(checks["draws: distance to the normal"].allowed[2:]) == pytest.approx(
        stats.kstwobign.isf(rate) / n**0.5, abs=1e-4
    )
    count = noise_tests._TAIL_SAMPLES
    low, high = _ends(checks[f"draws: largest of {count}"])
    law = stats.halfnorm
    assert count * law.logcdf(low) == pytest.approx(np.log(rate / 2), rel=0.01)
    assert -np.expm1(count * law.logcdf(high)) == pytest.approx(rate / 2, rel=0.01)


def test_right_draws_fail_as_often_as_stated() -> None:
    """At a rate of 2 % a test: of 8 tests with 100 keys, at most 34 fail but for 1 seed in 10 000."""
    seeds, rate = 100, 0.02
    failed = sum(
        not check.ok
        for seed in range(seeds)
        for check in _run(np.random.default_rng(seed).normal(size=(4, 40, 5)), rate, f"{seed}").values()
    )
    assert stats.binom.sf(34, noise_tests.TESTS * seeds, rate) < 1e-4
    assert failed <= 34


@pytest.fixture(autouse=True)
def _few_tails(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "as_often" in request.node.name:
        monkeypatch.setattr(noise_tests, "_TAIL_SAMPLES", 1 << 12)
