"""What is believed of θ where σ, the prior's sd and its mean are learnt: against quadrature over all."""

from __future__ import annotations

import numpy as np
import pytest

import fedfairx as ffx
import posterior_reference as oracle
from fedfairx.core.agent_kernels import likely_sizes
from fedfairx.core.posterior import LikelySizes, Posterior, posterior_of
from fedfairx.core.statistics import pack

DRAWS = 40_000
ENDS = [0.025, 0.5, 0.975]


def believed(x: np.ndarray, y: np.ndarray, prior: ffx.Prior, *, named: bool) -> Posterior:
    gram, moment = x.T @ x, x.T @ y
    size = x.shape[1]
    common = range(size) if named else ()
    sizes, _ = likely_sizes(pack(gram, moment), float(y @ y), len(y), prior, common=common)
    return Posterior(gram, moment, prior.means(size), sizes, np.full(size, float(named)))


def records(rng: np.random.Generator, count: int, *, named: bool) -> tuple[np.ndarray, np.ndarray]:
    """Of four actions, of which the last is never tried, or of three features."""
    x = np.eye(4)[rng.integers(3, size=count)] if named else rng.random((count, 3))
    return x, x @ rng.normal(0.3, 0.4, x.shape[1]) + 0.3 * rng.standard_normal(count)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("count", [8, 40])
def test_quantiles_are_those_of_quadrature_over_all_sizes(named: bool, count: int) -> None:
    """Within 0.6/n interval widths: for each λ, the sd's prior is taken at one σ. By chance, an end moves by
    0.003 widths for another seed of the draws."""
    rng = np.random.default_rng(count)
    x, y = records(rng, count, named=named)
    found = believed(x, y, ffx.Prior(0.1, 0.3, 0.5), named=named)
    uniforms, normals = rng.random(DRAWS), rng.standard_normal((1 + x.shape[1], DRAWS))
    factors = found.sizes.freedom / rng.chisquare(found.sizes.freedom, DRAWS)
    ends = np.quantile(found.draws(uniforms, factors, normals).thetas, ENDS, axis=1)
    prior = oracle.Prior(np.full(x.shape[1], 0.1), 0.3, 0.5, True, np.ones(x.shape[1]) if named else None)
    wanted = oracle.quantiles(x, y, prior, ENDS)
    assert (np.abs(ends - wanted) / (wanted[2] - wanted[0])).max() < 0.6 / count


@pytest.mark.parametrize("named", [True, False])
def test_sizes_that_are_known_give_the_posterior_that_decides(named: bool) -> None:
    x, y = records(np.random.default_rng(1), 20, named=named)
    gram, moment, size = x.T @ x, x.T @ y, x.shape[1]
    sizes = LikelySizes.fixed(sd=0.4, noise_sd=0.3)
    found = Posterior(gram, moment, np.full(size, 0.2), sizes, np.zeros(size))
    mean, covariance = posterior_of(gram, moment, mean=np.full(size, 0.2), sd=0.4, noise_sd=0.3)
    assert found.mean == pytest.approx(mean)
    normals = np.vstack([np.ones(size), np.eye(size)])
    moves = found.draws(np.full(size, 0.5), np.ones(size), normals).thetas - mean[:, None]
    assert moves @ moves.T == pytest.approx(covariance)


def test_the_mean_is_that_of_all_sizes() -> None:
    x, y = records(np.random.default_rng(2), 10, named=True)
    found = believed(x, y, ffx.Prior(0.1, 0.3, 0.5), named=True)
    weights, levels = found.sizes.weights, np.cumsum(found.sizes.weights)
    assert levels[-1] == pytest.approx(1.0)
    inside = levels - 0.5 * weights
    cases = found.draws(inside, np.ones(inside.size), np.zeros((5, inside.size))).thetas
    assert found.mean == pytest.approx(cases @ weights)


def test_the_likeliest_sizes_are_those_that_decide() -> None:
    for named in (True, False):
        agent = ffx.Agent(actions=["a", "b", "c", "d"], seed=0) if named else ffx.Agent(3, seed=0)
        x, y = records(np.random.default_rng(3), 32, named=named)  # a power of two: sizes are fresh
        agent.learn([agent.actions[row.argmax()] for row in x] if named else x, y)
        names = agent.posterior.names
        assert names is not None
        each = zip(names.weights, names.sizes, strict=True)
        case = int(np.argmax([chance * its.weights.max() for chance, its in each]))
        _, ratio, posterior = agent.posterior._cases[case]
        own = agent._model.records
        assert own is not None
        assert own.ratio == pytest.approx(ratio)
        assert agent._model.own_variance == (pytest.approx(agent.noise_sd**2 / ratio) if named else 0.0)
        assert (len(names.ratios) > 1) == named  # else nothing is known of what names differ by
        sizes = posterior.sizes
        best = int(np.argmax(sizes.weights))
        assert np.sqrt(sizes.variance[best]) == pytest.approx(agent.noise_sd)
        assert np.sqrt(sizes.variance[best] / sizes.ridge[best]) == pytest.approx(agent.prior.sd)
        mean = agent.prior.mean if named else agent.prior.mean[-1]  # of the intercept
        assert posterior._shift[0][best] == pytest.approx(mean)
        assert sizes.freedom == 34.0
