"""The oracle is itself held against closed forms, so that nothing rests on a transcription error."""

from __future__ import annotations

import math

import numpy as np
import pytest

import reference as ref

pytestmark = pytest.mark.long  # for whoever changes the oracle, not the library

MERITS = {
    "exponential": (ref.Exponential(3.0), lambda mu: np.exp(3.0 * mu)),
    "affine": (ref.Affine(0.2, 1.5), lambda mu: 0.2 + 1.5 * np.clip(mu, 0, 1)),
    "power": (ref.Power(2.5, 0.3), lambda mu: (0.3 + np.clip(mu, 0, 1)) ** 2.5),
    "logistic": (ref.Logistic(8.0, 0.4, 0.05), lambda mu: 0.05 + 1 / (1 + np.exp(-8.0 * (mu - 0.4)))),
    "general": (ref.General(lambda mu: 1 + mu**2, lambda mu: 2 * mu), lambda mu: 1 + mu**2),
}
every_merit = pytest.mark.parametrize("name", MERITS)


def instance(seed, arms=6, dimension=4, condition=1e3):
    """A random region and contexts: (theta_hat, V, radius, contexts)."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((dimension, dimension)))[0]
    V = (basis * condition ** rng.random(dimension)) @ basis.T
    contexts = rng.random((arms, dimension)) / math.sqrt(dimension)
    return rng.random(dimension), (V + V.T) / 2, 0.2 + rng.random(), contexts


# --- merit, policy, objective -----------------------------------------------------------------------------


@every_merit
def test_log_and_log_slope_are_those_of_f(name):
    merit, f = MERITS[name]
    mu = np.linspace(-0.55, 1.55, 40)  # no point at a kink
    assert merit.log(mu) == pytest.approx(np.log(f(mu)), abs=1e-12)
    h = 1e-6
    assert merit.log_slope(mu) == pytest.approx(np.log(f(mu + h) / f(mu - h)) / (2 * h), abs=1e-7)


@every_merit
def test_policy_is_proportional_to_merit(name):
    merit, f = MERITS[name]
    theta, _, _, contexts = instance(1)
    scores = f(contexts @ theta)
    assert ref.policy(theta, contexts, merit) == pytest.approx(scores / scores.sum(), abs=1e-14)


def test_steep_merit_does_not_overflow():
    p = ref.policy([1.0], [[0.0], [1.0], [5.0]], ref.Exponential(1000.0))
    assert p == pytest.approx([0, 0, 1], abs=1e-300)
    assert np.isfinite(ref.Logistic(1000.0, 0.5, 0.1).log_slope(np.array([-50.0, 0.5, 50.0]))).all()


@every_merit
def test_gradient_matches_finite_differences(name):
    merit, _ = MERITS[name]
    theta, _, _, contexts = instance(2)
    h, d = 1e-6, theta.size
    steps = h * np.eye(d)
    numeric = [
        (ref.objective(theta + e, contexts, merit) - ref.objective(theta - e, contexts, merit)) / (2 * h)
        for e in steps
    ]
    assert ref.objective_gradient(theta, contexts, merit) == pytest.approx(numeric, abs=1e-8)


# --- optimism ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", [ref.optimistic_multistart, ref.optimistic_bruteforce])
@every_merit
def test_one_arm_gives_its_upper_confidence_bound(name, solver):
    theta_hat, V, radius, contexts = instance(3, arms=1)
    x = contexts[0]
    width = math.sqrt(x @ np.linalg.solve(V, x))
    theta, value = solver(theta_hat, V, radius, contexts, MERITS[name][0])
    assert value == pytest.approx(x @ theta_hat + radius * width, abs=1e-10)
    assert theta == pytest.approx(theta_hat + radius * np.linalg.solve(V, x) / width, abs=1e-6)


@pytest.mark.parametrize("solver", [ref.optimistic_multistart, ref.optimistic_bruteforce])
@every_merit
def test_one_feature_matches_a_dense_grid(name, solver):
    merit, _ = MERITS[name]
    for seed in range(5):
        rng = np.random.default_rng(seed)
        contexts, theta_hat, v, radius = rng.uniform(-1, 1, (5, 1)), rng.normal(), 0.5 + rng.random(), 1.5
        reach = radius / math.sqrt(v)
        grid = np.linspace(theta_hat - reach, theta_hat + reach, 20_001)
        mu = grid[:, None] * contexts[:, 0]
        best = (ref.policy_of_means(mu, merit) * mu).sum(axis=1).max()
        value = solver(np.array([theta_hat]), np.array([[v]]), radius, contexts, merit)[1]
        assert best - 1e-9 <= value <= best + 1e-3


def test_steep_merit_tends_to_the_largest_upper_confidence_bound():
    for seed in range(10):
        theta_hat, V, radius, contexts = instance(seed)
        bound = max(x @ theta_hat + radius * math.sqrt(x @ np.linalg.solve(V, x)) for x in contexts)
        for steepness in (1e2, 1e4):
            value = ref.optimistic_multistart(theta_hat, V, radius, contexts, ref.Exponential(steepness))[1]
            # ln Σ exp(cμ) = c·g + entropy, so g is within ln(K)/c of the largest mean
            assert bound - math.log(len(contexts)) / steepness <= value <= bound + 1e-12


def test_flat_merit_tends_to_the_average_arm():
    theta_hat, V, radius, contexts = instance(4)
    x = contexts.mean(axis=0)
    value = ref.optimistic_multistart(theta_hat, V, radius, contexts, ref.Exponential(1e-7))[1]
    assert value == pytest.approx(x @ theta_hat + radius * math.sqrt(x @ np.linalg.solve(V, x)), abs=1e-6)


@pytest.mark.parametrize("steepness", [0.3, 10.0, 100.0])
def test_multistart_is_not_worse_than_brute_force(steepness):
    merit = ref.Exponential(steepness)
    for seed in range(12):
        arms, dimension = [(2, 2), (30, 5), (10, 20), (60, 3)][seed % 4]
        theta_hat, V, radius, contexts = instance(seed, arms, dimension, condition=1e6)
        contexts = contexts - 0.2 * (seed % 2)  # some with means of both signs
        contexts[0] = contexts[-1]
        contexts[arms // 2] = 0.0
        brute = ref.optimistic_bruteforce(theta_hat, V, radius, contexts, merit, starts=300)[1]
        theta, value = ref.optimistic_multistart(theta_hat, V, radius, contexts, merit)
        assert value >= brute - 1e-9
        assert value >= ref.objective(theta_hat, contexts, merit)
        assert value == pytest.approx(ref.objective(theta, contexts, merit), abs=1e-10)
        assert (theta - theta_hat) @ V @ (theta - theta_hat) <= radius**2 * (1 + 1e-9)


def test_one_start_is_not_enough_but_many_are():
    merit, missed = ref.Exponential(10.0), 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        contexts, theta_hat = rng.standard_normal((50, 10)), 0.1 * rng.standard_normal(10)
        value = ref.optimistic_multistart(theta_hat, np.eye(10), 1.0, contexts, merit)[1]
        brute = ref.optimistic_bruteforce(theta_hat, np.eye(10), 1.0, contexts, merit, starts=400)[1]
        assert value >= brute - 1e-9
        ball = ref._ball(theta_hat, np.eye(10), 1.0, contexts, merit)
        missed += ref._ascend(ball, np.zeros((1, 10)), iterations=200)[1][0] < value - 1e-3
    assert missed > 0


def test_the_optimum_is_a_fixed_point():
    merit = ref.Exponential(10.0)
    for seed in range(10):
        theta_hat, V, radius, contexts = instance(seed)
        theta, _ = ref.optimistic_multistart(theta_hat, V, radius, contexts, merit)
        step = np.linalg.solve(V, ref.objective_gradient(theta, contexts, merit))
        assert theta - theta_hat == pytest.approx(radius * step / math.sqrt(step @ V @ step), abs=1e-11)


def test_nothing_to_gain_returns_the_estimate():
    theta_hat = np.array([0.3, -0.2])
    for contexts, radius in [(np.zeros((3, 2)), 1.0), (np.eye(2), 0.0)]:
        theta, _ = ref.optimistic_multistart(theta_hat, np.eye(2), radius, contexts, ref.Exponential(10.0))
        assert (theta == theta_hat).all()


# --- radius, schedules, small parts -----------------------------------------------------------------------


def test_radius_by_hand():
    root_beta = ref.radius(
        90, dimension=3, regulariser=2.0, noise_sd=0.5, alpha=0.1, norm_bound=1.5, scale=0.6
    )
    by_hand = 0.6 * (0.5 * math.sqrt(2 * math.log(10) + 3 * math.log(16)) + math.sqrt(2) * 1.5)
    assert root_beta == pytest.approx(by_hand, rel=1e-15)


def test_the_printed_schedule():
    assert ref.paper_gap(100_000, 10, 5) == 5
    rounds = ref.paper_rounds(100_000, 10, 5)
    assert rounds[:7] == [1, 2, 4, 8, 13, 18, 23]
    assert len(rounds) == 20_002


def test_the_other_schedules():
    rounds = ref.figure_gap_rounds(100_000)
    assert rounds[:13] == [2**k for k in range(12)] + [2048 + 4330]
    assert set(np.diff(rounds[11:])) == {4330}
    assert ref.doubling_rounds(1000) == [100, 200, 400, 800]
    assert ref.doubling_rounds(99) == []


def test_draw_is_the_inverse_cdf():
    p = np.array([0.25, 0.0, 0.75])
    assert [ref.draw(p, u) for u in (0.0, 0.2499, 0.25, 0.99, 1.0)] == [0, 0, 2, 2, 2]


def test_floor_raises_only_what_is_below():
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    matrix = (basis * [-2.0, 0.5, 7.0]) @ basis.T
    assert ref.floor_eigenvalues(matrix, 1.0) == pytest.approx((basis * [1.0, 1.0, 7.0]) @ basis.T, abs=1e-14)
    assert (ref.floor_eigenvalues(np.diag([1.0, 2.0, 3.0]), 1.0) == np.diag([1.0, 2.0, 3.0])).all()


def test_packing_is_the_upper_triangle_then_the_moment():
    gram = np.array([[1.0, 2.0], [2.0, 3.0]])
    assert list(ref.pack(gram, np.array([4.0, 5.0]))) == [1, 2, 3, 4, 5]
    back = ref.unpack(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 2)
    assert (back[0] == gram).all()
    assert list(back[1]) == [4, 5]


# --- the run ----------------------------------------------------------------------------------------------

PROBLEM = ref.random_problem(120, 3, 4, 3, seed=5)
CONTEXTS, NOISE, UNIFORMS, THETA_STAR = PROBLEM


def statistics_by_hand(run, t, agent, regulariser, local=True):
    """V and b of `agent` in round t (from 1), summed anew from the actions: everyone's up to the last sync,
    and its own since."""
    last = max([s for s in run.syncs if s < t], default=0)
    chosen = [(r, j) for r in range(last) for j in range(3)]
    chosen += [(r, agent) for r in range(last, t - 1)] if local else []
    x = np.array([CONTEXTS[r, j, run.actions[r, j]] for r, j in chosen]).reshape(-1, 3)
    y = np.array([run.rewards[r, j] for r, j in chosen])
    return regulariser * np.eye(3) + x.T @ x, x.T @ y, len(chosen)


def no_optimism(theta_hat, V, radius, contexts, merit):
    """θ̂ in place of the optimum, where another part of a run is looked at: most of its time is the search."""
    return theta_hat, ref.objective(theta_hat, contexts, merit)


@pytest.mark.parametrize("decide_from", ["released+local", "released"])
@pytest.mark.parametrize("algorithm", ref.ALGORITHMS)
def test_statistics_hold_each_record_once(algorithm, decide_from):
    # a regulariser other than 1 shows one that is lost or counted twice
    short = (CONTEXTS[:60], NOISE[:60], UNIFORMS[:60], THETA_STAR)
    given = {"regulariser": 0.7, "start": 10, "decide_from": decide_from, "solver": no_optimism}
    run = ref.reference_run(*short, algorithm, **given)
    for t in (1, 2, 3, 11, 12, 37, 60):
        for i in range(3):
            V, b, count = statistics_by_hand(run, t, i, 0.7, local=decide_from == "released+local")
            assert run.grams[t - 1, i] == pytest.approx(V, abs=1e-10)
            assert run.moments[t - 1, i] == pytest.approx(b, abs=1e-10)
            assert run.estimates[t - 1, i] == pytest.approx(np.linalg.solve(V, b), abs=1e-10)
            assert run.radii[t - 1, i] == pytest.approx(ref.radius(count, dimension=3, regulariser=0.7))


def test_policy_action_reward_and_regret_follow_from_theta():
    run = ref.reference_run(*PROBLEM)
    merit = ref.Exponential(10.0)
    for t, i in [(0, 0), (40, 2), (119, 1)]:
        x, p = CONTEXTS[t, i], run.policies[t, i]
        assert (p == ref.policy(run.thetas[t, i], x, merit)).all()
        a = run.actions[t, i]
        assert p[:a].sum() <= UNIFORMS[t, i] < p[: a + 1].sum()
        assert run.rewards[t, i] == pytest.approx(x[a] @ THETA_STAR + NOISE[t, i])
        gap = ref.policy(THETA_STAR, x, merit) - p
        assert run.fairness_regret[t, i] == pytest.approx(np.abs(gap).sum())
        assert run.reward_regret[t, i] == pytest.approx(gap @ (x @ THETA_STAR))


def test_optimism_holds_whenever_the_truth_is_inside():
    run = ref.reference_run(*PROBLEM)
    merit, inside = ref.Exponential(10.0), 0
    for t in range(120):
        for i in range(3):
            off = THETA_STAR - run.estimates[t, i]
            if off @ run.grams[t, i] @ off <= run.radii[t, i] ** 2:
                inside += 1
                optimistic, true = (
                    ref.objective(th, CONTEXTS[t, i], merit) for th in (run.thetas[t, i], THETA_STAR)
                )
                assert optimistic >= true - 1e-12
    assert inside > 300  # at alpha = 0.1 and s = 1 nearly all


def test_a_federation_of_one_is_the_single_agent():
    alone = ref.random_problem(60, 1, 4, 3, seed=2)
    one, other = ref.reference_run(*alone, "fairx-linucb"), ref.reference_run(*alone, "fed-fairx-linucb")
    assert len(other.syncs) > 0
    assert (one.actions == other.actions).all()
    assert one.policies == pytest.approx(other.policies, abs=1e-10)


def test_sync_rounds_of_each_algorithm():
    problem = (CONTEXTS[:30], NOISE[:30], UNIFORMS[:30], THETA_STAR)
    given = {"start": 5, "solver": no_optimism}
    rounds = {a: ref.reference_run(*problem, a, **given).syncs for a in ref.ALGORITHMS}
    assert rounds["fairx-linucb"] == rounds["linucb"] == []
    assert rounds["fed-fairx-linucb"] == rounds["priv-fairx-linucb"] == ref.paper_rounds(30, 3, 3)
    assert rounds["b2"] == [5, 10, 20]
    assert ref.reference_run(*problem, sync_rounds=[7, 9], max_syncs=1, **given).syncs == [7]


def test_b1_syncs_exactly_when_its_trigger_fires():
    run = ref.reference_run(*PROBLEM, "b1", threshold=1.5, solver=no_optimism)
    assert 3 < len(run.syncs) < 100
    for t in range(1, 121):
        last = max([s for s in run.syncs if s < t], default=0)
        before = statistics_by_hand(run, last + 1, 0, 1.0)[0]
        fired = False
        for i in range(3):
            x = CONTEXTS[range(last, t), i, run.actions[last:t, i]]
            growth = np.linalg.slogdet(before + x.T @ x)[1] - np.linalg.slogdet(before)[1]
            fired |= growth * (t - last) > 1.5
        assert fired == (t in run.syncs)


def test_release_noise_shift_and_floor():
    rounds, q = [4, 8], 9
    release_noise = 20 * np.random.default_rng(1).standard_normal((2, 3, q))
    run = ref.reference_run(
        *PROBLEM, "priv-fairx-linucb", sync_rounds=rounds, release_noise=release_noise, shift=2.5
    )
    for k, t in enumerate(rounds):
        rows = range(t)
        x = np.concatenate([CONTEXTS[rows, j, run.actions[:t, j]] for j in range(3)])
        y = np.concatenate([run.rewards[:t, j] for j in range(3)])
        packed = ref.pack(x.T @ x, x.T @ y) + release_noise[k].sum(axis=0)  # cumulative: replaced, not added
        gram, moment = ref.unpack(packed, 3)
        values, basis = np.linalg.eigh(gram + 3.5 * np.eye(3))  # λ = 1 and the shift
        assert values.min() < 1  # so that the floor is at work
        assert run.grams[t, 0] == pytest.approx((basis * np.maximum(values, 1.0)) @ basis.T, abs=1e-9)
        assert run.moments[t, 2] == pytest.approx(moment, abs=1e-9)
    assert run.grams[0, 0] == pytest.approx(np.eye(3))  # no shift before there is anything to shift


def test_noise_may_be_an_array_or_a_function_and_zero_is_none():
    problem = (CONTEXTS[:20], NOISE[:20], UNIFORMS[:20], THETA_STAR)
    table = np.random.default_rng(3).standard_normal((20, 3, 9))
    plain, zero, by_array, by_function = (
        ref.reference_run(*problem, "priv-fairx-linucb", release_noise=release_noise)
        for release_noise in (None, np.zeros((20, 3, 9)), table, lambda k, agent: table[k, agent])
    )
    assert (zero.policies == plain.policies).all()
    assert (by_array.policies == by_function.policies).all()
    assert not np.allclose(by_array.policies, plain.policies)


def test_bounds_clip_every_record():
    run = ref.reference_run(*PROBLEM, "fairx-linucb", bounds=(0.1, 0.2), solver=no_optimism)
    x = CONTEXTS[range(119), 0, run.actions[:119, 0]]
    x = x * np.minimum(1, 0.1 / np.linalg.norm(x, axis=1))[:, None]
    assert run.grams[119, 0] == pytest.approx(np.eye(3) + x.T @ x)
    assert run.moments[119, 0] == pytest.approx(x.T @ np.clip(run.rewards[:119, 0], -0.2, 0.2))


def test_linucb_takes_the_largest_upper_confidence_bound():
    run = ref.reference_run(*PROBLEM, "linucb")
    assert (run.policies.max(axis=2) == 1.0).all()
    for t, i in [(0, 0), (77, 1)]:
        inverse = np.linalg.inv(run.grams[t, i])
        x = CONTEXTS[t, i]
        width = np.sqrt(np.einsum("ad,de,ae->a", x, inverse, x))
        bound = x @ run.estimates[t, i] + run.radii[t, i] * width
        assert run.actions[t, i] == np.argmax(bound)
        assert x[run.actions[t, i]] @ run.thetas[t, i] == pytest.approx(bound.max())
    tie = ref.optimistic_arm(np.zeros(2), np.eye(2), 1.0, np.ones((3, 2)))[1]
    assert tie == 0


def test_each_agent_may_have_its_own_merit():
    merits = [ref.Exponential(5.0), ref.Affine(0.1, 1.0), ref.Logistic(10.0, 0.5, 0.05)]
    short = (CONTEXTS[:5], NOISE[:5], UNIFORMS[:5], THETA_STAR)
    run = ref.reference_run(*short, merit=merits)
    for i, merit in enumerate(merits):
        assert (run.policies[4, i] == ref.policy(run.thetas[4, i], CONTEXTS[4, i], merit)).all()
