"""The rounds of all contestants of `decide`: contexts, and the reward of each arm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Problem:
    """Rounds with K arms of d features each, made in advance, so that only deciding and learning is timed."""

    contexts: list[np.ndarray]  # (K, d) each
    rewards: list[list[float]]  # of every arm, with noise

    @property
    def arms(self) -> int:
        return int(self.contexts[0].shape[0])

    @property
    def dimension(self) -> int:
        return int(self.contexts[0].shape[1])


def problem(rounds: int, *, arms: int, dimension: int, seed: int = 0) -> Problem:
    """Contexts x/√d with x uniform on [0, 1]^d, a linear reward and Gaussian noise of sd 0.1."""
    rng = np.random.default_rng([seed, arms, dimension])
    truth = rng.random(dimension)
    truth /= np.linalg.norm(truth)
    contexts = rng.random((rounds, arms, dimension)) / np.sqrt(dimension)
    rewards = contexts @ truth + 0.1 * rng.standard_normal((rounds, arms))
    return Problem(list(contexts), rewards.tolist())
