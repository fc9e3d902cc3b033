"""The audit catches every listed mistake, and lets correct mechanisms pass."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from broken import (
    Fresh,
    Reused,
    ReusedNodes,
    SharedByAgents,
    Twice,
    Unclipped,
    halved_symmetrisation,
    weaker,
    without_composition,
)
from scipy import stats

from fedfairx.errors import InvalidInput
from fedfairx.privacy.audit import AuditReport, audit, plot
from fedfairx.privacy.black_box import horizon_for, upper_bound
from fedfairx.privacy.bounding import Bounds, Unbounded
from fedfairx.privacy.mechanisms import Gaussian, calibrate, mechanisms

TREES_AND_BLT = ["tree", "blt"]


def _make(name: str = "blt", releases: int = 64, bounds: Bounds | None = None, **claim: float) -> Gaussian:
    asked = {"epsilon": 2.0, "delta": 0.1} | claim
    return calibrate(name, releases=releases, sensitivity=(bounds or Bounds()).sensitivity, **asked)


def _audit(mechanism: Gaussian, **other) -> AuditReport:
    return audit(mechanism, **({"bounds": Bounds(), "dimension": 3, "runs": 8_000} | other))


def _failed(report: AuditReport) -> str:
    return "; ".join(check.name for check in report.checks if not check.ok)


@pytest.mark.parametrize("name", TREES_AND_BLT)
@pytest.mark.parametrize(
    "breaking",
    [
        pytest.param(lambda m: weaker(m, share=0.5), id="noise halved"),
        pytest.param(halved_symmetrisation, id="(N+Nᵀ)/2"),
        pytest.param(without_composition, id="no composition over levels"),
        pytest.param(lambda m: weaker(m, Fresh), id="fresh noise at each release"),
        pytest.param(lambda m: weaker(m, Reused), id="noise reused when the tree does not grow"),
        pytest.param(lambda m: weaker(m, ReusedNodes), id="one noise a level"),
    ],
)
def test_the_black_box_catches(name: str, breaking) -> None:
    report = _audit(breaking(_make(name)))
    assert report.found_mu > report.claimed_mu
    assert report.found_epsilon > 0
    assert not report.ok
    assert "THE CLAIM IS FALSE" in str(report)


def test_the_black_box_catches_contexts_unclipped_at_root_five() -> None:
    report = _audit(_make(), bounds=Unclipped())
    assert report.found_mu > report.claimed_mu
    assert "data path: sensitivity" in _failed(report)


def test_the_black_box_catches_a_record_in_two_leaves() -> None:
    report = _audit(_make(), privatizer=Twice)
    assert report.found_mu > report.claimed_mu
    assert "data path: sensitivity" in _failed(report)


@pytest.mark.parametrize("name", mechanisms())
def test_the_white_box_catches_a_tenth_too_little_noise(name: str) -> None:
    report = _audit(weaker(_make(name), share=0.9), runs=1_000)
    assert report.found_mu <= report.claimed_mu  # too little for the black box
    assert "noise sd over the stated" in _failed(report)
    assert not report.ok


def test_the_white_box_catches_noise_that_agents_share() -> None:
    assert "cross-agent correlation" in _failed(_audit(weaker(_make(), SharedByAgents), runs=1_000))


def test_the_white_box_catches_fresh_noise() -> None:
    assert "lag-1 correlation" in _failed(_audit(weaker(_make(), Fresh), runs=1_000))


def test_the_white_box_catches_a_flat_diagonal() -> None:
    """Noise of sd σ on the diagonal too: not GOE, and a tenth of the claim is gone."""

    class Flat(Bounds):
        def entry_scale(self, dimension: int) -> np.ndarray:
            return np.ones(dimension * (dimension + 3) // 2)

    bounds = Bounds(adjacency="add-remove")
    report = _audit(_make(bounds=bounds), bounds=Flat(adjacency="add-remove"), runs=1_000)
    assert "data path: sensitivity" in _failed(report)


def test_the_white_box_catches_noise_that_is_not_normal() -> None:
    """Uniform noise of the right sd: its tails end."""

    class Uniform(Gaussian):
        def stream(self, draw, *, entry_scale, state=None):
            def uniform(number: int, count: int) -> np.ndarray:
                return np.asarray((2 * stats.norm.cdf(draw(number, count)) - 1) * np.sqrt(3))

            return super().stream(uniform, entry_scale=entry_scale, state=state)

    assert "distance to the normal" in _failed(_audit(weaker(_make(), Uniform), runs=1_000))


def test_calibration_catches_a_claim_that_does_not_follow() -> None:
    class Boastful(Gaussian):
        @property
        def mu(self) -> float:
            return 0.9 * super().mu

    assert "calibration" in _failed(_audit(weaker(_make(), Boastful), runs=1_000))


CORRECT = [
    ("paper-tree", 20, Bounds(), 3),
    ("tree", 37, Bounds(), 3),
    ("sqrt-toeplitz", 50, Bounds(), 3),
    ("blt", 64, Bounds(), 3),
    ("blt", 1, Bounds(), 2),
    ("blt", 2, Bounds(adjacency="add-remove"), 1),
    ("tree", 9, Bounds(adjacency="add-remove"), 3),
    ("blt", 33, Bounds(nonnegative=True, gram_share=0.5), 3),
    ("sqrt-toeplitz", 16, Bounds(context_norm=2.0, reward=0.5, gram_share=0.3), 4),
    ("blt", 100, Bounds(context_norm=2.0, reward=0.5, gram_share=0.3), 30),
]


@pytest.mark.parametrize(("name", "releases", "bounds", "dimension"), CORRECT)
def test_correct_mechanisms_pass(name: str, releases: int, bounds: Bounds, dimension: int) -> None:
    """Each fails by chance in under 1 of 100 seeds; the seed is fixed."""
    mechanism = _make(name, releases, bounds)
    report = _audit(mechanism, bounds=bounds, dimension=dimension, runs=2_000)
    assert report.ok, str(report)
    assert "nothing contradicts the claim" in str(report)
    assert f"claimed μ {report.claimed_mu:.4g}, found at least {report.found_mu:.4g}" in str(report)


@pytest.mark.parametrize("name", TREES_AND_BLT)
def test_the_bound_comes_near_the_claim(name: str) -> None:
    """An audit that finds nothing anywhere would pass everything: it finds most of what is spent."""
    report = _audit(_make(name, 16))
    assert report.found_mu > 0.85 * report.claimed_mu
    assert report.found_epsilon > 0.5 * report.claimed_epsilon


def test_clopper_pearson_is_the_binomials_own() -> None:
    for errors, trials in ((0, 50), (3, 50), (49, 50), (50, 50)):
        exact = stats.binomtest(errors, trials).proportion_ci(0.98, method="exact").high
        assert upper_bound(errors, trials, 0.01) == pytest.approx(exact)


def test_a_report_goes_into_json_and_a_plot(tmp_path: Path) -> None:
    report = _audit(_make(releases=8), runs=500)
    as_dict = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert as_dict["ok"] is True
    assert as_dict["claimed"]["mu"] == report.claimed_mu
    assert {attack["leaf"] for attack in as_dict["attacks"]} == {1, 5, 8}
    plot(report, tmp_path / "scores.png")
    assert (tmp_path / "scores.png").stat().st_size > 5_000


def test_the_same_seed_gives_the_same_report() -> None:
    first, second, third = (_audit(_make(releases=50), runs=300, seed=seed).to_dict() for seed in (1, 1, 2))
    for report in (first, second, third):
        report.pop("seconds")
    assert first == second != third


def test_long_streams_are_cut_to_what_a_minute_allows() -> None:
    assert horizon_for(_make("blt", 20_000), columns=16_000) == 20_000
    assert horizon_for(_make("blt", 20_000), columns=80_000) == 5_000
    assert horizon_for(_make("sqrt-toeplitz", 20_000), columns=16_000) == 512
    assert horizon_for(_make("sqrt-toeplitz", 7), columns=16_000) == 7


def test_nothing_to_audit_is_refused() -> None:
    with pytest.raises(InvalidInput, match="without clipping nothing is claimed"):
        _audit(_make(), bounds=Unbounded())
    with pytest.raises(InvalidInput, match="runs must be >= 100"):
        _audit(_make(), runs=10)
