"""Credible intervals of shares, of θ and of fairness regret, by draws of θ with fixed random numbers.

They are for the time before the guaranteed intervals say much: right if the model and its prior are, and not
at all times. Likely verdicts (`likely`) rest on the same draws, and certain ones do not. Of S draws, the k-th
from either end enclose the true value with probability 1 - 2k/(S + 1) if θ* comes from the same distribution:
95 % for the 50th of 1 999, the 5th of 199 and the 2nd of 79.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedfairx.core.merit import Exponential, Merit, Range
from fedfairx.core.merit_kernels import log_merit_values
from fedfairx.core.posterior import NamesBelief, Posterior, PosteriorDraws
from fedfairx.core.slates import exposures_of
from fedfairx.fairness.decision_log import Block, Codes
from fedfairx.util.arrays import Array

LEVEL = 0.95  # of a credible interval
MOST, MANY, FEW = 1999, 199, 79  # draws: of θ, and of shares in logs that are not long or long
_MOST = 1 << 28  # merits to compute with many draws; from there on there are few
_AT_ONCE = 1 << 23  # merits in memory
_NAMES_AT_ONCE = 200  # names with many draws in memory
_SEED = 20_240_517
_ROUNDING = 1e-12  # of the mean variance: added to each, so that rounding leaves none below 0


@dataclass(frozen=True)
class Normal:
    """θ ~ N(mean, covariance)."""

    mean: Array  # (d,)
    covariance: Array  # (d, d)
    reward_range: Range | None = None

    def draws(self, normals: Array) -> Array:
        """Return (d, S) draws from normals (d, S)."""
        variances = np.diagonal(self.covariance)
        if np.count_nonzero(self.covariance) == np.count_nonzero(variances):  # actions without features
            moves = np.sqrt(variances)[:, None] * normals
        else:
            least = _ROUNDING * float(variances.mean()) + 1e-300
            moves = np.linalg.cholesky(self.covariance + least * np.eye(variances.size)) @ normals
        return np.asarray(self.mean[:, None] + moves)


#: What is believed of θ and, if names have own records, of what each differs by.
Belief = Posterior | Normal


def own_names(belief: Belief) -> NamesBelief | None:
    """What names differ by beside features; None if that is not believed, or of no name."""
    names = belief.names if isinstance(belief, Posterior) else None
    return names if names is not None and names.places else None


class Drawn(NamedTuple):
    """Draws of θ (d, S) and, where names have own records, of what each of N names differs by (N, S)."""

    thetas: Array
    own: Array | None

    def means(self, block: Block) -> Array:
        """Return (n, K, S) expected rewards; `own` is by the block's numbers of names."""
        contexts = block.contexts
        assert contexts is not None
        if self.own is None:
            return np.asarray(self.thetas[contexts] if contexts.ndim == 2 else contexts @ self.thetas)
        alike = self.thetas[0] if contexts.ndim == 2 else contexts @ self.thetas
        return np.asarray(self.own[block.names] + alike)


def draws(belief: Belief, count: int) -> Array:
    """Return (d, count) draws of θ, which are always the same for the same belief."""
    return _drawn(belief, count).thetas


def with_own(belief: Belief, names: Sequence[str], count: int, *, mean: bool = False) -> Drawn:
    """Draw θ and what these names differ by; with their means before all draws, if asked for."""
    drawn, own = _drawn(belief, count), None
    if isinstance(belief, Posterior) and own_names(belief) is not None:
        own = belief.own_draws(names, drawn, _spread(len(names), count))
        if mean:
            own = np.hstack([belief.own_mean(names)[:, None], own])
    return Drawn(np.hstack([belief.mean[:, None], drawn.thetas]) if mean else drawn.thetas, own)


def _drawn(belief: Belief, count: int) -> PosteriorDraws:
    levels, chances, normals = _random(belief.mean.size, count)
    if isinstance(belief, Normal):
        return PosteriorDraws(belief.draws(normals[1:]), np.empty(0), np.empty(0))
    freedom = belief.sizes.freedom
    if math.isinf(freedom):
        return belief.draws(levels, np.ones(count), normals)
    from scipy.special import chdtri  # slow to import

    return belief.draws(levels, np.asarray(freedom / chdtri(freedom, chances)), normals)


@lru_cache(2)
def _random(dimension: int, count: int) -> tuple[Array, Array, Array]:
    """Return two times (count,) uniforms, and (1 + d, count) normals: a Latin hypercube.

    Each row has the same numbers, evenly spread, in another order. So no row is off by chance, which would
    make its intervals too narrow or too wide for every belief.
    """
    from scipy.special import ndtri  # slow to import

    levels, chances, *others = _orders(3 + dimension, count, _SEED)
    return levels, chances, np.asarray(ndtri(others))


