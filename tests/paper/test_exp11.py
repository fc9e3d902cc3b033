"""Exp 11: what arms are due and get, and what its claims would say of other results."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

import reference as ref
from experiment_helpers import said
from fedfairx import simulate
from paper import FULL, QUICK, Claim, Outcome, Results, Size
from paper.exp11 import BEST, EXPERIMENT, MERIT, ORDERED, POLICIES, SEEDS, SINGLE, WORLDS, key, over_due, runs
from paper.scores import Array
from paper.slots import (
    attention,
    decided,
    due_shares,
    expected_weights,
    fair_exposures,
    race,
    ranked_due,
    true_means,
)

RUNS = {run.key: run for run in runs(FULL)}
SHORT = Size(horizon=60, seeds=2)
WEIGHTS = [(1.0,), (1.0, 1.0), (1.0, 0.6, 0.5), (0.8, 0.0), (1.0, 0.9, 0.2, 0.1, 0.1)]


def merits(spread: float, arms: int = 5) -> Array:
    found = np.exp(np.random.default_rng(3).normal(0.0, spread, arms))
    return np.asarray(found / found.sum())


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("spread", [0.0, 1.0, 2.0])
def test_what_is_due_is_what_linear_programs_find(weights: tuple[float, ...], spread: float):
    found = merits(spread)
    expected = ref.fair_exposures(found, np.array(weights))
    np.testing.assert_allclose(fair_exposures(found, np.array(weights)), expected, atol=1e-7)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("spread", [0.0, 1.0, 5.0])
def test_what_one_after_the_other_gives_is_the_sum_over_all_orders(weights: tuple[float, ...], spread: float):
    rates = merits(spread)
    expected = np.zeros(rates.size)
    for order in permutations(range(rates.size), len(weights)):
        left = [np.delete(rates, order[:place]).sum() for place in range(len(order))]
        expected[list(order)] += np.prod(rates[list(order)] / left) * np.array(weights)
    np.testing.assert_allclose(expected_weights(rates[None], np.array(weights))[0], expected, atol=1e-6)


def test_a_race_gives_what_was_computed():
    rates, weights = merits(1.0), np.array([1.0, 0.6, 0.5])
    orders = race(rates, np.random.default_rng(0).random((100_000, 5)))[:, :3]
    given = np.zeros((100_000, 5))
    np.put_along_axis(given, orders, weights, axis=1)
    sd = given.std(axis=0) / np.sqrt(len(given))
    assert (np.abs(given.mean(axis=0) - expected_weights(rates[None], weights)[0]) < 5 * sd).all()


def test_its_mistake_stays_though_merits_are_known():
    """Why its regret is linear: expected weights by the true merits are not those that are due."""
    world, weights = RUNS[key("ranked", ORDERED)].scenario, np.array(attention(5))
    means = true_means(world, 0)
    rates = np.exp(10.0 * (means - means.max()))
    given = expected_weights(rates[None] / rates.sum(), weights)[0] / weights.sum()
    assert np.abs(given - due_shares(world, weights, 0)).sum() > 0.05


def test_with_one_slot_the_due_is_the_simulators():
    run = replace(RUNS[key("set", SINGLE)].scenario, horizon=20)
    entitled = simulate(run, algorithm="fairx-bayes", seeds=2, exposure=True).entitled[:, -1] / 20
    for seed in (0, 1):
        np.testing.assert_allclose(due_shares(run, np.ones(1), seed), entitled[seed], rtol=1e-9)


def test_settings_are_those_of_the_page():
    assert [(world.arms, len(world.slots)) for world in WORLDS.values()] == [(20, 5), (10, 3)]
    np.testing.assert_allclose(WORLDS["ranked"].slots[:3], [1.0, 0.63093, 0.5], atol=1e-5)
    assert WORLDS["set"].slots == (1.0, 1.0, 1.0)
    assert {(run.scenario.horizon, run.scenario.contexts) for run in RUNS.values()} == {(2000, "persistent")}
    seeds = {name: run.least_seeds for name, run in RUNS.items()}
    assert set(seeds.values()) == {SEEDS, SEEDS // 2}
    assert all((count < SEEDS) == name.endswith(": ordered") for name, count in seeds.items())
    assert {run.least_seeds for run in runs(QUICK)} == {0}
    assert len({str(run.identity("x")) for run in RUNS.values()}) == len(RUNS)


@pytest.mark.long
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("policy", POLICIES)
def test_attention_is_given_out_whole_and_seeds_do_not_mix(world: str, policy: str):
    (run,) = [run for run in runs(SHORT) if run.key == key(world, policy)]
    assert run.play is not None
    both, second = run.play(run, (0, 1)), run.play(run, (1,))
    np.testing.assert_allclose(both.exposure.sum(axis=1), 1.0, atol=1e-6)
    assert (np.diff(both.fairness_regret, prepend=0.0) >= -1e-12).all()
    assert both.rounds[-1] == 60
    for name in ("fairness_regret", "reward_regret", "exposure", "weakest"):
        np.testing.assert_array_equal(getattr(both, name)[1:], getattr(second, name))
    weights = np.ones(1) if policy == SINGLE else np.array(WORLDS[world].slots)
    due = ranked_due(run.scenario, weights, (0, 1))[:, -1]
    spans = np.diff(both.rounds, prepend=0)
    np.testing.assert_allclose((both.weakest * spans).sum(axis=1) / 60, both.exposure[:, -1] / due)


@pytest.mark.long
def test_the_best_are_shown_in_order_and_the_others_not_at_all():
    (run,) = [run for run in runs(SHORT) if run.key == key("set", BEST)]
    found = decided(run, (0,))
    np.testing.assert_allclose(60 * 3 * found.exposure, np.round(60 * 3 * found.exposure), atol=1e-9)


def made_up(**changes: float) -> dict[str, Outcome]:
    """Regret 1 for expected merit and more for others; shares as due, but none for the weakest by `BEST`."""
    regrets = {BEST: 10.0, ORDERED: 2.0, SINGLE: 1.5, MERIT: 1.0}
    found = {}
    for name, run in RUNS.items():
        world, policy = name.split(": ")
        curve = np.outer([1.0, 1.01, 0.99], np.linspace(0.01, 1, 100)) * changes.get(name, regrets[policy])
        weights = np.ones(1) if policy == SINGLE else np.array(WORLDS[world].slots)
        shares = ranked_due(run.scenario, weights, range(3))
        shares[:, -1] *= changes.get(f"weakest {name}", 0.1 if policy == BEST else 1.0)
        found[name] = Outcome(
            seeds=np.arange(3),
            rounds=np.arange(1, 101) * 20,
            fairness_regret=curve,
            reward_regret=curve,
            syncs=np.zeros(3, dtype=np.int64),
            exposure=shares,
            weakest=np.ones((3, 100)),
        )
    return found


def verdicts(outcomes: dict[str, Outcome]) -> dict[str, tuple[str, str]]:
    return {
        claim.statement: (claim.verdict, claim.found) for claim in said(EXPERIMENT, outcomes, FULL, Claim)
    }


def test_good_results_hold():
    found = verdicts(made_up())
    assert len(found) == 4
    assert {verdict for verdict, _ in found.values()} == {"holds"}


@pytest.mark.parametrize(
    ("spoilt", "claim", "told"),
    [
        ({key("ranked", MERIT): 2.6}, "a quarter of the fairness regret", "0.26"),
        ({key("set", MERIT): 2.1}, "one after the other", "1.05"),
        ({key("set", SINGLE): 0.9}, "than with one slot", "1.11"),
        ({f"weakest {key('ranked', MERIT)}": 0.85}, "starve the weakest", "expected merit 0.85 and 1.00"),
        ({f"weakest {key('set', BEST)}": 0.6}, "starve the weakest", "in order 0.10 and 0.60"),
    ],
)
def test_bad_results_are_found_and_told(spoilt: dict[str, float], claim: str, told: str):
    verdict, text = next(v for statement, v in verdicts(made_up(**spoilt)).items() if claim in statement)
    assert verdict == "does not hold"
    assert told in text


def test_shares_are_over_what_the_same_slots_allow():
    outcomes = made_up()
    for policy in (MERIT, SINGLE, ORDERED):
        np.testing.assert_allclose(over_due(Results(outcomes), FULL, "ranked", policy), 1.0)
