"""A log of decisions, as given and as blocks: arrays of decisions among equally many actions."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedfairx.core.slates import ONE, Slots, Weights, as_weights
from fedfairx.errors import InvalidInput
from fedfairx.util.arrays import Array

Codes = NDArray[np.int64]
_BLOCK = 1 << 16  # largest number of policy entries in a block
_ROWS = 1 << 12  # of records that are in memory with all columns
_SUM = 1e-6  # largest deviation of a policy's sum from that of the weights
_SEVERAL = (list, tuple, np.ndarray)  # types that one action or reward never has
_NO_ROW = -2  # what is refused as no row of the policy
_POLICY = "policy must be (K,) probabilities that sum to 1, or exposures that sum to the slots' weights"
_LISTS = "action, drawn and reward must be lists of one for each slot, no action twice and no None in drawn"
_MIXED = "contexts must be given for all decisions or for none, and be of one dimension, which may grow"


@dataclass(slots=True)  # not frozen: that would take three times as long to make
class Logged:
    """One decision of a log.

    policy: (K,) the probabilities that the action was drawn from; of several slots, the exposures.
    action: the row that was chosen; None if nothing was shown and only the draw counts.
    contexts: (K, d), needed to estimate merit; in all decisions of a log or in none. If d grows, because
        features were appended, they are 0 before. For actions without features (K,) integers, the index of
        each in a list of all actions.
    names: names of the K actions; by default "action 0" and so on.
    groups: groups of the K actions; "" or None for no group.
    drawn: the row that the policy drew, if another one was chosen (a baseline).
    reward: reward of the chosen action, if it has arrived.
    slots: their number or their weights, if several actions are shown. `action`, `drawn` and `reward` are
        then lists in the order of slots, with None for an action that was not seen and for a reward that has
        not arrived.
    stretch: the number of the stretch of time that it was made in, for shares over time.
    baseline: whether the caller chose by itself, so that `policy` is not what the action was chosen by. It is
        so too wherever `drawn` is another row than `action`.

    >>> import fedfairx as ffx
    >>> one = Logged([0.7, 0.3], 0, names=["ann", "ben"], reward=1.0)
    >>> two = Logged([0.8, 0.8, 0.4], [2, 0], names=["ann", "ben", "cid"], slots=2, reward=[0.0, None])
    >>> ffx.exposure([one, two]).decisions
    2
    """

    policy: ArrayLike
    action: int | Sequence[int | None] | None
    contexts: ArrayLike | None = None
    names: Sequence[str] | None = None
    groups: Sequence[str | None] | None = None
    drawn: int | Sequence[int] | None = None
    reward: float | Sequence[float | None] | None = None
    slots: Slots | None = None
    stretch: int = 0
    baseline: bool = False


@dataclass(frozen=True)
class Block:
    """n decisions among K actions each, with m slots."""

    policy: Array  # (n, K) expected weight of each action
    weights: Array  # (n, m) of the slots
    taken: Codes  # (n, m) -1 where nothing was seen
    drawn: Codes  # (n, m)
    names: Codes  # (n, K) numbers of names
    groups: Codes  # (n, K) numbers of groups, -1 for none
    contexts: NDArray[Any] | None  # (n, K, d), or (n, K) places of actions without features
    rewards: Array  # (n, m) NaN where none has arrived
    times: Array  # (n,) how often the round occurred, in parts of the weights that were seen
    positions: Codes  # (n,) in the log
    stretch: Codes  # (n,) of time
    baseline: NDArray[np.bool_]  # (n,) whether the caller chose by itself
    own: Codes | None = None  # (n, K) place of each name's own number beside features, -1 for none

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
        weights = np.ascontiguousarray(self.weights).view(np.int64)
        parts = [self.contexts, self.names, self.groups, weights, self.stretch[:, None]]
        for place, key in enumerate(np.hstack(parts)):
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
        """Return contexts (n, K, d): unit vectors of places, and columns of own numbers after features."""
        assert self.contexts is not None
        return rows_of(self.contexts, self.own, dimension)


def rows_of(contexts: NDArray[Any], own: Codes | None, dimension: int) -> Array:
    """Return contexts (…, d) of places (…), or of features (…, m) and places (…) of columns after them."""
    if own is None and contexts.dtype.kind != "i":
        return contexts
    features = contexts.shape[-1] if contexts.dtype.kind != "i" else 0
    places = contexts if own is None else own
    rows = np.zeros((*places.shape, dimension))
    if features:
        rows[..., :features] = contexts
    has = places >= 0
    rows[(*np.nonzero(has), features + places[has])] = 1.0
    return rows


@dataclass
class Labels:
    """Names and their numbers, in order of first occurrence."""

    numbers: dict[str, int] = field(default_factory=dict)
    _rows: dict[tuple[str | None, ...], Codes] = field(default_factory=dict)

    def row(self, labels: Sequence[str | None]) -> Codes:
        key = labels if type(labels) is tuple else tuple(labels)
        row = self._rows.get(key)
        if row is None:
            numbers = self.numbers
            codes = [numbers.setdefault(label, len(numbers)) if label else -1 for label in key]
            row = np.array(codes, dtype=np.int64)
            if len(self._rows) < 10_000:  # most logs repeat rows; one that doesn't must not fill the memory
                self._rows[key] = row
        return row


@dataclass
class Blocks:
    """A log in blocks, with the names behind its numbers."""

    names: Labels = field(default_factory=Labels)
    groups: Labels = field(default_factory=Labels)
    blocks: list[Block] = field(default_factory=list)


def gather(log: Iterable[Logged]) -> Blocks:
    """Check and sort a log into blocks; decisions of equally many actions and slots stay in their order."""
    sorted_log = Blocks()
    waiting: dict[tuple[int, int, int | None], list[_Row]] = {}
    width: int | None = None  # of contexts; 0 for places of actions without features
    mixed: int | None = None  # the first decision whose contexts do not go with those before
    for place, decision in enumerate(log):
        row = _row(decision, place, sorted_log)
        before, width = width, None if row[7] is None else sum(row[7].shape[1:])
        same = width == before or (before and width and width > before)
        if place and not same and mixed is None:
            mixed = place
        shape = arms, _, _ = row[1].size, len(row[2]), width
        rows = waiting.setdefault(shape, [])
        rows.append(row)
        if len(rows) * arms >= _BLOCK:
            sorted_log.blocks.append(_block(waiting.pop(shape)))
    sorted_log.blocks += [_block(rows) for rows in waiting.values()]
    if mixed is not None:
        raise InvalidInput(f"{_MIXED}, got decision {mixed}")
    sorted_log.blocks = [_widened(block, width or 0) for block in sorted_log.blocks]
    return sorted_log


def _widened(block: Block, dimension: int) -> Block:
    """The block with zeros for columns that were appended since."""
    contexts = block.contexts
    if contexts is None or contexts.ndim == 2 or contexts.shape[2] == dimension:
        return block
    return replace(block, contexts=np.pad(contexts, ((0, 0), (0, 0), (0, dimension - contexts.shape[2]))))


def records(blocks: Sequence[Block], dimension: int) -> Iterator[tuple[Array, Array]]:
    """Yield contexts (n, d) of actions taken, times weights, and rewards (n,), where these have arrived."""
    for block in blocks:
        if block.contexts is None:
            continue
        rounds, slots = np.nonzero(np.isfinite(block.rewards) & (block.taken >= 0))
        for at in range(0, rounds.size, _ROWS):
            row, slot = rounds[at : at + _ROWS], slots[at : at + _ROWS]
            arm = block.taken[row, slot]
            own = None if block.own is None else block.own[row, arm]
            rows = rows_of(block.contexts[row, arm], own, dimension)
            yield block.weights[row, slot][:, None] * rows, block.rewards[row, slot]


_Slots = tuple[int, ...]
# place, policy, weights, taken, drawn, names, groups, contexts, rewards, stretch, baseline; `_block` checks
# the numbers
_Row = tuple[
    int, Array, Weights, _Slots, _Slots, Codes, Codes, NDArray[Any] | None, tuple[float, ...], int, bool
]


def _row(decision: Logged, place: int, sorted_log: Blocks) -> _Row:
    policy = np.asarray(decision.policy, dtype=np.float64)
    if policy.ndim != 1 or policy.size == 0:
        raise InvalidInput(f"{_POLICY}, got decision {place}")
    arms = policy.size
    weights, taken, drawn, rewards = (_one if decision.slots is None else _several)(decision, place)
    if len(weights) > arms:
        raise InvalidInput(f"slots must be no more than actions, got decision {place}")
    if not (min(drawn) >= 0 and max(drawn) < arms and min(taken) >= -1 and max(taken) < arms):
        raise InvalidInput(f"action must be a row of the policy, got decision {place}")
    names = sorted_log.names.row(range_names(arms) if decision.names is None else decision.names)
    groups = sorted_log.groups.row((None,) * arms if decision.groups is None else decision.groups)
    if names.size != arms or groups.size != arms:
        raise InvalidInput(f"names and groups must be one for each action, got decision {place}")
    contexts: NDArray[Any] | None = None
    if decision.contexts is not None:
        contexts = _contexts(decision.contexts, arms)
        if contexts is None:
            raise InvalidInput(f"contexts must be (K, d) finite numbers, got decision {place}")
    own, at = decision.baseline, decision.stretch
    return place, policy, weights, taken, drawn, names, groups, contexts, rewards, at, own


def _one(decision: Logged, place: int) -> tuple[Weights, _Slots, _Slots, tuple[float, ...]]:
    """Weights, actions, draws and rewards of a decision with one slot."""
    action: Any = decision.action
    drawn: Any = action if decision.drawn is None else decision.drawn
    reward: Any = decision.reward
    if isinstance(action, _SEVERAL) or isinstance(drawn, _SEVERAL) or isinstance(reward, _SEVERAL):
        raise InvalidInput(f"slots must be given with lists of actions or rewards, got decision {place}")
    drawn = _NO_ROW if drawn is None else drawn
    taken = -1 if action is None else action if action >= 0 else _NO_ROW
    return ONE, (taken,), (drawn,), (np.nan if reward is None else float(reward),)


def _several(decision: Logged, place: int) -> tuple[Weights, _Slots, _Slots, tuple[float, ...]]:
    """Weights, actions, draws and rewards of a decision with several slots."""
    assert decision.slots is not None
    try:
        weights = as_weights(decision.slots)
    except InvalidInput as error:
        raise InvalidInput(f"{error}, in decision {place}") from None
    none = (None,) * len(weights)
    action: Any = none if decision.action is None else decision.action
    reward: Any = none if decision.reward is None else decision.reward
    drawn: Any = action if decision.drawn is None else decision.drawn
    try:
        taken = tuple(-1 if row is None else int(row) if row >= 0 else _NO_ROW for row in action)
        draws = tuple(int(row) for row in drawn)
        rewards = tuple(np.nan if each is None else float(each) for each in reward)
    except (TypeError, ValueError):
        raise InvalidInput(f"{_LISTS}, got decision {place}") from None
    same_length = len(taken) == len(rewards) == len(draws) == len(weights)
    seen = [row for row in taken if row >= 0]
    if not same_length or len(set(seen)) < len(seen) or len(set(draws)) < len(draws):
        raise InvalidInput(f"{_LISTS}, got decision {place}")
    return weights, taken, draws, rewards


def _contexts(values: ArrayLike, arms: int) -> NDArray[Any] | None:
    """Return (K, d) numbers, or (K,) places of actions without features; None if it is neither."""
    try:
        array = np.asarray(values)
        if array.ndim == 1 and len(array) == arms and array.dtype.kind in "iu" and array.min() >= 0:
            return array.astype(np.int64)
        return array.astype(np.float64) if array.ndim == 2 and len(array) == arms else None
    except (TypeError, ValueError):
        return None


@functools.cache
def range_names(arms: int) -> tuple[str, ...]:
    """Return the names of actions that were given none."""
    return tuple(f"action {place}" for place in range(arms))


def _block(rows: list[_Row]) -> Block:
    places, policies, attention, taken, drawn, names, groups, context_rows, rewards, stretch, own = zip(
        *rows, strict=True
    )
    policy, weights = np.array(policies), np.array(attention)
    total = weights.sum(axis=1)
    odd = np.any((policy < 0) | (policy > weights[:, :1] + _SUM), axis=1)
    _refuse(odd | ~(np.abs(policy.sum(axis=1) - total) <= _SUM * total), places, _POLICY)
    codes = np.array(names)
    _refuse(np.any(codes < 0, axis=1), places, "names must not be empty")
    contexts = None if context_rows[0] is None else np.array(context_rows)
    if contexts is not None and contexts.ndim == 3:
        _refuse(~np.isfinite(contexts).all(axis=(1, 2)), places, "contexts must be (K, d) finite numbers")
    shown, draws = np.array(taken, dtype=np.int64), np.array(drawn, dtype=np.int64)
    seen = np.where(shown >= 0, weights, 0.0).sum(axis=1) / total
    return Block(
        policy,
        weights,
        shown,
        draws,
        codes,
        np.array(groups),
        contexts,
        np.array(rewards),
        seen,
        np.array(places),
        np.array(stretch),
        np.array(own) | np.any((shown >= 0) & (shown != draws), axis=1),
    )


def _refuse(odd: NDArray[np.bool_], places: Sequence[int], rule: str) -> None:
    if odd.any():
        raise InvalidInput(f"{rule}, got decision {places[int(odd.argmax())]}")
