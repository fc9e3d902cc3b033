"""Test whether actions were drawn from the policy, with a p-value that may be read after every round.

If round t draws action a with probability π_t(a), then for any other probabilities ρ_t that are fixed before
the draw the product of ρ_t(a_t)/π_t(a_t) is a martingale with mean 1. Here ρ are policies sharpened or
flattened, in proportion to π^η (η = 2: the best are drawn too often; η = 0: all equally often), and policies
that favour or avoid one action, by a factor e^λ. Half of the bet is on the first kind and half on the second.
If the log is honest, the mean of all these products ever reaches 1/p with probability at most p (Ville), so
its inverse is a p-value at any time.

Of several slots only the expected weight e_t(a) of each action is recorded, not the probability of each way
to fill them. With V the sum of weights and π = e/V, the mean of ρ(a)/π(a) over what is shown, weighted by
slots, has expectation 1 however slots are filled. An action that gets the weight X, at most u, multiplies the
second kind of bet by e^(λX/u), whose expectation is at most 1 + (e/u)(e^λ - 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from fedfairx.fairness.confidence_sequences import spending
from fedfairx.fairness.decision_log import Block
from fedfairx.fairness.totals import Sets
from fedfairx.util.arrays import Array
from fedfairx.util.formatting import number

#: Powers of the policy, and factors e^λ for one action.
POWERS: Array = np.array([0.0, 0.5, 0.8, 0.9, 0.97, 1.03, 1.1, 1.25, 2.0, 8.0])
FAVOURS: Array = np.concatenate([side * np.exp2(-np.arange(-1.0, 7.0)) for side in (-1.0, 1.0)])
LEVEL = 0.01


@dataclass(frozen=True)
class Draws:
    """Whether actions were drawn as the policy said.

    p_value: an upper bound of the probability that an honest log ever looks like this.
    verdict: as the policy said, or not as the policy said.

    >>> import fedfairx as ffx
    >>> log = [ffx.Logged([0.5, 0.5], t % 2, names=["ann", "ben"]) for t in range(2000)]
    >>> ffx.exposure(log).draws.as_the_policy_said
    True
    """

    decisions: int
    p_value: float
    verdict: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        verdict = "as the policy said" if self.as_the_policy_said else "not as the policy said"
        object.__setattr__(self, "verdict", verdict)

    @property
    def as_the_policy_said(self) -> bool:
        return self.p_value > LEVEL

    def __str__(self) -> str:
        if self.as_the_policy_said:
            judgement = "nothing speaks against it" if self.p_value > 0.1 else "little speaks against it"
            draws = number(self.decisions)
            return f"Actions were drawn as the policy said, as far as {draws} draws tell: {judgement}."
        return (
            "Actions were NOT drawn as the policy said: an honest log would ever look like this with "
            f"probability {self.p_value:.2g} at most."
        )


@dataclass
class DrawsSoFar:
    """Running logarithms of the products."""

    powers: Array = field(default_factory=lambda: np.zeros(POWERS.size))
    favours: Array = field(default_factory=lambda: np.zeros((0, FAVOURS.size)))
    decisions: int = 0
    impossible: bool = False  # an action of probability 0 was drawn

    def take(self, block: Block, sets: Sets, actions: int) -> None:
        """Add a block. sets: those of rows that are one action; actions: how many there are in the log."""
        rows = np.arange(len(block.drawn))[:, None]
        grown = np.zeros((actions, FAVOURS.size))
        grown[: len(self.favours)] = self.favours
        self.favours = grown
        self.decisions += rows.size
        total = block.weights.sum(axis=1, keepdims=True)
        policy, parts = block.policy / total, block.weights / total
        chances = policy[rows, block.drawn]
        self.impossible |= bool(((chances == 0) & (parts > 0)).any())
        logs = np.log(np.where(chances > 0, chances, 1.0))
        there = policy > 0
        all_logs = np.log(policy, out=np.full(policy.shape, -1e300), where=there)
        for k, power in enumerate(POWERS):  # logarithms take a third of the time of powers
            tilted = np.exp(power * all_logs).sum(axis=1) if power > 0 else there.sum(axis=1)
            self.powers[k] += (_log_mean((power - 1.0) * logs, parts) - np.log(tilted)).sum()
        most = sets.most(block.weights)
        codes = block.names[sets.first]
        shares = (sets.of_sets(block.policy) / most)[sets.first]
        for k, favour in enumerate(FAVOURS):
            self.favours[:, k] -= np.bincount(codes, np.log1p(shares * math.expm1(favour)), actions)
        got = block.weights / most[rows, block.drawn]
        drawn = np.bincount(block.names[rows, block.drawn].ravel(), got.ravel(), actions)
        self.favours += drawn[:, None] * FAVOURS

    def answer(self) -> Draws:
        """Compute the p-value of all products together."""
        weights = spending(len(self.favours))
        logs = np.concatenate(
            [
                self.powers - math.log(2 * POWERS.size),
                (self.favours + np.log(0.5 * weights / FAVOURS.size)[:, None]).ravel(),
                [
                    math.log(max(0.5 * (1.0 - weights.sum()), 1e-300))
                ],  # the bets on actions that never occurred
            ]
        )
        top = float(logs.max())
        log_mean = top + math.log(float(np.exp(logs - top).sum()))
        return Draws(self.decisions, 0.0 if self.impossible else math.exp(-max(log_mean, 0.0)))


def _log_mean(logs: Array, parts: Array) -> Array:
    """Return the logarithms of means, weighted by `parts`, of numbers with these logarithms (n, m)."""
    logs = np.where(parts > 0, logs, -np.inf)
    top = logs.max(axis=1, keepdims=True)
    return np.asarray((top + np.log((parts * np.exp(logs - top)).sum(axis=1, keepdims=True)))[:, 0])
