"""The test for missing rewards: its evidence, literally; its rate of false alarms; and what it detects.

Rates of false alarms are counted at every batch, in worlds where it does not depend on the action whether a
reward comes. The bound is 0.01 of agents; with 40 agents, more than 4 would have a probability below 1e-4.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from fedfairx.fairness.confidence_sequences import spending
from fedfairx.fairness.decision_log import Logged
from fedfairx.fairness.missing_test import BATCH, ERROR, PARTS, Missing, MissingTest

NAMES = tuple(f"c{k}" for k in range(1, 8))


def literal(batches: Sequence[Sequence[Logged]], name: str) -> float:
    """The evidence of one action, decision by decision and beginning by beginning; one slot, none bounded."""
    total, n = 0.0, len(batches)
    for without, part in PARTS:
        for start in range(n):
            product = 1.0
            for one in itertools.chain(*batches[start:]):
                place, policy = list(one.names or ()).index(name), np.asarray(one.policy)
                ratio = part / without if one.reward is None else (1 - part) / (1 - without)
                product *= (ratio if one.action == place else 1.0) / (1 + policy[place] * (ratio - 1))
            total += product / ((start + 1) * (start + 2)) / len(PARTS)
    return float(total + 1 / (n + 1))


def evidence(test: MissingTest, kind: str, name: str) -> float:
    of = test._of[kind]
    return float(of._evidence[of._labels.numbers[name]])


def test_the_evidence_is_the_sum_of_products() -> None:
    rng, test, batches = np.random.default_rng(0), MissingTest(), []
    for _ in range(4):
        batches.append(
            [
                Logged(p, int(rng.choice(3, p=p)), names=NAMES[:3], reward=None if rng.random() < 0.4 else 1)
                for p in rng.dirichlet(np.ones(3), size=9)
            ]
        )
        test.add(batches[-1])
        for name in NAMES[:3]:
            assert evidence(test, "action", name) == pytest.approx(literal(batches, name), rel=1e-12)


def test_a_group_is_the_sum_of_its_actions() -> None:
    """It is as if each group were one action."""
    rng, by_group, by_name = np.random.default_rng(1), MissingTest(), MissingTest()
    for _ in range(3):
        draws = [(p, int(rng.choice(3, p=p)), rng.random() < 0.5) for p in rng.dirichlet(np.ones(3), size=8)]
        by_group.add([Logged(p, a, groups=["x", "y", "x"], reward=1.0 if r else None) for p, a, r in draws])
        by_name.add(
            [
                Logged([p[0] + p[2], p[1]], a % 2, names=["x", "y"], reward=1.0 if r else None)
                for p, a, r in draws
            ]
        )
    for name in "xy":
        assert evidence(by_group, "group", name) == pytest.approx(evidence(by_name, "action", name))


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 1.0), (1.0, 0.5), (0.8, 0.3)])
def test_the_mean_of_the_evidence_is_at_most_one(weights: tuple[float, ...]) -> None:
    """Over all ways to fill the slots, of any probabilities, whichever of them have a reward."""
    rng, slots = np.random.default_rng(2), len(weights)
    fillings = list(itertools.permutations(range(3), slots))
    for came in itertools.product([None, 1.0], repeat=slots):
        chances = rng.dirichlet(np.ones(len(fillings)))
        exposures = np.zeros(3)
        for chance, filling in zip(chances, fillings, strict=True):
            exposures[list(filling)] += chance * np.array(weights)
        means = np.zeros(5)
        for chance, filling in zip(chances, fillings, strict=True):
            one: Any = (filling, weights, list(came)) if slots > 1 else (filling[0], None, came[0])
            action, given, reward = one
            test = MissingTest()
            groups = ["x", "y", "x"]
            test.add([Logged(exposures, action, names=NAMES[:3], groups=groups, slots=given, reward=reward)])
            found = [evidence(test, "action", name) for name in NAMES[:3]]
            means += chance * np.array([*found, *(evidence(test, "group", name) for name in "xy")])
        assert (means <= 1 + 1e-9).all()
        if slots == 1:
            assert means == pytest.approx(np.ones(5))


def world(
    seed: int,
    missing: Callable[[int, int], float],
    *,
    rounds: int = 800,
    newcomer: int = 0,
    moving: float = 0.0,
) -> tuple[MissingTest, int | None]:
    """The test, and the decision after which it first found something; `missing` by time and action."""
    rng, test, logs = np.random.default_rng(seed), MissingTest(), np.zeros(7)
    first, batch = None, []
    for t in range(rounds):
        logs += moving * rng.standard_normal(7)
        arms = 6 if t < newcomer else 7
        policy = np.exp(logs[:arms]) / np.exp(logs[:arms]).sum()
        action = int(rng.choice(arms, p=policy))
        reward = None if rng.random() < missing(t, action) else 0.0
        groups = ["x", "x", "y", "y", "y", "z", None][:arms]
        batch.append(Logged(policy, action, names=NAMES[:arms], groups=groups, reward=reward))
        if len(batch) == BATCH:
            test.add(batch)
            batch = []
            if first is None and test.found():
                first = t + 1
    return test, first


@pytest.mark.long
@pytest.mark.parametrize(
    ("missing", "more"),
    [
        (lambda _t, _a: 0.08, {}),
        (lambda t, _a: 0.9 if t // 100 % 3 == 2 else 0.05, {"newcomer": 400, "moving": 0.1}),
        (lambda _t, _a: 0.5, {"newcomer": 600, "moving": 0.3}),
    ],
    ids=["few", "outages", "half"],
)
def test_false_alarms_are_rare(missing: Callable[[int, int], float], more: dict[str, Any]) -> None:
    assert sum(world(seed, missing, **more)[1] is not None for seed in range(40)) <= 4


def test_rewards_that_never_come_are_found() -> None:
    """After about 64 decisions of 7 actions; and the others are not called missing."""
    for seed in range(10):
        test, first = world(seed, lambda _t, a: 1.0 if a == 6 else 0.08, rounds=640)
        assert first is not None
        assert first <= 160
        (found,) = test.found()
        assert (found.kind, found.name, found.came) == ("action", "c7", 0)
        assert found.others == pytest.approx(0.92, abs=0.05)
        assert (
            str(found)
            == f"c7: {found.shown} decisions, none with a reward; others {100 * found.others:.0f} %"
        )


def test_without_others_nothing_is_said_of_them() -> None:
    """An action that is drawn each time, though the policy gives it a half."""
    test = MissingTest()
    for _ in range(4):
        test.add([Logged([0.5, 0.5], 0, names=["a", "b"]) for _ in range(BATCH)])
    (found,) = test.found()
    assert found == Missing("action", "a", 4 * BATCH, 0, None)
    assert str(found) == f"a: {4 * BATCH} decisions, none with a reward"


def test_half_of_the_rewards_missing_are_found() -> None:
    for seed in range(10):
        _, first = world(seed, lambda _t, a: 0.54 if a == 6 else 0.08, rounds=800)
        assert first is not None


def test_a_newcomer_and_a_late_break_are_found() -> None:
    for seed in range(5):
        _, first = world(seed, lambda _t, a: 1.0 if a == 6 else 0.08, newcomer=640)
        assert first is not None
        _, first = world(seed, lambda t, a: 1.0 if a == 6 and t >= 1920 else 0.08, rounds=2560)
        assert first is not None
        assert 1920 < first <= 2240


def test_an_alarm_ends_once_rewards_come_again() -> None:
    for seed in range(5):
        test, first = world(seed, lambda t, a: 1.0 if a == 6 and t < 960 else 0.08, rounds=1920)
        assert first is not None
        assert test.found() == []


def test_a_difference_of_some_percent_is_none() -> None:
    assert world(3, lambda _t, a: 0.03 if a == 6 else 0.01, rounds=6400)[1] is None


def test_the_error_is_shared_by_all() -> None:
    test = MissingTest()
    policy = np.full(7, 1 / 7)
    test.add([Logged(policy, 0, names=NAMES, groups=["x"] * 7, reward=1.0)])
    for of in test._of.values():
        assert sum(1 / of._needed) <= ERROR / 2 * sum(spending(len(of._needed))) * (1 + 1e-9)
