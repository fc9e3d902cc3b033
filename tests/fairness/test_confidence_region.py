"""Where θ* can be: the formula against the likelihood ratio that it comes from, and coverage at all times."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedfairx.fairness.confidence_region import region


def test_the_region_is_where_prior_over_posterior_is_below_its_limit() -> None:
    rng = np.random.default_rng(0)
    contexts, noise_sd, ridge = rng.normal(size=(40, 3)), 0.7, 2.0
    gram, moment = contexts.T @ contexts, contexts.T @ rng.normal(size=40)
    found = region(gram, moment, noise_sd=noise_sd, error=0.03, prior_sd=noise_sd / ridge**0.5)
    prior = multivariate_normal(np.zeros(3), noise_sd**2 / ridge * np.eye(3))
    precision = gram + ridge * np.eye(3)
    posterior = multivariate_normal(
        np.linalg.solve(precision, moment), noise_sd**2 * np.linalg.inv(precision)
    )
    for _ in range(200):
        direction = rng.normal(size=3)
        edge = found.centre + found.radius * found.root @ (direction / np.linalg.norm(direction))
        assert prior.logpdf(edge) - posterior.logpdf(edge) == pytest.approx(np.log(1 / 0.03), abs=1e-9)


def test_widths_are_the_largest_products_over_the_region() -> None:
    rng = np.random.default_rng(1)
    contexts = rng.normal(size=(20, 2))
    found = region(contexts.T @ contexts, contexts.T @ rng.normal(size=20), noise_sd=0.5, error=0.1)
    angles = np.linspace(0, 2 * np.pi, 2_000)
    edge = found.radius * np.stack([np.cos(angles), np.sin(angles)], axis=1) @ found.root.T
    for direction in rng.normal(size=(5, 2)):
        assert found.widths(direction) == pytest.approx((edge @ direction).max(), rel=1e-5)


@pytest.mark.long
def test_it_holds_at_all_times_for_rewards_that_choose_what_is_looked_at_next() -> None:
    """400 runs, error 0.1. The bound is conservative, and it is left in far fewer."""
    rng, runs = np.random.default_rng(2), np.arange(400)
    theta, outside = np.array([0.6, -0.3, 0.4]), np.zeros(400, dtype=bool)
    gram, moment = np.zeros((400, 3, 3)), np.zeros((400, 3))
    for t in range(60):
        choices = rng.random((400, 4, 3)) - np.array([0.0, 0.5, 0.0])
        estimate = np.linalg.solve(gram + 0.1 * np.eye(3), moment[..., None])
        chosen = choices[runs, np.argmax(choices @ estimate, axis=1)[:, 0]]
        mean = chosen @ theta
        reward = np.where((mean >= 0) & (mean <= 1), rng.random(400) < mean, mean)
        gram += chosen[:, :, None] * chosen[:, None, :]
        moment += chosen * reward[:, None]
        if t >= 5:
            for run in runs[~outside]:
                found = region(gram[run], moment[run], noise_sd=0.5, error=0.1)
                away = theta - found.centre
                outside[run] = away @ gram[run] @ away > found.radius**2
    left = outside.sum()
    assert left / 400 < 0.1


def test_what_was_never_looked_at_is_unbounded_and_spoils_nothing_else() -> None:
    gram, moment = np.diag([50.0, 80.0, 0.0]), np.array([20.0, 30.0, 0.0])
    found = region(gram, moment, noise_sd=0.5, error=0.05)
    seen = region(gram[:2, :2], moment[:2], noise_sd=0.5, error=0.05)
    assert found.widths(np.array([0.0, 0.0, 1e-6])) > 1e20
    assert found.widths(np.array([1.0, 1.0, 0.0])) == pytest.approx(seen.widths(np.array([1.0, 1.0])))


def test_no_bound_on_the_size_of_theta_is_needed() -> None:
    rng = np.random.default_rng(3)
    theta, contexts = np.array([300.0, -500.0]), rng.normal(size=(200, 2))
    moment = contexts.T @ (contexts @ theta + rng.normal(0, 0.5, 200))
    found = region(contexts.T @ contexts, moment, noise_sd=0.5, error=0.05)
    away = theta - found.centre
    assert away @ (contexts.T @ contexts) @ away < found.radius**2


def test_directions_without_records_bound_nothing_else() -> None:
    """Levels of a category and a constant say the same, so that one direction never has a record. A row in
    which a new level is, is unbounded; others lie as closely as without the constant."""
    rng = np.random.default_rng(3)
    levels = np.eye(4)[rng.integers(3, size=400)]
    rewards = rng.random(400)
    both = np.column_stack([levels, np.ones(400)])
    found, alone = (region(x.T @ x, x.T @ rewards, noise_sd=0.5, error=0.1) for x in (both, levels[:, :3]))
    row, new = np.array([1.0, -1.0, 0.0, 0.0, 0.0]), np.array([1.0, 0.0, 0.0, -1.0, 0.0])
    assert found.widths(row) / found.radius == pytest.approx(float(alone.widths(row[:3]) / alone.radius))
    assert found.widths(new) > 1e20
