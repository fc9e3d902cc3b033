"""A log of decisions, as given and as blocks: arrays of decisions among equally many actions."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedfairx.errors import InvalidInput
from fedfairx.util.arrays import Array

Codes = NDArray[np.int64]
_BLOCK = 1 << 16  # largest number of policy entries in a block
_SUM = 1e-6  # largest deviation of a policy's sum from 1
_MIXED = "contexts must be given for all decisions or for none, and be of one dimension"


@dataclass(slots=True)  # not frozen: that would take three times as long to make
class Logged:
    """One decision of a log.

    policy: (K,) the probabilities that the action was drawn from.
    action: the row that was chosen; None if nothing was shown and only the draw counts.
    contexts: (K, d), needed to estimate merit; in all decisions of a log or in none. For actions without
        features (K,) integers, the index of each in a list of all actions.
    names: names of the K actions; by default "action 0" and so on.
    groups: groups of the K actions; "" or None for no group.
    drawn: the row that the policy drew, if another one was chosen (a baseline).
    reward: reward of the chosen action, if it has arrived.
    """

    policy: ArrayLike
    action: int | None
    contexts: ArrayLike | None = None
    names: Sequence[str] | None = None
    groups: Sequence[str | None] | None = None
    drawn: int | None = None
    reward: float | None = None


@dataclass(frozen=True)
class Block:
    """n decisions among K actions each."""

    policy: Array  # (n, K)
    taken: Codes  # (n,) -1 where nothing was shown
    drawn: Codes  # (n,)
    names: Codes  # (n, K) numbers of names
    groups: Codes  # (n, K) numbers of groups, -1 for none
    contexts: NDArray[Any] | None  # (n, K, d), or (n, K) places of actions without features
    rewards: Array  # (n,) NaN where none has arrived
    times: Array  # (n,) how often the round occurred

    def __getitem__(self, rows: slice | NDArray[Any]) -> Block:
        parts: Any = (None if part is None else part[rows] for part in vars(self).values())
        return Block(*parts)

    def distinct(self) -> Block:
        """Merge rounds with equal entitlements; `times` counts how often each occurred.

        Only rounds of actions without features repeat; others are left as they are.
        """
        if self.contexts is None or self.contexts.ndim == 3:
            return self
        times: dict[bytes, float] = {}
        first = []
        for place, key in enumerate(np.hstack([self.contexts, self.names, self.groups])):
            written = key.tobytes()
            if written not in times:
                first.append(place)
            times[written] = times.get(written, 0.0) + self.times[place]
        return replace(self[np.array(first, dtype=np.int64)], times=np.array(list(times.values())))

    def fits(self, dimension: int) -> bool:
        """Tell whether its contexts have this dimension, or are places below it."""
        if self.contexts is None or self.contexts.ndim == 2:
            return self.contexts is None or int(self.contexts.max(initial=0)) < dimension
        return bool(self.contexts.shape[2] == dimension)

    def features(self, dimension: int) -> Array:
        """Return contexts (n, K, d); those of actions without features are unit vectors."""
        assert self.contexts is not None
        return self.contexts if self.contexts.ndim == 3 else np.eye(dimension)[self.contexts]


@dataclass
class Labels:
    """Names and their numbers, in order of first occurrence."""

    numbers: dict[str, int] = field(default_factory=dict)
    _rows: dict[tuple[str | None, ...], Codes] = field(default_factory=dict)

    def row(self, labels: Sequence[str | None]) -> Codes:
        key = labels if type(labels) is tuple else tuple(labels)
        known = self._rows.get(key)
        if known is None:
            numbers = self.numbers
            codes = [numbers.setdefault(label, len(numbers)) if label else -1 for label in key]
            known = np.array(codes, dtype=np.int64)
            if len(self._rows) < 10_000:  # most logs repeat rows; one that doesn't must not fill the memory
                self._rows[key] = known
        return known


@dataclass
class Blocks:
    """A log in blocks, with the names behind its numbers."""

    names: Labels = field(default_factory=Labels)
    groups: Labels = field(default_factory=Labels)
    blocks: list[Block] = field(default_factory=list)


def gather(log: Iterable[Logged]) -> Blocks:
    """Check and sort a log into blocks; decisions among equally many actions stay in their order."""
    found = Blocks()
    waiting: dict[int, list[_Row]] = {}
    for place, decision in enumerate(log):
        row = _row(decision, place, found)
        arms = row[1].size
        rows = waiting.setdefault(arms, [])
        rows.append(row)
        if len(rows) * arms >= _BLOCK:
            found.blocks.append(_block(waiting.pop(arms)))
    found.blocks += [_block(rows) for rows in waiting.values()]
    dimensions = {None if block.contexts is None else block.contexts.shape[2:] for block in found.blocks}
    if len(dimensions) > 1:
        raise InvalidInput(_MIXED)
    return found


def records(blocks: Sequence[Block]) -> Iterator[tuple[Array, Array]]:
    """Yield contexts (n, d) of actions taken and their rewards (n,), where these have arrived."""
    places = [block.contexts for block in blocks if block.contexts is not None and block.contexts.ndim == 2]
    units = np.eye(1 + max(int(each.max()) for each in places)) if places else None
    for block in blocks:
        if block.contexts is not None:
            known = np.flatnonzero(np.isfinite(block.rewards) & (block.taken >= 0))
            rows = block.contexts[known, block.taken[known]]
            yield (rows if units is None else units[rows]), block.rewards[known]


# place, policy, taken, drawn, names, groups, contexts, reward; `_block` checks the numbers
_Row = tuple[int, Array, int, int, Codes, Codes, NDArray[Any] | None, float]


def _row(decision: Logged, place: int, found: Blocks) -> _Row:
    policy = np.asarray(decision.policy, dtype=np.float64)
    if policy.ndim != 1 or policy.size == 0:
        raise InvalidInput(f"policy must be (K,) probabilities that sum to 1, got decision {place}")
    arms, taken = policy.size, -1 if decision.action is None else decision.action
    drawn = taken if decision.drawn is None else decision.drawn
    if not (0 <= drawn < arms and (decision.action is None or 0 <= taken < arms)):
        raise InvalidInput(f"action must be a row of the policy, got decision {place}")
    names = found.names.row(range_names(arms) if decision.names is None else decision.names)
    groups = found.groups.row((None,) * arms if decision.groups is None else decision.groups)
    if names.size != arms or groups.size != arms:
        raise InvalidInput(f"names and groups must be one for each action, got decision {place}")
    contexts: NDArray[Any] | None = None
    if decision.contexts is not None:
        contexts = _contexts(decision.contexts, arms)
        if contexts is None:
            raise InvalidInput(f"contexts must be (K, d) finite numbers, got decision {place}")
    reward = np.nan if decision.reward is None else float(decision.reward)
    return place, policy, taken, drawn, names, groups, contexts, reward


def _contexts(values: ArrayLike, arms: int) -> NDArray[Any] | None:
    """Return (K, d) numbers, or (K,) places of actions without features; None if it is neither."""
    try:
        given = np.asarray(values)
        if given.ndim == 1 and len(given) == arms and given.dtype.kind in "iu" and given.min() >= 0:
            return given.astype(np.int64)
        return given.astype(np.float64) if given.ndim == 2 and len(given) == arms else None
    except (TypeError, ValueError):
        return None


@functools.cache
def range_names(arms: int) -> tuple[str, ...]:
    """Return the names of actions that were given none."""
    return tuple(f"action {place}" for place in range(arms))


def _block(rows: list[_Row]) -> Block:
    places, policies, taken, drawn, names, groups, given, rewards = zip(*rows, strict=True)
    policy = np.array(policies)
    odd = np.any(policy < 0, axis=1) | ~(np.abs(policy.sum(axis=1) - 1.0) <= _SUM)
    _refuse(odd, places, "policy must be (K,) probabilities that sum to 1")
    codes = np.array(names)
    _refuse(np.any(codes < 0, axis=1), places, "names must not be empty")
    shapes = [None if each is None else each.shape for each in given]
    _refuse(np.array([shape != shapes[0] for shape in shapes]), places, _MIXED)
    contexts = None if given[0] is None else np.array(given)
    if contexts is not None and contexts.ndim == 3:
        _refuse(~np.isfinite(contexts).all(axis=(1, 2)), places, "contexts must be (K, d) finite numbers")
    rows_taken, rows_drawn = np.array(taken, dtype=np.int64), np.array(drawn, dtype=np.int64)
    once = np.ones(len(rows))
    return Block(policy, rows_taken, rows_drawn, codes, np.array(groups), contexts, np.array(rewards), once)


def _refuse(odd: NDArray[np.bool_], places: Sequence[int], rule: str) -> None:
    if odd.any():
        raise InvalidInput(f"{rule}, got decision {places[int(odd.argmax())]}")
