"""σ and the prior's sd by the marginal likelihood of own records, held against dense Gaussian densities."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
import posterior_reference as oracle
from fedfairx.core import marginal_likelihood as ml
from fedfairx.core.learner import NOISE_VARIANCE, OBSERVED, RIDGE, SQUARES, Learner, learner, start
from fedfairx.core.merit_kernels import table
from fedfairx.core.statistics import pack
from fedfairx.lanes.linalg import tridiagonalize
from fedfairx.lanes.rows import floats, size_of, zeros

seeds = st.integers(0, 2**32 - 1)


def records(rng: np.random.Generator, count: int, dimension: int, size: float, noise: float) -> tuple:
    contexts = rng.random((count, dimension)) / np.sqrt(dimension)
    return contexts, contexts @ rng.normal(0, size, dimension) + noise * rng.normal(size=count)


def packed(contexts: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    return pack(contexts.T @ contexts, contexts.T @ rewards)


def blank(dimension: int, prior: ffx.Prior, *, common: Sequence[int] = ()) -> Learner:
    return start(
        zeros(size_of(learner, dimension)),
        dimension,
        merits=table([ffx.merit.Exponential()]),
        rule="expected-merit",
        confidence=ffx.Confidence(),
        priors=[prior],
        learning=True,
        common=common,
    )


def learnt(
    contexts: np.ndarray,
    rewards: np.ndarray,
    prior: ffx.Prior,
    *,
    common: Sequence[int] = (),
    start: float = 0.0,
) -> tuple[float, float]:
    """(σ², λ); the mean before is `start` in the coordinates in which it is learnt."""
    n, d = contexts.shape
    state = blank(d, prior, common=common)
    for j in common:
        state.mean[j] = start
    state.numbers[OBSERVED], state.numbers[SQUARES] = float(n), float(rewards @ rewards)
    sums, workspace = floats(packed(contexts, rewards)), floats(np.empty((d, d + 1)))
    variance, ridge, _ = map(float, ml.learnt_sizes(state, sums, workspace, None, None))
    return variance, ridge


def learnt_mean(
    contexts: np.ndarray,
    rewards: np.ndarray,
    prior: ffx.Prior,
    variance: float,
    ridge: float,
    common: Sequence[int],
) -> float:
    """The mean in the common coordinates, for this σ² and λ."""
    d = contexts.shape[1]
    state, gram = blank(d, prior, common=common), contexts.T @ contexts
    state.numbers[NOISE_VARIANCE], state.numbers[RIDGE] = variance, ridge
    state.statistics.array[:] = packed(contexts, rewards)
    return float(ml.learnt_mean(state, floats(np.linalg.inv(gram + ridge * np.eye(d)))))


@given(seeds, st.integers(1, 13), st.floats(1e-3, 1e3))
def test_quadratic_form_and_volume_are_those_of_dense_algebra(seed: int, d: int, ridge: float) -> None:
    rng = np.random.default_rng(seed)
    contexts, rewards = records(rng, 8, d, 1.0, 0.1)
    gram, moment = contexts.T @ contexts, contexts.T @ rewards
    found = ml.solve(
        floats(packed(contexts, rewards)), ridge, floats(moment.copy()), floats(np.empty((d, d + 1)))
    )
    whole = gram + ridge * np.eye(d)
    assert found[0] == pytest.approx(moment @ np.linalg.solve(whole, moment), rel=1e-9)
    assert found[1] == pytest.approx(np.linalg.slogdet(whole / ridge)[1], rel=1e-9, abs=1e-12)


@pytest.mark.long
@given(
    seeds, st.integers(1, 5), st.integers(1, 60), st.floats(-3.0, 3.0), st.floats(-3.0, 1.0), st.booleans()
)
def test_the_likeliest_of_the_grid_is_found(
    seed: int, d: int, count: int, log_size: float, log_noise: float, centred: bool
) -> None:
    rng = np.random.default_rng(seed)
    contexts, rewards = records(rng, count, d, 10.0**log_size, 10.0**log_noise)
    mean = np.zeros(d) if centred else rng.normal(size=d)
    prior = ffx.Prior(tuple(mean), sd=0.5, noise_sd=0.4)
    variance, ridge = learnt(contexts, rewards, prior)
    theirs = oracle.likeliest(contexts, rewards, oracle.Prior(mean, 0.5, 0.4, True))
    assert ridge == theirs[1]
    assert variance == pytest.approx(theirs[0], rel=1e-6)


@pytest.mark.long
@given(
    seeds,
    st.integers(1, 8),
    st.integers(1, 60),
    st.floats(-2.0, 1.0),
    st.floats(-2.0, 1.0),
    st.floats(-3.0, 3.0),
)
def test_the_mean_of_actions_without_features_is_learnt_too(
    seed: int, actions: int, count: int, log_size: float, log_noise: float, start: float
) -> None:
    """Against dense algebra among records; what was learnt before does not count."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, actions, count)
    contexts = np.eye(actions)[chosen] * rng.choice([1.0, 0.5], count)[:, None]
    means = rng.normal() + 10.0**log_size * rng.normal(size=actions)
    rewards = contexts @ means + 10.0**log_noise * rng.normal(size=count)
    assumed = ffx.Prior(0.7, 0.3, 0.4)
    every = range(actions)
    variance, ridge = learnt(contexts, rewards, assumed, common=every, start=start)
    prior = oracle.Prior(np.full(actions, 0.7), 0.3, 0.4, True, common=np.ones(actions))
    assert (variance, ridge) == pytest.approx(oracle.likeliest(contexts, rewards, prior), rel=1e-6)
    gram, moment = contexts.T @ contexts, contexts.T @ rewards
    delta = oracle.likeliest_shift(gram, moment, prior, variance, ridge)
    mean = learnt_mean(contexts, rewards, assumed, variance, ridge, every)
    assert mean == pytest.approx(0.7 + delta, rel=1e-6, abs=1e-6)


