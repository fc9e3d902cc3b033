"""Logs of honest and of dishonest systems, made from a seed; no agent, so that nothing has to be compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

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
    """As `rng.choice(policy.size, p=policy)`, which takes several times as long."""
    chances = policy.cumsum()
    return int((chances / chances[-1]).searchsorted(rng.random(), side="right"))


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


def due(merits: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Exposures in proportion to merits as far as slots allow, by the formula of slopes, max over min."""
    size, order = merits.size, np.argsort(-merits, kind="stable").tolist()
    ordered = merits[order].tolist()
    sums, room = [0.0, *accumulate(ordered)], [0.0, *accumulate(weights.tolist())]
    room += [room[-1]] * (size - weights.size)
    slopes = [
        [(room[j] - room[i]) / (sums[j] - sums[i]) for j in range(i + 1, size + 1)] for i in range(size)
    ]
    exposure = [0.0] * size
    for k, arm in enumerate(order):
        exposure[arm] = ordered[k] * max([min(slopes[i][k - i :]) for i in range(k + 1)])
    return np.array(exposure)


def fill(rng: np.random.Generator, exposure: np.ndarray, weights: np.ndarray) -> list[int]:
    """The arm in each slot, so that every arm's expected weight is its exposure: swaps of two arms' slots."""
    order = np.argsort(-exposure, kind="stable").tolist()
    want, have = exposure[order].tolist(), [*weights.tolist(), *[0.0] * (len(order) - weights.size)]
    slot = list(range(len(order)))
    while lacking := [place for place in slot if want[place] - have[place] > 1e-12]:
        taker = min(lacking)
        giver = max(place for place in range(taker) if have[place] - want[place] > 1e-13)
        moved = min(have[giver] - want[giver], want[taker] - have[taker])
        if rng.random() * (have[giver] - have[taker]) < moved:
            slot[giver], slot[taker] = slot[taker], slot[giver]
        have[giver] -= moved
        have[taker] += moved
    return [order[slot.index(place)] for place in range(weights.size)]


Show = Callable[[np.random.Generator, np.ndarray, np.ndarray], list[int]]


def slates(
    decisions: int,
    slots: Callable[[int], Sequence[float]] = lambda _: (1.0, 0.6, 0.3),
    *,
    seed: int = 0,
    steepness: float = 4.0,
    show: Show = fill,
    policy: Callable[[np.ndarray], np.ndarray] = lambda exposure: exposure,
) -> list[Logged]:
    """`world` with several slots, whose weights may change; `show` fills them, by exposures and weights."""
    rng = np.random.default_rng(seed)
    features = rng.random((5, 3)) / np.sqrt(3)
    log = []
    for t in range(decisions):
        weights = np.array(slots(t))
        contexts = (features + 0.1 * (rng.random((5, 3)) - 0.5)).clip(0.0)
        exposure = policy(due(np.exp(steepness * contexts @ THETA), weights))
        shown = show(rng, exposure, weights)
        rewards = (rng.random(weights.size) < weights * (contexts[shown] @ THETA)).astype(float).tolist()
        log.append(Logged(exposure, shown, contexts, NAMES, GROUPS, reward=rewards, slots=weights))
    return log
