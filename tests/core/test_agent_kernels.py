"""The learner of one lane in one flat memory: the same numbers as the stages give, in the right places."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedfairx.core import statistics
from fedfairx.core.agent_kernels import (
    LARGEST,
    AgentMemory,
    decide_one,
    decision_workspace,
    learn_one,
)
from fedfairx.core.confidence import Confidence
from fedfairx.core.merit import Exponential
from fedfairx.core.optimism.solver import Solver
from fedfairx.core.posterior import Prior
from instances import expose

D = 3


def start(regulariser: float = 1.0) -> AgentMemory:
    return AgentMemory.start(
        D, merit=Exponential(10.0), confidence=Confidence(regulariser=regulariser), solver=Solver()
    )


def learn(single: AgentMemory, x: np.ndarray, weight: float, reward: float) -> float:
    return float(learn_one(single.memory, None, x, 0, D, weight, reward))


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
        growth = learn(single, x, 1.0, y)
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
        values = np.append([7.0, 8.0], x)
        growth = learn_one(at_once.memory, sums_at_once, values, 2, D, 1.0, y)
        assert growth == learn(apart, x, 1.0, y)
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
        learn(single, contexts[action], 1.0, 1.0)


def believer(rule: str) -> AgentMemory:
    """The memory of an agent that has learnt of each unit vector."""
    single = AgentMemory.start(D, merit=Exponential(2.0), rule=rule, prior=Prior(mean=0.3))
    for number, reward in enumerate([0.9, 0.2, 0.5, 0.7, 0.1, 0.6, 0.8]):
        learn(single, np.eye(D)[number % D], 1.0, reward)
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
