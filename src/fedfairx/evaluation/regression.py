"""Guesses at rewards for the doubly robust estimate, each from earlier decisions alone.

An agent's choices depend on its earlier rewards, so a regression that is fitted on the whole log, or on other
folds of it, would look at what followed from the reward that it predicts. Here it is fitted again whenever
the log has grown by a fifth, and predicts only what comes after.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedfairx.evaluation.estimators import RewardScale, slot_weights
from fedfairx.fairness.decision_log import Block
from fedfairx.util.arrays import Array

_GROWTH = 1.2


def guesses_of(blocks: Sequence[Block], scale: RewardScale) -> list[Array]:
    """Guesses (n, K) for each block, at rewards in the first slot, in parts of their range.

    A ridge regression on contexts and a constant. Actions without contexts have means of their own, by name.
    """
    count = sum(len(block.taken) for block in blocks)
    guesses = [np.zeros(block.policy.shape) for block in blocks]
    linear = all(block.contexts is not None and block.contexts.ndim == 3 for block in blocks)
    fit: _Linear | _Means
    if linear:
        contexts = blocks[0].contexts
        assert contexts is not None
        fit = _Linear(1 + contexts.shape[2])
    else:
        fit = _Means(1 + max(int(block.names.max()) for block in blocks))
    first = 0
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


class _Linear:
    """Ridge regression, whose penalty is one record of average size."""

    def __init__(self, dimension: int) -> None:
        self.gram, self.moment = np.zeros((dimension, dimension)), np.zeros(dimension)
        self.moment[-1] = 0.5
        self.count = 0

    def add(self, block: Block, rewards: Array) -> None:
        rows = np.arange(len(block.taken))[:, None]
        contexts = (self._features(block)[rows, block.taken] * slot_weights(block)[..., None]).reshape(
            -1, self.moment.size
        )
        self.gram += contexts.T @ contexts
        self.moment += contexts.T @ rewards.ravel()
        self.count += rewards.size

    def predict(self, block: Block) -> Array:
        sizes = np.diagonal(self.gram) / max(self.count, 1)
        penalty = np.where(sizes > 0, sizes, 1.0)
        penalty[-1] = 1.0
        theta = np.linalg.solve(self.gram + np.diag(penalty), self.moment)
        return np.asarray(self._features(block) @ theta)

    @staticmethod
    def _features(block: Block) -> Array:
        assert block.contexts is not None
        return np.concatenate([block.contexts, np.ones((*block.policy.shape, 1))], axis=2)


class _Means:
    """The mean reward of each action by name, with one record of the mean of all."""

    def __init__(self, names: int) -> None:
        self.sums, self.counts = np.zeros((2, names))

    def add(self, block: Block, rewards: Array) -> None:
        taken = block.names[np.arange(len(block.taken))[:, None], block.taken].ravel()
        weights = slot_weights(block).ravel()
        self.sums += np.bincount(taken, weights * rewards.ravel(), self.sums.size)
        self.counts += np.bincount(taken, weights**2, self.sums.size)

    def predict(self, block: Block) -> Array:
        mean = (self.sums.sum() + 0.5) / (self.counts.sum() + 1.0)
        return np.asarray(((self.sums + mean) / (self.counts + 1.0))[block.names])
