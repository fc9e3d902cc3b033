"""A federation in one process: who learns what, when, and what is claimed of it."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
import reference as ref
from fedfairx.agent.exchange import OTHERS, TOTAL
from fedfairx.agent.schedules import SCHEDULES, Determinant, Doubling, Plan
from fedfairx.core.estimate import REFRESH_EVERY
from fedfairx.errors import BudgetExhausted, InvalidInput, MessageRefused
from fedfairx.privacy import Centring, SimulatedNoise, epsilon_for, mu_for
from fedfairx.privacy.release import total_of
from paper import theory

D = 3


def play(federation: ffx.Federation, rounds: int, seed: int = 0, present: float = 1.0) -> list[int]:
    """Rounds of random contexts and rewards; an agent is there with probability `present`."""
    rng = np.random.default_rng(seed)
    syncs = []
    for t in range(1, rounds + 1):
        for agent in federation.agents:
            x, reward, there = (
                rng.random((4, agent.dimension)) / 2,
                float(rng.random()),
                rng.random() < present,
            )
            if there:
                agent.observe(agent.decide(x), reward=reward)
        if federation.end_round():
            syncs.append(t)
    return syncs


# --- one agent ---------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "schedule", ["paper", "every-round", "doubling", Determinant(threshold=2.0, cap=10**6)]
)
def test_one_agent_without_privacy_is_b0_to_the_bit(schedule: Any) -> None:
    # Past the point where V⁻¹ is derived anew from the sums.
    rounds = REFRESH_EVERY + 700
    options = {"agents": 1, "dimension": D, "horizon": rounds, "seed": 5}
    together = ffx.Federation(algorithm="fed-fairx-linucb", schedule=schedule, **options)
    alone = ffx.Federation(algorithm="fairx-linucb", **options)
    rng = np.random.default_rng(0)
    x, rewards = rng.random((rounds, 4, D)) / 2, rng.normal(size=rounds)
    for t in range(rounds):
        ours, theirs = together.agents[0].decide(x[t]), alone.agents[0].decide(x[t])
        # Their numbers differ: what is released and received is a step with a number too.
        assert (ours.shown, ours.values.tobytes()) == (theirs.shown, theirs.values.tobytes())
        together.agents[0].observe(ours, reward=rewards[t])
        alone.agents[0].observe(theirs, reward=rewards[t])
        together.end_round()
        assert not alone.end_round()
    assert together.syncs > 3
    assert (together.agents[0]._model.learner.inverse == alone.agents[0]._model.learner.inverse).all()
    assert together.agents[0].radius == alone.agents[0].radius


# --- several agents ----------------------------------------------------------------------------------------


def test_after_a_synchronisation_everybody_knows_everything() -> None:
    confidence = ffx.Confidence(regulariser=2.5)
    federation = ffx.Federation(
        agents=3,
        dimension=D,
        horizon=64,
        algorithm="fed-fairx-linucb",
        schedule=Doubling(start=8),
        confidence=confidence,
        seed=0,
    )
    rng = np.random.default_rng(0)
    gram, moment = 2.5 * np.eye(D), np.zeros(D)
    for _ in range(16):
        for agent in federation.agents:
            decision, reward = agent.decide(rng.random((4, D))), float(rng.random())
            agent.observe(decision, reward=reward)
            gram += np.outer(decision.context, decision.context)
            moment += decision.context * reward
        federation.end_round()
    assert federation.syncs == 2
    for agent in federation.agents:
        # λ stands in V once, whatever was shared.
        assert agent.gram == pytest.approx(gram, abs=1e-11)
        assert agent.moment == pytest.approx(moment, abs=1e-11)
        assert agent.gram @ agent.estimate == pytest.approx(moment, abs=1e-10)
        assert agent.radius == pytest.approx(confidence.radius(48, D))
        assert (agent.gram == federation.agents[0].gram).all()
        assert (agent._model.learner.inverse == federation.agents[0]._model.learner.inverse).all()


def test_between_synchronisations_an_agent_adds_only_its_own() -> None:
    federation = ffx.Federation(
        agents=2, dimension=D, horizon=8, algorithm="fed-fairx-linucb", schedule=Doubling(start=2), seed=0
    )
    play(federation, 2)
    first, second = federation.agents
    shared = second.gram
    decision = first.decide(np.random.default_rng(1).random((4, D)))
    first.observe(decision, reward=1.0)
    assert first.gram == pytest.approx(shared + np.outer(decision.context, decision.context), abs=1e-12)
    assert (second.gram == shared).all()


def test_agents_may_skip_rounds_and_rewards_may_cross_a_synchronisation() -> None:
    federation = ffx.Federation(
        agents=4, dimension=D, horizon=40, algorithm="fed-fairx-linucb", schedule="every-round", seed=0
    )
    waiting = federation.agents[0].decide(np.eye(D))
    syncs = play(federation, 20, present=0.4)
    assert syncs == list(range(1, 21))
    before = federation.agents[3].gram
    federation.agents[0].observe(waiting, reward=1.0)
    federation.end_round()
    gained = federation.agents[3].gram - before
    assert gained == pytest.approx(np.outer(waiting.context, waiting.context), abs=1e-12)
    counts = [agent.state().released_count for agent in federation.agents]
    assert federation.agents[1].radius == pytest.approx(ffx.Confidence(scale=0.5).radius(sum(counts), D))


@pytest.mark.filterwarnings("ignore:the horizon")
@pytest.mark.parametrize("name", ["paper", "figure-gap", "doubling", "every-round", "never"])
@pytest.mark.parametrize("algorithm", ["fed-fairx-linucb", "priv-fairx-linucb"])
def test_it_synchronises_when_its_schedule_says_and_never_runs_out_of_budget(
    name: str, algorithm: str
) -> None:
    options: dict[str, Any] = {"epsilon": 1.0} if algorithm.startswith("priv") else {}
    federation = ffx.Federation(
        agents=2, dimension=2, horizon=250, algorithm=algorithm, schedule=name, seed=0, **options
    )
    expected = SCHEDULES[name].rounds(Plan(250, 2, 2)).tolist()
    assert play(federation, 250) == expected
    assert federation.syncs == len(expected)
    assert federation.privacy.spent == len(expected)
    assert play(federation, 20) == []  # past the horizon nothing is released
    if algorithm.startswith("priv") and name != "never":
        assert federation.privacy.remaining == 0
        with pytest.raises(BudgetExhausted):
            federation.synchronise()
        assert federation.privacy.spent == len(expected)


def test_b1_stops_at_its_cap() -> None:
    federation = ffx.Federation(
        agents=2,
        dimension=2,
        horizon=200,
        algorithm="b1",
        epsilon=1.0,
        schedule=Determinant(0.5, cap=6),
        seed=0,
    )
    assert len(play(federation, 200)) == 6
    assert federation.privacy.remaining == 0


def test_each_agent_may_have_its_own_merit() -> None:
    steep, flat = ffx.merit.Exponential(20.0), ffx.merit.Affine(1.0, 0.0)
    federation = ffx.Federation(agents=2, dimension=D, horizon=50, merit=[steep, flat], seed=0)
    play(federation, 50)
    x = np.random.default_rng(3).random((4, D))
    policies = [agent.decide(x).policy for agent in federation.agents]
    assert policies[0].max() > 0.3
    assert policies[1] == pytest.approx(np.full(4, 0.25))


def test_a_seed_repeats_everything_and_another_does_not() -> None:
    def policies(seed: int) -> bytes:
        federation = ffx.Federation(
            agents=2, dimension=D, horizon=30, algorithm="priv-fairx-linucb", epsilon=2.0, seed=seed
        )
        play(federation, 30)
        return b"".join(agent.decide(np.eye(D)).policy.tobytes() for agent in federation.agents)

    assert policies(1) == policies(1)
    assert policies(1) != policies(2)


# --- what is claimed ---------------------------------------------------------------------------------------


def federation_of(algorithm: str, **options: Any) -> ffx.Federation:
    return ffx.Federation(agents=2, dimension=D, horizon=100, algorithm=algorithm, **options)


def test_the_claims() -> None:
    plain = federation_of("fed-fairx-linucb", seed=0).privacy
    assert not plain.is_private
    assert str(plain).startswith("NOT PRIVATE")
    simulated = federation_of("priv-fairx-linucb", epsilon=2.0, delta=1e-6, seed=0)
    assert not simulated.privacy.is_private
    assert str(simulated.privacy).startswith("SIMULATED")
    keyed = federation_of("priv-fairx-linucb", epsilon=2.0, delta=1e-6)
    assert keyed.privacy.is_private
    assert keyed.privacy.decide_from == "released"
    assert (keyed.privacy.epsilon, keyed.privacy.delta) == (2.0, 1e-6)
    syncs = len(play(keyed, 100))
    text = str(keyed.privacy)
    assert "ε=2" in text
    assert "δ=1e-06" in text
    assert f"All {syncs} messages together" in text
    assert f"{syncs} made, 0 left" in text
    literal = federation_of("priv-fairx-linucb", epsilon=2.0, decide_from="released+local").privacy
    assert "narrower claim" in str(literal)


def test_b1_is_labelled_not_private() -> None:
    privacy = federation_of("b1", epsilon=2.0).privacy
    assert not privacy.is_private
    assert math.isinf(privacy.mu)
    assert str(privacy) == "NOT PRIVATE: when it releases depends on data."


# --- Lemma 3 -----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["fairx-linucb", "fed-fairx-linucb"])
@pytest.mark.parametrize("steepness", [2.0, 10.0])
def test_lemma_3_holds_whenever_the_truth_is_in_the_region(algorithm: str, steepness: float) -> None:
    T, m, K = 300, 3, 5
    x, noise, _, theta_star = ref.random_problem(T, m, K, D, seed=8)
    merit = ffx.merit.Exponential(steepness)
    options = {"algorithm": algorithm, "merit": merit, "confidence": ffx.Confidence()}  # the theorem's
    federation = ffx.Federation(agents=m, dimension=D, horizon=T, seed=8, **options)
    inside = 0
    for t in range(T):
        for i, agent in enumerate(federation.agents):
            V, estimate, radius = agent.gram, agent.estimate, agent.radius
            decision = agent.decide(x[t, i])
            away = theta_star - estimate
            if away @ V @ away <= radius**2:
                inside += 1
                means = x[t, i] @ np.stack([theta_star, estimate, decision.theta], axis=1)
                low, high = float(means.min()), float(means.max())
                bound = theory.instant_regret_bound(
                    x[t, i],
                    policy=decision.policy,
                    gram=V,
                    radius=radius,
                    lipschitz=merit.lipschitz(low, high),
                    minimum_merit=merit.minimum(low, high),
                )
                fair = ref.policy(theta_star, x[t, i], ref.Exponential(steepness))
                assert np.abs(fair - decision.policy).sum() <= bound + 1e-9
            agent.observe(decision, reward=float(x[t, i, decision.action] @ theta_star + noise[t, i]))
        federation.end_round()
    # The region holds θ* with probability 0.9 at all times at once; at this seed it always does.
    assert inside == T * m


# --- past the end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["fed-fairx-linucb", "priv-fairx-linucb", "b1"])
def test_past_its_horizon_it_says_once_that_nothing_is_shared(algorithm: str) -> None:
    options = {} if algorithm == "fed-fairx-linucb" else {"epsilon": 2.0}
    federation = ffx.Federation(agents=2, dimension=D, horizon=8, algorithm=algorithm, seed=0, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(federation, 8)
    with pytest.warns(UserWarning, match="the horizon of 8 rounds is past.*new_run") as caught:
        assert play(federation, 6) == []
    assert len(caught) == 1


def test_one_that_never_shares_says_nothing() -> None:
    federation = ffx.Federation(agents=2, dimension=D, horizon=8, algorithm="fairx-linucb", seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(federation, 20)


@pytest.mark.filterwarnings("ignore:the horizon")
@pytest.mark.parametrize("seed", [0, None])
def test_a_new_run_shares_again_and_its_cost_is_added(seed: int | None) -> None:
    options = {"agents": 3, "dimension": D, "algorithm": "priv-fairx-linucb", "schedule": "every-round"}
    federation = ffx.Federation(horizon=10, epsilon=2.0, seed=seed, **options)
    first = federation.privacy
    play(federation, 12)
    federation.new_run(6, epsilon=1.0)
    assert play(federation, 6, seed=1) == [1, 2, 3, 4, 5, 6]
    both = federation.privacy
    assert both.mu == pytest.approx(math.hypot(first.mu, mu_for(1.0, 1e-6)))
    assert both.epsilon == pytest.approx(epsilon_for(1e-6, both.mu))
    assert (both.releases, both.spent, both.remaining) == (16, 16, 0)
    assert both.simulated == (seed is not None)
    with pytest.raises(BudgetExhausted):
        federation.synchronise()
    # Two rounds lay between the runs, and their records are in the second.
    assert all(agent.held[agent.name].count == 18 for agent in federation.agents)
    federation.new_run(6)
    assert federation.privacy.mu == pytest.approx(math.hypot(both.mu, mu_for(1.0, 1e-6)))


def test_a_new_run_without_privacy_goes_on_with_the_schedule() -> None:
    federation = ffx.Federation(agents=2, dimension=D, horizon=10, schedule="every-round", seed=0)
    play(federation, 10)
    federation.new_run(5)
    assert play(federation, 5) == [1, 2, 3, 4, 5]
    assert federation.syncs == 15


@pytest.mark.parametrize("wrong", [{"epsilon": -1.0}, {"delta": 2.0}, {"horizon": 0}])
def test_a_new_run_that_is_refused_changes_nothing(wrong: dict[str, float]) -> None:
    federation = ffx.Federation(
        agents=2, dimension=D, horizon=5, algorithm="priv-fairx-bayes", schedule="every-round", epsilon=2.0
    )
    play(federation, 3)
    before = federation.plan, federation._timetable, federation.options, federation.privacy
    given: dict[str, Any] = {"horizon": 4} | wrong
    with pytest.raises(InvalidInput):
        federation.new_run(**given)
    assert (federation.plan, federation._timetable, federation.options, federation.privacy) == before


@pytest.mark.parametrize("given", [{"epsilon": 1.0}, {"delta": 1e-6}])
def test_a_new_run_without_privacy_takes_no_budget(given: dict[str, float]) -> None:
    federation = ffx.Federation(agents=2, dimension=D, horizon=5, seed=0)
    with pytest.raises(InvalidInput, match="is for private algorithms"):
        federation.new_run(5, **given)
    assert federation.plan.horizon == 5


@pytest.mark.parametrize("fails", ["release", "absorb"])
@pytest.mark.parametrize("algorithm", ["fed-fairx-bayes", "priv-fairx-bayes"])
def test_a_synchronisation_that_failed_half_way_costs_nothing_when_it_is_made_again(
    algorithm: str, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"epsilon": 2.0} if algorithm == "priv-fairx-bayes" else {}
    federation = ffx.Federation(
        agents=3, dimension=D, horizon=4, algorithm=algorithm, schedule="every-round", seed=0, **more
    )
    play(federation, 2)

    def refuse(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(federation.agents[1], fails, refuse)
        with pytest.raises(OSError, match="disk is full"):
            play(federation, 1)
    for agent in federation.agents:  # what comes now is in the next one
        agent.observe(agent.decide(np.eye(D)), reward=0.5)
    federation.synchronise()
    assert [agent.privatizer.guarantee.spent for agent in federation.agents] == [3, 3, 3]
    play(federation, 1)
    assert [agent.held[agent.name].count for agent in federation.agents] == [5, 5, 5]
    assert federation.privacy.spent == 4


def test_a_new_run_first_finishes_a_synchronisation_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = federation_of("priv-fairx-bayes", epsilon=2.0)

    def refuse(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(federation.agents[1], "release", refuse)
        with pytest.raises(OSError, match="disk is full"):
            federation.synchronise()
    federation.new_run(5)
    federation.synchronise()  # everybody's mechanism is the same
    assert [agent.released for agent in federation.agents] == [2, 2]


def test_agents_of_one_federation_have_noise_in_their_own_name() -> None:
    federation = federation_of("priv-fairx-linucb", epsilon=2.0)
    owners = [agent.privatizer.owner for agent in federation.agents]  # type: ignore[attr-defined]
    assert owners == [agent.name for agent in federation.agents]
    assert len(set(owners)) == 2


# --- secure aggregation -----------------------------------------------------------------------------------

SECURE = {
    "agents": 4,
    "dimension": D,
    "horizon": 60,
    "algorithm": "priv-fairx-bayes",
    "epsilon": 4.0,
    "schedule": Doubling(start=10),
    "aggregation": "secure",
}


def rows_of(federation: ffx.Federation) -> list[Any]:
    return [agent.past_release(agent.released) for agent in federation.agents]


def test_agents_see_only_their_own_row_and_the_total() -> None:
    """With keyed noise; an agent that has no news takes part all the same."""
    federation = ffx.Federation(**SECURE, decide_from="released")
    synchronised = []
    for t in range(1, 41):
        for agent in federation.agents[:-1]:
            agent.observe(agent.decide(np.full((2, D), 0.1 + 0.005 * t)), reward=0.5)
        if federation.end_round():
            synchronised.append(t)
    assert synchronised == [10, 20, 40]
    rows, share = rows_of(federation), federation.agents[0].privatizer.mechanism.share
    steps = [np.rint(row.packed / share.step).astype(np.int64) for row in rows]
    assert [row.count for row in rows] == [40, 40, 40, 0]
    assert np.abs(steps[-1]).min() > 0  # noise alone
    for agent in federation.agents:
        held = agent._exchange.latest
        assert set(held) == {agent.name, TOTAL}
        assert held[TOTAL].count == 120
        assert (held[TOTAL].packed == sum(steps) * share.step).all()  # on the grid, exactly
        assert agent.gram == pytest.approx(federation.agents[0].gram)
    assert federation.privacy.is_private
    assert (federation.privacy.share.colluding, federation.privacy.share.honest) == (1, 3)
    assert federation.privacy.spent == 3


def test_who_decides_from_its_own_data_takes_its_row_off_the_total() -> None:
    federation = ffx.Federation(**SECURE, seed=0)
    play(federation, 20, present=0.7)
    rows = rows_of(federation)
    for i, agent in enumerate(federation.agents):
        held = agent._exchange.latest
        assert set(held) == {agent.name, OTHERS}
        others = [row for j, row in enumerate(rows) if j != i]
        assert (held[OTHERS].packed == sum(row.packed for row in others)).all()
        assert held[OTHERS].count == sum(row.count for row in others)
        assert agent._exchange.pool.rows == 3
        assert list(agent.partners) == [OTHERS]
    strict = ffx.Federation(**SECURE, seed=0, decide_from="released")
    assert strict.agents[0]._exchange.pool.rows == 4


def test_rows_of_others_and_totals_that_can_not_be_are_refused() -> None:
    federation = ffx.Federation(**SECURE, seed=0)
    play(federation, 10)
    one, two = federation.agents[:2]
    row = one.past_release(1)
    with pytest.raises(MessageRefused, match="only 'all members together' is taken, never a member's row"):
        one.absorb({two.name: two.past_release(1)})
    with pytest.raises(MessageRefused, match="never a member's row"):
        one.absorb({TOTAL: row, two.name: row})
    with pytest.raises(MessageRefused, match="total 2 can't hold this agent's row: it has made 1"):
        one.absorb({TOTAL: replace(row, number=2)})
    with pytest.raises(MessageRefused, match="must have the size of this agent's row"):
        one.absorb({TOTAL: replace(row, packed=row.packed[:-1].copy())})
    with pytest.raises(MessageRefused, match="as many records or more"):
        one.absorb({TOTAL: replace(row, count=row.count - 1)})
    with pytest.raises(MessageRefused, match="seen before with other content"):
        one.absorb({TOTAL: replace(row, packed=row.packed + 1.0)})
    with pytest.raises(MessageRefused, match="another mechanism"):
        one.absorb({TOTAL: replace(total_of(rows_of(federation)), mechanism="00" * 32)})
    with pytest.raises(InvalidInput, match="rows must be of one round and one mechanism"):
        total_of([row, replace(row, number=2)])
    with pytest.raises(InvalidInput, match="name must not be that of a total"):
        ffx.Agent(D, privatizer=two.privatizer, name=TOTAL)


def test_a_synchronisation_that_failed_half_way_can_be_repeated() -> None:
    federation, same = (ffx.Federation(**SECURE, seed=0) for _ in range(2))
    for each in (federation, same):
        play(each, 9)
    same.agents[0].release()  # one has sent, and then the hub was gone
    for each in (federation, same):
        play(each, 11, seed=1)
    assert [row.digest for row in rows_of(federation)[1:]] == [row.digest for row in rows_of(same)[1:]]
    assert rows_of(same)[0].count == rows_of(federation)[0].count == 20


def test_a_new_run_of_rows_goes_on_where_the_last_one_stopped() -> None:
    centring = replace(Centring.unit_box(D), intercept=True)
    federation = ffx.Federation(**SECURE, seed=0, centring=centring)
    play(federation, 60)
    before = federation.privacy
    federation.new_run(30, epsilon=1.0)
    play(federation, 20, seed=1)
    mu = math.hypot(mu_for(4.0, 1e-6), mu_for(1.0, 1e-6))
    assert (before.spent, federation.privacy.spent) == (3, 5)
    assert federation.privacy.mu == pytest.approx(mu)
    assert federation.privacy.against[-1].mu == pytest.approx(mu * math.sqrt(3))
    agent, rows = federation.agents[0], rows_of(federation)
    held = agent._exchange.latest[OTHERS]
    packed = sum(row.packed for row in rows[1:])
    assert held.count == 3 * 80
    assert held.packed == pytest.approx(centring.leave(packed, 3 * 80), rel=1e-12)
    plain = replace(federation.options, aggregation="plain").privatizer(
        D, releases=3, noise=SimulatedNoise(9)
    )
    with pytest.raises(InvalidInput, match="share must be among as many as in the run before"):
        agent.begin_run(plain)
    elsewhere = replace(federation.options, centring=replace(centring, reward=0.4))
    with pytest.raises(InvalidInput, match="centring must be that of the run before"):
        agent.begin_run(elsewhere.privatizer(D, releases=3, noise=SimulatedNoise(9), agents=4))