def _spread(rows: int, count: int) -> Array:
    """Return (rows, count) normals for as many names, spread as evenly; a row is that of its number."""
    from scipy.special import ndtri  # slow to import

    return np.asarray(ndtri(_orders(rows, count, _SEED + 1)))


def _orders(rows: int, count: int, seed: int) -> Array:
    even = np.arange(1.0, count + 1) / (count + 1)
    return np.random.default_rng(seed).permuted(np.tile(even, (rows, 1)), axis=1)


def interval(values: Array) -> tuple[Array, Array, Array]:
    """Return the mean of values (m, S) by draw, and both ends of their credible intervals, (m,) each."""
    place = round(0.5 * (1.0 - LEVEL) * (values.shape[1] + 1))
    ordered = np.sort(values, axis=1)
    return values.mean(axis=1), ordered[:, place - 1], ordered[:, -place]


def coordinates(belief: Belief, effects: Array | None = None, *, rewards: bool) -> tuple[Array, Array]:
    """Return both ends (d,) of the credible interval of each coordinate of θ, or of effects (m, d) times θ.

    rewards: whether they are expected rewards, of actions without features: then none is outside the range.
    """
    thetas = draws(belief, MOST)
    thetas = thetas if effects is None else effects @ thetas
    _, low, high = interval(_inside(thetas, belief.reward_range) if rewards else thetas)
    return low, high


def of_names(belief: Posterior, names: Sequence[str]) -> tuple[Array, Array]:
    """Return both ends (N,) of the credible interval of the expected reward of names without features."""
    ends = []
    for at in range(0, len(names), _NAMES_AT_ONCE):
        drawn = with_own(belief, names[at : at + _NAMES_AT_ONCE], MOST)
        assert drawn.own is not None
        ends.append(interval(_inside(drawn.thetas[0] + drawn.own, belief.reward_range))[1:])
    low, high = np.concatenate([np.zeros((2, 0)), *ends], axis=1)
    return low, high


def _inside(means: Array, reward_range: Range | None) -> Array:
    """Expected rewards, which lie in the range of rewards."""
    return means if reward_range is None else means.clip(*reward_range)


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
        return interval(self.shares(weight))

    def shares(self, weight: Array) -> Array:
        """Return (m, S) the share that each is due, for every draw."""
        return np.clip(self.due[:, 1:] / weight[:, None], 0.0, 1.0)


def estimate(
    blocks: Iterable[Block],
    belief: Belief,
    merit: Merit,
    names: Sequence[str],
    groups: int,
    stretches: int,
) -> tuple[Estimates, Estimates]:
    """Estimate what actions and groups were due in these rounds, of these names and as many groups."""
    rounds = list(blocks)
    count = _count(rounds)
    actions, of_groups = (Estimates(size, count, stretches) for size in (len(names), groups))
    drawn = with_own(belief, names, count, mean=True)
    for block in rounds:
        for part in _parts(block, 1 + count):
            due = _due(part, drawn, merit, belief.reward_range)
            actions.add(part.names, part.stretch, due)
            of_groups.add(part.groups, part.stretch, due)
    return actions, of_groups


def distances(
    blocks: Sequence[Block],
    policies: Sequence[Sequence[Array]],
    belief: Belief,
    merit: Merit,
    names: Sequence[str] = (),
) -> Array:
    """Return (policies, S): the mean of Σ|e - e*| over rounds, for every draw of the shares e* that are due.

    policies: for each policy, the expected weights e (n, K) in each block. names: behind the blocks' numbers.
    """
    count = _count(blocks)
    drawn, distances, rounds = with_own(belief, names, count), np.zeros((len(policies), count)), 0
    for number, block in enumerate(blocks):
        first = 0
        for part in _parts(block, count):
            due, end = _due(part, drawn, merit, belief.reward_range), first + len(part.taken)
            for sums, shares in zip(distances, policies, strict=True):
                sums += np.abs(shares[number][first:end, :, None] - due).sum(axis=(0, 1))
            first = end
        rounds += first
    return distances / rounds


def _count(blocks: Sequence[Block]) -> int:
    """The number of draws for these rounds."""
    return MANY if sum(block.policy.size for block in blocks) * MANY <= _MOST else FEW


def _parts(block: Block, draws: int) -> Iterator[Block]:
    rows = max(1, _AT_ONCE // (block.policy.shape[1] * draws))
    for start in range(0, len(block.taken), rows):
        yield block[start : start + rows]


def _due(block: Block, drawn: Drawn, merit: Merit, reward_range: Range | None) -> Array:
    """Return (n, K, draws) expected weights by merit, times how often the round occurred."""
    means = _inside(drawn.means(block), reward_range)
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
