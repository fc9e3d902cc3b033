"""Guesses at rewards for the doubly robust estimate, each from earlier decisions alone.

An agent's choices depend on its earlier rewards, so a regression that is fitted on the whole log, or on other
folds of it, would look at what followed from the reward that it predicts. Here it is fitted again whenever
the log has grown by a fifth, and predicts only what comes after.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedfairx.core.own_record import CONTEXTS, RECORDS, REWARDS
from fedfairx.evaluation.estimators import RewardScale, slot_weights
from fedfairx.fairness.decision_log import Block
from fedfairx.util.arrays import Array

_GROWTH = 1.2
_ALONE, _BESIDE = 1.0, 16.0  # records that the mean of all, or features, count beside a name's own ones


def guesses_of(blocks: Sequence[Block], scale: RewardScale, *, named: bool = True) -> list[Array]:
    """Guesses (n, K) for each block, at rewards in the first slot, in parts of their range.

    A ridge regression on contexts and a constant, and on each one's own record (`core.own_record`).

    named: whether actions have names, and not only their positions; without contexts these count as names.
    """
    count = sum(len(block.taken) for block in blocks)
    guesses = [np.zeros(block.policy.shape) for block in blocks]
    features = 0
    if all(block.contexts is not None and block.contexts.ndim == 3 for block in blocks):
        assert blocks[0].contexts is not None
        features = blocks[0].contexts.shape[2]
    names = 1 + max(int(block.names.max()) for block in blocks) if named or not features else 0
    fit, first = _Fit(features, names), 0
    while first < count:
        end = min(max(int(_GROWTH * first), first + 10), count)
        for block, out in zip(blocks, guesses, strict=True):
            rows = slice(*np.searchsorted(block.positions, [first, end]))
            if rows.stop > rows.start:
                out[rows] = fit.predict(block[rows]).clip(0.0, 1.0)
        for block in blocks:
            rows = slice(*np.searchsorted(block.positions, [first, end]))
            if rows.stop > rows.start:
                fit.add(block[rows], scale.inside(block[rows]))
        first = end
    return guesses


class _Fit:
    """Ridge regression, whose penalty is one record of average size, with own records of names."""

    def __init__(self, features: int, names: int) -> None:
        size = features + 1
        self.features = features
        self.ratio = _BESIDE if features else _ALONE
        self.gram, self.moment = np.zeros((size, size)), np.zeros(size)
        self.moment[-1] = 0.5
        self.tallies = np.zeros((names, size + CONTEXTS))
        self.count = 0

    def add(self, block: Block, rewards: Array) -> None:
        rows = np.arange(len(block.taken))[:, None]
        weights, values = slot_weights(block).ravel(), rewards.ravel()
        contexts = self._features(block)[rows, block.taken].reshape(-1, self.moment.size)
        weighted = weights[:, None] * contexts
        self.gram += weighted.T @ weighted
        self.moment += weighted.T @ values
        self.count += values.size
        if len(self.tallies):
            names = block.names[rows, block.taken].ravel()
            sums = weights**2, weights * values, *(weights[:, None] * weighted).T
            for column, each in enumerate(sums):
                self.tallies[:, column] += np.bincount(names, each, len(self.tallies))

    def predict(self, block: Block) -> Array:
        sizes = np.diagonal(self.gram) / max(self.count, 1)
        penalty = np.where(sizes > 0, sizes, 1.0)
        penalty[-1] = 1.0
        rewards, contexts = self.tallies[:, REWARDS], self.tallies[:, CONTEXTS:]
        shares = 1.0 / (self.tallies[:, RECORDS] + self.ratio)
        gram = self.gram - (contexts.T * shares) @ contexts
        theta = np.linalg.solve(gram + np.diag(penalty), self.moment - (shares * rewards) @ contexts)
        found = np.asarray(self._features(block) @ theta)
        return found + (shares * (rewards - contexts @ theta))[block.names] if len(self.tallies) else found

    def _features(self, block: Block) -> Array:
        """Contexts (n, K, d + 1) with a constant; of names alone, that."""
        ones = np.ones((*block.policy.shape, 1))
        return np.concatenate([block.contexts, ones], axis=2) if self.features else ones
