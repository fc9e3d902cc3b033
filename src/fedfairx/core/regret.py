"""What a policy costs against the fair policy of the true parameter."""

from __future__ import annotations

from fedfairx.arrays import Array
from fedfairx.lanes.block import Lanes
from fedfairx.lanes.compile import leaf
from fedfairx.lanes.vector import absolute, load, store


@leaf
def regrets(lanes: Lanes, fair: Array, policy: Array, means: Array, fairness: Array, reward: Array) -> None:
    """Add a round's regrets to every lane's sums. fair, policy and the true means (K, n); sums (n,).

    Fairness: Σ_a |π*(a) - π(a)| (Solanki et al., Definition 1). Reward: Σ_a (π*(a) - π(a)) μ_a, signed,
    against the fair policy (Wang et al. 2021).
    """
    unfair, lost = load(lanes, fairness), load(lanes, reward)
    for a in range(fair.shape[0]):
        gap = load(lanes, fair, a) - load(lanes, policy, a)
        unfair = unfair + absolute(gap)
        lost = lost + gap * load(lanes, means, a)
    store(unfair, lanes, fairness)
    store(lost, lanes, reward)
