"""Estimates of entitled shares under a posterior of θ, by draws from it with fixed random numbers.

They are for the time before the guaranteed intervals say much: right if the model and its prior are, and not
at all times. No verdict rests on them. Of S draws, the k-th from either end enclose the true share with
probability 1 - 2k/(S + 1) if θ* comes from the posterior: 95 % exactly for the 5th of 199 and the 1st of 39.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedfairx.core.merit import Exponential, Merit
from fedfairx.core.merit_kernels import log_merit_values
from fedfairx.core.slates import exposures_of
from fedfairx.fairness.decision_log import Block, Codes
from fedfairx.util.arrays import Array

LEVEL = 0.95  # of a credible interval
MANY, FEW = (199, 5), (39, 1)  # draws, and which from either end are the ends
_MOST = 1 << 28  # merits to compute with many draws; from there on there are few
_AT_ONCE = 1 << 23  # merits in memory
_SEED = 20_240_517
_ROUNDING = 1e-12  # of the mean variance: added to each, so that rounding leaves none below 0


@dataclass(frozen=True)
class Posterior:
    """θ ~ N(mean, covariance)."""

    mean: Array  # (d,)
    covariance: Array  # (d, d)

    def draws(self, count: int) -> Array:
        """Return (d, 1 + count): the mean, then draws, which are always the same for the same posterior."""
        dimension, variances = self.mean.size, np.diagonal(self.covariance)
        moves = _normals(dimension, count)
        if np.count_nonzero(self.covariance) == np.count_nonzero(variances):  # actions without features
            moves = np.sqrt(variances)[:, None] * moves
        else:
            least = _ROUNDING * float(variances.mean()) + 1e-300
            moves = np.linalg.cholesky(self.covariance + least * np.eye(dimension)) @ moves
        return np.hstack([self.mean[:, None], self.mean[:, None] + moves])


@lru_cache(2)
def _normals(dimension: int, count: int) -> Array:
    return np.random.default_rng(_SEED).standard_normal((dimension, count))


class Estimates:
    """Sums of the weights that m actions or groups are due, for every draw."""

    def __init__(self, size: int, draws: int, stretches: int) -> None:
        self.due = np.zeros((size, 1 + draws))
        self.over_time = np.zeros((size, stretches))  # at the posterior's mean

    def add(self, codes: Codes, stretch: Codes, due: Array) -> None:
        """Add due (n, K, 1 + S) of a block's rounds."""
        from scipy.sparse import csr_array  # a sixth of the time that importing the package takes

        size, width = self.over_time.shape
        if not size:
            return
        named = np.flatnonzero(codes.ravel() >= 0)
        rows, flat = codes.ravel()[named], due.reshape(-1, due.shape[-1])
        ones = np.ones(named.size, dtype=due.dtype)
        self.due += np.asarray(csr_array((ones, (rows, named)), shape=(size, len(flat))) @ flat)
        cells = rows * width + np.broadcast_to(stretch[:, None], codes.shape).ravel()[named]
        sums = np.bincount(cells, flat[named, 0], size * width)
        self.over_time += sums.reshape(size, width)

    def interval(self, weight: Array) -> tuple[Array, Array, Array]:
        """Return the mean share of each, and both ends of its credible interval."""
        shares = np.clip(self.due[:, 1:] / weight[:, None], 0.0, 1.0)
        place = MANY[1] if shares.shape[1] == MANY[0] else FEW[1]
        ordered = np.sort(shares, axis=1)
        return shares.mean(axis=1), ordered[:, place - 1], ordered[:, -place]


def estimate(
    blocks: Iterable[Block], posterior: Posterior, merit: Merit, sizes: tuple[int, int], stretches: int
) -> tuple[Estimates, Estimates]:
    """Estimate what actions and groups were due in these rounds; `sizes` are the numbers of both."""
    rounds = list(blocks)
    draws = (MANY if sum(block.policy.size for block in rounds) * MANY[0] <= _MOST else FEW)[0]
    names, groups = (Estimates(size, draws, stretches) for size in sizes)
    thetas = posterior.draws(draws)
    for block in rounds:
        for part in _parts(block, 1 + draws):
            due = _due(part, thetas, merit)
            names.add(part.names, part.stretch, due)
            groups.add(part.groups, part.stretch, due)
    return names, groups


def _parts(block: Block, draws: int) -> Iterator[Block]:
    rows = max(1, _AT_ONCE // (block.policy.shape[1] * draws))
    for start in range(0, len(block.taken), rows):
        yield block[start : start + rows]


def _due(block: Block, thetas: Array, merit: Merit) -> Array:
    """Return (n, K, draws) expected weights by merit, times how often the round occurred."""
    contexts = block.contexts
    assert contexts is not None
    means = thetas[contexts] if contexts.ndim == 2 else contexts @ thetas
    if block.weights.shape[1] > 1:
        return _due_slots(log_merit_values(merit, means), block)
    if isinstance(merit, Exponential):
        logs = (merit.steepness * (means - means.max(axis=1, keepdims=True))).astype(np.float32)
    else:
        logs = log_merit_values(merit, means)
        logs = (logs - logs.max(axis=1, keepdims=True)).astype(np.float32)
    due: Array = np.exp(logs, out=logs)
    due *= (block.times * block.weights[:, 0])[:, None, None] / due.sum(axis=1, keepdims=True)
    return due


def _due_slots(logs: Array, block: Block) -> Array:
    rounds, arms, draws = logs.shape
    weights = np.repeat(block.weights, draws, axis=0)
    due = exposures_of(logs.transpose(0, 2, 1).reshape(-1, arms), weights).reshape(rounds, draws, arms)
    return np.asarray(due.transpose(0, 2, 1) * block.times[:, None, None])


@dataclass(frozen=True)
class OverTime:
    """Shares in stretches of time: shown, and due at the posterior's mean; NaN where not available."""

    times: Sequence[float]  # when each stretch begins
    shown: dict[str, list[float]]  # by action
    entitled: dict[str, list[float]]
