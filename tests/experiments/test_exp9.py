"""Exp 9: what it compares, what it shares with others, what its claims would say of other results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedfairx.experiments import FULL, QUICK, Outcome
from fedfairx.experiments.provenance import provenance
from fedfairx.experiments.suite import (
    exp01_together,
    exp05_mechanisms,
    exp06_starvation,
    exp09_exploration,
)
from fedfairx.experiments.suite.exp09_worlds import (
    HOWS,
    MERIT,
    ONE_HOT,
    PAPER,
    RULES,
    SEEDS,
    WORLDS,
    algorithm_of,
    key,
)

RUNS = {run.key: run for run in exp09_exploration.runs(FULL)}


def same(ours: str, theirs) -> bool:
    return RUNS[ours].identity(provenance()) == theirs.identity(provenance())


def named(runs) -> dict:
    return {run.key: run for run in runs}


def test_what_others_have_run_is_not_run_again():
    assert same(key("paper", PAPER, "alone"), named(exp01_together.runs(FULL))["b0"])
    assert same(key("paper", PAPER, "fed"), named(exp01_together.runs(FULL))["fed"])
    assert same(key("paper", PAPER, "priv"), named(exp05_mechanisms.runs(FULL))["centred"])
    for rule in (PAPER, MERIT):
        for how in exp06_starvation.HOWS:
            assert same(key("persistent", rule, how), named(exp06_starvation.runs(FULL))[f"{rule}, {how}"])


def test_twenty_seeds_at_full_size_alone():
    assert all(RUNS[key(world, MERIT, how)].least_seeds == SEEDS for world in WORLDS for how in HOWS)
    assert all(run.least_seeds == 0 for run in exp09_exploration.runs(QUICK))


@pytest.mark.parametrize("how", ["alone", "fed"])
def test_each_rule_is_followed(how: str):
    for name, rule in RULES.items():
        assert algorithm_of(name, how).rule == rule.rule
        assert (algorithm_of(name, how).schedule == algorithm_of(PAPER, how).schedule) is True


def test_fair_shares_are_those_of_the_simulator():
    run = named(exp06_starvation.runs(QUICK))[f"{MERIT}, alone"]
    fair = exp06_starvation.fair_shares(QUICK, (0, 1))
    from fedfairx import simulate

    short = replace(run.scenario, horizon=20)
    entitled = simulate(short, algorithm="fairx-bayes", seeds=2, exposure=True).entitled[:, -1] / 20
    np.testing.assert_allclose(np.sort(entitled)[:, ::-1], fair, rtol=1e-9)


def made_up(**regrets: float) -> dict[str, Outcome]:
    """Regret 1 for expected merit and what joins, 10 for every other rule, but for `regrets`."""
    rounds = np.arange(1, 101) * 200
    found = {}
    for name in RUNS:
        merit = f": {MERIT}" in name or "alone for" in name or "joined for" in name
        scale = regrets.get(name, 1.0 if merit else 10.0) * (
            0.3 if name == key("paper", MERIT, "fed") else 1.0
        )
        curve = np.outer([1.0, 1.01, 0.99], np.linspace(0.01, 1, 100)) * scale
        found[name] = Outcome(
            seeds=np.arange(3),
            rounds=rounds,
            fairness_regret=curve,
            reward_regret=curve,
            syncs=np.ones(3, dtype=np.int64),
            exposure=np.full((3, 8), 0.125),
            weakest=np.ones((3, 100)),
            seconds=0.0,
        )
    return found


def verdicts(outcomes: dict[str, Outcome]) -> dict[str, tuple[str, str]]:
    return {
        claim.statement: (claim.verdict, claim.found)
        for claim in exp09_exploration.score(outcomes, FULL).claims
    }


def test_good_results_hold():
    assert {verdict for verdict, _ in verdicts(made_up()).values()} == {"holds"}


@pytest.mark.parametrize(
    ("spoilt", "claim", "told"),
    [
        ({key("paper", MERIT, "alone"): 2.6}, "quarter of optimism's fairness regret, alone", "0.26"),
        ({key("paper", MERIT, "fed"): 9.0}, "quarter of optimism's fairness regret, together", "0.27"),
        ({key("paper", MERIT, "fed"): 1.3}, "gains from learning together", "0.39"),
        ({key(ONE_HOT, MERIT, "alone"): 2.1}, "a fifth of optimism's", "0.21"),
        ({key("drifting", MERIT, "priv"): 10.5}, "in no world", WORLDS["drifting"].label),
        ({exp09_exploration.joined_key(10_000, 0.1, 1e-6): 1.03}, "joining hardly hurts", "1.030"),
    ],
)
def test_bad_results_are_found_and_told(spoilt: dict[str, float], claim: str, told: str):
    found = verdicts(made_up(**spoilt))
    verdict, text = next(value for statement, value in found.items() if claim in statement)
    assert verdict == "does not hold"
    assert told in text


def test_a_starved_arm_is_found():
    outcomes = made_up()
    name = key(ONE_HOT, MERIT, "alone")
    outcomes[name].weakest[1, 60] = 0.29
    verdict, text = next(v for s, v in verdicts(outcomes).items() if "is not starved" in s)
    assert (verdict, "least of a seed 0.29; below 0.3 in 1 of 3 seeds" in text) == ("does not hold", True)


def test_from_when_on_joining_pays():
    outcomes = made_up()
    joined = outcomes[exp09_exploration.joined_key(100_000, 1.0, 1e-6)]
    joined.fairness_regret[:, 50:] *= 0.8
    (note,) = exp09_exploration.joining_scores(outcomes, FULL).notes
    assert "ε = 1: round 10 200" in note
    assert "ε = 2: not by then" in note
    assert "at round 200 the regret so far is 1.00, 1.00, 1.00, 1.00 times" in note


def test_where_the_estimate_alone_would_not_do():
    outcomes = made_up(**{key(world, "greedy", how): 1.0 for world in WORLDS for how in HOWS})
    assert exp09_exploration.score(outcomes, FULL).notes[0].endswith("excludes 1 in: no world.")
    outcomes = made_up(
        **{key(world, "greedy", how): 1.0 for world in WORLDS if world != ONE_HOT for how in HOWS}
    )
    note = exp09_exploration.score(outcomes, FULL).notes[0]
    assert note.count(WORLDS[ONE_HOT].label) == 2
    assert note.count(";") == 2