@given(seeds, st.integers(1, 8), st.integers(1, 60), st.floats(-6.0, 6.0), st.floats(-3.0, 3.0))
def test_the_mean_of_some_coordinates_is_learnt(
    seed: int, d: int, count: int, log_ridge: float, start: float
) -> None:
    """That of an intercept, say; sums are not diagonal, as those of filtered noise are not."""
    rng = np.random.default_rng(seed)
    contexts, rewards = records(rng, count, d, 1.0, 0.1)
    some, ridge = np.flatnonzero(np.append(rng.random(d - 1) < 0.5, True)).tolist(), 10.0**log_ridge
    common, assumed = np.isin(np.arange(d), some).astype(float), ffx.Prior(0.7, 0.3, 0.4)
    prior = oracle.Prior(np.full(d, 0.7), 0.3, 0.4, True, common=common)
    sizes = learnt(contexts, rewards, assumed, common=some, start=start)
    assert sizes == pytest.approx(oracle.likeliest(contexts, rewards, prior), rel=1e-6)
    delta = oracle.likeliest_shift(contexts.T @ contexts, contexts.T @ rewards, prior, 0.2, ridge)
    mean = learnt_mean(contexts, rewards, assumed, 0.2, ridge, some)
    assert mean == pytest.approx(0.7 + delta, rel=1e-6, abs=1e-6)


def test_no_records_leave_the_mean_as_it_was_guessed() -> None:
    for ridge in (1e-6, 1.0, 1e6):
        assert learnt_mean(np.zeros((1, 5)), np.zeros(1), ffx.Prior(0.7), 0.2, ridge, range(5)) == 0.7


@pytest.mark.parametrize("size", [1.0, 1e3, 1e9])
def test_few_records_of_rows_make_no_wide_prior(size: float) -> None:
    """Rewards that differ only by luck, or by more than is expected; 24 records are enough for 20 numbers."""
    rng, d = np.random.default_rng(0), 20
    prior, widths = ffx.Prior(sd=0.3, noise_sd=0.5), []
    for _ in range(40):
        for count in (16, 40):
            contexts = rng.uniform(-1.0, 1.0, (count, d)) / math.sqrt(d)
            rewards = size * rng.choice([-0.5, 0.5], count)
            variance, ridge = learnt(contexts, rewards, prior)
            limit = 0.7 * 0.3 * max(1.0, math.sqrt(float(rewards @ rewards) / count / (0.3**2 + 0.5**2)))
            widths.append((count, math.sqrt(variance / ridge) / limit))
    assert max(width for count, width in widths if count == 16) <= 1.0
    assert size > 1.0 or max(width for count, width in widths if count == 40) > 1.0


