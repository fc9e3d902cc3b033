"""The paper's own numbers, and the ratios that are printed beside ours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiment_helpers import said
from fedfairx import Scenario
from fedfairx.errors import InvalidInput
from paper import FULL, QUICK, Claim, Outcome, Ratio
from paper.experiment import METRICS, REWARD
from paper.offers import OffersScenario
from paper.registry import EXPERIMENTS
from paper.world import curve


@pytest.mark.parametrize(
    ("experiment", "series"),
    [
        ("exp1", ("b0", "fed-fairx-linucb", "priv-fairx-linucb")),
        ("exp2", ("priv-fairx-linucb", "b1", "b2")),
        ("exp3", ("fed-fairx-linucb", "priv-fairx-linucb")),
        ("exp4", ("priv-fairx-linucb", "b0")),
    ],
)
@pytest.mark.parametrize("metric", METRICS)
def test_every_curve_is_there(experiment, series, metric):
    for name in series:
        x, y = curve(experiment, name, metric=metric)
        assert x.size == y.size >= 3
        assert (np.diff(x) > 0).all()


def test_an_unknown_curve():
    with pytest.raises(InvalidInput, match="no curve"):
        curve("exp9", "b0")


def test_what_is_plotted_as_feds_fairness_regret_is_the_reward_curve():
    np.testing.assert_array_equal(
        curve("exp1", "fed-fairx-linucb")[1], curve("exp1", "fed-fairx-linucb", metric=REWARD)[1]
    )


def flat_outcomes(size, *names: str) -> dict[str, dict[str, Outcome]]:
    """Every run gives the same regret: each of our ratios is 1."""
    points = np.array([size.horizon // 2, size.horizon])
    flat = Outcome(
        seeds=np.arange(2),
        rounds=points,
        fairness_regret=np.array([[1.0, 2.0], [1.0, 2.0]]),
        reward_regret=np.array([[1.0, 2.0], [1.0, 2.0]]),
        syncs=np.array([3, 3]),
        exposure=np.full((2, 10), 0.1),
        weakest=np.ones((2, 2)),
    )

    def of(world: Scenario) -> Outcome:
        arms = len(world.offers.names) if isinstance(world, OffersScenario) else world.arms
        by_agent = np.broadcast_to([1.0, 2.0], (2, world.agents, 2))
        return replace(flat, exposure=np.full((2, arms), 1.0 / arms), by_agent=by_agent)

    return {
        name: {run.key: of(run.scenario) for run in item.runs(size)}
        for name, item in EXPERIMENTS.items()
        if name in (names or EXPERIMENTS)
    }


@pytest.mark.long
def test_the_ratios_are_those_of_the_paper():
    outcomes = flat_outcomes(FULL)
    found = [
        (item.name, round(item.paper, 2))
        for name, experiment in EXPERIMENTS.items()
        for item in said(experiment, outcomes[name], FULL, Ratio)
    ]
    assert found == [
        ("Fed / B0", 0.29),
        ("Fed / B0", 0.24),
        ("Priv / B0", 0.53),
        ("B1 / Priv", 1.42),
        ("B2 / Priv", 0.89),
        ("B1 / Priv", 1.42),
        ("B2 / Priv", 0.89),
        ("Priv(m=40) / Priv(m=10)", 0.48),
        ("Fed(m=40) / Fed(m=10)", 0.68),
        ("Priv(ε=0.1) / Priv(ε=2)", 9.24),
        ("Priv(ε=1) / Priv(ε=2)", 1.02),
        ("Priv(ε=10) / Priv(ε=2)", 0.40),
    ]


@pytest.mark.long
def test_claims_are_judged_at_full_size_alone():
    for size, judged in ((FULL, True), (QUICK, False)):
        outcomes = flat_outcomes(size)
        for name, experiment in EXPERIMENTS.items():
            for claim in said(experiment, outcomes[name], size, Claim):
                assert (claim.verdict != "not judged") is judged


def test_a_claim_that_fails_is_marked_so():
    claims = said(EXPERIMENTS["exp1"], flat_outcomes(FULL, "exp1")["exp1"], FULL, Claim)
    assert [claim.verdict for claim in claims] == ["undecided", "undecided", "holds"]
