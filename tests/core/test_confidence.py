"""The radius √β and what may be asked of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference as ref
from fedfairx.core.confidence import Confidence
from fedfairx.errors import InvalidInput


@settings(max_examples=60, deadline=None)
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


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["regulariser", "parameter_norm", "scale"])
def test_what_must_be_positive(name: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=f"^{name} must be finite and > 0, got {name}="):
        Confidence(**{name: value})


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_failure_is_a_probability(value: float) -> None:
    with pytest.raises(InvalidInput, match=r"^failure must be in \(0, 1\), got failure="):
        Confidence(failure=value)


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
@pytest.mark.parametrize("name", ["noise_sd", "noise_share"])
def test_what_must_not_be_negative(name: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=rf"^{name} must be finite and >= 0, got {name}="):
        Confidence(**{name: value})
