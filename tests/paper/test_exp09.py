"""Exp 9: what it compares, what it shares with others, what its claims would say of other results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiment_helpers import said
from fedfairx import simulate
from paper import FULL, QUICK, Claim, Outcome, exp01, exp05, exp06, exp09, late, people
from paper.late import BEFORE
from paper.worlds import FEWER, HOWS, MERIT, ONE_HOT, PAPER, RULES, SEEDS, WORLDS, key

RUNS = {run.key: run for run in exp09.runs(FULL)}


def same(ours: str, theirs) -> bool:
    return RUNS[ours].identity("made") == theirs.identity("made")


def named(runs) -> dict:
    return {run.key: run for run in runs}


def test_what_others_have_run_is_not_run_again():
    assert same(key("paper", PAPER, "alone"), named(exp01.runs(FULL))["b0"])
    assert same(key("paper", PAPER, "fed"), named(exp01.runs(FULL))["fed"])
    assert same(key("paper", PAPER, "priv"), named(exp05.runs(FULL))["centred"])
    for rule in (PAPER, MERIT):
        for how in exp06.HOWS:
            assert same(key("persistent", rule, how), named(exp06.runs(FULL))[f"{rule}, {how}"])


def test_twenty_seeds_at_full_size_alone():
    assert all(RUNS[key(world, MERIT, how)].least_seeds == SEEDS for world in WORLDS for how in HOWS)
    assert all(RUNS[key(ONE_HOT, rule, "alone")].least_seeds == SEEDS for rule in RULES)
    assert RUNS[key("steep", "thompson", "fed")].least_seeds == FEWER
    assert {how: RUNS[key("paper", MERIT, how)].least_seeds for how in HOWS} == {
        "alone": SEEDS,
        "fed": SEEDS,
        "priv": FEWER,
    }
    assert all(run.least_seeds == 0 for run in exp09.runs(QUICK))


def test_fair_shares_are_those_of_the_simulator():
    run = named(exp06.runs(QUICK))[f"{MERIT}, alone"]
    fair = exp06.fair_shares(QUICK, np.arange(2))
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
        if people.OWN in name:  # a fifth less than features alone
            scale = 8.0
        curve = np.outer([1.0, 1.01, 0.99], np.linspace(0.01, 1, 100)) * scale
        found[name] = Outcome(
            seeds=np.arange(3),
            rounds=rounds,
            fairness_regret=curve,
            reward_regret=curve,
            syncs=np.ones(3, dtype=np.int64),
            exposure=np.full((3, 8), 0.125),
            weakest=np.ones((3, 100)),
        )
    return found


def verdicts(outcomes: dict[str, Outcome]) -> dict[str, tuple[str, str]]:
    return {
        claim.statement: (claim.verdict, claim.found)
        for claim in said(exp09.EXPERIMENT, outcomes, FULL, Claim)
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
        ({exp09.joined_key(10_000, 0.1, 1e-6): 1.03}, "joining hardly hurts", "1.030"),
        ({late.key("negative", 100, MERIT): 10.5}, "where long rows are not better", "100 rounds late: 1.05"),
        ({late.key("joining", 500, MERIT): 6.1}, "with newcomers", "500 rounds late: 0.61"),
        ({late.key("positive", 500, MERIT): 12.6}, "where long rows are better", "500 rounds late: 1.26"),
        (
            {late.key("positive", 0, BEFORE): 0.9},
            "in no world has another rule less regret",
            "θ ≥ 0: long rows are better, at once, over expected merit, before: 1.11",
        ),
        ({late.key("silent", 100, "greedy"): 0.9}, "in no world has another rule less", "over greedy: 1.11"),
    ],
)
def test_bad_results_are_found_and_told(spoilt: dict[str, float], claim: str, told: str):
    found = verdicts(made_up(**spoilt))
    verdict, text = next(value for statement, value in found.items() if claim in statement)
    assert verdict == "does not hold"
    assert told in text


def test_the_rule_before_saturation_is_the_one_that_it_was():
    """Stored: regret by the last version without saturation, 608a7a0, with every default, seeds 0 to 2."""
    for kind, found in (
        ("positive", [61.948007256, 35.222285981, 55.310922410]),
        ("silent", [172.372166495, 208.441422764, 184.894197250]),
    ):
        run = RUNS[late.key(kind, 0, BEFORE)]
        world = replace(run.scenario, horizon=400, silent=0)
        regret = simulate(world, algorithm=run.algorithm, seeds=3, **run.options).fairness_regret[:, -1]
        np.testing.assert_allclose(regret, found, rtol=1e-6)


def test_an_action_that_never_answers_and_is_favoured_is_found():
    outcomes = made_up()
    outcomes[late.key("silent", 100, MERIT)].exposure[:, -1] = 2.1 / late.ALIKE
    verdict, text = next(v for s, v in verdicts(outcomes).items() if "never come is not favoured" in s)
    assert (verdict, "100 rounds late: 2.1 " in text) == ("does not hold", True)


def test_in_worlds_of_late_rewards_only_the_delay_and_the_rule_differ():
    for kind in late.KINDS:
        worlds = {
            replace(RUNS[late.key(kind, delay, rule)].scenario, delay=0.0)
            for delay in late.DELAYS
            for rule in late.LATE_RULES
        }
        assert len(worlds) == 1
    assert {RUNS[late.key("signs", delay, MERIT)].scenario.delay for delay in late.DELAYS} == {0, 100, 500}


def test_a_starved_arm_is_found():
    outcomes = made_up()
    name = key(ONE_HOT, MERIT, "alone")
    outcomes[name].weakest[1, 60] = 0.29
    verdict, text = next(v for s, v in verdicts(outcomes).items() if "is not starved" in s)
    assert (verdict, "least of a seed 0.29; below 0.3 in 1 of 3 seeds" in text) == ("does not hold", True)


def test_from_when_on_joining_pays():
    outcomes = made_up()
    joined = outcomes[exp09.joined_key(100_000, 1.0, 1e-6)]
    joined.fairness_regret[:, 50:] *= 0.8
    note = said(exp09.EXPERIMENT, outcomes, FULL, str)[1]
    assert "ε = 1: round 10 200" in note
    assert "ε = 2: not by then" in note
    assert "at round 200 the regret so far is 1.00, 1.00, 1.00, 1.00 times" in note


def test_where_the_estimate_alone_would_not_do():
    outcomes = made_up(**{key(world, "greedy", how): 1.0 for world in WORLDS for how in HOWS})
    assert said(exp09.EXPERIMENT, outcomes, FULL, str)[0].endswith("excludes 1 in: no world.")
    outcomes = made_up(
        **{key(world, "greedy", how): 1.0 for world in WORLDS if world != ONE_HOT for how in HOWS}
    )
    note = said(exp09.EXPERIMENT, outcomes, FULL, str)[0]
    assert note.count(WORLDS[ONE_HOT].label) == 2
    assert note.count(";") == 2
