"""Fairness and reward regret of a round."""

from __future__ import annotations

import numpy as np

from fedfairx.core.regret import regrets
from fedfairx.lanes.block import BLOCK
from fedfairx.lanes.registers import WIDTH


def test_regrets_add_up_over_rounds_and_lanes() -> None:
    rng = np.random.default_rng(0)
    fairness, reward = np.zeros(WIDTH), np.zeros(WIDTH)
    expected_fairness, expected_reward = np.zeros(WIDTH), np.zeros(WIDTH)
    for _ in range(4):
        fair, policy = rng.dirichlet(np.ones(5), WIDTH).T.copy(), rng.dirichlet(np.ones(5), WIDTH).T.copy()
        means = rng.normal(size=(5, WIDTH))
        regrets(BLOCK, fair, policy, means, fairness, reward)
        expected_fairness += np.abs(fair - policy).sum(axis=0)
        expected_reward += ((fair - policy) * means).sum(axis=0)
    assert np.allclose(fairness, expected_fairness, rtol=1e-13)
    assert np.allclose(reward, expected_reward, rtol=1e-13)


def test_the_fair_policy_costs_nothing_and_the_worst_costs_two() -> None:
    fair, other = np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]])
    fairness, reward = np.zeros(1), np.zeros(1)
    regrets(None, fair, fair, np.array([[0.2], [0.9]]), fairness, reward)
    assert (fairness[0], reward[0]) == (0.0, 0.0)
    regrets(None, fair, other, np.array([[0.2], [0.9]]), fairness, reward)
    assert fairness[0] == 2.0
    assert reward[0] < 0.0  # signed: unfair in favour of the better arm earns more
