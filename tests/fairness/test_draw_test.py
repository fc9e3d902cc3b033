"""Whether actions were drawn as the policy said: honest logs pass at all times, others are found out."""

from __future__ import annotations

import numpy as np
import pytest

from fedfairx.fairness import Logged, exposure
from fedfairx.fairness.decision_log import Block
from fedfairx.fairness.draw_test import LEVEL, DrawsSoFar
from fedfairx.fairness.totals import Sets
from worlds import by_chance, fair_policy, world


def draws(log: list[Logged]) -> float:
    return exposure(log).draws.p_value


@pytest.mark.long
def test_honest_logs_are_ever_doubted_as_rarely_as_stated() -> None:
    """200 logs, 20 looks each: at level 0.2 at most 20 % may ever fail; far fewer do."""
    rng = np.random.default_rng(0)
    names, one = np.broadcast_to(np.arange(3), (10, 3)), np.ones((10, 1))
    failed = 0
    for _ in range(200):
        so_far, ever = DrawsSoFar(), False
        for _ in range(20):
            policies = rng.dirichlet([0.5, 1.0, 2.0], size=10)
            drawn = np.array([[by_chance(rng, policy)] for policy in policies])
            rows = np.arange(10)
            block = Block(
                *(policies, one, drawn, drawn, names, names, None, np.nan * one),
                *(np.ones(10), rows, 0 * rows, rows < 0),
            )
            so_far.take(block, Sets.of(names), 3)
            ever |= so_far.answer().p_value < 0.2
        failed += ever
    assert 0 < failed / 200 < 0.2


@pytest.mark.parametrize(
    "take",
    [
        lambda _, policy: int(policy.argmax()),  # winner takes all, whoever it is this time
        lambda rng, policy: int(rng.integers(policy.size)),  # by lot
        lambda rng, policy: 0 if rng.random() < 0.1 else by_chance(rng, policy),  # a favourite
        lambda rng, policy: (
            by_chance(rng, policy) if (a := by_chance(rng, policy)) == 3 else a
        ),  # one is shunned
    ],
    ids=["greedy", "by lot", "favourite", "shunned"],
)
def test_a_log_that_was_drawn_otherwise_is_found_out(take) -> None:
    answer = exposure(world(3_000, take=take)).draws
    assert answer.p_value < LEVEL
    assert answer.verdict == "not as the policy said"
    assert "NOT" in str(answer)


def test_greed_is_found_out_also_where_everybody_wins_equally_often() -> None:
    rng = np.random.default_rng(1)
    policies = [fair_policy(rng.random((4, 3)), steepness=8.0) for _ in range(400)]
    assert draws([Logged(policy, int(policy.argmax())) for policy in policies]) < 1e-6


@pytest.mark.parametrize("names", [1, 3, 40])
def test_all_bets_together_stake_one(names: int) -> None:
    """Where there is no choice no bet wins or loses, so their sum is the stake: more would make p below 1."""
    assert draws([Logged([1.0], 0, names=[f"n{k}"]) for k in range(names)]) == pytest.approx(1.0, abs=1e-12)


def test_an_impossible_draw_is_enough() -> None:
    answer = exposure([Logged([1.0, 0.0], 1)]).draws
    assert answer.p_value == 0


def test_an_impossible_draw_is_not_forgotten() -> None:
    later = [Logged([0.2, 0.3, 0.5], t % 3) for t in range(9)]  # of another size, so in another block
    assert draws([Logged([0.0, 1.0], 0), *later]) == 0.0
    assert draws([*later, Logged([0.0, 1.0], 0)]) == 0.0


def test_what_was_drawn_counts_not_what_a_baseline_took() -> None:
    rng = np.random.default_rng(2)
    policy = np.array([0.1, 0.9])
    log = [Logged(policy, 0, drawn=by_chance(rng, policy)) for _ in range(500)]
    table = exposure(log)
    assert table.draws.as_the_policy_said
    assert [row.count for row in table.actions] == [500, 0]


def test_the_same_action_twice_in_a_decision_counts_once() -> None:
    rng = np.random.default_rng(3)
    policy = np.array([0.3, 0.3, 0.4])
    log = [Logged(policy, by_chance(rng, policy), names=["a", "a", "b"]) for _ in range(2_000)]
    table = exposure(log)
    assert table.draws.p_value > 0.1
    assert table.actions[0].policy == pytest.approx(0.6)
    assert table.actions[0].rounds == 2_000
