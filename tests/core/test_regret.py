"""Fairness and reward regret of a round."""

from __future__ import annotations

import numpy as np

from fedfairx.core.regret import regrets
from fedfairx.lanes.decorators import compiled
from fedfairx.lanes.rows import Rows, floats, vectors
from fedfairx.lanes.vector_llvm import WIDTH


@compiled
def add_regrets(fair: Rows, policy: Rows, means: Rows, sums: Rows) -> None:
    sums[0], sums[1] = regrets(fair, policy, means, sums[0], sums[1])


def test_regrets_add_up_over_rounds_and_lanes() -> None:
    rng = np.random.default_rng(0)
    sums, expected = np.zeros((2, WIDTH)), np.zeros((2, WIDTH))
    for _ in range(4):
        fair, policy = rng.dirichlet(np.ones(5), WIDTH).T.copy(), rng.dirichlet(np.ones(5), WIDTH).T.copy()
        means = rng.normal(size=(5, WIDTH))
        add_regrets(vectors(fair), vectors(policy), vectors(means), vectors(sums))
        expected[0] += np.abs(fair - policy).sum(axis=0)
        expected[1] += ((fair - policy) * means).sum(axis=0)
    assert np.allclose(sums, expected, rtol=1e-13)


def test_the_fair_policy_costs_nothing_and_the_worst_costs_two() -> None:
    fair, other, means = (floats(np.array(row)) for row in ([1.0, 0.0], [0.0, 1.0], [0.2, 0.9]))
    assert regrets(fair, fair, means, 0.0, 0.0) == (0.0, 0.0)
    unfair, lost = regrets(fair, other, means, 0.0, 0.0)
    assert unfair == 2.0
    assert lost < 0.0  # signed: unfair in favour of the better arm earns more
