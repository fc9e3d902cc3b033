"""The radius √β and what may be asked of it."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
import reference as ref
from fedfairx.core.confidence import Confidence, practical_radius
from fedfairx.errors import InvalidInput


@given(
    st.integers(0, 10**6),
    st.integers(1, 50),
    st.floats(0.01, 100),
    st.floats(0, 2),
    st.floats(0.001, 0.999),
    st.floats(0.1, 5),
    st.floats(0.1, 2),
)
def test_the_radius_is_the_oracles(
    count: int, dimension: int, regulariser: float, noise_sd: float, alpha: float, norm: float, scale: float
) -> None:
    confidence = Confidence(
        regulariser=regulariser, noise_sd=noise_sd, failure=alpha, parameter_norm=norm, scale=scale
    )
    expected = ref.radius(
        count,
        dimension=dimension,
        regulariser=regulariser,
        noise_sd=noise_sd,
        alpha=alpha,
        norm_bound=norm,
        scale=scale,
    )
    assert confidence.radius(count, dimension) == pytest.approx(expected, rel=1e-13)
    compiled = practical_radius(float(count), dimension, regulariser, noise_sd, alpha, norm, scale)
    assert compiled == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, 1e308, 1e-308])
@pytest.mark.parametrize("name", ["regulariser", "parameter_norm", "scale"])
def test_what_must_be_positive(name: str, value: float) -> None:
    with pytest.raises(
        InvalidInput, match=rf"^{name} must be a finite number >= 1e-30 and <= 1e\+30, got {name}="
    ):
        Confidence(**{name: value})


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 1.5, math.nan, 1e-310])
def test_failure_is_a_probability(value: float) -> None:
    with pytest.raises(
        InvalidInput, match=r"^failure must be a finite number >= 1e-30 and < 1, got failure="
    ):
        Confidence(failure=value)


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, 1e308])
def test_noise_must_not_be_negative(value: float) -> None:
    with pytest.raises(
        InvalidInput, match=r"^noise_sd must be a finite number >= 0 and <= 1e\+30, got noise_sd="
    ):
        Confidence(noise_sd=value)


def test_whatever_is_accepted_decides_in_finite_numbers() -> None:
    rng = np.random.default_rng(0)
    sizes = (1e-30, 1.0, 1e30)
    for regulariser, noise_sd, norm, scale in itertools.product(sizes, (0.0, 1e30), sizes, sizes):
        confidence = Confidence(
            regulariser=regulariser, noise_sd=noise_sd, failure=1e-30, parameter_norm=norm, scale=scale
        )
        agent = ffx.Agent(3, rule="optimism", confidence=confidence, seed=0)
        for _ in range(3):
            decision = agent.decide(rng.normal(size=(4, 3)))
            agent.observe(decision, reward=min(1.0, norm))
            assert np.isfinite(decision.policy).all()
            assert np.isfinite(decision.theta).all()


@pytest.mark.process
def test_a_radius_waits_for_no_compiler(tmp_path: Path) -> None:
    """One number, which a statement of privacy or a report asks for."""
    code = "from fedfairx import Confidence; print(Confidence(noise_sd=0.5).radius(count=100, dimension=5))"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert float(done.stdout) == pytest.approx(3.23, abs=0.005)
    assert "compiling" not in done.stderr
    assert not list(tmp_path.rglob("*.nbc"))
