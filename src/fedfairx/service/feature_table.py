"""Named features with their ranges, and the conversion of requests into the agent's contexts.

A value outside of its range is clipped, and counted. Each feature is then scaled to [0, 1], and all of them
by 1/√d, so that contexts lie in the unit ball. Contexts without feature names are taken unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from fedfairx.core.agent_kernels import LARGEST
from fedfairx.errors import InvalidInput, require
from fedfairx.util.arrays import Array


@dataclass(frozen=True)
class Feature:
    """One number that describes an action, with its range."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        require(bool(self.name.strip()), "features", "must have names", self.name)
        ends = (self.low, self.high)
        fits = all(math.isfinite(end) and abs(end) <= LARGEST for end in ends) and self.low < self.high
        require(fits, f"features.{self.name}", "must be two finite numbers, low < high", ends)


class FeatureTable:
    """Converts features of requests into contexts of the agent; `dimension` is the number of features."""

    def __init__(self, features: Sequence[Feature], *, dimension: int, intercept: bool = False) -> None:
        self.names = tuple(feature.name for feature in features)
        self.given = dimension  # numbers that a caller sends for an action
        self.dimension = self.given + intercept  # of the agent
        self._intercept = intercept
        self._low = np.array([feature.low for feature in features])
        self._width = np.array([feature.high - feature.low for feature in features])

    def row(self, features: Mapping[str, float] | Sequence[float], where: str) -> Sequence[float]:
        """The numbers of one action in order, given by name or as a list."""
        if not isinstance(features, Mapping):
            return features
        if not self.names:
            raise InvalidInput(
                f"{where} must be a list of {self.given} numbers: this service has no named features"
            )
        missing = [name for name in self.names if name not in features]
        if missing:
            raise InvalidInput(f"{where} must have every feature, got none named {', '.join(missing)}")
        if len(features) > len(self.names):
            known = ", ".join(self.names)
            raise InvalidInput(
                f"{where} must have no other features than {known}, got {len(features)} of them"
            )
        return [features[name] for name in self.names]

    def contexts(self, rows: Sequence[Sequence[float]], where: str) -> tuple[Array, int]:
        """The agent's (K, d) contexts, and how many numbers were clipped; all must be finite."""
        given = self.given
        for index, row in enumerate(rows):
            if len(row) != given:
                raise InvalidInput(f"{where}[{index}] must be {given} numbers, got {len(row)} of them")
        numbers = np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * given)
        made = numbers.reshape(len(rows), given)
        clipped = 0
        if self.names:
            scaled = (made - self._low) / self._width
            made = np.clip(scaled, 0.0, 1.0)
            clipped = int((made != scaled).sum())
        if self._intercept:
            made = np.column_stack([made, np.ones(len(made))])
        if self.names:
            made /= math.sqrt(self.dimension)
        return made, clipped
