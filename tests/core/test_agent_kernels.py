"""The learner of one lane in one flat memory: the same numbers as the stages give, in the right places."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedfairx.core import agent_kernels, statistics
from fedfairx.core.agent_kernels import (
    LARGEST,
    AgentMemory,
    decide_among_arms,
    decide_by_posterior,
    decide_one,
    decide_slate,
    decide_slate_among_arms,
    decision_workspace,
    draw_parameter,
    learn_and_add,
    learn_arm,
    learn_one,
)
from fedfairx.core.confidence import Confidence
from fedfairx.core.marginal_likelihood import POINTS
from fedfairx.core.merit import Exponential
from fedfairx.core.optimism.solver import Solver
from fedfairx.core.posterior import Prior
from fedfairx.core.slates import slate_scratch
from fedfairx.lanes.rows import size_of, zeros
from instances import expose

D = 3


def start(regulariser: float = 1.0) -> AgentMemory:
    return AgentMemory.start(
        D, merit=Exponential(10.0), confidence=Confidence(regulariser=regulariser), solver=Solver()
    )


def decide(single: AgentMemory, contexts: np.ndarray, uniform: float = 0.5) -> tuple[int, np.ndarray]:
    arms = contexts.shape[0]
    out = np.full(arms + 2 * D, np.nan)
    return decide_one(
        contexts, single.memory, decision_workspace(arms, D), out, uniform, *single.variant
    ), out


@pytest.mark.parametrize("regulariser", [0.2, 1.0, 9.0])
def test_learning(regulariser: float) -> None:
    rng = np.random.default_rng(0)
    single, sums = start(regulariser), np.zeros(statistics.packed_size(D))
    before = D * math.log(regulariser)
    for count in range(1, 200):
        x, y = rng.normal(size=D), float(rng.normal())
        growth = learn_one(single.memory, x, 1.0, y)
        statistics.add_one(sums, x, y)
        gram, _ = statistics.unpack(sums)
        after = np.linalg.slogdet(gram + regulariser * np.eye(D))[1]
        assert growth == pytest.approx(after - before, abs=1e-10)
        before = after
        assert single.count == count
    assert (single.statistics == sums).all()
    assert (single.fresh == sums).all()
    followed = single.inverse.copy()
    assert np.abs(followed @ (gram + regulariser * np.eye(D)) - np.eye(D)).max() <= 1e-10
    single.derive()
    assert np.abs(followed - single.inverse).max() <= 1e-12


def test_learning_and_adding_in_one_call_is_both() -> None:
    rng = np.random.default_rng(5)
    apart, at_once = start(), start()
    sums, sums_at_once = np.zeros(statistics.packed_size(D)), np.zeros(statistics.packed_size(D))
    for _ in range(20):
        x, y = rng.normal(size=D), float(rng.normal())
        statistics.add_one(sums, x, y)
        assert learn_and_add(
            at_once.memory, sums_at_once, np.append([7.0, 8.0], x), 2, D, 1.0, y
        ) == learn_one(apart.memory, x, 1.0, y)
    assert (sums == sums_at_once).all()
    assert (apart.memory == at_once.memory).all()


def test_what_a_decision_writes() -> None:
    rng = np.random.default_rng(1)
    single, contexts = start(), rng.random((5, D))
    action, out = decide(single, contexts, 0.7)
    policy, theta, chosen = out[:5], out[5 : 5 + D], out[5 + D :]
    assert (chosen == contexts[action]).all()
    assert policy == pytest.approx(expose(Exponential(10.0), contexts @ theta)[0], abs=1e-13)
    assert action == int(np.searchsorted(np.cumsum(policy), 0.7, side="right"))
    assert single.radius == pytest.approx(Confidence().radius(0, D))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 2 * LARGEST])
@pytest.mark.parametrize("place", [(0, 0), (2, 1), (4, 2)])
def test_a_context_that_is_not_finite_is_refused_before_anything_changes(
    bad: float, place: tuple[int, int]
) -> None:
    single, contexts = start(), np.random.default_rng(2).random((5, D))
    contexts[place] = bad
    before = single.memory.copy()
    action, out = decide(single, contexts)
    assert action == -1
    assert np.isnan(out).all()
    assert (single.memory == before).all()


@pytest.mark.parametrize("size", [1e-300, 1e6, LARGEST])
def test_extreme_contexts_give_a_policy_all_the_same(size: float) -> None:
    single = start()
    contexts = size * np.random.default_rng(3).normal(size=(4, D)) / 10
    for _ in range(3):
        action, out = decide(single, contexts)
        assert np.isfinite(out).all()
        assert out[:4].sum() == pytest.approx(1.0, abs=1e-12)
        learn_one(single.memory, contexts[action], 1.0, 1.0)


def believer(rule: str, minimum_share: float = 0.0, diagonal: bool = True) -> AgentMemory:
    """The memory of an agent that has learnt of all of its three actions, which have no features.

    Unless its V⁻¹ is to be diagonal, there is a record of another kind, as noise would leave it.
    """
    single = AgentMemory.start(
        D, merit=Exponential(2.0), rule=rule, prior=Prior(mean=0.3), minimum_share=minimum_share
    )
    for arm, reward in enumerate([0.9, 0.2, 0.5, 0.7, 0.1, 0.6, 0.8]):
        learn_arm(single.memory, D, arm % D, 1.0, reward)
    if not diagonal:
        learn_one(single.memory, np.array([0.9, -0.7, 0.5]), 1.0, 2.0)
    if rule == "thompson":
        draw_parameter(single.memory, np.array([0.4, -1.0, 1.5]), np.empty(D * D))
    return single


@pytest.mark.parametrize("sd", [1e-30, 0.5, 1e30])
def test_only_optimism_has_no_posterior(sd: float) -> None:
    for rule in ("expected-merit", "greedy", "thompson"):
        assert AgentMemory.start(D, merit=Exponential(2.0), rule=rule, prior=Prior(sd=sd)).believes
    assert not start().believes


def test_what_decays_is_all_that_was_summed() -> None:
    single, whole = believer("greedy"), believer("greedy")
    single.decay(0.25)
    for name in ("statistics", "fresh", "observed", "squares"):
        assert getattr(single, name) == pytest.approx(0.25 * getattr(whole, name), rel=1e-14)
    assert single.observed == 1.75
    assert (single.inverse == whole.inverse).all()  # until it is derived
    single.derive()
    gram, _ = statistics.unpack(0.25 * whole.statistics)
    assert single.inverse == pytest.approx(np.linalg.inv(gram + Prior().ridge * np.eye(D)), rel=1e-13)


def test_an_action_without_features_is_learnt_as_its_unit_vector() -> None:
    by_number, by_vector = believer("greedy"), believer("greedy")
    for arm, reward in [(2, 0.4), (0, -1.0), (2, 0.3)]:
        growth = learn_arm(by_number.memory, D, arm, 0.8, reward)
        assert growth == pytest.approx(learn_one(by_vector.memory, np.eye(D)[arm], 0.8, reward), rel=1e-14)
    for name in ("statistics", "fresh", "inverse", "count", "observed", "squares"):
        assert getattr(by_number, name) == pytest.approx(getattr(by_vector, name), rel=1e-14)


@pytest.mark.parametrize("rule", ["expected-merit", "greedy", "thompson"])
@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("arms", [[0, 1, 2], [2, 0]])
def test_a_decision_among_numbers_of_actions_is_that_among_their_unit_vectors(
    rule: str, diagonal: bool, arms: list[int]
) -> None:
    one, other = (believer(rule, minimum_share=0.1, diagonal=diagonal) for _ in range(2))
    numbers, contexts, size = np.array(arms), np.eye(D)[arms], len(arms) + 2 * D
    for uniform in (0.1, 0.5, 0.9):
        by_number, by_vector = np.full((2, size), np.nan)
        drawn = decide_among_arms(numbers, D, one.memory, diagonal, by_number, uniform, one.quadrature)
        assert drawn == decide_by_posterior(contexts, other.memory, by_vector, uniform, other.quadrature)
        assert by_number == pytest.approx(by_vector, rel=1e-13)


@pytest.mark.parametrize("rule", ["expected-merit", "greedy", "thompson"])
@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("arms", [[0, 1, 2], [2, 0]])
def test_a_slate_of_numbers_of_actions_is_that_of_their_unit_vectors(
    rule: str, diagonal: bool, arms: list[int]
) -> None:
    one, other = (believer(rule, minimum_share=0.1, diagonal=diagonal) for _ in range(2))
    weights = np.array([1.0, 0.6])
    numbers, contexts, size = np.array(arms), np.eye(D)[arms], len(arms) + D + weights.size * D
    for uniform in (0.1, 0.5, 0.9):
        by_number, by_vector = np.full((2, size), np.nan)
        work, other_work = (zeros(size_of(slate_scratch, weights.size, len(arms))) for _ in range(2))
        more = uniform, one.quadrature
        decide_slate_among_arms(numbers, D, one.memory, diagonal, weights, work, by_number, *more)
        decide_slate(contexts, other.memory, weights, other_work, by_vector, *more)
        assert by_number == pytest.approx(by_vector, rel=1e-13)
        shown, others = (each[: weights.size].view(np.int64).tolist() for each in (work, other_work))
        assert shown == others
        assert (by_number[-weights.size * D :] == contexts[shown].ravel()).all()


@pytest.mark.parametrize("extra", [None, [1.0, 1.0, 0.0], [0.0, 0.0, 2.0]], ids=["none", "dense", "unit"])
def test_for_actions_without_features_less_is_compiled_to_the_same_bits(
    extra: list[float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums may be dense all the same, as with noise: then what was left out is compiled."""
    asked: list[bool | None] = []

    def learnt(memory: Any, own: Any, workspace: Any, grid: Any, dense: bool | None) -> Any:
        asked.append(dense)
        return sizes(memory, own, workspace, grid, dense)

    sizes = agent_kernels._learnt_sizes
    monkeypatch.setattr(agent_kernels, "_learnt_sizes", learnt)
    single = AgentMemory.start(
        D, merit=Exponential(2.0), rule="expected-merit", prior=Prior(mean=0.3), common=range(D)
    )
    for arm, reward in enumerate([0.9, 0.2, 0.5, 0.7]):
        learn_arm(single.memory, D, arm % D, 0.7, reward)
    if extra is not None:
        learn_one(single.memory, np.array(extra), 1.0, 2.0)
    own, before = single.statistics.copy(), single.memory.copy()
    expected = sizes(before, own, np.empty((D, D + 1)), np.empty((POINTS, 3)), True)
    single.learn_sizes(own)
    assert (single.sizes.variance, single.sizes.ridge) == expected
    assert asked == [True if extra == [1.0, 1.0, 0.0] else None]
    single.derive()
    derived = single.inverse.copy()
    agent_kernels._derive(single.memory, D)
    np.testing.assert_array_equal(derived, single.inverse)
