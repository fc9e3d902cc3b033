"""Test whether actions were drawn from the policy, with a p-value that may be read after every round.

If round t draws action a with probability π_t(a), then for any other probabilities ρ_t that are fixed before
the draw the product of ρ_t(a_t)/π_t(a_t) is a martingale with mean 1. Here ρ are policies sharpened or
flattened, in proportion to π^η (η = 2: the best are drawn too often; η = 0: all equally often), and policies
that favour or avoid one action, by a factor e^λ. Half of the bet is on the first kind and half on the second.
If the log is honest, the mean of all these products ever reaches 1/p with probability at most p (Ville), so
its inverse is a p-value at any time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfairx.fairness.confidence_sequences import spending
from fedfairx.fairness.decision_log import Block, Codes
from fedfairx.util.arrays import Array
from fedfairx.util.formatting import number

#: Powers of the policy, and factors e^λ for one action.
POWERS: Array = np.array([0.0, 0.5, 0.8, 0.9, 0.97, 1.03, 1.1, 1.25, 2.0, 8.0])
FAVOURS: Array = np.concatenate([side * np.exp2(-np.arange(-1.0, 7.0)) for side in (-1.0, 1.0)])
LEVEL = 0.01


@dataclass(frozen=True)
class Draws:
    """Result of the test: a p-value that holds at all times, and a sentence."""

    decisions: int
    p_value: float

    @property
    def as_the_policy_said(self) -> bool:
        return self.p_value > LEVEL

    @property
    def verdict(self) -> str:
        return "as the policy said" if self.as_the_policy_said else "not as the policy said"

    def __str__(self) -> str:
        if self.as_the_policy_said:
            found = "nothing speaks against it" if self.p_value > 0.1 else "little speaks against it"
            draws = number(self.decisions)
            return f"Actions were drawn as the policy said, as far as {draws} draws tell: {found}."
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

    def take(self, block: Block, sets: Array, first: NDArray[np.bool_], actions: int) -> None:
        """Add a block. sets (n, K): probability of each row's action; first (n, K): True at its first row."""
        rows = np.arange(block.drawn.size)
        grown = np.zeros((actions, FAVOURS.size))
        grown[: len(self.favours)] = self.favours
        self.favours = grown
        self.decisions += rows.size
        chances = block.policy[rows, block.drawn]
        self.impossible |= bool((chances == 0).any())
        logs = np.log(np.where(chances > 0, chances, 1.0))
        there = block.policy > 0
        all_logs = np.log(block.policy, out=np.full(block.policy.shape, -1e300), where=there)
        for k, power in enumerate(POWERS):  # logarithms take a third of the time of powers
            tilted = np.exp(power * all_logs).sum(axis=1) if power > 0 else there.sum(axis=1)
            self.powers[k] += ((power - 1.0) * logs - np.log(tilted)).sum()
        codes = block.names[first]
        shares = sets[first]
        for k, favour in enumerate(FAVOURS):
            self.favours[:, k] -= np.bincount(codes, np.log1p(shares * math.expm1(favour)), actions)
        drawn: Codes = block.names[rows, block.drawn]
        self.favours += np.bincount(drawn, minlength=actions)[:, None] * FAVOURS

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
