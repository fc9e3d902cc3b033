"""The slots of a decision: how many actions it shows, with which weights, and which rewards have come."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, TypeGuard

import numpy as np

from fedfairx.core.slates import Weights
from fedfairx.errors import require
from fedfairx.storage.records import DecisionNote
from fedfairx.util.arrays import Array, as_floats

#: By action (its row or its name), or in the order of slots. None withdraws one that nobody saw.
Rewards = Mapping[Any, float | None] | Sequence[float | None]


@lru_cache(maxsize=64)
def as_array(weights: Weights) -> Array:
    """The weights as compiled code takes them."""
    return np.array(weights)


@lru_cache(maxsize=64)
def _all_of(slots: int) -> frozenset[int]:
    return frozenset(range(slots))


def as_row_weights(weights: Iterable[float], rows: int) -> Array:
    """The weight of the slot that each of `rows` rows of a log was shown in."""
    given = as_floats(list(weights) if isinstance(weights, Iterable) else weights)
    fits = given is not None and given.shape == (rows,) and bool(((given >= 0.0) & (given <= 1.0)).all())
    require(fits, "weights", f"must be {rows} numbers from 0 to 1, one for each row", "something else")
    assert given is not None
    return given


def are_several(given: float | Rewards) -> TypeGuard[Rewards]:
    """Whether this is rewards of slots, and not one reward."""
    if isinstance(given, np.ndarray):
        return given.ndim > 0
    return isinstance(given, Mapping | Sequence) and not isinstance(given, str | bytes)


class Slate:
    """What a decision of several slots shows, and the rewards so far.

    drawn: the arms that were drawn; they differ from `shown` if a baseline was taken instead.
    waiting: slots without an outcome.
    total: the sum of the rewards that came; None if none has.
    status: that of the decision once no slot waits.
    """

    __slots__ = ("drawn", "names", "shown", "status", "total", "waiting", "weights")

    def __init__(
        self,
        weights: Weights,
        shown: list[int],
        names: list[str] | None = None,
        waiting: Iterable[int] | None = None,
        total: float | None = None,
        status: str = "withdrawn",
        drawn: list[int] | None = None,
    ) -> None:
        self.weights = weights
        self.shown = shown
        self.drawn = shown if drawn is None else drawn
        self.names = names
        self.waiting = _all_of(len(shown)) if waiting is None else frozenset(waiting)
        self.total = total
        self.status = status

    def end(self, slot: int, reward: float | None, status: str) -> None:
        """Take the outcome of a slot. One that was rewarded makes it a decision that was."""
        self.waiting -= {slot}
        if self.status != "rewarded" and status != "withdrawn":
            self.status = status
        if reward is not None:
            self.total = (self.total or 0.0) + reward

    def to_json(self, note: DecisionNote | None = None) -> str:
        """Weights and arms, with those of the note's baseline, as a database keeps them."""
        kept: dict[str, Any] = {"weights": self.weights}
        if self.drawn is not self.shown:
            kept["drawn"] = self.drawn
        if note is not None and note.baseline is not None:
            kept["baseline"] = note.baseline
        kept["shown"] = self.shown  # the last one, and without spaces: queries find an action in it by LIKE
        return json.dumps(kept, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, names: Sequence[str] | None) -> Slate:
        """The slate as it was decided; `names` are those of all arms."""
        kept = json.loads(text)
        shown: list[int] = kept["shown"]
        called = None if names is None else [names[arm] for arm in shown]
        return cls(tuple(kept["weights"]), shown, called, drawn=kept.get("drawn"))

    def slots_of(self, rewards: Rewards) -> dict[int, float | None]:
        """The slots that these rewards are for, in order."""
        if type(rewards) is list and len(rewards) == len(self.shown):
            return dict(enumerate(rewards))
        if isinstance(rewards, Mapping):
            found = {self._slot(action): reward for action, reward in rewards.items()}
            require(len(found) == len(rewards), "rewards", "must name each action once", len(rewards))
            return dict(sorted(found.items(), key=itemgetter(0)))
        count, slots = len(rewards) if are_several(rewards) else type(rewards).__name__, len(self.shown)
        require(count == slots, "rewards", f"must be one for each of {slots} slots", count)
        return dict(enumerate(rewards))

    def _slot(self, action: object) -> int:
        if self.names is not None and action in self.names:
            once = self.names.count(str(action)) == 1
            require(once, "rewards", "must be by row: more than one action has this name", action)
            return self.names.index(str(action))
        if self.names is None and isinstance(action, str) and action.isascii() and action.isdecimal():
            action = int(action)  # in JSON a row is text
        known = isinstance(action, int | np.integer) and not isinstance(action, bool) and action in self.shown
        text = f"must be of actions that were shown, {self.names or self.shown}"
        told = action if isinstance(action, str | int) else type(action).__name__  # never a reward
        require(known, "rewards", text, told)
        return self.shown.index(int(action))  # type: ignore[call-overload]
