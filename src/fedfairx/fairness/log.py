"""A log of decisions, as it is given and as blocks of equally many actions that arrays can be made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedfairx.arrays import Array
from fedfairx.errors import InvalidInput, require

Codes = NDArray[np.int64]
_BLOCK = 1 << 16  # numbers of a policy that a block holds at most
_SUM = 1e-6  # by which a policy may miss 1


@dataclass(frozen=True, slots=True)
class Logged:
    """One decision of a log.

    policy: (K,) the probabilities that the action was drawn from.
    action: the row that was taken; None where nothing was shown after all, and only the draw counts.
    contexts: (K, d), without which nothing is known of merit; in all decisions of a log or in none.
    names: of the K actions; without, they are called by their places.
    groups: of the K actions, "" or None where there is none.
    drawn: the row that the policy drew, where something else was taken (a baseline).
    reward: of the action taken, if it has come.
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
    contexts: Array | None  # (n, K, d)
    rewards: Array  # (n,) NaN where none has come

    def __getitem__(self, rows: slice | NDArray[np.bool_]) -> Block:
        contexts = None if self.contexts is None else self.contexts[rows]
        return Block(
            self.policy[rows],
            self.taken[rows],
            self.drawn[rows],
            self.names[rows],
            self.groups[rows],
            contexts,
            self.rewards[rows],
        )


@dataclass
class Labels:
    """Names in the order in which they first came, and their numbers."""

    numbers: dict[str, int] = field(default_factory=dict)
    _rows: dict[tuple[str | None, ...], Codes] = field(default_factory=dict)

    def row(self, labels: Sequence[str | None]) -> Codes:
        key = tuple(labels)
        known = self._rows.get(key)
        if known is None:
            known = np.array([self._number(label) for label in key], dtype=np.int64)
            if len(self._rows) < 10_000:  # logs repeat themselves; one that doesn't must not fill the memory
                self._rows[key] = known
        return known

    def _number(self, label: str | None) -> int:
        return self.numbers.setdefault(label, len(self.numbers)) if label else -1


@dataclass
class Blocks:
    """All of a log in blocks, with what its numbers mean."""

    names: Labels = field(default_factory=Labels)
    groups: Labels = field(default_factory=Labels)
    blocks: list[Block] = field(default_factory=list)


def gather(log: Iterable[Logged]) -> Blocks:
    """Check and sort a log into blocks; decisions among equally many actions stay in their order."""
    found = Blocks()
    waiting: dict[int, list[_Row]] = {}
    with_contexts: bool | None = None
    for place, decision in enumerate(log):
        row = _checked(decision, place, found)
        if with_contexts is None:
            with_contexts = row.contexts is not None
        if (row.contexts is not None) != with_contexts:
            raise InvalidInput(f"contexts must be given for all decisions or for none, got decision {place}")
        arms = row.policy.shape[0]
        rows = waiting.setdefault(arms, [])
        rows.append(row)
        if len(rows) * arms >= _BLOCK:
            found.blocks.append(_block(waiting.pop(arms)))
    found.blocks += [_block(rows) for rows in waiting.values()]
    dimensions = {block.contexts.shape[2] for block in found.blocks if block.contexts is not None}
    require(len(dimensions) < 2, "contexts", "must be of one dimension", sorted(dimensions))
    return found


def records(blocks: Iterable[Block]) -> Iterator[tuple[Array, Array]]:
    """Contexts (n, d) of actions taken and their rewards (n,), where they have come."""
    for block in blocks:
        if block.contexts is not None:
            come = np.flatnonzero(np.isfinite(block.rewards) & (block.taken >= 0))
            yield block.contexts[come, block.taken[come]], block.rewards[come]


@dataclass(frozen=True, slots=True)
class _Row:
    policy: Array
    taken: int
    drawn: int
    names: Codes
    groups: Codes
    contexts: Array | None
    reward: float


def _checked(decision: Logged, place: int, found: Blocks) -> _Row:
    policy = np.asarray(decision.policy, dtype=np.float64)
    if policy.ndim != 1 or policy.size == 0 or not (policy >= 0).all() or abs(policy.sum() - 1.0) > _SUM:
        raise InvalidInput(f"policy must be (K,) probabilities that sum to 1, got decision {place}")
    arms, taken = policy.size, -1 if decision.action is None else decision.action
    drawn = taken if decision.drawn is None else decision.drawn
    if not (0 <= drawn < arms and (decision.action is None or 0 <= taken < arms)):
        raise InvalidInput(f"action must be a row of the policy, got decision {place}")
    names: Sequence[str | None] = decision.names if decision.names is not None else range_names(arms)
    groups = decision.groups if decision.groups is not None else (None,) * arms
    if len(names) != arms or len(groups) != arms or not all(names):
        raise InvalidInput(f"names and groups must be one for each action, got decision {place}")
    contexts = None
    if decision.contexts is not None:
        contexts = np.asarray(decision.contexts, dtype=np.float64)
        if contexts.ndim != 2 or len(contexts) != arms or not np.isfinite(contexts).all():
            raise InvalidInput(f"contexts must be (K, d) finite numbers, got decision {place}")
    reward = np.nan if decision.reward is None else float(decision.reward)
    codes = found.names.row(names), found.groups.row(groups)
    return _Row(policy, taken, drawn, *codes, contexts, reward)


def range_names(arms: int) -> tuple[str, ...]:
    """What actions without names are called."""
    return tuple(f"action {place}" for place in range(arms))


def _block(rows: list[_Row]) -> Block:
    contexts = (
        None if rows[0].contexts is None else [row.contexts for row in rows if row.contexts is not None]
    )
    if contexts is not None:
        shapes = {array.shape for array in contexts}
        require(
            len(shapes) == 1, "contexts", "must be of one dimension", sorted(shape[1] for shape in shapes)
        )
    return Block(
        np.array([row.policy for row in rows]),
        np.array([row.taken for row in rows], dtype=np.int64),
        np.array([row.drawn for row in rows], dtype=np.int64),
        np.array([row.names for row in rows]),
        np.array([row.groups for row in rows]),
        None if contexts is None else np.array(contexts),
        np.array([row.reward for row in rows]),
    )
