"""How far partners who may differ are believed, held against dense Gaussian densities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfairx.core import partners
from fedfairx.core.noise_filter import filter_noise
from fedfairx.core.partners import LEAST_TRUST, LEVELS, POWERS, PRIOR_WEIGHTS
from fedfairx.core.statistics import pack, unpack
from fedfairx.lanes.rows import floats, size_of

seeds = st.integers(0, 2**32 - 1)
SD, NOISE = 0.5, 0.2
RIDGE = NOISE**2 / SD**2


def rows(rng: np.random.Generator, count: int, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    contexts = rng.random((count, theta.size)) / np.sqrt(theta.size)
    return contexts, contexts @ theta + NOISE * rng.normal(size=count)


def packed(contexts: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    return pack(contexts.T @ contexts, contexts.T @ rewards)


def judged(
    own: np.ndarray,
    others: np.ndarray,
    mean: np.ndarray,
    *,
    noise_sd: float = 0.0,
    prior_weights: np.ndarray = PRIOR_WEIGHTS,
) -> tuple[float, np.ndarray]:
    """The power, and the weights."""
    evidence, _ = partners.partner_evidence(
        floats(np.empty(size_of(partners.partner_evidence, mean.size))), mean.size
    )
    for rows_, values in (
        (evidence.own, own),
        (evidence.mean, mean),
        (evidence.prior_weights, prior_weights),
    ):
        rows_.array[:] = values
    power = partners.believed_power(floats(others.copy()), noise_sd, 1.0, RIDGE, NOISE**2, evidence)
    return float(power), evidence.weights.array.copy()


def dense_weights(
    mine: tuple[np.ndarray, np.ndarray],
    others: np.ndarray,
    mean: np.ndarray,
    prior_weights: np.ndarray = PRIOR_WEIGHTS,
) -> np.ndarray:
    """Weights of the powers by the density of own rewards: no sums of one's own, no elimination."""
    gram, moment = unpack(others)
    logs = []
    for power in POWERS:
        precision = (RIDGE * np.eye(mean.size) + power * gram) / NOISE**2
        centre = np.linalg.solve(precision, (RIDGE * mean + power * moment) / NOISE**2)
        covariance = mine[0] @ np.linalg.inv(precision) @ mine[0].T + NOISE**2 * np.eye(len(mine[1]))
        error = mine[1] - mine[0] @ centre
        logs.append(
            -0.5 * np.linalg.slogdet(covariance)[1] - 0.5 * error @ np.linalg.solve(covariance, error)
        )
    weights = prior_weights * np.exp(np.array(logs) - max(logs))
    return weights / weights.sum()


@pytest.mark.long
@given(seeds, st.integers(1, 5), st.integers(1, 9), st.integers(1, 60), st.floats(0.0, 1.5), st.booleans())
def test_weights_are_those_of_the_density_of_own_rewards(
    seed: int, d: int, own: int, count: int, distance: float, centred: bool
) -> None:
    rng = np.random.default_rng(seed)
    theta, mean = rng.normal(size=d), np.zeros(d) if centred else rng.normal(size=d)
    mine, theirs = rows(rng, own, theta), packed(*rows(rng, count, theta + distance * rng.normal(size=d)))
    prior_weights = rng.dirichlet(np.ones(LEVELS))
    for weights in (PRIOR_WEIGHTS, prior_weights):
        power, found = judged(packed(*mine), theirs, mean, prior_weights=weights)
        expected = dense_weights(mine, theirs, mean, weights)
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-9)
        assert power == pytest.approx(expected @ POWERS, rel=1e-5, abs=1e-9)


def test_beforehand_half_of_the_weight_is_on_nothing() -> None:
    assert POWERS[0] == 0.0
    assert POWERS[-1] == 1.0
    assert PRIOR_WEIGHTS[0] == 0.5
    assert PRIOR_WEIGHTS.sum() == pytest.approx(1.0)
    power, weights = judged(np.zeros(9), packed(*rows(np.random.default_rng(0), 99, np.ones(3))), np.zeros(3))
    assert weights == pytest.approx(PRIOR_WEIGHTS)
    assert power == pytest.approx(PRIOR_WEIGHTS @ POWERS)


def test_a_partner_that_is_alike_counts_and_one_that_is_opposite_does_not() -> None:
    rng, theta = np.random.default_rng(1), np.array([0.8, 0.1, 0.4])
    own, good, bad = (packed(*rows(rng, 400, sign * theta)) for sign in (1, 1, -1))
    assert judged(own, good, np.zeros(3))[0] > 0.6
    assert judged(own, bad, np.zeros(3))[0] < 1e-3


@given(seeds)
def test_noisy_statistics_are_filtered_before_they_are_judged(seed: int) -> None:
    rng, theta = np.random.default_rng(seed), np.array([0.8, 0.1, 0.4])
    mine, others = rows(rng, 30, theta), packed(*rows(rng, 300, theta)) + 3.0 * rng.normal(size=9)
    filtered = others.copy()
    filter_noise(floats(filtered), 3.0, 1.0, NOISE**2, floats(np.empty((3, 3))), floats(np.empty((3, 4))))
    _, found = judged(packed(*mine), others, np.zeros(3), noise_sd=3.0)
    assert found == pytest.approx(dense_weights(mine, filtered, np.zeros(3)), rel=1e-5, abs=1e-9)


