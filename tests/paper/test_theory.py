"""The paper's lemmas and theorems, held on random sequences and on real runs of the reference."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference as ref
from paper import theory
from stored_optimum import optimum

seeds = st.integers(0, 2**32 - 1)
M, T, D = 3, 80, 3
MERITS = {
    "exponential": ref.Exponential(10.0),
    "affine": ref.Affine(0.1, 1.0),
    "power": ref.Power(2.0, 0.1),
    "logistic": ref.Logistic(10.0, 0.5, 0.05),
}


def constants(merit, means):
    """(L, γ) of a merit between the lowest and the highest mean that occurs, by a fine grid."""
    grid = np.linspace(means.min() - 1e-9, means.max() + 1e-9, 2001)
    values = np.exp(merit.log(grid))
    return float(np.abs(merit.log_slope(grid) * values).max()) * 1.01, float(values.min())


def inside_region(rng, estimate, gram, radius):
    """A random point of the region, often on its boundary."""
    u = rng.standard_normal(estimate.size)
    u *= min(1.0, 1.5 * rng.random()) / np.linalg.norm(u)
    return estimate + radius * np.linalg.solve(np.linalg.cholesky(gram).T, u)


@functools.cache
def problem():
    return ref.random_problem(T, M, 4, D, seed=11)


def run(algorithm="fed-fairx-linucb", merit="exponential", scale=1.0, sync_every=None):
    return _run(algorithm, merit, scale, sync_every)


@functools.cache
def _run(algorithm, merit, scale, sync_every):
    rounds = None if sync_every is None else range(sync_every, T + 1, sync_every)
    given = {"merit": MERITS[merit], "scale": scale, "sync_rounds": rounds, "solver": optimum}
    return ref.reference_run(*problem(), algorithm, **given)


def widths(contexts, gram):
    return np.sqrt((contexts * np.linalg.solve(gram, contexts.T).T).sum(axis=1))


# --- Lemma 1 ----------------------------------------------------------------------------------------------


@given(seeds, st.integers(1, 6), st.integers(0, 60), st.floats(-3, 3), st.floats(-2, 1))
def test_elliptical_potential_is_ordered(seed, dimension, count, log_regulariser, log_norm):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((dimension, dimension))
    initial = 10**log_regulariser * (root @ root.T / dimension + 0.1 * np.eye(dimension))
    vectors = rng.standard_normal((count, dimension)) * rng.random((1, dimension))
    vectors *= 10**log_norm / np.maximum(1, np.linalg.norm(vectors, axis=1))[:, None]
    lemma = theory.elliptical_potential(vectors, initial=initial, norm_bound=10**log_norm)
    slack = 1e-9 * (1 + lemma.trace_bound)
    assert 0 <= lemma.potential <= lemma.determinant_bound + slack
    assert lemma.determinant_bound <= lemma.trace_bound + slack


def test_elliptical_potential_by_hand():
    lemma = theory.elliptical_potential(np.ones((2, 1)), initial=np.eye(1))
    assert lemma == pytest.approx((1 + 1 / 2, 2 * math.log(3), 2 * math.log(3)))
    bound = theory.elliptical_potential_bound(12, initial=2 * np.eye(3), norm_bound=0.5)
    assert bound == pytest.approx(6 * math.log((6 + 12 * 0.25) / (3 * 2)))


@pytest.mark.long
def test_elliptical_potential_on_real_runs():
    contexts = problem()[0]
    for algorithm in ("fairx-linucb", "fed-fairx-linucb", "b2"):
        actions = run(algorithm).actions
        chosen = np.array([contexts[t, i, actions[t, i]] for t in range(T) for i in range(M)])
        lemma = theory.elliptical_potential(chosen, initial=M * np.eye(D), norm_bound=1.0)
        assert lemma.potential <= lemma.determinant_bound <= lemma.trace_bound
        assert lemma.trace_bound == pytest.approx(2 * D * math.log(1 + T / D))  # as the proof of Theorem 1


# --- Lemma 2 ----------------------------------------------------------------------------------------------


def test_martingale_bound_holds_as_often_as_it_says():
    # 4 000 walks of fair signs, the widest case. Each leaves the bound with probability <= 0.2/2 = 0.1; that
    # more than 480 do has probability below 3e-5 (4.2 standard deviations above 400).
    walks = np.random.default_rng(0).choice([-1.0, 1.0], (4000, 50)).sum(axis=1)
    assert (np.abs(walks) > theory.martingale_bound(50, failure=0.2)).sum() <= 480
    assert theory.martingale_bound(50, failure=0.2) == pytest.approx(math.sqrt(100 * math.log(20)))
    assert theory.martingale_bound(9, failure=0.2, width=2.0) == pytest.approx(
        6 * math.sqrt(2 * math.log(20))
    )


@pytest.mark.long
def test_martingale_bound_on_real_runs():
    # At this fixed seed; by the lemma each agent fails with probability at most 0.025.
    contexts = problem()[0]
    for algorithm in ("fairx-linucb", "fed-fairx-linucb"):
        history = run(algorithm)
        for i in range(M):
            drift = 0.0
            for t in range(T):
                w = widths(contexts[t, i], history.grams[t, i])
                drift += w[history.actions[t, i]] - history.policies[t, i] @ w
            assert abs(drift) <= theory.martingale_bound(T, failure=0.05)


# --- Lemma 3 ----------------------------------------------------------------------------------------------


@given(seeds, st.sampled_from(sorted(MERITS)), st.integers(1, 8), st.integers(1, 5), st.floats(-2, 0.5))
def test_instant_regret_bound_for_any_two_points_of_the_region(seed, name, arms, dimension, log_radius):
    rng, merit, radius = np.random.default_rng(seed), MERITS[name], 10**log_radius
    root = rng.standard_normal((dimension, dimension))
    gram = root @ root.T + np.eye(dimension)
    contexts = rng.random((arms, dimension)) / math.sqrt(dimension)
    estimate = rng.random(dimension)
    truth, chosen = (inside_region(rng, estimate, gram, radius) for _ in range(2))
    lipschitz, minimum = constants(merit, contexts @ np.array([truth, estimate, chosen]).T)
    policy = ref.policy(chosen, contexts, merit)
    regret = np.abs(ref.policy(truth, contexts, merit) - policy).sum()
    bound = theory.instant_regret_bound(
        contexts, policy=policy, gram=gram, radius=radius, lipschitz=lipschitz, minimum_merit=minimum
    )
    assert regret <= bound + 1e-12


def test_instant_regret_bound_is_tight():
    # One arm of many carries all the uncertainty, and θ*, θ_t lie at opposite ends of the region: the regret
    # is (1 - π) of the bound, so that no constant below 4 would do.
    contexts = np.zeros((200, 1))
    contexts[0] = 1.0
    merit, radius, gram = ref.Affine(1.0, 1e-3, low=-9.0, high=9.0), 0.5, np.array([[4.0]])
    truth, chosen = np.array([-0.25]), np.array([0.25])
    policy = ref.policy(chosen, contexts, merit)
    regret = np.abs(ref.policy(truth, contexts, merit) - policy).sum()
    bound = theory.instant_regret_bound(
        contexts, policy=policy, gram=gram, radius=radius, lipschitz=1e-3, minimum_merit=1.0 - 0.25e-3
    )
    assert 0.99 * bound < regret <= bound
    assert bound == pytest.approx(4 * 1e-3 * 0.5 / (1.0 - 0.25e-3) * policy[0] * 0.5)


def lemma3_on(history, merit):
    """(rounds with θ* inside, rounds with θ* outside, how often the bound fails in each)."""
    contexts, _, _, truth = problem()
    counts, failures = [0, 0], [0, 0]
    for t in range(T):
        for i in range(M):
            x, estimate = contexts[t, i], history.estimates[t, i]
            off = truth - estimate
            outside = int(off @ history.grams[t, i] @ off > history.radii[t, i] ** 2)
            lipschitz, minimum = constants(merit, x @ np.array([truth, estimate, history.thetas[t, i]]).T)
            bound = theory.instant_regret_bound(
                x,
                policy=history.policies[t, i],
                gram=history.grams[t, i],
                radius=history.radii[t, i],
                lipschitz=lipschitz,
                minimum_merit=minimum,
            )
            counts[outside] += 1
            failures[outside] += history.fairness_regret[t, i] > bound + 1e-12
    return counts, failures


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "merit", "scale"),
    [
        ("fairx-linucb", "exponential", 1.0),
        ("fed-fairx-linucb", "exponential", 1.0),
        ("fed-fairx-linucb", "exponential", 0.3),
        ("b2", "exponential", 1.0),
        ("fed-fairx-linucb", "affine", 1.0),
        ("fed-fairx-linucb", "logistic", 0.5),
    ],
)
def test_instant_regret_bound_on_real_runs(algorithm, merit, scale):
    counts, failures = lemma3_on(run(algorithm, merit, scale), MERITS[merit])
    assert counts[0] > 20
    assert failures[0] == 0


def test_instant_regret_bound_needs_the_truth_inside():
    counts, failures = lemma3_on(run(scale=0.001), MERITS["exponential"])
    assert counts[1] > 100
    assert failures[1] > 20


# --- Theorem 1 --------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("sync_every", [1, 5, 20])
@pytest.mark.parametrize("nu", [1.2, math.e])
def test_the_steps_of_theorem_1_on_real_runs(sync_every, nu):
    contexts = problem()[0]
    history = run(sync_every=sync_every)
    shared = np.eye(D)  # Ψ, with λ_total = 1
    log = math.log(1 + M * T / D)
    bad, everything = 0, 0.0
    hypothetical = np.eye(D)
    for first in range(0, T, sync_every):
        block = range(first, min(first + sync_every, T))
        x = np.array([contexts[t, i, history.actions[t, i]] for t in block for i in range(M)])
        after = shared + x.T @ x
        growth = np.linalg.det(after) / np.linalg.det(shared)
        bad += growth > nu
        alone = np.zeros(M)
        for t in block:
            for i in range(M):
                own, all_seen = (widths(contexts[t, i], V) for V in (history.grams[t, i], hypothetical))
                assert (own <= all_seen * math.sqrt(growth) * (1 + 1e-9)).all()  # step 1
                chosen = contexts[t, i, history.actions[t, i]]
                everything += all_seen[history.actions[t, i]]
                alone[i] += own[history.actions[t, i]]
                hypothetical += np.outer(chosen, chosen)
        assert (alone <= math.sqrt(2 * len(block) * D * log)).all()  # step 3, within an interval
        shared = after
    assert bad <= D * log / math.log(nu)  # step 3, their number
    assert everything <= math.sqrt(2 * M * T * D * log)  # step 2


def test_the_paper_drops_a_factor_two_in_step_2():
    # One round, one agent, x = 1: the width before the update is 1, more than √(mTd ln(1 + T/d)) = √ln 2.
    assert math.sqrt(math.log(2)) < 1
    assert math.sqrt(2 * math.log(2)) >= 1


def test_theorem_1_by_hand():
    bound = theory.theorem1_bound(
        1000,
        agents=4,
        dimension=2,
        radius=0.5,
        lipschitz=3.0,
        minimum_merit=0.2,
        regulariser=4.0,
        failure=0.05,
        determinant_ratio=4.0,
    )
    size, log = 4 * 3 * 0.5 / 0.2, math.log(501)  # λ_total = m makes the logarithm the paper's
    assert bound.printed == pytest.approx(4 * size * math.sqrt(4 * 1000 * 2 * log + 16 * 8 * log**3))
    gap = ref.paper_gap(1000, 4, 2)
    assert gap == 2
    intervals = 1 + 500 + 2
    good = 2 * (math.sqrt(2 * 4000 * 2 * log) + math.sqrt(2 * 4000 * math.log(80)))
    one = 4 * math.sqrt(2 * 2 * 2 * log) + math.sqrt(2 * 8 * math.log(80 * intervals))
    assert bound.total == pytest.approx(size * (good + math.floor(2 * log / math.log(4)) * one))
    assert bound.per_agent == bound.total / 4


@pytest.mark.long
@pytest.mark.parametrize("merit", ["exponential", "affine"])
def test_theorem_1_holds_on_real_runs(merit):
    history, (contexts, _, _, truth) = run(merit=merit), problem()
    means = np.concatenate([contexts @ truth, np.einsum("tikd,tid->tik", contexts, history.thetas)])
    lipschitz, minimum = constants(MERITS[merit], means)
    bound = theory.theorem1_bound(
        T, agents=M, dimension=D, radius=history.radii.max(), lipschitz=lipschitz, minimum_merit=minimum
    )
    assert history.fairness_regret.sum() <= bound.total
    assert history.fairness_regret.sum(axis=0).mean() <= bound.per_agent
    assert bound.vacuous == (bound.per_agent >= 2 * T)


@given(st.integers(1, 10**9), st.integers(1, 50), st.integers(1, 30), st.floats(1.01, 50), st.floats(0.01, 9))
def test_theorem_1_is_finite_and_grows_with_certainty(horizon, agents, dimension, nu, regulariser):
    values = {"agents": agents, "dimension": dimension, "radius": 1.0, "lipschitz": 1.0, "minimum_merit": 1.0}
    values |= {"determinant_ratio": nu, "regulariser": regulariser}
    likely, surer = (theory.theorem1_bound(horizon, **values, failure=f).total for f in (0.1, 0.001))
    assert 0 < likely < surer < math.inf


def test_federating_helps_each_agent_in_the_bound():
    alone, together = (
        theory.theorem1_bound(
            10**8,
            agents=agents,
            dimension=5,
            radius=1.0,
            lipschitz=1.0,
            minimum_merit=1.0,
            regulariser=float(agents),
        )
        for agents in (1, 16)
    )
    assert together.printed / 16 == pytest.approx(alone.printed / 4, rel=0.01)  # each agent gains 1/√m
    assert 0.2 * alone.per_agent < together.per_agent < 0.25 * alone.per_agent
    assert 1 < alone.total / alone.printed < 2  # what O(·) hides, at ν = e


# --- Theorem 2 and the private radius ---------------------------------------------------------------------


def test_theorem_2_without_noise_is_theorem_1():
    values = {"agents": 4, "dimension": 3, "radius": 2.0, "lipschitz": 1.0, "minimum_merit": 0.5}
    one = theory.theorem1_bound(5000, **values, regulariser=4.0)
    two = theory.theorem2_bound(5000, **values, eigenvalue_low=1.0, eigenvalue_high=1.0)
    assert two.printed == pytest.approx(one.printed)
    assert two.total == pytest.approx(one.total)
    noisy = theory.theorem2_bound(5000, **values, eigenvalue_low=2.0, eigenvalue_high=6.0)
    log = math.log(3 + 5000 / 6)
    inside = math.sqrt(4 * 5000 * 3 * log + 16 * 27 * log**3)
    assert noisy.printed == pytest.approx(math.e * 4 * 2 / 0.5 * inside)


NOISE = {"dimension": 5, "noise_sd": 0.1, "alpha": 0.1, "norm_bound": 1.0}


def test_private_radius_by_hand():
    printed = theory.private_radius_printed(
        100, agents=10, **NOISE, eigenvalue_low=2.0, eigenvalue_high=6.0, moment_noise=3.0
    )
    by_hand = 0.1 * math.sqrt(2 * math.log(20) + 5 * math.log(3 + 10)) + 10 * math.sqrt(6) + 30
    assert printed == pytest.approx(by_hand)
    summed = theory.private_radius(
        1000, **NOISE, eigenvalue_low=20.0, eigenvalue_high=60.0, moment_noise=3 * math.sqrt(10)
    )
    by_hand = 0.1 * math.sqrt(2 * math.log(20) + 5 * math.log(1 + 10)) + math.sqrt(60) + 3 * math.sqrt(10)
    assert summed == pytest.approx(by_hand)


@given(st.integers(1, 10**5), st.integers(1, 40), st.floats(0.1, 1e4), st.floats(1, 10), st.floats(0, 100))
def test_the_factor_m_is_never_needed(rounds, agents, low, ratio, z):
    printed = theory.private_radius_printed(
        rounds, agents=agents, **NOISE, eigenvalue_low=low, eigenvalue_high=low * ratio, moment_noise=z
    )
    summed = theory.private_radius(
        rounds * agents,
        **NOISE,
        eigenvalue_low=agents * low,
        eigenvalue_high=agents * low * ratio,
        moment_noise=math.sqrt(agents) * z,
    )
    assert summed <= printed * (1 + 1e-12)


@given(seeds, st.integers(1, 8), st.integers(1, 5))
def test_noise_of_agents_adds_up_to_root_m(seed, agents, dimension):
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((agents, dimension, dimension))
    H = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(dimension)
    h = rng.standard_normal((agents, dimension))
    each = np.array([h[j] @ np.linalg.solve(H[j], h[j]) for j in range(agents)])
    together = h.sum(axis=0) @ np.linalg.solve(H.sum(axis=0), h.sum(axis=0))
    assert together <= each.sum() * (1 + 1e-9) <= agents * each.max() * (1 + 1e-8)


def test_private_radius_covers_the_truth():
    # 300 noisy regressions. By the lemma each misses with probability at most α = 0.1; more than 52 misses
    # has probability below 1e-4. (It is loose, so there are none.)
    rng, misses = np.random.default_rng(4), 0
    for _ in range(300):
        truth = rng.standard_normal(3)
        truth /= np.linalg.norm(truth)
        x = rng.random((200, 3)) / math.sqrt(3)
        symmetric = rng.standard_normal((3, 3))
        symmetric = symmetric + symmetric.T
        H = symmetric + (np.linalg.norm(symmetric, 2) + 1) * np.eye(3)
        h = rng.standard_normal(3)
        V = x.T @ x + H
        off = np.linalg.solve(V, x.T @ (x @ truth + 0.5 * rng.standard_normal(200)) + h) - truth
        values = np.linalg.eigvalsh(H)
        root_beta = theory.private_radius(
            200,
            dimension=3,
            noise_sd=0.5,
            alpha=0.1,
            norm_bound=1.0,
            eigenvalue_low=values[0],
            eigenvalue_high=values[-1],
            moment_noise=math.sqrt(h @ np.linalg.solve(H, h)),
        )
        misses += off @ V @ off > root_beta**2
    assert misses <= 52


# --- Communication ----------------------------------------------------------------------------------------


def sync_count(horizon, agents, dimension):
    """How often the printed schedule syncs, without walking through the rounds."""
    gap, tau, doublings = ref.paper_gap(horizon, agents, dimension), 1, 0
    while tau < gap and tau <= horizon:
        tau, doublings = 2 * tau, doublings + 1
    return doublings + (0 if tau > horizon else 1 + (horizon - tau) // gap)


def test_sync_count_counts_the_schedule():
    for horizon, agents, dimension in [(100_000, 10, 5), (1, 1, 1), (7, 3, 2), (1000, 1, 1), (5000, 2, 1)]:
        assert sync_count(horizon, agents, dimension) == len(ref.paper_rounds(horizon, agents, dimension))


def test_communication_bound_holds_for_every_small_problem():
    for horizon in range(1, 120):
        for agents in range(1, 8):
            for dimension in range(1, 12):
                bound = theory.communication_bound(agents, dimension=dimension, horizon=horizon)
                assert sync_count(horizon, agents, dimension) <= bound
    assert theory.communication_bound(1, dimension=1, horizon=1) == 1  # here it is met with equality


@given(st.integers(1, 10**9), st.integers(1, 1000), st.integers(1, 200))
def test_communication_bound_holds_for_large_problems(horizon, agents, dimension):
    bound = theory.communication_bound(agents, dimension=dimension, horizon=horizon)
    assert sync_count(horizon, agents, dimension) <= bound


def test_communication_bound_of_the_papers_experiment():
    by_hand = math.ceil(2 * 10 * 25 * math.log(20_001) ** 2)
    assert theory.communication_bound(10, dimension=5, horizon=100_000) == by_hand == 49_041
    assert sync_count(100_000, 10, 5) == 20_002
