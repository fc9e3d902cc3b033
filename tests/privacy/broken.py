"""Mechanisms that claim more than they keep, for the audit to catch, each by one mistake."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fedfairx.privacy.bounding import Bounds
from fedfairx.privacy.mechanisms import Gaussian, NoiseStream
from fedfairx.privacy.privatizer import StreamPrivatizer


@dataclass(frozen=True, kw_only=True)
class Weaker(Gaussian):
    """Claims what `Gaussian` claims, and adds `share` of its noise."""

    share: float = 1.0

    def stream(self, draw, *, entry_scale, state=None) -> NoiseStream:
        return super().stream(draw, entry_scale=entry_scale * self.share, state=state)


class _OwnStream:
    """A stream that makes its noise from `rule(number, width)`; enough of a NoiseStream for a privatizer."""

    def __init__(self, rule: Callable[[int], np.ndarray]) -> None:
        self.number = 0
        self._rule = rule

    def next(self) -> np.ndarray:
        self.number += 1
        return self._rule(self.number)

    def advance(self, count: int) -> None:
        for _ in range(count):
            self.next()


@dataclass(frozen=True, kw_only=True)
class Fresh(Gaussian):
    """Noise of the right sd at each release, drawn anew: it averages out."""

    def stream(self, draw, *, entry_scale, state=None) -> Any:  # noqa: ARG002
        sd = self.sd(np.arange(1, self.releases + 1))
        return _OwnStream(lambda number: draw(number, entry_scale.size) * entry_scale * sd[number - 1])


@dataclass(frozen=True, kw_only=True)
class Reused(Gaussian):
    """The same noise until the tree grows a level: two releases in between differ by the data alone."""

    def stream(self, draw, *, entry_scale, state=None) -> Any:  # noqa: ARG002
        def rule(number: int) -> np.ndarray:
            return np.asarray(drawn(number.bit_length()) * entry_scale * self.base_sd)

        cache: dict[int, np.ndarray] = {}

        def drawn(level: int) -> np.ndarray:
            if level not in cache:
                cache[level] = sum(draw(level * 100 + i, entry_scale.size) for i in range(level))
            return cache[level]

        return _OwnStream(rule)


@dataclass(frozen=True, kw_only=True)
class ReusedNodes(Gaussian):
    """One noise for each level of the tree, whichever node of it: neighbouring nodes cancel."""

    def stream(self, draw, *, entry_scale, state=None) -> Any:  # noqa: ARG002
        cache: dict[int, np.ndarray] = {}

        def rule(number: int) -> np.ndarray:
            total = np.zeros(entry_scale.size)
            for level in range(number.bit_length()):
                if level not in cache:
                    cache[level] = draw(level + 1, entry_scale.size)
                if number >> level & 1:
                    total += cache[level]
            return total * entry_scale * self.base_sd

        return _OwnStream(rule)


@dataclass(frozen=True, kw_only=True)
class SharedByAgents(Gaussian):
    """Right in every way but one: all agents draw the same noise."""

    def stream(self, draw, *, entry_scale, state=None) -> NoiseStream:
        if entry_scale.size > 1000:  # the black box's columns are runs, not agents
            return super().stream(draw, entry_scale=entry_scale, state=state)
        generator = np.random.default_rng(0)
        return super().stream(
            lambda _number, count: generator.standard_normal(count), entry_scale=entry_scale
        )


class Unclipped(Bounds):
    """States the sensitivity of clipped records and lets x through as it comes."""

    def clip(self, context, reward):
        return np.asarray(context), max(-self.reward, min(self.reward, reward)), False


class Twice(StreamPrivatizer):
    """Puts each record into its leaf and into the next one."""

    def release(self, number: int | None = None) -> Any:
        again = self._position.leaf.copy()
        release = super().release(number)
        if again.any() and not getattr(self, "_done", False):
            self._position.leaf[:] += again
            self._done = True
        return release


def weaker(mechanism: Gaussian, kind: type[Gaussian] = Weaker, **other: float) -> Gaussian:
    """`mechanism`, broken in the way of `kind`."""
    values = {field.name: getattr(mechanism, field.name) for field in fields(Gaussian)}
    return kind(**values, **other)


def without_composition(mechanism: Gaussian) -> Gaussian:
    """Each release is noised as if it were the only one."""
    return weaker(mechanism, share=1.0 / mechanism.factor.column_norm)


def halved_symmetrisation(mechanism: Gaussian) -> Gaussian:
    """(N+Nᵀ)/2 in place of (N+Nᵀ)/√2."""
    return weaker(mechanism, share=1.0 / math.sqrt(2.0))