@given(seeds, st.integers(1, 4), st.integers(0, 40), st.floats(-3.0, 6.0), st.floats(-3.0, 6.0))
def test_whatever_a_partner_says_is_judged_in_finite_numbers(
    seed: int, d: int, own: int, log_gram: float, log_moment: float
) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d)) * 10.0**log_gram
    others = pack(root @ root.T, rng.normal(size=d) * 10.0**log_moment)
    power, weights = judged(packed(*rows(rng, own, rng.normal(size=d))), others, np.zeros(d))
    assert 0.0 <= power <= 1.0
    assert weights.sum() == pytest.approx(1.0)


def judged_by_each_other(releases: list[np.ndarray], mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Trust, and weights that were `PRIOR_WEIGHTS` before."""
    count = len(releases)
    peers, _ = partners.peers_of(
        floats(np.zeros(size_of(partners.peers_of, mean.size, count))), mean.size, count
    )
    evidence, _ = partners.partner_evidence(
        floats(np.empty(size_of(partners.partner_evidence, mean.size))), mean.size
    )
    evidence.mean.array[:], peers.releases.array[:], peers.weights.array[:] = mean, releases, PRIOR_WEIGHTS
    partners.judge_by_each_other(peers, RIDGE, NOISE**2, evidence)
    return peers.trust.array.copy(), peers.weights.array.copy()


def dense_log_likelihood(contexts: np.ndarray, rewards: np.ndarray, mean: np.ndarray) -> float:
    """Of rewards, if θ has the prior: no sums, no elimination."""
    covariance = SD**2 * contexts @ contexts.T + NOISE**2 * np.eye(len(rewards))
    error = rewards - contexts @ mean
    return -0.5 * float(np.linalg.slogdet(covariance)[1] + error @ np.linalg.solve(covariance, error))


@pytest.mark.long
@given(seeds, st.integers(1, 4), st.integers(2, 6), st.floats(0.0, 0.5), st.booleans())
def test_trust_is_what_more_than_half_of_the_peers_agree_to(
    seed: int, d: int, count: int, distance: float, centred: bool
) -> None:
    rng = np.random.default_rng(seed)
    theta, mean = rng.normal(size=d), np.zeros(d) if centred else rng.normal(size=d)
    data = [rows(rng, int(rng.integers(1, 40)), theta + distance * rng.normal(size=d)) for _ in range(count)]
    trust, weights = judged_by_each_other([packed(*each) for each in data], mean)
    alone = [dense_log_likelihood(*each, mean) for each in data]
    sizes = [float((contexts**2).sum()) for contexts, _ in data]
    for i in range(count):
        votes = [1.0]
        for j in range(count):
            if j != i:
                both = (np.concatenate(parts) for parts in zip(data[i], data[j], strict=True))
                votes.append(np.exp(min(dense_log_likelihood(*both, mean) - alone[i] - alone[j], 0.0)))
        least = LEAST_TRUST * min(sorted(sizes)[(count - 1) // 2] / sizes[i], 1.0)
        assert trust[i] == pytest.approx(max(sorted(votes)[(count - 1) // 2], least), rel=1e-6)
        assert weights[i, 1:] == pytest.approx(trust[i] * PRIOR_WEIGHTS[1:])
        assert weights[i].sum() == pytest.approx(1.0)


@pytest.mark.parametrize(("count", "hostile"), [(2, 1), (3, 1), (4, 1), (5, 2), (10, 4), (10, 5)])
def test_less_than_half_of_the_peers_are_not_trusted_and_of_two_neither(count: int, hostile: int) -> None:
    """However many records they claim; those who are more than half are trusted."""
    rng, theta = np.random.default_rng(0), np.array([0.8, 0.1, 0.4])
    releases = [
        packed(*rows(rng, 100, theta)) if i >= hostile else 1000 * packed(*rows(rng, 100, -theta))
        for i in range(count)
    ]
    trust, _ = judged_by_each_other(releases, np.zeros(3))
    assert max(trust[:hostile]) < 2e-5  # a hundredth of the records of a usual peer
    honest = trust[hostile:]
    assert min(honest) == 1.0 if 2 * hostile < count else max(honest) <= LEAST_TRUST


@given(st.lists(st.floats(-2.0, 2.0), min_size=1, max_size=9))
def test_lower_median(values: list[float]) -> None:
    assert partners.lower_median(floats(np.array(values))) == sorted(values)[(len(values) - 1) // 2]


def test_peers_who_have_nothing_to_say_are_judged_in_finite_numbers() -> None:
    trust, weights = judged_by_each_other(
        [np.zeros(9), packed(np.eye(3), np.ones(3)), np.zeros(9)], np.zeros(3)
    )
    assert trust == pytest.approx(1.0)
    assert weights == pytest.approx(np.tile(PRIOR_WEIGHTS, (3, 1)))
