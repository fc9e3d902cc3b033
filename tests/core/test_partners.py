"""What others' statistics say where θ may differ, held against dense Gaussian conditioning."""

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
    return partners.room_in(floats(np.empty(size_of(partners.room_in, dimension))), dimension)[0]


def translated(others: np.ndarray, difference: float, ridge: float, mean: np.ndarray) -> np.ndarray:
    changed = others.copy()
    partners.translate(floats(changed), difference, ridge, floats(mean), room(mean.size))
    return changed


def evidence(
    own: np.ndarray, others: np.ndarray, difference: float, ridge: float, noise: float, mean: np.ndarray
) -> float:
    work = room(mean.size)
    partners.look_at_own(floats(own), ridge, floats(mean), work)
    partners.look_at_others(floats(others), ridge, floats(mean), work)
    return partners.log_evidence(difference, noise**2, work)


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
@given(seeds, st.integers(1, 5), st.integers(1, 9), st.floats(0.0, 1.5), st.booleans())
def test_evidence_is_that_of_the_joint_model_for_every_difference_and_every_partner(
    seed: int, dimension: int, own: int, distance: float, centred: bool
) -> None:
    """Up to one constant of one's own rewards alone, with fewer rewards than dimensions too."""
    rng = np.random.default_rng(seed)
    sd, noise = 0.5, 0.2
    mean = np.zeros(dimension) if centred else rng.normal(size=dimension)
    theta = rng.normal(size=dimension)
    mine = rows(rng, own, theta, noise)
    found, expected = [], []
    for count in (3, 40):
        theirs = rows(rng, count, theta + distance * rng.normal(size=dimension), noise)
        for q in partners.DIFFERENCES:
            found.append(evidence(packed(*mine), packed(*theirs), q, noise**2 / sd**2, noise, mean))
            expected.append(posterior_by_conditioning(mine, theirs, q, sd, noise, mean)[2])
    assert np.diff(found) == pytest.approx(np.diff(expected), rel=1e-6, abs=1e-6)


@given(seeds, st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_the_ends_are_one_theta_for_all_and_nothing(seed: int, dimension: int) -> None:
    rng = np.random.default_rng(seed)
    others = packed(*rows(rng, 30, rng.normal(size=dimension), 0.1))
    mean = rng.normal(size=dimension)
    assert translated(others, 0.0, 0.04, mean).tolist() == others.tolist()
    assert translated(others, 1.0, 0.04, mean) == pytest.approx(np.zeros(others.size), abs=1e-9)


def test_the_share_that_is_kept_is_all_at_0_and_falls_to_nothing_at_1() -> None:
    rng = np.random.default_rng(3)
    others = packed(*rows(rng, 50, rng.normal(size=3), 0.1))
    shares = [
        partners.translate(floats(others.copy()), q, 0.04, floats(np.zeros(3)), room(3))
        for q in partners.DIFFERENCES
    ]
    assert shares[0] == 1.0
    assert shares[-1] == pytest.approx(0.0, abs=1e-12)
    assert (np.diff(shares) < 0).all()
