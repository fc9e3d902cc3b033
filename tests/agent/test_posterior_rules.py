"""Every rule of the posterior follows the oracle, round by round, alone, federated and private."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

import fedfairx as ffx
import posterior_reference as oracle
import reference as ref
from fedfairx.agent.algorithms import ALGORITHMS, Algorithm
from fedfairx.agent.pooling import sum_sd
from fedfairx.agent.schedules import Paper
from fedfairx.core.posterior import posterior_of
from fedfairx.core.statistics import unpack
from fedfairx.errors import InvalidInput
from fedfairx.privacy import Bounds

WIDE = Bounds(context_norm=1.0, reward=10.0)
PRIOR = ffx.Prior(mean=(0.3, 0.1, 0.2), sd=0.7, noise_sd=0.4)
THETA_RULES = [
    ("fairx-bayes", {}),
    ("fed-fairx-bayes", {}),
    ("fairx-lints", {}),
    ("fed-fairx-lints", {}),
    (Algorithm("greedy", "as if θ̂ were true", Paper(), rule="greedy"), {}),
    ("priv-fairx-bayes", {"epsilon": 4.0, "delta": 0.1, "bounds": WIDE}),
    ("priv-fairx-bayes", {"epsilon": 8.0, "bounds": WIDE, "decide_from": "released+local"}),
    ("priv-fairx-bayes", {"epsilon": 8.0, "bounds": WIDE, "decide_from": "own+released"}),
]


def run_both(
    algorithm: Any,
    options: dict[str, Any],
    *,
    rounds: int = 150,
    agents: int = 3,
    merits: Any = None,
    prior: ffx.Prior = PRIOR,
) -> tuple[ref.Run, ref.Run]:
    arms, d = 5, 3
    contexts, noise, _, theta_star = ref.random_problem(rounds, agents, arms, d, seed=3)
    pairs = merits or [(ffx.merit.Exponential(10.0), ref.Exponential(10.0))] * agents
    federation = ffx.Federation(
        agents=agents,
        dimension=d,
        horizon=rounds,
        algorithm=algorithm,
        merit=[ours for ours, _ in pairs],
        prior=prior,
        intercept=False,
        seed=7,
        **options,
    )
    each = federation.agents[0]._model.uniforms_each  # for the action, θ, and names, of whom there are none
    children = np.random.SeedSequence(7).spawn(agents)
    drawn = np.stack(
        [np.random.Generator(np.random.PCG64(c)).random((rounds, each)) for c in children], axis=1
    )
    ours = _library(federation, contexts, noise, theta_star)
    decide_from = federation.agents[0].decide_from
    released: list[list[np.ndarray]] = ours.releases  # type: ignore[attr-defined]
    private = federation.algorithm.private
    theirs = oracle.posterior_run(
        contexts,
        noise,
        drawn[..., 0],
        theta_star,
        federation.algorithm.rule,
        merits=[theirs for _, theirs in pairs],
        prior=oracle.Prior(
            prior.means(d), prior.sd, prior.noise_sd, prior.learn and decide_from != "released"
        ),
        sync_rounds=federation.schedule.rounds(federation.plan),
        release_noise=(lambda k, i: released[k][i]) if private else None,
        noise_sd=(lambda k: ours.noise_sd[k]) if private else None,  # type: ignore[attr-defined]
        decide_from=decide_from,
        normals=ndtri(drawn[..., 1 : 1 + d]) if each > 1 else None,
    )
    return ours, theirs


def _library(
    federation: ffx.Federation, contexts: np.ndarray, noise: np.ndarray, theta_star: np.ndarray
) -> ref.Run:
    T, m, K, d = contexts.shape
    shape = (T, m)
    run = ref.Run(
        np.zeros((*shape, K)),
        np.zeros(shape, dtype=int),
        np.zeros(shape),
        *(np.zeros((*shape, d)) for _ in range(2)),
        np.zeros((*shape, d, d)),
        np.zeros((*shape, d)),
        *(np.zeros(shape) for _ in range(3)),
    )
    exact = np.zeros((m, d * (d + 3) // 2))
    run.releases, run.noise_sd = [], []  # type: ignore[attr-defined]
    for t in range(T):
        for i, agent in enumerate(federation.agents):
            x, now = contexts[t, i], (t, i)
            run.estimates[now], run.grams[now] = agent.estimate, agent.gram
            run.moments[now], run.radii[now] = agent.moment, agent.radius
            decision = agent.decide(x)
            chosen = x[decision.action]
            y = float(chosen @ theta_star + noise[now])
            agent.observe(decision, reward=y)
            exact[i] += ref.pack(np.outer(chosen, chosen), chosen * y)
            run.policies[now], run.actions[now] = decision.policy, decision.action
            run.rewards[now], run.thetas[now] = y, decision.theta
        if federation.end_round():
            run.syncs.append(t + 1)
            latest = [agent.held[agent.name] for agent in federation.agents]
            run.releases.append([r.packed - e for r, e in zip(latest, exact, strict=True)])  # type: ignore[attr-defined]
            mechanism = federation.agents[0].privatizer.mechanism
            run.noise_sd.append(sum_sd(mechanism, latest[:1]))  # type: ignore[attr-defined]
    return run


def check(ours: ref.Run, theirs: ref.Run, tolerance: float = 1e-9) -> None:
    assert ours.syncs == theirs.syncs
    assert (ours.actions == theirs.actions).all()
    for name in ("policies", "thetas", "estimates", "grams", "moments", "radii"):
        found, wanted = getattr(ours, name), getattr(theirs, name)
        worst = float((np.abs(found - wanted) / np.maximum(1.0, np.abs(wanted))).max())
        assert worst <= tolerance, (name, worst)


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "options"), THETA_RULES, ids=[f"{a}-{i}" for i, (a, _) in enumerate(THETA_RULES)]
)
def test_it_follows_the_oracle(algorithm: Any, options: dict[str, Any]) -> None:
    ours, theirs = run_both(algorithm, options)
    check(ours, theirs)


@pytest.mark.long
def test_it_follows_the_oracle_with_a_merit_for_each_agent() -> None:
    merits = [
        (ffx.merit.Exponential(3.0), ref.Exponential(3.0)),
        (ffx.merit.Affine(0.1, 1.0, (0.0, 1.0)), ref.Affine(0.1, 1.0, 0.0, 1.0)),
        (ffx.merit.Power(2.0, 0.1, (0.0, 1.0)), ref.Power(2.0, 0.1, 0.0, 1.0)),
        (ffx.merit.Logistic(4.0, 0.5, 0.2), ref.Logistic(4.0, 0.5, 0.2)),
    ]
    ours, theirs = run_both("fed-fairx-bayes", {}, rounds=8, agents=4, merits=merits)
    check(ours, theirs, 1e-6)


def test_it_follows_the_oracle_where_the_noise_is_known() -> None:
    prior = ffx.Prior(sd=0.5, noise_sd=0.1, learn=False)
    ours, theirs = run_both("fed-fairx-bayes", {}, prior=prior)
    check(ours, theirs)
    assert (ours.radii == 0.1).all()


@pytest.mark.long
def test_a_federation_of_one_is_an_agent_alone_bit_for_bit() -> None:
    alone, _ = run_both("fairx-bayes", {}, agents=1)
    federated, _ = run_both("fed-fairx-bayes", {}, agents=1)
    assert (alone.policies == federated.policies).all()
    assert federated.syncs


def test_the_noise_is_learnt_from_ones_own_rewards() -> None:
    rng = np.random.default_rng(0)
    for sd in (0.02, 0.1, 0.7):
        agent = ffx.Agent(4, seed=1)
        theta = rng.random(4)
        for _ in range(1500):
            contexts = rng.random((6, 4)) / 2
            decision = agent.decide(contexts)
            agent.observe(decision, reward=float(contexts[decision.action] @ theta + sd * rng.normal()))
        # The mean of 1 500 squares has a relative sd of 0.037, so σ one of 0.018; five of them. The first
        # guess of 0.5 counts as two more.
        wanted = np.sqrt((2 * 0.5**2 + 1500 * sd**2) / 1502)
        assert agent.noise_sd == pytest.approx(wanted, rel=0.1)
        assert agent.radius == agent.noise_sd


def test_who_decides_from_releases_alone_learns_no_noise_from_rewards() -> None:
    federation = ffx.Federation(
        agents=2,
        dimension=2,
        horizon=50,
        algorithm="priv-fairx-bayes",
        epsilon=2.0,
        decide_from="released",
        seed=0,
    )
    for _ in range(20):
        for agent in federation.agents:
            decision = agent.decide(np.eye(2))
            agent.observe(decision, reward=0.9)
        federation.end_round()
    assert all(agent.noise_sd == ffx.Prior().noise_sd for agent in federation.agents)


def test_nobody_is_favoured_before_anything_is_known() -> None:
    decision = ffx.Agent(8, seed=0).decide(np.eye(8))
    assert decision.policy == pytest.approx(1 / 8, abs=1e-15)
    assert (decision.theta == 0.0).all()


def test_every_arm_has_its_least_share() -> None:
    for rule in ("expected-merit", "thompson", "optimism"):
        agent = ffx.Agent(3, rule=rule, minimum_share=0.05, seed=0)
        free = ffx.Agent(3, rule=rule, seed=0)
        for _ in range(40):
            decision, plain = agent.decide(np.eye(3)), free.decide(np.eye(3))
            assert decision.policy.min() >= 0.05 - 1e-15
            assert decision.policy.sum() == pytest.approx(1.0, abs=1e-12)
            assert decision.probability == decision.policy[decision.action]
            if (decision.theta == plain.theta).all():
                assert decision.policy == pytest.approx(0.05 + 0.85 * plain.policy, abs=1e-12)
            reward = float(decision.action == 0)
            agent.observe(decision, reward=reward)
            free.observe(plain, reward=float(plain.action == 0))
    crowded = ffx.Agent(1, minimum_share=0.3, seed=0).decide([[1.0], [0.0], [0.5], [0.2]])
    assert crowded.policy == pytest.approx(0.25, abs=1e-15)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "best"}, "rule must be one of expected-merit, greedy, thompson, optimism, got rule='best'"),
        ({"confidence": ffx.Confidence()}, "confidence is for rule='optimism'"),
        ({"rule": "optimism", "prior": ffx.Prior()}, "prior is not for rule='optimism'"),
        ({"minimum_share": 1.0}, "minimum_share must be a finite number >= 0 and < 1"),
        ({"minimum_share": -0.1}, "minimum_share must be a finite number >= 0 and < 1"),
        ({"prior": ffx.Prior(mean=(0.0, 1.0))}, "mean must be 4 numbers"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ffx.Agent(3, **options)


def test_whatever_prior_is_accepted_decides_in_finite_numbers() -> None:
    rng, sizes = np.random.default_rng(0), (1e-30, 1.0, 1e30)
    for sd, noise_sd, mean in itertools.product(sizes, sizes, (-1e30, 0.0, 1e30)):
        agent = ffx.Agent(3, prior=ffx.Prior(mean=mean, sd=sd, noise_sd=noise_sd), seed=0)
        for _ in range(5):
            decision = agent.decide(rng.normal(size=(4, 3)))
            agent.observe(decision, reward=min(1.0, sd))
            assert np.isfinite(decision.policy).all()
            assert np.isfinite(decision.theta).all()
    for bad in (
        {"sd": 0.0},
        {"sd": np.inf},
        {"noise_sd": 1e-31},
        {"mean": np.nan},
        {"mean": ()},
        {"learn": 1},
    ):
        with pytest.raises(InvalidInput, match=f"^{next(iter(bad))} must be "):
            ffx.Prior(**bad)  # type: ignore[arg-type]


def test_the_names_fix_their_rules() -> None:
    rules = {name: algorithm.rule for name, algorithm in ALGORITHMS.items()}
    assert {rules[name] for name in ("fairx-bayes", "fed-fairx-bayes", "priv-fairx-bayes")} == {
        "expected-merit"
    }
    assert {rules[name] for name in ("fairx-lints", "fed-fairx-lints")} == {"thompson"}
    assert rules["fairx-linucb"] == rules["priv-fairx-linucb"] == "optimism"
    assert ffx.Agent(2).rule == "expected-merit"
    assert ffx.Federation(agents=2, dimension=2, horizon=9).algorithm.name == "fed-fairx-bayes"


@pytest.mark.parametrize("rule", ["expected-merit", "optimism"])
def test_what_is_believed_can_be_read(rule: str) -> None:
    agent, rng = ffx.Agent(3, rule=rule, seed=0), np.random.default_rng(0)
    contexts = rng.random((4, 3)) / 2
    for _ in range(40):
        made = agent.decide(contexts)
        agent.observe(made, reward=float(rng.random() < contexts[made.action].sum()))
    assert agent.covariance == pytest.approx(agent.noise_sd**2 * np.linalg.inv(agent.gram))
    prior = agent.prior
    if rule == "optimism":
        assert prior == ffx.Prior.for_merit(agent.merit)
        return
    assert prior.noise_sd == agent.noise_sd != 0.5  # it is learnt
    ridge = (prior.noise_sd / prior.sd) ** 2
    sums = agent.own_sums()
    assert sums is not None
    gram, moment = unpack(sums)
    assert agent.gram == pytest.approx(gram + ridge * np.eye(4))
    mean, covariance = posterior_of(gram, moment, mean=prior.means(4), sd=prior.sd, noise_sd=prior.noise_sd)
    assert mean == pytest.approx(agent.estimate)
    assert covariance == pytest.approx(agent.covariance)


def test_a_posterior_of_sums_that_rounding_makes_singular() -> None:
    """θ₁ + θ₂ is known to be nearly 0, and of θ₁ - θ₂ nothing but the prior."""
    context = np.array([1e9, 1e9])
    mean, covariance = posterior_of(
        np.outer(context, context), context, mean=np.zeros(2), sd=0.5, noise_sd=0.5
    )
    assert mean == pytest.approx([0.0, 0.0], abs=1e-7)
    across = np.array([1.0, -1.0]) / np.sqrt(2)
    assert across @ covariance @ across == pytest.approx(0.25)
