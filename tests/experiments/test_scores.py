"""Ratios, intervals and verdicts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from experiment_helpers import outcome
from fedfairx.experiments import FULL, Experiment, Outcome
from fedfairx.experiments.contents import Bar, over
from fedfairx.experiments.datasets import missing
from fedfairx.experiments.offers import OffersScenario
from fedfairx.experiments.outcomes import Outcomes
from fedfairx.experiments.registry import experiments
from fedfairx.experiments.scores import (
    Claim,
    Estimate,
    Ratio,
    Scores,
    estimate,
    half_width,
    number,
    ratio,
)


def test_the_interval_covers_the_mean_95_times_of_100():
    # 40 000 samples of five seeds: the share has sd 0.0011, so this fails by chance once in 10⁴ times.
    generator = np.random.default_rng(0)
    values = generator.normal(3.0, 2.0, (5, 40_000))
    covered = np.abs(values.mean(axis=0) - 3.0) <= half_width(values)
    assert abs(covered.mean() - 0.95) < 0.0044


def test_one_seed_has_no_interval():
    assert math.isnan(estimate(np.array([2.0])).low)
    assert math.isnan(float(half_width(np.array([2.0]))))


def test_a_ratio_is_paired():
    below_values = np.array([1.0, 10.0, 100.0])
    found = ratio(2 * below_values, below_values)
    assert found.value == pytest.approx(2)
    assert (found.low, found.high) == (pytest.approx(2), pytest.approx(2))


def test_runs_of_fewer_seeds_are_compared_by_those_that_both_have():
    many, few = outcome(range(4)), outcome(range(2), scale=2.0)
    found = over("few", "many")({"few": few, "many": many})
    assert found == ratio(few.final(), many.final()[:2])


@pytest.mark.parametrize(
    ("value", "low", "high", "agrees"),
    [(1.2, 1.19, 1.21, True), (0.81, 0.80, 0.82, True), (1.5, 0.9, 2.5, True), (1.5, 1.4, 1.6, False)],
)
def test_the_criterion_of_agreement(value, low, high, agrees):
    found = Ratio("r", 1.0, Estimate(value, low, high), judged=True)
    assert found.agrees is agrees
    assert found.verdict == ("agrees" if agrees else "differs")


def test_a_reduced_size_is_not_judged():
    assert Ratio("r", 1.0, Estimate(1.0, 0.9, 1.1), judged=False).verdict == "not judged"


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(0.2, 0.9, "holds"), (1.1, 1.2, "does not hold"), (0.9, 1.1, "undecided")]
)
def test_an_interval_below_a_limit(low, high, verdict):
    assert below(Estimate((low + high) / 2, low, high)) == verdict


def test_numbers_for_people():
    assert [number(x) for x in (12_345.6, 0.12345, math.nan, 3e8)] == ["12 346", "0.123", "–", "3.0e+08"]


def test_scores_as_json_have_no_nan():
    import json

    scores = Scores(
        (Ratio("r", 1.0, estimate(np.array([2.0])), judged=True),), (Claim("s", "c", "f", "holds"),)
    )
    json.dumps(scores.to_dict(), allow_nan=False)


# --- verdicts of experiments -----------------------------------------------------------------------------


def unsure(experiment: Experiment) -> Outcomes:
    """Outcomes at the paper's size whose seeds differ far more than its runs: nothing follows from them.

    All runs have the same regrets, each in an order of its own, so that on average none is better.
    """
    generator = np.random.default_rng(0)
    seeds = np.arange(FULL.seeds)
    made = {}
    for run in experiment.runs(FULL):
        final = 1_000.0 * np.exp(generator.permutation(np.linspace(-2.0, 2.0, FULL.seeds)))
        world = run.scenario
        arms = len(world.offers.names) if isinstance(world, OffersScenario) else world.arms
        made[run.key] = Outcome(
            seeds=seeds,
            rounds=np.array([FULL.horizon // 2, FULL.horizon]),
            fairness_regret=np.stack([0.5 * final, final], axis=1),
            reward_regret=np.stack([0.5 * final, final], axis=1),
            syncs=np.full(FULL.seeds, 100),
            exposure=np.full((FULL.seeds, arms), 0.1),
            weakest=np.stack([final, final], axis=1) / final.mean(),
            seconds=1.0,
            by_agent=final[:, None, None]
            * np.linspace(0.5, 1.0, world.agents)[:, None]
            * np.array([0.5, 1.0]),
        )
    return made


#: The claims that are held to an interval, by experiment.
BY_INTERVAL = {"exp1": 3, "exp2": 1, "exp3": 1, "exp4": 1, "exp5": 1, "exp8": 1, "exp11": 3}


@pytest.mark.parametrize(("name", "count"), BY_INTERVAL.items())
def test_where_seeds_disagree_nothing_is_decided(name: str, count: int):
    experiment = experiments()[name]
    claims = [c for c in experiment.score(unsure(experiment), FULL).claims if "interval" in c.criterion]
    assert [claim.verdict for claim in claims] == ["undecided"] * count


@pytest.mark.long
@pytest.mark.parametrize(("name", "count"), {"flights": 6, "star": 4}.items())
def test_nor_is_anything_on_real_data(name: str, count: int):
    experiment = experiments()[name]
    if text := missing(experiment.libraries):
        pytest.skip(text)
    claims = experiment.score(unsure(experiment), FULL).claims
    assert [claim.verdict for claim in claims] == ["undecided"] * count
    assert all("interval" in claim.criterion for claim in claims)


def test_every_claim_that_speaks_of_an_interval_is_listed():
    for name, experiment in experiments().items():
        if experiment.libraries:  # above
            continue
        criteria = [claim.criterion for claim in experiment.score(unsure(experiment), FULL).claims]
        listed = BY_INTERVAL | {"exp9": 11, "exp10": 1}  # whose limits are far from 1
        assert sum("interval" in criterion for criterion in criteria) == listed.get(name, 0)


def below(*found: Estimate, **limits: Any) -> str:
    """The verdict on these being below 1 by their intervals, or on other limits."""
    bar = Bar(
        {str(i): lambda _, each=each: each for i, each in enumerate(found)},
        **{"high": 1.0, "by": "interval"} | limits,
    )
    return bar.verdict({})


LOW, HIGH, WIDE = Estimate(0.5, 0.4, 0.6), Estimate(1.5, 1.4, 1.6), Estimate(1.0, 0.8, 1.2)


def test_of_several_the_worst_decides():
    assert below(LOW, LOW) == "holds"
    assert below(LOW, WIDE) == "undecided"
    assert below(WIDE, HIGH, LOW) == "does not hold"


def test_limits_on_both_sides():
    assert below(LOW, low=0.45) == "undecided"
    assert below(LOW, low=0.65) == "does not hold"
    assert below(LOW, low=0.3) == "holds"
    assert below(LOW, low=0.45, by="value") == "holds"
    assert below(WIDE, HIGH, by="value") == "does not hold"
    assert below(WIDE, by="doubt") == "holds"
    assert below(WIDE, HIGH, by="doubt") == "does not hold"


@pytest.mark.parametrize(("value", "verdict"), [(0.99, "undecided"), (1.01, "undecided")])
def test_a_verdict_looks_at_the_interval_and_not_at_the_value(value: float, verdict: str):
    assert below(Estimate(value, 0.8, 1.2)) == verdict
    assert below(Estimate(value, 0.7, 1.0 - 1e-9)) == "holds"
    assert below(Estimate(value, 1.0 + 1e-9, 1.3)) == "does not hold"
    assert below(Estimate(value, math.nan, math.nan)) == ("holds" if value < 1.0 else "does not hold")
