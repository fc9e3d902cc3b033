"""Expected merit against quadrature in many digits, and the policy that follows."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
import posterior_reference
import reference as ref
from fedfairx.core.expected_merit import expose_by_posterior, log_expected_merit
from fedfairx.core.merit import Affine, Custom, Exponential, Logistic, Merit, Power
from fedfairx.lanes.rows import floats, vectors, zeros
from fedfairx.lanes.vector_llvm import WIDTH
from instances import each_merit, merit_rows

PAIRS: list[tuple[Merit, object]] = [
    (Affine(0.1, 1.0, (0.0, 1.0)), ref.Affine(0.1, 1.0, 0.0, 1.0)),
    (Affine(3.0, 0.5, (-2.0, 4.0)), ref.Affine(3.0, 0.5, -2.0, 4.0)),
    (Power(2.0, 0.1, (0.0, 1.0)), ref.Power(2.0, 0.1, 0.0, 1.0)),
    (Power(0.5, 1.2, (-1.0, 3.0)), ref.Power(0.5, 1.2, -1.0, 3.0)),
    (Logistic(10.0, 0.5, 0.05), ref.Logistic(10.0, 0.5, 0.05)),
    (Logistic(2.0, -0.3, 0.2), ref.Logistic(2.0, -0.3, 0.2)),
]
GIVEN = Custom(lambda mu: 0.2 + mu * mu, minimum_merit=0.2, lipschitz_constant=2.0, reward_range=(-1.0, 1.0))
PAIRS.append((GIVEN, ref.General(lambda mu: 0.2 + mu * mu, lambda mu: 2 * mu, -1.0, 1.0)))


@pytest.mark.long
@pytest.mark.parametrize(("merit", "oracle"), PAIRS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("sd", [0.0, 1e-6, 0.03, 0.3, 3.0])
def test_it_agrees_with_quadrature(merit: Merit, oracle: object, sd: float) -> None:
    rows = each_merit(merit)
    for mean in (-3.0, -0.2, 0.0, 0.45, 1.0, 5.0):
        wanted = posterior_reference.log_expected_merit(mean, sd, oracle)
        assert log_expected_merit(rows, 0, mean, sd) == pytest.approx(wanted, abs=1e-7)


def test_the_exponentials_closed_form_is_its_integral() -> None:
    for steepness, mean, sd in ((10.0, 0.3, 0.2), (3.0, -1.0, 1.0), (30.0, 0.5, 0.05)):
        density = lambda value, mean=mean, sd=sd: mpmath.npdf(value, mean, sd)  # noqa: E731
        peak = mean + steepness * sd**2
        integral = mpmath.quad(
            lambda value, c=steepness, density=density: mpmath.exp(c * value) * density(value),
            [peak - 12 * sd, peak, peak + 12 * sd],
        )
        found = log_expected_merit(each_merit(Exponential(steepness)), 0, mean, sd)
        assert found == pytest.approx(float(mpmath.log(integral)), abs=1e-10)


def policy(merit: Merit, means: np.ndarray, widths: np.ndarray, variance: float) -> np.ndarray:
    """The policy among arms of these means and xᵀV⁻¹x: two features, of which θ knows one and V the other."""
    contexts = np.stack([means, np.sqrt(widths)], axis=1)
    theta, inverse = np.array([1.0, 0.0]), np.array([[0.0, 0.0], [0.0, 1.0]])
    return posterior_policy(contexts, theta, inverse, variance, merit)


def posterior_policy(
    contexts: np.ndarray, theta: np.ndarray, inverse: np.ndarray, variance: float, merit: Merit
) -> np.ndarray:
    """`expose_by_posterior` of one lane."""
    known = floats(contexts), floats(theta), floats(inverse), variance, merit_rows(merit)
    out = np.empty(contexts.shape[0])
    expose_by_posterior(*known, True, True, floats(np.empty(theta.size)), floats(out))
    return out


@given(
    st.floats(0.5, 60.0),
    st.lists(st.tuples(st.floats(-2, 2), st.floats(0, 1)), min_size=1, max_size=20),
    st.floats(1e-4, 4.0),
)
def test_the_exponential_policy_is_the_closed_form(
    steepness: float, arms: list[tuple[float, float]], variance: float
) -> None:
    means, widths = np.array(arms).T
    bonus = 0.5 * steepness**2 * variance * widths
    logs = steepness * means + bonus / (1.0 + bonus / 4.0)
    wanted = posterior_reference.policy_of_logs(logs)
    found = policy(Exponential(steepness), means, widths, variance)
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-300)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)


def test_who_is_less_known_gets_more_where_merit_is_convex() -> None:
    shares = policy(Exponential(10.0), np.full(3, 0.4), np.array([0.0, 0.5, 1.0]), 0.01)
    assert shares[0] < shares[1] < shares[2]
    shares = policy(Affine(3.0, 1.0, (-2.5, 4.0)), np.full(3, 0.4), np.array([0.0, 0.5, 1.0]), 0.01)
    assert shares == pytest.approx(1 / 3, abs=1e-12)


def test_a_steep_power_shares_by_merit_though_no_float_holds_it() -> None:
    """Merits of 1e-307 and less, or of 1e308 and more; (offset + m)^1000 with offset + m from 0.4 to 0.44."""
    means, known = np.array([0.3, 0.3005, 0.301, 0.34]), np.full(4, 1e-12)
    for offset in (0.1, 2.1):
        merit, bases = Power(1000.0, offset), offset + means
        wanted = posterior_reference.policy_of_logs(1000.0 * np.log(bases))
        assert policy(merit, means, known, 1e-12) == pytest.approx(wanted, rel=1e-6, abs=1e-300)
        assert policy(merit, means, np.zeros(4), 1.0) == pytest.approx(wanted, rel=1e-9, abs=1e-300)
    agent = ffx.Agent(2, merit=Power(1000.0), seed=0, intercept=False)
    shares = agent.decide(np.array([[0.2, 0.0], [0.0, 0.4]])).policy  # nothing is known but the widths
    assert shares.sum() == pytest.approx(1.0)
    assert shares[1] > 0.999


def test_merits_may_be_mixed_in_a_block() -> None:
    merits = [[Exponential(7.0), Affine(), Power(), Logistic()][l % 4] for l in range(WIDTH)]
    rng = np.random.default_rng(0)
    contexts, theta, inverse = zeros(5, 2, WIDTH), zeros(2, WIDTH), zeros(2, 2, WIDTH)
    contexts[:], theta[0], inverse[1, 1] = rng.random((5, 2, WIDTH)), 1.0, 1.0
    alone = [policy(merit, contexts[:, 0, l], contexts[:, 1, l] ** 2, 0.05) for l, merit in enumerate(merits)]
    out, room = zeros(5, WIDTH), vectors(zeros(2, WIDTH))
    known = vectors(contexts), vectors(theta), vectors(inverse), 0.05, merit_rows(*merits)
    expose_by_posterior(*known, True, True, room, vectors(out))
    assert out == pytest.approx(np.array(alone).T, rel=1e-12)


def test_features_by_the_dozen_give_what_a_few_give() -> None:
    rng = np.random.default_rng(3)
    for dimension in (15, 16, 17, 40):
        contexts, theta = rng.normal(size=(4, dimension)), rng.normal(size=dimension)
        root = rng.normal(size=(dimension, dimension)) / dimension
        inverse = root @ root.T
        out = posterior_policy(contexts, theta, inverse, 0.3, Exponential(0.7))
        widths = np.einsum("ai,ij,aj->a", contexts, inverse, contexts)
        bonus = 0.5 * 0.49 * 0.3 * widths
        wanted = posterior_reference.policy_of_logs(0.7 * contexts @ theta + bonus / (1.0 + bonus / 4.0))
        assert out == pytest.approx(wanted, rel=1e-10)


# --- the inequalities of docs/explanation/expected-merit.md ------------------------------------------------


def played(agent: ffx.Agent, oracle: object, seed: int, rounds: int):
    """(policy, merits it is made of, true merits), all scaled alike, of every decision of a real run."""
    rng = np.random.default_rng(seed)
    theta = rng.random(agent.dimension)
    theta /= np.linalg.norm(theta)
    for _ in range(rounds):
        x = rng.random((6, agent.dimension)) / np.sqrt(agent.dimension)
        squares = agent.noise_sd**2 * np.einsum("ai,ij,aj->a", x, np.linalg.inv(agent.gram), x)
        most = posterior_reference.most_variance(oracle)
        sds = np.sqrt(squares * most / (squares + most))
        means = x @ agent.estimate
        logs = [posterior_reference.log_expected_merit(m, s, oracle) for m, s in zip(means, sds, strict=True)]
        decision = agent.decide(x)
        top = max(*logs, *oracle.log(x @ theta))  # type: ignore[attr-defined]
        yield decision.policy, np.exp(np.array(logs) - top), np.exp(oracle.log(x @ theta) - top)  # type: ignore[attr-defined]
        agent.observe(decision, reward=float(x[decision.action] @ theta + 0.1 * rng.normal()))


@pytest.mark.long
@pytest.mark.parametrize(("merit", "oracle"), [(Exponential(10.0), ref.Exponential(10.0)), *PAIRS[::2]])
def test_a_rounds_regret_is_bounded_under_the_policy_that_is_played(merit: Merit, oracle: object) -> None:
    agent = ffx.Agent(3, merit=merit, seed=0, intercept=False)
    for policy_now, believed, true in played(agent, oracle, 1, 5 if merit.kind else 300):
        assert policy_now == pytest.approx(believed / believed.sum(), abs=1e-7)
        regret = np.abs(policy_now - true / true.sum()).sum()
        bound = 2.0 * (policy_now * np.abs(believed - true) / np.maximum(believed, 1e-300)).sum()
        assert regret <= bound + 1e-6


@pytest.mark.long
def test_bayesian_regret_has_the_steepness_and_not_its_exponential_as_a_constant() -> None:
    # 50 parameters drawn from the prior; the mean regret is a fifth of (2) and a fifteenth of (3), so that
    # the spread of 50 (a tenth of the mean) can't matter.
    c, sd, noise_sd, d, rounds = 10.0, 0.5, 0.3, 3, 300
    regret, bound = 0.0, 0.0
    rng = np.random.default_rng(5)
    for seed in range(50):
        prior = ffx.Prior(sd=sd, noise_sd=noise_sd, learn=False)
        agent = ffx.Agent(d, prior=prior, merit=Exponential(c), seed=seed, intercept=False)
        theta = sd * rng.normal(size=d)
        for _ in range(rounds if seed < 5 else 60):
            x = rng.random((5, d)) / np.sqrt(d)
            spreads = noise_sd**2 * np.einsum("ai,ij,aj->a", x, np.linalg.inv(agent.gram), x)
            decision = agent.decide(x)
            fair = posterior_reference.policy_of_logs(c * x @ theta)
            regret += np.abs(decision.policy - fair).sum()
            bound += (
                2.0 * decision.policy @ np.minimum(2.0, np.sqrt(np.expm1(np.minimum(c * c * spreads, 50))))
            )
            agent.observe(decision, reward=float(x[decision.action] @ theta + noise_sd * rng.normal()))
    assert regret <= bound
    ridge = (noise_sd / sd) ** 2
    total = sum(
        3.16 * c * math.sqrt(T * sd**2 / math.log(1 + 1 / ridge) * d * math.log(1 + T / (d * ridge)))
        for T in [rounds] * 5 + [60] * 45
    )
    assert regret <= total
