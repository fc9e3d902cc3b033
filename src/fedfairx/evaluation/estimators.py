"""Off-policy estimates: importance weighting (IPS), doubly robust (DR) and self-normalised (SNIPS).

A decision shows its actions with expected weights e_a; another policy would have given them e'_a. With
w_a = e'_a/e_a, q_a a guess at the reward of action a that only uses earlier decisions, and v_j the weight of
slot j,

    IPS:  Σ_j w_j r_j                                  SNIPS:  Σ IPS / Σ (Σ_j v_j w_j / Σ_j v_j)
    DR:   Σ_a e'_a q_a + Σ_j w_j (r_j - v_j q_j)

where j runs over the slots. IPS and DR have the other policy's value as conditional mean, given the past and
the contexts, whatever q is. A guess is cut to `CUT`/w_a, which bounds DR from below and adds no bias, because
both of its terms use the same guess. Upper limits are lower limits for 1 - r.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedfairx.evaluation.confidence_sequence import lower_limit
from fedfairx.fairness.decision_log import Block
from fedfairx.util.arrays import Array
from fedfairx.util.formatting import number

CUT = 2.0  # largest guess times weight: more removes more variance, and widens intervals of short logs


@dataclass(frozen=True)
class Estimate:
    """An estimate and its interval.

    >>> import fedfairx as ffx
    >>> log = [ffx.Logged([0.5, 0.5], t % 2, names=["ann", "ben"], reward=t % 2) for t in range(2000)]
    >>> reward = ffx.evaluate(log, "uniform")["uniform"].reward
    >>> reward.low < 0.5 < reward.high
    True
    >>> print(Estimate(0.5, 0.4, 0.6))
    0.5 [0.4, 0.6]
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{number(self.value)} [{number(self.low)}, {number(self.high)}]"


@dataclass(frozen=True)
class PolicyValue:
    """What a policy would have earned and shown in the decisions of the log.

    reward: mean reward of a decision, doubly robust; of several slots, of all of them together.
    gain: of `reward` over that of the log.
    ips, snips: other estimates of the mean reward; the interval of `snips` is only asymptotic.
    fairness_regret: mean of Σ|e - e*| over decisions, where e* are the shares by true merit: its expectation
        after the whole log, with a 95 % credible interval.
    action_shares, group_shares: share of each among decisions in which it was available.
    effective: effective number of decisions, (Σw)²/Σw².
    largest: largest importance weight w.
    unsupported: share of its weight on actions that the log never shows, or is expected to show less than
        once (w above the number of decisions).
    refused: why the log can't tell its reward; estimates are then NaN.

    >>> import fedfairx as ffx
    >>> log = [ffx.Logged([0.5, 0.5], t % 2, names=["ann", "ben"], reward=t % 2) for t in range(2000)]
    >>> value = ffx.evaluate(log, {"ann": lambda names: [1.0, 0.0]})["ann"]
    >>> value.effective, value.action_shares["ann"]
    (1000.0, 1.0)
    """

    name: str
    reward: Estimate
    gain: Estimate
    ips: Estimate
    snips: Estimate
    fairness_regret: Estimate
    action_shares: Mapping[str, float]
    group_shares: Mapping[str, float]
    effective: float
    largest: float
    unsupported: float
    refused: str | None = None


@dataclass(frozen=True)
class RewardScale:
    """The range of rewards, and the largest sum of slots' weights: what turns rewards into parts of 1.

    slots: as `slot_weights` has them.
    """

    low: float
    high: float
    slots: float

    def inside(self, block: Block) -> Array:
        """Rewards (n, m) of a block in parts of the range."""
        return np.asarray((block.rewards - self.low) / (self.high - self.low))

    def outside(self, estimate: Estimate, start: float = 0.0) -> Estimate:
        """An estimate in parts of 1, in rewards of a decision, of which nothing is worth `start`."""
        size = self.slots * (self.high - self.low)
        return Estimate(*(start + size * each for each in (estimate.value, estimate.low, estimate.high)))


