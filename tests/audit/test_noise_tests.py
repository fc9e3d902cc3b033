"""The tests of draws: limits fit the stated error rate, and inputs that differ little are compared."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedfairx.agent.options import Options
from fedfairx.audit import noise_tests
from fedfairx.audit.noise_tests import draws_alike, sample
from fedfairx.audit.subject import AuditedConfig, CheckResult
from fedfairx.privacy.mechanisms.noise import KeyedNoise

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


def test_draws_alike_are_counted() -> None:
    draws = [np.arange(1.0, 5.0), np.arange(11.0, 15.0)]
    assert draws_alike(draws, key="k").found == 0.0
    assert draws_alike([*draws, -draws[0]], key="k").found == 3.0  # three pairs, up to signs


def test_related_draws_are_those_of_inputs_that_differ_in_one_way() -> None:
    """Each draw is compared with that of the same key, agent, run, release and place."""
    asked = []

    class Asked(KeyedNoise):
        def __init__(self, key: bytes, *, agent: str, run: str) -> None:
            super().__init__(key, agent=agent, run=run)
            self.made_for = (key, agent, run)

        def __call__(self, number: int, count: int, place: bytes, /) -> np.ndarray:
            asked.append((*self.made_for, number, place))
            return super().__call__(number, count, place)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise_tests, "KeyedNoise", Asked)
        assert draws_alike([], key="k").ok
    first = asked[0]
    different = [sum(a != b for a, b in zip(first, each, strict=True)) for each in asked]
    assert different[0] == 0
    assert sorted(set(different)) == [0, 1, 2]
    assert different.count(2) == 4  # ("ab", "c") and its kind
    assert len(set(asked)) == len(asked)
