"""Logs of honest and of dishonest systems, made from a seed; no agent, so that nothing has to be compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedfairx.fairness import Logged

THETA = np.array([0.3, 0.5, 0.2])
NAMES = ("ada", "bo", "cy", "di", "eve")
GROUPS = ("north", "north", "south", "south", "south")

Take = Callable[[np.random.Generator, np.ndarray], int]


def fair_policy(contexts: np.ndarray, *, steepness: float = 4.0, theta: np.ndarray = THETA) -> np.ndarray:
    merits = np.exp(steepness * contexts @ theta)
    return merits / merits.sum()


def by_chance(rng: np.random.Generator, policy: np.ndarray) -> int:
    return int(rng.choice(policy.size, p=policy))


def world(
    decisions: int,
    *,
    seed: int = 0,
    policy: Callable[[np.ndarray], np.ndarray] = fair_policy,
    take: Take = by_chance,
    there: Callable[[int], Sequence[int]] = lambda _: range(5),
) -> list[Logged]:
    """Five actions with features of their own that wander a little; rewards are 0 or 1."""
    rng = np.random.default_rng(seed)
    features = rng.random((5, 3)) / np.sqrt(3)
    log = []
    for t in range(decisions):
        rows = list(there(t))
        contexts = (features + 0.1 * (rng.random((5, 3)) - 0.5)).clip(0.0)[rows]
        shares = policy(contexts)
        action = take(rng, shares)
        reward = float(rng.random() < contexts[action] @ THETA)
        names, groups = [NAMES[row] for row in rows], [GROUPS[row] for row in rows]
        log.append(Logged(shares, action, contexts, names=names, groups=groups, reward=reward))
    return log
