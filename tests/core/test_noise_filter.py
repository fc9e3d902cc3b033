"""What noisy statistics are worth: the eigenbasis formula, and what it does at both ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import posterior_reference
import reference as ref
from fedfairx.agent.pooling import weigh as weigh_packed
from fedfairx.core.noise_filter import doubt, weigh
from fedfairx.lanes.rows import floats, vectors, zeros
from fedfairx.lanes.vector_llvm import WIDTH


def noisy(rng: np.random.Generator, d: int, count: float, sd: float) -> np.ndarray:
    x = rng.random((200, d)) / np.sqrt(d)
    gram = count * x.T @ x / 200
    rows, cols = np.triu_indices(d)
    noise = sd * rng.standard_normal(rows.size) * np.where(rows == cols, np.sqrt(2), 1.0)
    packed = ref.pack(gram, gram @ rng.random(d))
    packed[: rows.size] += noise
    packed[rows.size :] += sd * rng.standard_normal(d)
    return packed


@given(
    st.integers(0, 10**6),
    st.integers(1, 8),
    st.floats(-3, 3),
    st.floats(0, 5),
    st.floats(1e-3, 1),
    st.floats(0, 6),
)
def test_it_is_the_formula_in_the_eigenbasis(
    seed: int, d: int, log_sd: float, log_count: float, variance: float, size: float
) -> None:
    packed = noisy(np.random.default_rng(seed), d, 10**log_count, 10**log_sd)
    wanted = posterior_reference.weighed(packed, d, 10**log_sd, size, variance)
    found = weigh_packed(packed, noise_sd=10**log_sd, size=size, variance=variance)
    assert found == pytest.approx(wanted, rel=1e-8, abs=1e-9 * np.abs(wanted).max())
    gram, _ = ref.unpack(found, d)
    assert np.linalg.eigvalsh(gram)[0] >= -1e-9 * np.abs(gram).max()


def test_without_noise_to_speak_of_all_is_believed_and_in_noise_nothing() -> None:
    packed = noisy(np.random.default_rng(0), 4, 1e4, 1e-9)
    kept = weigh_packed(packed, noise_sd=1e-9, size=1.0, variance=0.01)
    assert kept == pytest.approx(packed, rel=1e-6)
    lost = weigh_packed(packed, noise_sd=1e6, size=1.0, variance=0.01)
    assert np.abs(lost).max() < 1e-3


@pytest.mark.parametrize("sd", [1e-13, 1e-9, 1e-5])
def test_next_to_no_noise_in_a_sum_that_lacks_directions(sd: float) -> None:
    rng = np.random.default_rng(4)
    x = rng.random((2000, 3)) @ rng.random((3, 5))  # rank 3 of 5
    found = weigh_packed(ref.pack(x.T @ x, x.T @ rng.random(2000)), noise_sd=sd, size=1.0, variance=0.01)
    gram, _ = ref.unpack(found, 5)
    assert np.isfinite(found).all()
    assert gram == pytest.approx(x.T @ x, rel=1e-4, abs=1e-2)


@pytest.mark.long
def test_what_is_believed_of_noisy_sums_is_believed_as_much_as_it_deserves() -> None:
    # 1 000 parameters from the prior, seen through noisy sums: the squared distance of the estimate in units
    # of the posterior's covariance has mean d if the posterior is right. It may be too modest, not too sure.
    # A mean's standard error is 0.03: 1.25 is 5 of them above the largest, and noise that were taken for
    # 0.7 of what it is would be 6 above 1.25.
    rng, d, sd, variance = np.random.default_rng(5), 3, 0.5, 0.01
    for noise_sd, least in ((1.0, 0.5), (5.0, 0.5), (50.0, 0.3)):
        distances = []
        for _ in range(1000):
            theta, x = sd * rng.normal(size=d), rng.random((400, d)) / np.sqrt(d)
            gram = x.T @ x
            noise = rng.normal(size=(d, d)) * noise_sd
            moment = gram @ theta + 0.1 * x.T @ rng.normal(size=400) + noise_sd * rng.normal(size=d)
            packed = ref.pack(gram + (noise + noise.T) / np.sqrt(2), moment)
            believed = weigh_packed(packed, noise_sd=noise_sd, size=d * sd**2, variance=variance)
            G, b = ref.unpack(believed, d)
            V = G + variance / sd**2 * np.eye(d)
            away = np.linalg.solve(V, b) - theta
            distances.append(away @ V @ away / variance / d)
        assert least <= np.mean(distances) <= 1.25


@pytest.mark.long
def test_lanes_have_the_same_bits_as_one_alone() -> None:
    d, q = 3, 9
    rng = np.random.default_rng(1)
    block = zeros(q, WIDTH)
    block[:] = np.array([noisy(rng, d, 100.0, 2.0) for _ in range(WIDTH)]).T
    alone = [block[:, l].copy() for l in range(WIDTH)]
    weigh(vectors(block), 30.0, vectors(zeros(d, d, WIDTH)), vectors(zeros(d, d + 1, WIDTH)))
    for l, packed in enumerate(alone):
        weigh(floats(packed), 30.0, floats(np.empty((d, d))), floats(np.empty((d, d + 1))))
        assert (packed == block[:, l]).all()


def test_the_doubt_grows_with_the_noise_and_never_lets_the_sum_turn_negative() -> None:
    assert doubt(2.0, 1.0, 0.01, 5) == pytest.approx(4.0 * 2.0 / 0.01)
    assert doubt(0.001, 1.0, 1.0, 4) == pytest.approx(0.001 * 10.0)
    # 2 000 sums of nothing but noise: a pivot never fails (each has a chance below 1e-8).
    rng = np.random.default_rng(2)
    for _ in range(2000):
        values = weigh_packed(noisy(rng, 2, 0.0, 1.0), noise_sd=1.0, size=1.0, variance=100.0)
        assert np.abs(values).max() < 20.0
