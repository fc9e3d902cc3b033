"""The agent: deciding, observing late and once, and what it must hold at any λ."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
from federation_helpers import D, contexts, private_agent, taught
from fedfairx.agent.uniforms import Uniforms
from fedfairx.core.agent_kernels import decide_by_posterior
from fedfairx.core.estimate import REFRESH_EVERY
from fedfairx.core.statistics import unpack
from fedfairx.errors import AlreadyObserved, InvalidInput, UnknownDecision


def test_a_decision() -> None:
    agent = ffx.Agent(
        D, rule="optimism", confidence=ffx.Confidence(), merit=ffx.merit.Exponential(10.0), seed=0
    )
    decision = agent.decide(contexts(np.random.default_rng(0)))
    assert decision.policy.shape == (5,)
    assert decision.probability == decision.policy[decision.action]
    assert decision.theta.shape == (D,)
    assert agent.gram.tolist() == np.eye(D).tolist()
    assert agent.moment.tolist() == agent.estimate.tolist() == [0.0] * D
    assert agent.radius == pytest.approx(ffx.Confidence().radius(0, D))
    assert agent.pending == 1


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(0, 2**32 - 1))
def test_arms_may_change_from_call_to_call(arms: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    agent = ffx.Agent(D, seed=seed)
    for count in arms:
        decision = agent.decide(contexts(rng, count))
        assert decision.policy.shape == (count,)
        assert abs(decision.policy.sum() - 1.0) <= 1e-12
        assert (decision.policy > 0).all()
        assert 0 <= decision.action < count
        agent.observe(decision, reward=1.0)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.integers(0, 2**32 - 1))
def test_decide_many_is_decide_many_times(arms: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = (taught(ffx.Agent(D, seed=1), 20, seed) for _ in range(2))
    blocks = [contexts(rng, count) for count in arms]
    assert one.decide_many(blocks) == [other.decide(block) for block in blocks]
    block = rng.random((3, 4, D))
    assert one.decide_many(block) == [other.decide(each) for each in block]
    assert one.decide_many([]) == []


def test_the_same_seed_decides_the_same() -> None:
    rng = np.random.default_rng(0)
    x = contexts(rng, 50)
    assert ffx.Agent(D, seed=3).decide(x) == ffx.Agent(D, seed=3).decide(x)
    actions = {ffx.Agent(D, seed=seed).decide(x).action for seed in range(30)}
    assert len(actions) > 5


@given(st.integers(0, 2**32 - 1))
def test_rewards_may_come_late_and_in_any_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    agent = taught(ffx.Agent(D, seed=1, rule="optimism", confidence=ffx.Confidence()), 10)
    gram, moment = agent.gram, agent.moment
    x = contexts(rng)
    decisions = [agent.decide(x) for _ in range(20)]
    assert len({decision.policy.tobytes() for decision in decisions}) == 1  # nothing was learnt meanwhile
    rewards = rng.normal(size=20)
    for place in rng.permutation(20):
        decision = decisions[place]
        reference = decision if place % 2 else decision.id
        agent.observe(reference, reward=float(rewards[place]))
        gram = gram + np.outer(x[decision.action], x[decision.action])
        moment = moment + x[decision.action] * rewards[place]
    assert agent.pending == 0
    assert np.abs(agent.gram - gram).max() <= 1e-12
    assert np.abs(agent.moment - moment).max() <= 1e-12


def test_observe_many_is_all_or_nothing() -> None:
    rng = np.random.default_rng(0)
    agent, twin = ffx.Agent(D, seed=0), ffx.Agent(D, seed=0)
    made, twins = agent.decide_many([contexts(rng) for _ in range(3)]), None
    rng = np.random.default_rng(0)
    twins = twin.decide_many([contexts(rng) for _ in range(3)])
    agent.observe_many(made[:2], [0.1, 0.2])
    twin.observe(twins[0], reward=0.1)
    twin.observe(twins[1], reward=0.2)
    with pytest.raises(AlreadyObserved):
        agent.observe_many([made[2], made[0]], [0.3, 0.4])
    with pytest.raises(AlreadyObserved, match="twice among these"):
        agent.observe_many([made[2], made[2]], [0.3, 0.4])
    with pytest.raises(InvalidInput, match="rewards must be as many as the 1 decisions, got rewards=2"):
        agent.observe_many([made[2]], [0.3, 0.4])
    with pytest.raises(InvalidInput, match="reward must be finite"):
        agent.observe_many([made[2]], [float("nan")])
    x = contexts(rng)
    assert agent.decide(x) == twin.decide(x)
    assert agent.pending == 2


def test_forget_many_is_all_or_nothing() -> None:
    rng = np.random.default_rng(0)
    agent = ffx.Agent(D, seed=0)
    made = agent.decide_many([contexts(rng) for _ in range(4)])
    agent.observe(made[0], reward=0.1)
    for refused, error in (
        ([made[1], made[0]], AlreadyObserved),
        ([made[1], made[1].id], AlreadyObserved),
        ([made[1], "nobody-1"], UnknownDecision),
    ):
        with pytest.raises(error):
            agent.forget_many(refused)
        assert agent.pending == 3
    agent.forget_many([made[1], made[2].id])
    assert agent.pending == 1
    with pytest.raises(AlreadyObserved):
        agent.observe(made[2], reward=0.1)


def test_each_reward_once_and_only_of_ones_own_decisions() -> None:
    rng = np.random.default_rng(0)
    agent, other = ffx.Agent(D, seed=0, rule="optimism", confidence=ffx.Confidence()), ffx.Agent(D, seed=1)
    decision, foreign = agent.decide(contexts(rng)), other.decide(contexts(rng))
    assert foreign.number == decision.number  # they begin at 0 everywhere
    for other_id in (foreign, foreign.id):
        with pytest.raises(UnknownDecision, match=f"one that this agent made, got decision='{foreign.id}'"):
            agent.observe(other_id, reward=0.5)
    agent.observe(decision, reward=0.5)
    for again in (decision, decision.id):
        with pytest.raises(AlreadyObserved, match=f"decision {decision.id} has its reward already"):
            agent.observe(again, reward=0.5)
    mine = agent._log.prefix
    for unknown in (f"{mine}-2", f"{mine}-00", f"{mine}--1", f"{mine}-{10**30}", f"{mine}-²", "0", ""):
        with pytest.raises(UnknownDecision, match=f"got decision='{unknown}'"):
            agent.observe(unknown, reward=0.5)
    for nonsense in (None, 0, [0], {"id": 0}, 0.0, True, np.array([0.25, 0.5])):
        with pytest.raises(UnknownDecision, match="must be a Decision or its id, got decision of type "):
            agent.observe(nonsense, reward=0.5)  # type: ignore[arg-type]
    assert agent.gram.trace() == pytest.approx(D + decision.context @ decision.context)


def test_a_forgotten_decision_has_no_reward() -> None:
    agent = ffx.Agent(D, seed=0)
    decision = agent.decide(contexts(np.random.default_rng(0)))
    agent.forget(decision)
    assert agent.pending == 0
    with pytest.raises(AlreadyObserved, match="or was forgotten"):
        agent.observe(decision, reward=0.5)
    with pytest.raises(AlreadyObserved):
        agent.forget(decision)


@pytest.mark.parametrize("regulariser", [0.05, 1.0, 20.0])
def test_the_inverse_and_the_estimate_belong_to_the_sums(regulariser: float) -> None:
    agent = ffx.Agent(D, rule="optimism", confidence=ffx.Confidence(regulariser=regulariser), seed=0)
    rng = np.random.default_rng(0)
    x = contexts(rng, 60)
    for count in range(1, REFRESH_EVERY + 500):
        agent.observe(agent.decide(x[rng.integers(60, size=4)]), reward=float(rng.normal()))
        if count % 500 == 0 or count in (REFRESH_EVERY - 1, REFRESH_EVERY, REFRESH_EVERY + 1):
            assert np.abs(agent.gram @ agent._model.learner.inverse - np.eye(D)).max() <= 1e-9
            assert np.linalg.norm(agent.gram @ agent.estimate - agent.moment) <= 1e-8
            assert agent.gram.trace() - D * regulariser <= count * (1 + 1e-9)
    assert agent.state().learner.updates < 500  # it was derived anew


def test_what_is_read_is_a_copy() -> None:
    agent = taught(ffx.Agent(D, seed=0), 5)
    before = agent.gram, agent.moment, agent.estimate
    for value in (agent.gram, agent.moment, agent.estimate):
        value[:] = 99.0
    for value, kept in zip((agent.gram, agent.moment, agent.estimate), before, strict=True):
        assert (value == kept).all()


def test_contexts_of_any_layout_give_the_same_bits_without_compiling_again() -> None:
    x = contexts(np.random.default_rng(0))
    frozen = x.copy()
    frozen.flags.writeable = False
    raw = np.zeros(x.nbytes + 1, dtype=np.uint8)
    unaligned = raw[1:].view(np.float64).reshape(x.shape)
    unaligned[:] = x
    expected = ffx.Agent(D, seed=0).decide(x)
    compiled = len(decide_by_posterior.signatures)
    for same in (frozen, unaligned, np.asfortranarray(x), x.tolist(), x[::-1][::-1], x.astype(object)):
        assert ffx.Agent(D, seed=0).decide(same) == expected
    assert ffx.Agent(D, seed=0).decide(x.astype(np.float32)).policy == pytest.approx(
        expected.policy, abs=1e-5
    )
    assert len(decide_by_posterior.signatures) == compiled


def test_growth_is_that_of_the_determinant() -> None:
    agent = taught(ffx.Agent(D, rule="optimism", confidence=ffx.Confidence(regulariser=2.0), seed=0), 40)
    assert agent.growth == pytest.approx(np.linalg.slogdet(agent.gram)[1] - D * np.log(2.0))
    agent.absorb({agent.name: agent.release()})
    assert agent.growth == 0.0


# --- private agents ----------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_private_agent_decides_from_what_is_released() -> None:
    agent = taught(private_agent(), 30)
    assert (agent.gram == np.eye(D)).all()
    assert agent.radius == pytest.approx(ffx.Confidence().radius(0, D))
    agent.absorb({agent.name: agent.release()})
    assert not (agent.gram == np.eye(D)).all()
    assert agent.radius == pytest.approx(ffx.Confidence().radius(30, D))
    before = agent.gram
    taught(agent, 5, seed=1)
    assert (agent.gram == before).all()


def test_deciding_from_local_data_too_is_the_papers_rule() -> None:
    agent = taught(private_agent("released+local"), 30)
    agent.absorb({agent.name: agent.release()})
    before = agent.gram
    rng = np.random.default_rng(5)
    decision = agent.decide(contexts(rng))
    agent.observe(decision, reward=0.5)
    gained = agent.gram - before
    assert gained == pytest.approx(np.outer(decision.context, decision.context), abs=1e-12)


def test_own_data_are_exact_where_the_agent_weighs_the_others() -> None:
    agent, plain = (
        taught(private_agent("own+released"), 30),
        taught(ffx.Agent(D, seed=0, rule="optimism", confidence=ffx.Confidence()), 30),
    )
    assert agent.gram == pytest.approx(plain.gram, abs=1e-12)
    agent.absorb({agent.name: agent.release()})
    assert agent.gram == pytest.approx(plain.gram, abs=1e-12)  # its own noise never comes back to it
    other = taught(private_agent("own+released", "other", 1), 400)
    agent.absorb({"other": other.release()})
    extra = np.linalg.eigvalsh(agent.gram - plain.gram)
    assert extra[0] >= -1e-9
    assert extra[-1] <= np.linalg.eigvalsh(other.gram)[-1] * 1.5


def test_compiled_code_leaves_the_reference_counts_as_they_were() -> None:
    # A stage that hands out arrays without counting would free the learner's memory under our feet.
    rng = np.random.default_rng(0)
    agent = ffx.Agent(3, seed=0)
    before = sys.getrefcount(agent._model.learner.memory)
    for arms in (1, 2, 5, 9) * 100:
        agent.observe(agent.decide(rng.random((arms, 3)) / 2), reward=0.5)
    after = sys.getrefcount(
        agent._model.learner.memory
    )  # outside the assert, which holds references of its own
    assert after == before


def test_the_shift_is_added_and_what_is_still_negative_is_floored() -> None:
    agent = taught(private_agent("released"), 30)
    release = agent.release()
    agent.absorb({agent.name: release})
    noisy, _ = unpack(release.packed)
    shifted = np.linalg.eigvalsh(noisy) + 4.0 * float(agent.privatizer.mechanism.sd(1))
    assert np.linalg.eigvalsh(agent.gram) == pytest.approx(1.0 + np.maximum(shifted, 0.0))


def test_fresh_records_count_beside_what_is_shared() -> None:
    agent = taught(private_agent("released+local"), 30)
    release = agent.release()
    taught(agent, 7, seed=1)  # not released yet, and known to the agent
    agent.absorb({agent.name: release})
    assert agent.radius == pytest.approx(ffx.Confidence().radius(37, D))
    plain = taught(ffx.Agent(D, seed=0, rule="optimism", confidence=ffx.Confidence()), 30)
    release = plain.release()
    taught(plain, 7, seed=1)
    plain.absorb({plain.name: release})
    assert plain.radius == pytest.approx(ffx.Confidence().radius(37, D))


@pytest.mark.filterwarnings("ignore::fedfairx.errors.ScaleWarning")
@pytest.mark.parametrize("size", [1e6, 1e8])
def test_predictions_are_right_when_one_feature_is_large(size: float) -> None:
    rng = np.random.default_rng(0)
    agent = ffx.Agent(4, seed=0, intercept=False)
    parameter = np.array([0.5 / size, 0.2, -0.3, 0.1])
    for _ in range(30):
        rows = rng.normal(size=(5, 4)) * [size, 1.0, 1.0, 1.0]
        decision = agent.decide(rows)
        agent.observe(decision, reward=float(rows[decision.action] @ parameter))
        units = np.sqrt(np.diag(agent.gram))  # without which NumPy's own solution would be off
        exact = np.linalg.solve(agent.gram / np.outer(units, units), agent.moment / units) / units
        assert rows @ agent.estimate == pytest.approx(rows @ exact, abs=1e-10)


@pytest.mark.filterwarnings("ignore::fedfairx.errors.ScaleWarning")
@pytest.mark.parametrize("size", [1e6, 1e9, 1e12])
def test_contexts_far_above_the_regulariser_never_break_an_agent(size: float) -> None:
    rng = np.random.default_rng(0)
    agent = ffx.Agent(4, seed=0)
    for _ in range(100):
        decision = agent.decide(size * rng.normal(size=(5, 4)))
        agent.observe(decision, reward=1.0)
        assert np.isfinite(decision.policy).all()
        assert np.isfinite(decision.theta).all()
        assert agent.growth >= 0.0


def test_an_agent_does_not_share_its_draws_with_its_caller() -> None:
    """A reward made with the same seed must not know which arm is drawn next: the two streams are unrelated.

    Of 2 000 pairs of uniforms the correlation has an sd of 0.022; the bound fails an honest pair once in 10⁴.
    """
    ours = ffx.Agent(2, seed=0)._draws._generator.random(2000)
    theirs = np.random.default_rng(0).random(64 + 2000)[64:]
    assert not np.array_equal(ours, theirs)
    assert abs(np.corrcoef(ours, theirs)[0, 1]) < 0.09


@given(st.integers(1, 150), st.integers(0, 2**32 - 1))
def test_uniforms_are_taken_in_the_same_order(count: int, seed: int) -> None:
    one, other = Uniforms(seed, 1), Uniforms(seed, 1)
    taken = []
    for _ in range(count):
        taken.append(other.ahead[-1])
        other.advance()
    assert one.peek(count) == taken
    for _ in range(count):
        one.advance()
    assert one.position == other.position
    assert one.ahead[-1] == other.ahead[-1]
