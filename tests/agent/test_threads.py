"""Threads that share an agent."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fedfairx as ffx
from federation_helpers import D, private_agent
from fedfairx.core.statistics import unpack
from fedfairx.errors import AlreadyObserved


@pytest.fixture
def eager_threads():
    """Threads that change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(work, count: int = 4) -> list:
    with ThreadPoolExecutor(count) as pool:
        return [future.result() for future in [pool.submit(work, i) for i in range(count)]]


@pytest.mark.usefixtures("eager_threads")
@pytest.mark.parametrize("decide_from", [None, "released+local"])
def test_threads_share_an_agent(decide_from: str | None) -> None:
    """Every decision is whole, no record is lost or taken twice, and what is learnt belongs together."""
    agent = ffx.Agent(D, seed=0, rule="optimism") if decide_from is None else private_agent(decide_from)
    rounds = 400 if decide_from is None else 100
    merit = agent.merit

    def work(thread: int) -> list:
        rng = np.random.default_rng(thread)
        made = []
        for count in range(rounds):
            # Dyadic numbers: their products and sums are exact, so that the order of records leaves no trace.
            x = rng.integers(0, 8, (3 + thread % 2, D)) / 16.0
            decision = agent.decide(x)
            agent.observe(decision, reward=0.5)
            if thread == 0 and count % 50 == 49:
                agent.absorb({agent.name: agent.release()})
            made.append((x, decision))
        return made

    made = [each for part in in_threads(work) for each in part]
    for x, decision in made:
        assert decision.policy.sum() == pytest.approx(1.0, abs=1e-12)
        assert (decision.context == x[decision.action]).all()
        merits = np.exp(merit.steepness * (x @ decision.theta))
        assert decision.policy == pytest.approx(merits / merits.sum(), abs=1e-9)
    assert len({decision.number for _, decision in made}) == len(made) == 4 * rounds
    assert agent.pending == 0
    chosen = np.array([decision.context for _, decision in made])
    release = agent.release()
    assert release.count == 4 * rounds
    if decide_from is None:
        gram, moment = unpack(release.packed)
        assert (gram == chosen.T @ chosen).all()
        assert (moment == 0.5 * chosen.sum(axis=0)).all()
        agent.absorb({agent.name: release})
        assert (agent.gram == gram + np.eye(D)).all()
    assert np.abs(agent.gram @ agent._model.learner.inverse - np.eye(D)).max() <= 1e-9


@pytest.mark.usefixtures("eager_threads")
def test_a_reward_that_threads_fight_over_is_taken_once() -> None:
    agent = ffx.Agent(D, seed=0)
    decisions = agent.decide_many(np.random.default_rng(0).random((500, 4, D)))

    def work(_: int) -> int:
        taken = 0
        for decision in decisions:
            try:
                agent.observe(decision, reward=0.5)
            except AlreadyObserved:
                continue
            taken += 1
        return taken

    assert sum(in_threads(work)) == 500
    assert agent.release().count == 500


@pytest.mark.usefixtures("eager_threads")
def test_an_agent_saved_while_others_use_it_is_whole(tmp_path) -> None:
    agent = ffx.Agent(D, seed=0)

    def work(thread: int) -> None:
        rng = np.random.default_rng(thread)
        for count in range(100):
            if thread == 0 and count % 10 == 0:
                agent.save(tmp_path / f"{count}.db")
            agent.observe(agent.decide(rng.integers(0, 8, (3, D)) / 16.0), reward=0.5)

    in_threads(work)
    for path in tmp_path.iterdir():
        again = ffx.Agent.load(path)
        assert 2 * again.unreleased + again.pending == again._log.numbers.next
        assert np.abs(again.gram @ again._model.learner.inverse - np.eye(D + 1)).max() <= 1e-9
