"""From releases to shared statistics: the sum, the shift, the floor, the weights."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference as ref
from fedfairx.agent.pooling import combine, lift, noise_bounds
from fedfairx.core.statistics import diagonal_entries, pack, packed_size, unpack
from fedfairx.errors import InvalidInput
from instances import worth

seeds = st.integers(0, 2**32 - 1)


def goe(rng: np.random.Generator, dimension: int, sd: float) -> np.ndarray:
    """Noise of a release: sd off the diagonal, √2·sd on it, sd on the moment."""
    noise = sd * rng.normal(size=packed_size(dimension))
    noise[diagonal_entries(dimension)] *= np.sqrt(2)
    return noise


def test_combine_adds_in_the_order_given() -> None:
    parts = [np.array([1e16, 1.0]), np.array([1.0, 2.0]), np.array([-1e16, 3.0])]
    assert combine(parts, 2).tolist() == [0.0, 6.0]
    assert combine([], 2).tolist() == [0.0, 0.0]


@given(seeds, st.integers(1, 7), st.floats(0, 5))
def test_lift_is_the_oracles_shift_and_floor(seed: int, dimension: int, shift: float) -> None:
    rng = np.random.default_rng(seed)
    packed = goe(rng, dimension, 3.0)
    gram, moment = unpack(packed)
    lifted, same = unpack(lift(packed, shift))
    assert (same == moment).all()
    assert np.linalg.eigvalsh(lifted)[0] >= -1e-12
    # Floored at zero here, before λ is added; the oracle floors at λ after it.
    expected = ref.floor_eigenvalues(gram + (shift + 0.7) * np.eye(dimension), 0.7)
    assert lifted + 0.7 * np.eye(dimension) == pytest.approx(expected, abs=1e-11)


def test_lift_leaves_a_definite_matrix_alone_but_for_the_shift() -> None:
    packed = pack(np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([3.0, 4.0]))
    assert (lift(packed, 0.0) == packed).all()
    assert lift(packed, 0.25).tolist() == [2.25, 0.5, 1.25, 3.0, 4.0]
    assert packed.tolist() == [2.0, 0.5, 1.0, 3.0, 4.0]  # and its input as it was


def worth_of(own: np.ndarray, ratio: float, noise_sd: float) -> float:
    return worth(own, ratio=ratio, noise_sd=noise_sd, radius=1.0, regulariser=1.0, parameter_norm=1.0)


@pytest.mark.long
@given(seeds, st.integers(1, 6), st.floats(0.1, 40))
def test_the_others_are_worth_less_the_noisier_they_are(seed: int, dimension: int, ratio: float) -> None:
    seen = np.random.default_rng(seed).normal(size=(200, dimension))
    own = pack(seen.T @ seen, np.zeros(dimension))
    weights = [worth_of(own, ratio, noise_sd) for noise_sd in (0.0, 0.1, 1.0, 10.0, 100.0, 1e6)]
    assert all(later <= earlier for earlier, later in itertools.pairwise(weights))
    assert all(0.0 <= weight <= 1.0 for weight in weights)
    assert weights[0] == 1.0  # exact statistics are taken whole
    assert weights[-1] == 0.0  # and noise alone is not taken at all


@pytest.mark.long
def test_noise_stays_within_its_bounds_as_often_as_it_says() -> None:
    # 2 000 aggregates of 5 releases each; the noise of one of them leaves with probability <= 0.1 at worst,
    # so more than 260 of 2 000 has probability below 1e-5.
    rng = np.random.default_rng(3)
    bounds = noise_bounds(noise_sd=2.0, dimension=4, releases=5, failure=0.1)
    outside = 0
    for _ in range(2000):
        leaves = False
        for _ in range(5):
            gram, moment = unpack(goe(rng, 4, 2.0))
            leaves |= bool(np.abs(np.linalg.eigvalsh(gram)).max() > bounds.matrix)
            leaves |= bool(np.linalg.norm(moment) > bounds.vector)
        outside += leaves
    assert outside <= 260
    assert (bounds.smallest, bounds.shift, bounds.largest) == (
        bounds.matrix,
        2 * bounds.matrix,
        3 * bounds.matrix,
    )
    assert bounds.vector_cost == pytest.approx(bounds.vector / np.sqrt(bounds.matrix))


def test_noise_bounds_are_those_of_the_proof() -> None:
    """s(2√d + 2√ln(2τ/α)) and s(√d + √(2 ln(τ/α))), by hand for s = 3, d = 4, τ = 20, α = 0.1."""
    bounds = noise_bounds(noise_sd=3.0, dimension=4, releases=20, failure=0.1)
    assert bounds.matrix == pytest.approx(3.0 * (4.0 + 2.0 * 2.4477468307), rel=1e-9)  # √ln 400
    assert bounds.vector == pytest.approx(3.0 * (2.0 + 3.2552472614), rel=1e-9)  # √(2 ln 200)


def test_noise_bounds_need_noise() -> None:
    with pytest.raises(InvalidInput, match=r"^noise_sd must be > 0"):
        noise_bounds(noise_sd=0.0, dimension=4, releases=5, failure=0.1)