@dataclass(frozen=True)
class Series:
    """One number for each decision of a log, in its order: (n,) each, in parts of 1."""

    value: Array  # its conditional mean is the policy's value, or its gain over the log
    rest: Array  # its conditional mean is what remains to be had
    least_value: Array  # what `value` is at least, before the draw
    least_rest: Array
    floor: Array  # what both conditional means are at least
    top: Array  # and at most
    whole: float  # the mean of value and rest together

    def estimate(self, error: float) -> Estimate:
        """The mean, with an interval that holds at all times with probability at least 1 - error."""
        low, rest = (
            lower_limit(values, least=least, floor=self.floor, top=self.top, error=0.5 * error)
            for values, least in ((self.value, self.least_value), (self.rest, self.least_rest))
        )
        high = max(self.whole - rest, low)
        return Estimate(min(max(float(self.value.mean()), low), high), low, high)


def series_of(
    blocks: Sequence[Block],
    shares: Sequence[Array],
    scale: RewardScale,
    *,
    guesses: Sequence[Array] | None = None,
    gain: bool = False,
) -> Series:
    """The numbers of IPS or, where guesses are given, of DR.

    shares: (n, K) for each block, expected weights under the other policy.
    guesses: (n, K) for each block, at rewards in the first slot, in parts of the range.
    gain: measure the gain over the log instead of the value.
    """
    terms = np.zeros((7, sum(len(block.taken) for block in blocks)))
    value, rest, least_value, least_rest, floor, top, whole = terms
    for index, (block, share) in enumerate(zip(blocks, shares, strict=True)):
        weights = importance(block, share) - (1.0 if gain else 0.0)
        rows, places, slots = np.arange(len(block.taken))[:, None], block.positions, slot_weights(block)
        due, taken = block.policy / block.weights[:, :1] * weights, weights[rows, block.taken]
        rewards, cut = scale.inside(block), CUT / np.maximum(weights, 1e-300)
        guess = np.zeros_like(share) if guesses is None else guesses[index]
        other = guess if guesses is None else 1.0 - guess
        sides = ((value, least_value, guess, rewards), (rest, least_rest, other, 1.0 - rewards))
        for out, least, forecast, got in sides:
            q = np.minimum(forecast, cut)
            sure = (due * q).sum(axis=1)
            out[places] = sure + (taken * (got - slots * q[rows, block.taken])).sum(axis=1)
            least[places] = sure + _extreme(weights, q, slots)
        ranked = (slots != 1.0).any(axis=1)  # there 1 - r is not in proportion to the slot's weight
        q, given_up = np.minimum(guess, cut), due.sum(axis=1)
        rest[places[ranked]] = (given_up - value[places])[ranked]
        most = (due * q).sum(axis=1) - _extreme(-weights, q, slots)
        least_rest[places[ranked]] = (given_up - most)[ranked]
        floor[places], top[places] = due.clip(max=0.0).sum(axis=1), due.clip(min=0.0).sum(axis=1)
        whole[places] = 0.0 if gain else slots.sum(axis=1)
    terms /= scale.slots
    return Series(value, rest, least_value, least_rest, floor, top, float(whole.mean()))


def _extreme(weights: Array, guesses: Array, slots: Array) -> Array:
    """(n,) the least that Σ_j w_j (r_j - v_j q_j) can be, whatever is shown and however it is rewarded."""
    low = slots[:, -1:] * guesses
    each = np.where(weights > 0, -weights * guesses, weights * (1.0 - low))
    return np.asarray(np.sort(each, axis=1)[:, : slots.shape[1]].sum(axis=1))


def slot_weights(block: Block) -> Array:
    """The weights of slots (n, m) in parts of the first, in which a reward may fill the range."""
    return np.asarray(block.weights / block.weights[:, :1])


def importance(block: Block, shares: Array) -> Array:
    """The weights e'/e (n, K); 0 where the log can't show an action."""
    return np.divide(shares, block.policy, out=np.zeros_like(shares), where=block.policy > 0)


def self_normalised(values: Array, weights: Array, error: float) -> Estimate:
    """SNIPS with an asymptotic interval, for IPS values (n,) and their weights (n,)."""
    from scipy.special import ndtri

    total = float(weights.sum())
    if total == 0.0:
        return Estimate(math.nan, math.nan, math.nan)
    middle = float(values.sum()) / total
    half = -ndtri(0.5 * error) * math.sqrt(float(np.square(values - middle * weights).sum())) / total
    return Estimate(middle, middle - half, middle + half)
