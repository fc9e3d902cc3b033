"""What a policy costs against the fair policy of the true parameter."""

from __future__ import annotations

from fedfairx.core.compile import stage
from fedfairx.core.lanes import Lanes, lane_count
from fedfairx.core.statistics import Array


@stage
def regrets(lanes: Lanes, fair: Array, policy: Array, means: Array, fairness: Array, reward: Array) -> None:
    """Add a round's regrets to every lane's sums. fair, policy and the true means (K, n); sums (n,).

    Fairness: Σ_a |π*(a) - π(a)| (Solanki et al., Definition 1). Reward: Σ_a (π*(a) - π(a)) μ_a, signed,
    against the fair policy (Wang et al. 2021).
    """
    arms = fair.shape[0]
    for a in range(arms):
        for l in range(lane_count(lanes)):
            gap = fair[a, l] - policy[a, l]
            fairness[l] += abs(gap)
            reward[l] += gap * means[a, l]
