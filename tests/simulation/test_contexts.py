"""The arms of a round: a fair subset, the same whoever else is there, all alike where nobody is."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from fedfairx.agent.options import Options
from fedfairx.lanes.rows import vectors
from fedfairx.privacy import Centring
from fedfairx.simulation import Recorded, Scenario, simulate
from fedfairx.simulation.kernel.contexts import draw_contexts
from fedfairx.simulation.kernel.setup import prepare
from fedfairx.simulation.kernel.state import decision_scratch

ARMS, LANES = 4, 6
WORLD = Scenario(agents=3, arms=ARMS, dimension=ARMS, horizon=600)
RECORDS = Recorded(np.random.default_rng(1).normal(size=(5, ARMS, ARMS)), scale="unit-ball")
TABLES = pytest.mark.parametrize(
    "contexts", ["persistent", "one-hot", RECORDS], ids=("persistent", "one-hot", "recorded")
)


def rounds(scenario: Scenario, places: int) -> tuple[np.ndarray, np.ndarray]:
    """Contexts (T, places, d, n) of a block with two seeds, and the arms (T, places, n) that they are of."""
    setting = prepare(scenario, Options(algorithm="fed-fairx-linucb"), (0, 1), np.array([1]))
    workspace, arms = setting.workspace, scenario.arms
    table = decision_scratch(vectors(workspace.memory), places, arms, scenario.dimension)
    block, present = table.contexts.array, workspace.present
    drawn = []
    for t in range(scenario.horizon):
        draw_contexts(setting.world, 0, t, table, present)
        drawn.append((block.copy(), present[:places].copy()))
    contexts, numbers = zip(*drawn, strict=True)
    return np.array(contexts), np.array(numbers)


@TABLES
def test_every_subset_is_as_likely_and_shows_those_arms(contexts: str | Recorded) -> None:
    scenario = replace(WORLD, contexts=contexts)
    seen, numbers = rounds(scenario, 2)
    subsets = list(combinations(range(ARMS), 2))
    found = [tuple(numbers[t, :, l]) for t in range(scenario.horizon) for l in range(LANES)]
    # Fixed seeds; a right generator would fail once in a million.
    assert stats.chisquare([found.count(subset) for subset in subsets]).pvalue > 1e-6
    first, second = numbers[:, :, 0], numbers[:, :, 1]  # two agents of a seed don't meet the same
    assert 0.05 < (first == second).all(axis=1).mean() < 0.3
    for l in range(LANES):
        seed = l // scenario.agents
        known = RECORDS.contexts if contexts == RECORDS else scenario.features(seed)[None]  # (rounds, K, d)
        for t in range(20):
            assert any((seen[t, :, :, l] == row[numbers[t, :, l]]).all() for row in known)


@TABLES
def test_lanes_that_fill_up_a_block_see_arms_that_are_all_alike(contexts: str | Recorded) -> None:
    seen, _ = rounds(replace(WORLD, contexts=contexts, horizon=5), ARMS)
    assert (seen[:, :, :, LANES:] == 0.0).all()
    assert (np.abs(seen[:, :, :, :LANES]).sum(axis=2) > 0.0).all()


def test_each_recorded_round_is_as_likely() -> None:
    seen, _ = rounds(replace(WORLD, contexts=RECORDS), ARMS)
    found = [
        int((RECORDS.contexts == seen[t, :, :, l]).all(axis=(1, 2)).argmax())
        for t in range(WORLD.horizon)
        for l in range(LANES)
    ]
    assert stats.chisquare(np.bincount(found, minlength=5)).pvalue > 1e-6  # as above


@TABLES
def test_workers_and_company_change_no_byte(contexts: str | Recorded) -> None:
    scenario = replace(WORLD, contexts=contexts, presence=0.5, horizon=40)
    many = simulate(scenario, seeds=9, exposure=True)
    shared = simulate(scenario, seeds=9, workers=2, exposure=True)
    one = simulate(scenario, seeds=[7], exposure=True)
    for name in ("fairness_regret", "reward_regret", "exposure", "shown", "entitled"):
        assert getattr(many, name).tobytes() == getattr(shared, name).tobytes()
        assert getattr(many, name)[7].tobytes() == getattr(one, name)[0].tobytes()


def test_arms_that_stay_follow_the_law_of_unit_ball_and_differ_between_seeds() -> None:
    scenario = Scenario(arms=50, dimension=4, contexts="persistent")
    drawn = np.array([scenario.features(seed) for seed in range(20)])
    assert len(np.unique(drawn)) == drawn.size
    assert stats.kstest(2.0 * drawn.ravel(), "uniform").pvalue > 1e-6
    assert (scenario.features(3) == drawn[3]).all()


def test_a_subclass_gives_the_arms_that_stay() -> None:
    class Twins(Scenario):
        def features(self, seed: int) -> np.ndarray:
            return np.full((self.arms, self.dimension), 0.5 / (1 + seed))

    result = simulate(Twins(agents=2, arms=3, dimension=2, horizon=30, contexts="persistent"), seeds=2)
    assert result.fairness_regret[:, -1] == pytest.approx(0.0, abs=1e-12)


def test_what_is_publicly_known_of_contexts() -> None:
    base = {"arms": 3, "dimension": 3}
    records = Recorded(np.full((2, 3, 3), 2.0))
    persistent = Scenario(**base, contexts="persistent")
    assert (persistent.context_norm, persistent.centring) == (1.0, Centring.unit_box(3))
    one_hot = Scenario(**base, contexts="one-hot")
    assert (one_hot.context_norm, one_hot.centring) == (1.0, None)
    recorded = Scenario(**base, contexts=records)
    assert (recorded.context_norm, recorded.centring) == (pytest.approx(12**0.5), None)
    scaled = Scenario(**base, contexts=Recorded(np.full((2, 3, 3), 2.0), scale="unit-ball"))
    assert (scaled.context_norm, scaled.centring) == (1.0, None)


@TABLES
def test_private_algorithms_run_in_them(contexts: str | Recorded) -> None:
    scenario = replace(WORLD, contexts=contexts, presence=0.7, horizon=60, delay=2.0)
    result = simulate(scenario, algorithm="priv-fairx-linucb", seeds=1, epsilon=2.0, delta=0.1)
    assert np.isfinite(result.fairness_regret).all()
