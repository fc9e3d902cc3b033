"""Ratios, intervals and verdicts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from experiment_helpers import outcome, said
from fedfairx.evaluation import Estimate
from paper import FULL, Claim, Experiment, Outcome, Results
from paper.datasets import missing
from paper.offers import OffersScenario
from paper.registry import EXPERIMENTS
from paper.report import Section
from paper.scores import (
    Ratio,
    Table,
    below,
    estimate,
    half_width,
    judge,
    listed,
    number,
    outside,
    ratio,
    worst,
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
    found = Results(few=few, many=many).over("few", "many")
    assert found == ratio(few.final(), many.final()[:2])


@pytest.mark.parametrize(
    ("value", "low", "high", "agrees"),
    [(1.2, 1.19, 1.21, True), (0.81, 0.80, 0.82, True), (1.5, 0.9, 2.5, True), (1.5, 1.4, 1.6, False)],
)
def test_the_criterion_of_agreement(value, low, high, agrees):
    found = Ratio("r", 1.0, Estimate(value, low, high))
    assert found.verdict == ("agrees" if agrees else "differs")


def test_a_reduced_size_is_not_judged():
    assert Ratio("r", 1.0, Estimate(1.0, 0.9, 1.1), judged=False).verdict == "not judged"


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(0.2, 0.9, "holds"), (1.1, 1.2, "does not hold"), (0.9, 1.1, "undecided")]
)
def test_an_interval_below_a_limit(low, high, verdict):
    assert judged(Estimate((low + high) / 2, low, high)) == verdict


def test_numbers_for_people():
    assert [number(x) for x in (12_345.6, 0.12345, math.nan, 3e8)] == ["12 346", "0.123", "–", "3.0e+08"]


def test_scores_as_json_have_no_nan():
    import json

    parts = [Ratio("r", 1.0, estimate(np.array([2.0]))), Claim("s", "c", "f", "holds"), "a note"]
    json.dumps(Section(EXPERIMENTS["exp1"], parts, 5, 0.0).scores(), allow_nan=False)


# --- tables and texts ------------------------------------------------------------------------------------

RESULTS = Results(alone=outcome(), fed=outcome(scale=0.5), large=outcome(scale=3000.0))


def test_a_table_has_texts_and_numbers_for_people():
    table = Table("Regret", ("run", "regret", "syncs"), [("Fed", RESULTS.regret("fed"), 7.0)], "A note.")
    low, high = RESULTS["fed"].final()
    ((run, level, releases),) = table.rows
    assert (run, releases, table.note) == ("Fed", "7", "A note.")
    assert level.startswith(f"{number((low + high) / 2)} [")


def test_a_table_of_runs_has_both_regrets_and_synchronisations():
    table = RESULTS.table("Regret", ("algorithm",), [("fed", "Fed")])
    assert table.columns[1:] == ("fairness regret at T", "reward regret at T", "synchronisations")
    assert [cell.split(" ")[0] for cell in table.rows[0]] == ["Fed", "2.05", "-1.95", "7"]


def test_regret_at_the_end_is_a_frame_of_seeds_and_runs():
    frame = Results(few=outcome((0,)), many=outcome((0, 1))).fairness
    assert frame.columns.tolist() == ["few", "many"]
    assert frame["few"].isna().tolist() == [False, True]


def test_what_was_found_is_said():
    first, second = RESULTS.over("fed", "alone"), RESULTS.over("large", "alone")
    both = {"first": first, "second": second}
    assert listed(both) == f"first: {first}; second: {second}"
    assert worst(both) == ("second", second)
    assert [outside(each, high=1.0) for each in both.values()] == [False, True]
    claim = below("sharing pays", "Fed/alone", first, 1.0, note=" here")
    assert claim == ("sharing pays", "the 95 % interval of Fed/alone lies below 1 here", str(first), "holds")
    assert below("s", "w", both, 9.0).verdict == "does not hold"


# --- verdicts of experiments -----------------------------------------------------------------------------


def unsure(experiment: Experiment) -> dict[str, Outcome]:
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
            by_agent=final[:, None, None]
            * np.linspace(0.5, 1.0, world.agents)[:, None]
            * np.array([0.5, 1.0]),
        )
    return made


#: The claims that are held to an interval, by experiment.
BY_INTERVAL = {"exp1": 3, "exp2": 1, "exp3": 1, "exp4": 1, "exp5": 1, "exp8": 1, "exp11": 3}


@pytest.mark.parametrize(("name", "count"), BY_INTERVAL.items())
def test_where_seeds_disagree_nothing_is_decided(name: str, count: int):
    experiment = EXPERIMENTS[name]
    claims = [c for c in said(experiment, unsure(experiment), FULL, Claim) if "interval" in c.criterion]
    assert [claim.verdict for claim in claims] == ["undecided"] * count


@pytest.mark.long
@pytest.mark.parametrize(("name", "count"), {"flights": 6, "star": 4}.items())
def test_nor_is_anything_on_real_data(name: str, count: int):
    experiment = EXPERIMENTS[name]
    if text := missing(experiment.libraries):
        pytest.skip(text)
    claims = said(experiment, unsure(experiment), FULL, Claim)
    assert [claim.verdict for claim in claims] == ["undecided"] * count
    assert all("interval" in claim.criterion for claim in claims)


def test_every_claim_that_speaks_of_an_interval_is_listed():
    for name, experiment in EXPERIMENTS.items():
        if experiment.libraries:  # above
            continue
        criteria = [claim.criterion for claim in said(experiment, unsure(experiment), FULL, Claim)]
        listed = BY_INTERVAL | {"exp9": 17, "exp10": 1}  # whose limits are far from 1
        assert sum("interval" in criterion for criterion in criteria) == listed.get(name, 0)


def judged(*found: Estimate, **limits: Any) -> str:
    """The verdict on these being below 1 by their intervals, or on other limits."""
    return judge({str(i): each for i, each in enumerate(found)}, **{"high": 1.0, "by": "interval"} | limits)


LOW, HIGH, WIDE = Estimate(0.5, 0.4, 0.6), Estimate(1.5, 1.4, 1.6), Estimate(1.0, 0.8, 1.2)


def test_of_several_the_worst_decides():
    assert judged(LOW, LOW) == "holds"
    assert judged(LOW, WIDE) == "undecided"
    assert judged(WIDE, HIGH, LOW) == "does not hold"


def test_limits_on_both_sides():
    assert judged(LOW, low=0.45) == "undecided"
    assert judged(LOW, low=0.65) == "does not hold"
    assert judged(LOW, low=0.3) == "holds"
    assert judged(LOW, low=0.45, by="value") == "holds"
    assert judged(WIDE, HIGH, by="value") == "does not hold"
    assert judged(WIDE, by="doubt") == "holds"
    assert judged(WIDE, HIGH, by="doubt") == "does not hold"


@pytest.mark.parametrize(("value", "verdict"), [(0.99, "undecided"), (1.01, "undecided")])
def test_a_verdict_looks_at_the_interval_and_not_at_the_value(value: float, verdict: str):
    assert judged(Estimate(value, 0.8, 1.2)) == verdict
    assert judged(Estimate(value, 0.7, 1.0 - 1e-9)) == "holds"
    assert judged(Estimate(value, 1.0 + 1e-9, 1.3)) == "does not hold"
    assert judged(Estimate(value, math.nan, math.nan)) == ("holds" if value < 1.0 else "does not hold")
