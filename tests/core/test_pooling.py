"""Pooling in compiled code, held against LAPACK and a plain formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfairx.agent import pooling as aggregate
from fedfairx.core import noisy_sums
from fedfairx.core.statistics import pack, unpack
from fedfairx.lanes.decorators import compiled
from fedfairx.lanes.rows import floats, vectors, zeros
from fedfairx.lanes.vector_llvm import WIDTH
from instances import worth

seeds = st.integers(0, 2**32 - 1)


def statistics(seed: int, dimension: int, definite: bool) -> np.ndarray:
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(dimension, dimension))
    gram = half @ half.T if definite else half + half.T
    return pack(gram, rng.normal(size=dimension))


@given(seeds, st.integers(1, 8), st.floats(0.0, 5.0), st.booleans())
def test_lift_shifts_and_floors_as_lapack_would(
    seed: int, dimension: int, shift: float, definite: bool
) -> None:
    packed = statistics(seed, dimension, definite)
    before = packed.copy()
    gram, moment = unpack(aggregate.lift(packed, shift))
    values, vectors = np.linalg.eigh(unpack(packed)[0] + shift * np.eye(dimension))
    assert gram == pytest.approx((vectors * np.maximum(values, 0.0)) @ vectors.T, abs=1e-10)
    assert moment.tolist() == packed[-dimension:].tolist()
    assert packed.tolist() == before.tolist()


@given(seeds, st.integers(1, 8), st.floats(0.0, 100.0), st.floats(0.0, 50.0))
def test_worth_is_the_least_cost_on_a_grid(seed: int, dimension: int, noise_sd: float, ratio: float) -> None:
    packed = statistics(seed, dimension, True)
    values = np.maximum(np.linalg.eigvalsh(unpack(packed)[0]), 0.0)

    def cost(weight: float) -> float:
        known = 1.0 + values * (1.0 + weight * ratio)
        return float(
            (noisy_sums.OPTIMISM * 0.8 / np.sqrt(known) + weight * noise_sd * np.sqrt(3.0) / known).sum()
        )

    found = worth(packed, ratio=ratio, noise_sd=noise_sd, radius=0.8, regulariser=1.0, parameter_norm=1.0)
    assert 0.0 <= found <= 1.0
    assert cost(found) <= min(cost(w) for w in np.linspace(0.0, 1.0, noisy_sums.STEPS)) * (1 + 1e-12)


def test_noise_makes_others_worthless_and_its_absence_makes_them_worth_all() -> None:
    packed = statistics(1, 4, True)
    common = {"ratio": 9.0, "radius": 0.8, "regulariser": 1.0, "parameter_norm": 1.0}
    assert worth(packed, noise_sd=0.0, **common) == 1.0
    assert worth(packed, noise_sd=1e6, **common) == 0.0


@pytest.mark.long
@settings(max_examples=8)
@given(seeds, st.integers(1, 6), st.floats(0.0, 30.0), st.floats(0.0, 3.0))
def test_a_lane_of_a_block_has_the_bits_of_an_agent_alone(
    seed: int, dimension: int, noise_sd: float, shift: float
) -> None:
    """Also where its neighbours' Grams need to be lifted, or others are worth nothing to them."""
    rng = np.random.default_rng(seed)
    size, count = dimension * (dimension + 3) // 2, rng.integers(1, 1_000, WIDTH).astype(float)
    own, others = zeros(size, WIDTH), zeros(size, WIDTH)
    noise = rng.choice([0.0, 1.0, 50.0], WIDTH) * noise_sd
    for lane in range(WIDTH):
        own[:, lane] = statistics(seed + lane, dimension, True) * rng.choice([0.0, 1.0, 1e3])
        others[:, lane] = statistics(seed + WIDTH + lane, dimension, bool(rng.integers(2)))
    alone = []
    for lane in range(WIDTH):
        both, room = others[:, lane].copy(), floats(np.empty((2, dimension, dimension)))
        each = floats(own[:, lane].copy()), count[lane], floats(both), 9.0 * count[lane], noise[lane]
        alone.append((noisy_sums.add_by_worth(*each, shift, 0.8, 1.0, 1.0, room), both.tolist()))
    weights = zeros(1, WIDTH)
    add_in_block(own, count, others, noise, shift, weights, zeros(2, dimension, dimension, WIDTH))
    assert [(weights[0, lane], others[:, lane].tolist()) for lane in range(WIDTH)] == alone


@compiled
def add_in_block(own, count, others, noise, shift, weights, room):
    made = vectors(count.reshape(1, WIDTH))[0]
    rows = vectors(own), made, vectors(others), 9.0 * made, vectors(noise.reshape(1, WIDTH))[0]
    vectors(weights)[0] = noisy_sums.add_by_worth(*rows, shift, 0.8, 1.0, 1.0, vectors(room))
