"""The oracle for own records, held against sums over grids and against the formulas with u integrated out."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from own_record_reference import Belief, Records, Sizes, believe, draws, known_mean, log_evidence
from posterior_reference import Prior, likeliest, likeliest_shift

seeds = st.integers(0, 2**32 - 1)


def some(rng: np.random.Generator, *, d: int = 3, names: int = 5, count: int = 30) -> Records:
    """With slots and weights, a constant as the last column, and a last name without a record."""
    xs, who = rng.normal(size=(count, d)), rng.integers(names - 1, size=count)
    xs[:, -1] = 1.0
    ys = 3.0 + xs @ rng.normal(size=d) + rng.normal(size=names)[who] + rng.normal(size=count)
    return Records(xs, who, ys, names, rng.choice([1.0, 0.6], count), rng.uniform(0.2, 1.0, count))


def a_prior(d: int = 3) -> Prior:
    return Prior(np.zeros(d), 0.3, 0.5, True, np.eye(d)[-1])


def density(records: Records, w: np.ndarray, u: np.ndarray, sizes: Sizes) -> np.ndarray:
    """ln of that of one column, one name and the rewards, by the definition; w and u are a grid."""
    sd, tau = (np.sqrt(sizes.variance / size) for size in (sizes.ridge, sizes.rho))
    logs = -(w**2) / (2 * sd**2) - np.log(sd) - u**2 / (2 * tau**2) - np.log(tau)
    assert records.slots is not None
    assert records.weights is not None
    for x, y, v, weight in zip(records.xs[:, 0], records.ys, records.slots, records.weights, strict=True):
        left = y - v * (x * w + u)
        logs -= weight * (left**2 / sizes.variance + np.log(sizes.variance)) / 2
    return np.asarray(logs)


GRID = np.meshgrid(np.linspace(-6, 6, 401), np.linspace(-6, 6, 401), indexing="ij")


def one_of_each(seed: int) -> Records:
    rng = np.random.default_rng(seed)
    xs, ys = rng.normal(size=(8, 1)), rng.normal(size=8)
    weights = rng.uniform(0.3, 1.0, 8)
    return Records(xs, np.zeros(8, dtype=int), ys, 1, rng.choice([1.0, 0.6], 8), weights)


def test_the_posterior_is_that_of_a_grid() -> None:
    records, sizes = one_of_each(0), Sizes(0.7, 1.5, 0.8)
    logs = density(records, *GRID, sizes)
    chances = np.exp(logs - logs.max())
    chances /= chances.sum()
    belief = believe(records, Prior(np.zeros(1), 1.0, 1.0, True), sizes)
    xs = np.array([[0.4], [-1.3]])
    for x, mean, variance in zip(xs[:, 0], *belief.of(xs, np.zeros(2, dtype=int)), strict=True):
        values = x * GRID[0] + GRID[1]
        assert mean == pytest.approx((chances * values).sum(), abs=1e-6)
        assert variance == pytest.approx((chances * (values - mean) ** 2).sum(), rel=1e-6)


def test_the_evidence_is_that_of_a_grid() -> None:
    """Up to a constant: the integral over w and u, times 2σ₀²/σ² ~ χ² with two degrees of freedom, at its
    largest over σ², and lognormal sizes."""
    records, prior, tau = one_of_each(1), Prior(np.zeros(1), 0.6, 0.5, True), 0.4
    ridges, rhos = np.array([0.5, 4.0]), np.array([1.0, 8.0])
    found, variances = log_evidence(records, prior, tau, ridges, rhos)
    expected = np.empty((2, 2))
    for i, j in np.ndindex(2, 2):

        def whole(variance: float, ridge: float = ridges[i], rho: float = rhos[j]) -> float:
            logs = density(records, *GRID, Sizes(variance, ridge, rho))
            return float(np.log(np.exp(logs).sum()) - np.log(variance) - prior.noise_sd**2 / variance)

        best = float(variances[i, j])
        assert whole(best) > max(whole(0.98 * best), whole(1.02 * best))
        far = (np.log(np.sqrt(best / size) / first) for size, first in ((ridges[i], 0.6), (rhos[j], tau)))
        expected[i, j] = whole(best) - sum(each**2 for each in far) / 2
    assert found - found[0, 0] == pytest.approx(expected - expected[0, 0], abs=1e-6)


@given(seeds)
def test_u_integrated_out_says_the_same(seed: int) -> None:
    """S, c, and n, s and r of each name take the places of d + K numbers."""
    rng = np.random.default_rng(seed)
    records, prior = some(rng), known_mean(a_prior())
    sizes = Sizes(*2.0 ** rng.uniform(-3, 3, 3))
    rows, who = rng.normal(size=(records.names, 3)), np.arange(records.names)
    means, variances = believe(records, prior, sizes).of(rows, who)
    assert records.slots is not None
    assert records.weights is not None
    n, r, s = np.zeros(records.names), np.zeros(records.names), np.zeros((records.names, 3))
    whole, moment = sizes.ridge * np.eye(3), np.zeros(3)
    for x, a, y, v, w in zip(
        records.xs, records.who, records.ys, records.slots, records.weights, strict=True
    ):
        n[a] += w * v**2
        s[a] += w * v**2 * x
        r[a] += w * v * y
        whole, moment = whole + w * v**2 * np.outer(x, x), moment + w * v * x * y
    k = 1.0 / (n + sizes.rho)
    inverse, moment = np.linalg.inv(whole - (s.T * k) @ s), moment - (k * r) @ s
    white = rows - k[:, None] * s
    assert means == pytest.approx(white @ inverse @ moment + k * r, abs=1e-9)
    expected = sizes.variance * (np.einsum("ij,jk,ik->i", white, inverse, white) + k)
    assert variances == pytest.approx(expected, rel=1e-9)


@given(seeds)
def test_a_mean_that_is_learnt_is_a_wider_prior(seed: int) -> None:
    """A constant of N(δ, sd²) with δ ~ N(0, s²) is one of N(0, sd² + s²); here s² is not so large that
    rounding shows."""
    rng = np.random.default_rng(seed)
    records, prior = some(rng), NearPrior(**vars(a_prior()))
    sizes = Sizes(*2.0 ** rng.uniform(-3, 3, 3))
    belief = believe(records, prior, sizes)
    wider = np.array([1.0, 1.0, 1.0 / (1.0 + 4.0 * sizes.ridge / sizes.variance)]) * sizes.ridge
    other = believe(records, known_mean(prior), Sizes(sizes.variance, wider, sizes.rho))
    assert belief.mean + belief.shift * belief.slope == pytest.approx(other.mean, abs=1e-9)
    whole = belief.spread + belief.looseness * np.outer(belief.slope, belief.slope)
    assert whole == pytest.approx(other.spread, abs=1e-9)


class NearPrior(Prior):
    def wide(self, fit: np.ndarray) -> np.ndarray:
        return np.full_like(fit, 4.0)


@pytest.mark.parametrize("common", [np.eye(3)[-1], np.ones(3)])
@given(seed=seeds)
def test_without_own_records_it_is_the_oracle_that_was_there(common: np.ndarray, seed: int) -> None:
    """Where ρ is so large that u is 0."""
    rng = np.random.default_rng(seed)
    records, prior = some(rng, count=40), replace(a_prior(), common=common)
    records.slots = None
    ridges, none = 2.0 ** np.arange(-20, 21), np.array([1e30])
    flat = log_evidence(records, prior, 1.0, ridges, none)
    tiny = np.log(np.sqrt(flat[1] / none)) ** 2 / 2  # what τ = 0 costs
    best = int(np.argmax(flat[0] + tiny))
    variance, ridge = likeliest(records.xs, records.ys, prior, records.weights)
    assert (flat[1][best, 0], ridges[best]) == (pytest.approx(variance, rel=1e-9), ridge)
    rows, ys = (each[..., :3] if each.ndim == 2 else each for each in records.whole)
    belief = believe(records, prior, Sizes(variance, ridge, 1e30))
    expected = likeliest_shift(rows.T @ rows, rows.T @ ys, prior, variance, ridge)
    assert belief.shift == pytest.approx(expected, rel=1e-9)


def test_records_that_weigh_two_are_two_records() -> None:
    rng = np.random.default_rng(4)
    records, prior, sizes = some(rng), a_prior(), Sizes(0.5, 2.0, 3.0)
    records.weights = np.ones(30)
    twice = records.part(np.repeat(np.arange(30), 2))
    records.weights = np.full(30, 2.0)
    one, other = (believe(each, prior, sizes) for each in (records, twice))
    for mine, theirs in zip(one, other, strict=True):
        assert mine == pytest.approx(theirs, abs=1e-9)
    grid = np.array([0.5, 8.0])
    one_p, other_p = (log_evidence(each, prior, 0.1, grid, grid) for each in (records, twice))
    assert one_p[0] - one_p[0][0, 0] == pytest.approx(other_p[0] - other_p[0][0, 0], abs=1e-8)
    assert one_p[1] == pytest.approx(other_p[1], rel=1e-9)


def test_neither_the_height_of_rewards_nor_the_order_of_names_matters() -> None:
    """Adding 3 or -70 to all rewards moves all expected rewards by as much: with every record of weight 1."""
    rng = np.random.default_rng(5)
    records, prior, sizes = some(rng), a_prior(), Sizes(0.5, 2.0, 3.0)
    records.slots = None
    rows, who = np.hstack([rng.normal(size=(5, 2)), np.ones((5, 1))]), np.arange(5)
    means, variances = believe(records, prior, sizes).of(rows, who)
    for more in (3.0, -70.0):
        moved = Records(records.xs, records.who, records.ys + more, 5, None, records.weights)
        found = believe(moved, prior, sizes).of(rows, who)
        assert found[0] - more == pytest.approx(means, abs=1e-9)
        assert found[1] == pytest.approx(variances, rel=1e-9)
    other = np.array([3, 0, 4, 1, 2])
    moved = Records(records.xs, other[records.who], records.ys, 5, None, records.weights)
    assert believe(moved, prior, sizes).of(rows, other)[0] == pytest.approx(means, abs=1e-9)


def moments(beliefs: list[Belief], chances: np.ndarray, freedom: float) -> tuple[np.ndarray, np.ndarray]:
    """The mean and covariance of a mixture; σ² is on average freedom/(freedom - 2) times the likeliest."""
    means = np.array([each.mean + each.shift * each.slope for each in beliefs])
    mean = chances @ means
    whole = np.zeros((mean.size, mean.size))
    for each, chance, its in zip(beliefs, chances, means, strict=True):
        inside = each.spread + each.looseness * np.outer(each.slope, each.slope)
        whole += chance * (
            freedom / (freedom - 2) * each.variance * inside + np.outer(its - mean, its - mean)
        )
    return mean, whole


def test_draws_have_the_moments_of_the_mixture() -> None:
    """20 000 draws: 8 means within 5 standard errors, and 64 covariances within 7 of normal ones, as their
    tails are heavier: about 1 in 10⁵ for another seed."""
    rng, count = np.random.default_rng(6), 20_000
    records, prior, tau = some(rng), a_prior(), 0.3
    ridges, rhos = np.array([0.5, 4.0]), np.array([0.25, 1.0])
    found = draws(records, prior, tau, ridges, rhos, count=count, rng=rng)
    logs, variances = log_evidence(records, prior, tau, ridges, rhos)
    chances = np.exp(logs - logs.max()).ravel()
    chances /= chances.sum()
    assert chances.max() < 0.9
    cases = itertools.product(ridges, rhos)
    beliefs = [
        believe(records, prior, Sizes(float(v), ridge, rho))
        for v, (ridge, rho) in zip(variances.ravel(), cases, strict=True)
    ]
    mean, covariance = moments(beliefs, chances, 2 + records.count)
    sds = np.sqrt(np.diagonal(covariance))
    assert (np.abs(found.mean(axis=0) - mean) < 5 * sds / np.sqrt(count)).all()
    errors = np.sqrt((np.outer(sds, sds) ** 2 + covariance**2) / count)
    assert (np.abs(np.cov(found.T) - covariance) < 7 * errors).all()
