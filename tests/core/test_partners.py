"""Partners who may differ, held against dense Gaussian conditioning."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfairx.core import partners
from fedfairx.core.statistics import pack, unpack
from fedfairx.lanes.rows import floats, size_of

seeds = st.integers(0, 2**32 - 1)


def rows(rng: np.random.Generator, count: int, theta: np.ndarray, sd: float) -> tuple[np.ndarray, np.ndarray]:
    contexts = rng.random((count, theta.size)) / np.sqrt(theta.size)
    return contexts, contexts @ theta + sd * rng.normal(size=count)


def packed(contexts: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    return pack(contexts.T @ contexts, contexts.T @ rewards)


def room(dimension: int) -> partners.Room:
    return partners.room_in(floats(np.empty(size_of(partners.room_in, dimension))), dimension)


def found(own: np.ndarray, others: np.ndarray, sd: float, noise: float, mean: np.ndarray) -> float:
    rows = (floats(each.copy()) for each in (own, others))
    return partners.likeliest(*rows, noise**2 / sd**2, noise**2, floats(mean), room(mean.size))


def translated(others: np.ndarray, difference: float, ridge: float, mean: np.ndarray) -> np.ndarray:
    changed, work = others.copy(), room(mean.size)
    own = floats(np.zeros(others.size))
    partners.likeliest(own, floats(changed), ridge, 1.0, floats(mean), work)
    partners.translate(floats(changed), difference, ridge, floats(mean), work)
    return changed


def posterior_by_conditioning(
    mine: tuple[np.ndarray, np.ndarray],
    theirs: tuple[np.ndarray, np.ndarray],
    difference: float,
    sd: float,
    noise: float,
    mean: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and covariance of one's own θ given all rewards, and ln p(own | others' rewards): dense."""
    d, r = mean.size, np.sqrt(1 - difference**2)
    prior = sd**2 * np.block([[np.eye(d), r * np.eye(d)], [r * np.eye(d), np.eye(d)]])
    design = np.block(
        [
            [mine[0], np.zeros((len(mine[0]), d))],
            [np.zeros((len(theirs[0]), d)), theirs[0]],
        ]
    )
    expected = design @ np.tile(mean, 2)
    covariance = design @ prior @ design.T + noise**2 * np.eye(len(design))
    rewards = np.concatenate([mine[1], theirs[1]]) - expected
    gain = prior @ design.T @ np.linalg.inv(covariance)
    posterior = prior - gain @ design @ prior
    n = len(mine[0])

    def log_density(values: np.ndarray, matrix: np.ndarray) -> float:
        return float(-0.5 * np.linalg.slogdet(matrix)[1] - 0.5 * values @ np.linalg.solve(matrix, values))

    joint = log_density(rewards, covariance) - log_density(rewards[n:], covariance[n:, n:])
    return (np.tile(mean, 2) + gain @ rewards)[:d], posterior[:d, :d], joint


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 5), st.sampled_from([0.0, 0.04, 0.32, 0.9, 1.0]), st.booleans())
def test_translated_statistics_give_the_posterior_of_the_joint_model(
    seed: int, dimension: int, difference: float, centred: bool
) -> None:
    rng = np.random.default_rng(seed)
    sd, noise = 0.5, 0.2
    mean = np.zeros(dimension) if centred else rng.normal(size=dimension)
    mine = rows(rng, 7, rng.normal(size=dimension), noise)
    theirs = rows(rng, 12, rng.normal(size=dimension), noise)
    ridge = noise**2 / sd**2
    gram, moment = unpack(translated(packed(*theirs), difference, ridge, mean))
    own_gram, own_moment = unpack(packed(*mine))
    precision = ridge * np.eye(dimension) + gram + own_gram
    estimate = np.linalg.solve(precision, moment + own_moment + ridge * mean)
    expected, covariance, _ = posterior_by_conditioning(mine, theirs, difference, sd, noise, mean)
    assert estimate == pytest.approx(expected, abs=1e-8)
    assert noise**2 * np.linalg.inv(precision) == pytest.approx(covariance, abs=1e-8)


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 5), st.floats(0.0, 1.5), st.booleans())
def test_the_difference_is_the_one_under_which_own_rewards_are_likeliest(
    seed: int, dimension: int, distance: float, centred: bool
) -> None:
    rng = np.random.default_rng(seed)
    sd, noise = 0.5, 0.2
    mean = np.zeros(dimension) if centred else rng.normal(size=dimension)
    theta = rng.normal(size=dimension)
    mine = rows(rng, 9, theta + distance * rng.normal(size=dimension), noise)
    theirs = rows(rng, 40, theta, noise)
    others = len(partners.DIFFERENCES) - 1
    values = [
        posterior_by_conditioning(mine, theirs, difference, sd, noise, mean)[2]
        + np.log(partners.SAME if difference == 0.0 else (1 - partners.SAME) / others)
        for difference in partners.DIFFERENCES
    ]
    chosen = found(packed(*mine), packed(*theirs), sd, noise, mean)
    best = max(values)
    assert values[list(partners.DIFFERENCES).index(chosen)] == pytest.approx(best, abs=1e-6)


@given(seeds, st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_the_ends_are_one_theta_for_all_and_nothing(seed: int, dimension: int) -> None:
    rng = np.random.default_rng(seed)
    others = packed(*rows(rng, 30, rng.normal(size=dimension), 0.1))
    mean = rng.normal(size=dimension)
    assert translated(others, 0.0, 0.04, mean) == pytest.approx(others, abs=1e-9)
    assert translated(others, 1.0, 0.04, mean) == pytest.approx(np.zeros(others.size), abs=1e-9)


def test_it_tells_partners_who_agree_from_those_who_do_not() -> None:
    """200 pairs each: of those who agree 3 in 4 are believed wholly, of those far apart none is."""
    rng = np.random.default_rng(7)
    mean, same, far = np.zeros(4), [], []
    for _ in range(200):
        theta = 0.5 * rng.normal(size=4)
        theirs = packed(*rows(rng, 2_000, theta, 0.1))
        same.append(found(packed(*rows(rng, 200, theta, 0.1)), theirs, 0.5, 0.1, mean))
        other = theta + 0.5 * rng.normal(size=4)
        far.append(found(packed(*rows(rng, 200, other, 0.1)), theirs, 0.5, 0.1, mean))
    assert np.mean(np.array(same) == 0.0) > 0.75
    assert np.median(same) == 0.0
    assert min(far) >= 0.16