def test_the_prior_of_actions_without_features_may_be_wide_at_once() -> None:
    rewards = np.array([5.0, -5.0, 5.0, -5.0])
    variance, ridge = learnt(np.eye(4), rewards, ffx.Prior(sd=0.3, noise_sd=0.1), common=range(4))
    assert math.sqrt(variance / ridge) > 1.0


@given(seeds, st.integers(1, 5), st.integers(1, 100), st.sampled_from([-40, -3, 5, 40]))
def test_rewards_of_another_size_give_the_same_ridge(seed: int, d: int, count: int, power: int) -> None:
    rng, scale = np.random.default_rng(seed), 2.0**power
    contexts, rewards = records(rng, count, d, 1.0, 0.3)
    variance, ridge = learnt(contexts, rewards, ffx.Prior(sd=0.5, noise_sd=0.5))
    other = ffx.Prior(sd=0.5 * scale, noise_sd=0.5 * scale)
    assert learnt(contexts, scale * rewards, other) == (pytest.approx(scale**2 * variance, rel=1e-12), ridge)


@pytest.mark.parametrize("size", [1.0, 5.0, 500.0])
def test_sizes_are_found_where_the_first_guess_is_far_off(size: float) -> None:
    """One seed: 4 096 records tell σ to some per cent, and five coordinates tell sd to a factor of 2.5."""
    rng = np.random.default_rng(5)
    contexts, rewards = records(rng, 4096, 5, size, 0.1 * size)
    variance, ridge = learnt(contexts, rewards, ffx.Prior(sd=0.5, noise_sd=0.5))
    assert math.sqrt(variance) == pytest.approx(0.1 * size, rel=0.05)
    assert 0.4 * size < math.sqrt(variance / ridge) < 2.5 * size


def test_what_rounding_leaves_of_rewards_that_the_prior_predicts_is_no_negative_noise() -> None:
    """Σ(y - x·mean)² is 0, and a difference of large sums makes it less in about half of the cases.

    The first guess counts for two. Which cases these are depends on the processor.
    """
    variances = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        mean, contexts = 1e6 * rng.normal(size=3), rng.random((64, 3)) / np.sqrt(3)
        variance, _ = learnt(contexts, contexts @ mean, ffx.Prior(tuple(mean), sd=0.5, noise_sd=1e-3))
        variances.append(variance)
    assert min(variances) == pytest.approx(2 * 1e-6 / 66)
    assert max(variances) > 1e-6


def test_both_are_learnt_again_at_powers_of_two() -> None:
    assert [ml.next_refit(n) for n in (0, 1, 2, 3, 4, 7, 8, 1023)] == [1, 2, 4, 4, 8, 8, 16, 1024]


@given(seeds, st.integers(1, 12), st.sampled_from([1e-150, 1.0, 1e150]), st.booleans())
def test_a_matrix_becomes_tridiagonal_by_a_rotation(seed: int, d: int, scale: float, sparse: bool) -> None:
    """Eigenvalues, the quadratic form of the vector, and its length stay."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d)) * (rng.random((d, d)) < (0.3 if sparse else 1.0))
    whole, vector, second = scale * (root @ root.T), rng.normal(size=d), rng.normal(size=d)
    rows, turned = np.column_stack([np.triu(whole), second]), vector.copy()
    tridiagonalize(floats(rows), floats(turned), floats(np.empty(d)))
    other, above = rows[:, d], np.diagonal(rows[:, :d], 1)
    found = np.diag(np.diagonal(rows[:, :d])) + np.diag(above, 1) + np.diag(above, -1)
    top = max(np.abs(np.linalg.eigvalsh(whole)).max(), 1e-300)
    assert np.linalg.eigvalsh(found) / top == pytest.approx(np.linalg.eigvalsh(whole) / top, abs=1e-12)
    wanted = vector @ whole @ vector / top
    assert turned @ found @ turned / top == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    assert turned @ turned == pytest.approx(vector @ vector)
    assert turned @ other == pytest.approx(vector @ second, abs=1e-9)
    assert other @ found @ turned / top == pytest.approx(second @ whole @ vector / top, abs=1e-9)
