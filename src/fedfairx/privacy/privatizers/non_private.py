"""Exact sums under the `Privatizer` protocol, for algorithms that promise no privacy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedfairx.core.agent_kernels import learn_named, learn_one, learn_slate
from fedfairx.core.statistics import add_one, embedded, packed_size
from fedfairx.errors import StateError, require
from fedfairx.privacy.bounds import Bounds
from fedfairx.privacy.guarantee import Guarantee
from fedfairx.privacy.mechanisms.gaussian import NonPrivate
from fedfairx.privacy.privatizers.stream import StreamPrivatizer, refuse_person
from fedfairx.privacy.release import Release
from fedfairx.util.arrays import Array


class NonPrivateSums:
    """Exact sums: NOT PRIVATE. A release is the total of all records, in the order of observation, decayed
    if its owner has a half-life.

    >>> import numpy as np
    >>> sums = NonPrivateSums(2)
    >>> sums.add(np.array([1.0, 0.0]), 0.5)
    >>> sums.release().packed.tolist()
    [1.0, 0.0, 0.0, 0.5, 0.0]

    Guarantees:
    - None about privacy: the guarantee says NOT PRIVATE, with μ = ∞.
    - The released bits are those of adding each record in turn to one running sum, clipped if there are
      `bounds`.
    - `state` and `from_state` continue with the same bits.
    """

    def __init__(self, dimension: int, bounds: Bounds | None = None, *, constant: float = 1.0) -> None:
        require(dimension >= 1, "dimension", "must be >= 1", dimension)
        self.dimension = dimension
        self.bounds = bounds
        self.constant = constant  # what contexts of arrays end with, if their agent has an intercept
        self.owner: str | None = None
        self.stream: StreamPrivatizer | None = None
        self.clipped = 0
        self.mechanism = NonPrivate()
        self._digest = self.mechanism.digest()
        self._total = np.zeros(packed_size(dimension))
        self._count = 0
        self.spent = 0
        self._latest: Release | None = None
        #: What an agent whose actions have own records sends of its sums: others, and tallies by name.
        self.content: Callable[[Array], tuple[Array, dict[str, Array]]] | None = None

    @property
    def guarantee(self) -> Guarantee:
        """NOT PRIVATE: releases are exact sums."""
        return Guarantee(
            mechanism=self.mechanism.name,
            epsilon=math.inf,
            delta=1.0,
            mu=math.inf,
            adjacency="replace",
            context_norm=math.inf,
            reward=math.inf,
            releases=self.mechanism.releases,
            spent=self.spent,
            decide_from="released+local",
            reasons=("releases are exact sums, without noise",),
        )

    @property
    def total(self) -> Array:
        """Packed sums of all records."""
        return self._total.copy()

    @property
    def waiting(self) -> int:
        """Number of records that are in no release yet."""
        return self._count - (0 if self._latest is None else self._latest.count)

    def add(
        self,
        context: Array,
        reward: float,
        record: str | int | None = None,  # noqa: ARG002
        person: str | int | None = None,
        weight: float = 1.0,
    ) -> None:
        refuse_person(person)
        if self.bounds is not None:
            context, reward, moved = self.bounds.clip(context, reward)
            self.clipped += moved
        add_one(self._total, context if weight == 1.0 else weight * context, reward)
        self._count += 1

    def add_and_learn(
        self,
        memory: Array,
        values: Array,
        at: int,
        weight: float,
        reward: float,
        own: tuple[Array, int, float] | None,
    ) -> float:
        """Add the context that begins at values[at], and learn it into a learner's memory, in one call.

        own: of a name with an own record its tallies, place and ρ, as for `learn_named`.
        """
        total: Array | None = self._total
        if self.bounds is None:
            self._count += 1
        else:
            self.add(values[at : at + self.dimension], reward, weight=weight)
            total = None
        growth: float
        if own is None:
            growth = learn_one(memory, total, values, at, self.dimension, weight, reward)
        else:
            growth = learn_named(memory, total, values, at, self.dimension, weight, reward, *own)
        return growth

    def add_and_learn_slate(self, memory: Array, values: Array, at: int, *rest: Any) -> tuple[float, int]:
        """`add_and_learn` for all slots of a decision, without bounds; `rest` is as for `learn_slate`."""
        self._count += len(rest[0])
        result: tuple[float, int] = learn_slate(memory, self._total, values, at, *rest)
        return result

    def decay(self, factor: float) -> None:
        """Let all records so far count less by this factor."""
        self._total *= factor

    def resize(self, dimension: int) -> None:
        """Accept records of more coordinates from now on."""
        self._total = embedded(self._total, dimension)
        self.dimension = dimension

    def release(self, number: int | None = None) -> Release:
        if number is not None and self._latest is not None and number == self.spent:
            return self._latest
        require(number in (None, self.spent + 1), "number", f"must be {self.spent + 1}", number)
        self.spent += 1
        packed, tallies = (self._total.copy(), {}) if self.content is None else self.content(self._total)
        self._latest = Release(self.spent, packed, self._count, self._digest, tallies)
        return self._latest

    def state(self) -> dict[str, Any]:
        """Return all that is needed to continue, without the bounds, as plain values; it holds exact sums."""
        latest = None if self._latest is None else self._latest.to_bytes().hex()
        return {
            "schema": 2,
            "total": self._total.tolist(),
            "count": self._count,
            "clipped": self.clipped,
            "spent": self.spent,
            "latest": latest,
        }

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], *, dimension: int, bounds: Bounds | None = None
    ) -> NonPrivateSums:
        """Restore sums from their `state`."""
        if state.get("schema") != 2 or len(state["total"]) != packed_size(dimension):
            raise StateError("this is not the state of exact sums of this dimension")
        sums = cls(dimension, bounds)
        sums.clipped = int(state["clipped"])
        sums._total = np.array(state["total"], dtype=np.float64)
        sums._count = int(state["count"])
        sums.spent = int(state["spent"])
        sums._latest = None if state["latest"] is None else Release.from_bytes(bytes.fromhex(state["latest"]))
        return sums
