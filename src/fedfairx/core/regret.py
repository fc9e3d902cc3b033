"""Regrets of a policy against the fair policy of the true parameter."""

from __future__ import annotations

from fedfairx.lanes.decorators import stage
from fedfairx.lanes.rows import Rows
from fedfairx.lanes.vector import absolute


@stage
def regrets(fair: Rows, policy: Rows, means: Rows, fairness: float, reward: float) -> tuple[float, float]:
    """Add a round's regrets to both sums of every lane. fair, policy and the true means (K,).

    Fairness: Σ_a |π*(a) - π(a)| (Solanki et al., Definition 1). Reward: Σ_a (π*(a) - π(a)) μ_a, signed,
    against the fair policy (Wang et al. 2021).
    """
    for a in range(fair.shape[0]):
        gap = fair[a] - policy[a]
        fairness = fairness + absolute(gap)
        reward = reward + gap * means[a]
    return fairness, reward
