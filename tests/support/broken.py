"""Mechanisms that claim more than they keep, for the audit to catch, each by one mistake.

`MISTAKES` has them all by name: each makes the arguments of an audit that must fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from fedfairx.privacy.accounting import mu_for
from fedfairx.privacy.bounds import Bounds
from fedfairx.privacy.centring import Centring
from fedfairx.privacy.mechanisms.gaussian import Gaussian, NoiseStream, calibrate
from fedfairx.privacy.mechanisms.noise import KeyedNoise
from fedfairx.privacy.privatizers.stream import StreamPrivatizer


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
                cache[level] = math.sqrt(level) * draw(1 << (level - 1), entry_scale.size)
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


@dataclass(frozen=True, kw_only=True)
class Boastful(Gaussian):
    """Claims a tenth less than it costs."""

    @property
    def mu(self) -> float:
        return 0.9 * super().mu


class Unclipped(Bounds):
    """States the sensitivity of clipped records and lets x through as it comes."""

    def clip(self, context, reward):
        return np.asarray(context), max(-self.reward, min(self.reward, reward)), False


class UnclippedBelow(Bounds):
    """Clips a reward that is too large, and not one that is too small."""

    def clip(self, context, reward):
        x, y, moved = super().clip(context, reward)
        return x, min(float(reward), y) if reward == reward else y, moved


class Flat(Bounds):
    """Noise of sd σ on the diagonal too: not GOE, and too little for a record that is blanked."""

    def entry_scale(self, dimension: int) -> np.ndarray:
        return np.ones(dimension * (dimension + 3) // 2)


class Twice(StreamPrivatizer):
    """Puts each record into its leaf and into the next one."""

    def release(self, number: int | None = None) -> Any:
        again = self._position.leaf.copy()
        release = super().release(number)
        if again.any() and not getattr(self, "_done", False):
            self._position.leaf[:] += again
            self._done = True
        return release


class LastAgain(StreamPrivatizer):
    """Puts the last record of a leaf into the next one again, as a loop with <= for < would."""

    _last: tuple[Any, ...] | None = None

    def add(self, context, reward, record=None, **other):
        self._last = (context, reward)
        super().add(context, reward, record, **other)

    def release(self, number: int | None = None) -> Any:
        release, last, self._last = super().release(number), self._last, None
        if last is not None:
            super().add(*last)
        return release


class OwnCentre(StreamPrivatizer):
    """Centres at the mean of what it has seen, in place of a public point."""

    def add(self, context, reward, record=None, **other):
        seen = self.__dict__.setdefault("_seen", [])
        if np.isfinite(context).all() and abs(np.asarray(context)).max() < 1e3:
            seen.append(context)
            self.centring = replace(self.centring, context=tuple(np.mean(seen, axis=0).tolist()))
        super().add(context, reward, record, **other)


class MeanTakenOff(StreamPrivatizer):
    """Takes the mean of the records so far off the next one."""

    def add(self, context, reward, record=None, **other):
        seen = self.__dict__.setdefault("_seen", [np.zeros(self.dimension)])
        moved = context - np.mean(seen, axis=0)
        seen.append(self.bounds.clip(context, reward)[0])
        super().add(moved, reward, record, **other)


class LagTwo(KeyedNoise):
    """Releases 3 and 4 have the noise of 1 and 2, 7 and 8 that of 5 and 6, and so on."""

    def __call__(self, number, count, place, /):
        return super().__call__(number - 2 if (number - 1) % 4 > 1 else number, count, place)


class Modulo16(KeyedNoise):
    """The release number in four bits."""

    def __call__(self, number, count, place, /):
        return super().__call__(number % 16, count, place)


class OneKey(KeyedNoise):
    """One constant key, whatever it is given."""

    def __init__(self, _key, *, agent, run):
        super().__init__(bytes(32), agent=agent, run=run)


class OneRun(KeyedNoise):
    """A second run has the noise of the first."""

    def __init__(self, key, *, agent, run):  # noqa: ARG002
        super().__init__(key, agent=agent, run="")


class OneAgent(KeyedNoise):
    """All agents of a run have the same noise."""

    def __init__(self, key, *, agent, run):  # noqa: ARG002
        super().__init__(key, agent="", run=run)


class Quiet(KeyedNoise):
    """Draws of sd 0.9."""

    def __call__(self, number, count, place, /):
        return 0.9 * super().__call__(number, count, place)


class Even(KeyedNoise):
    """Uniform draws of sd 1: their tails end."""

    def __call__(self, number, count, place, /):
        return (2 * ndtr(super().__call__(number, count, place)) - 1) * math.sqrt(3)


class Sticky(KeyedNoise):
    """Draws that have a fifth in common with those of the last release but one, whatever their place."""

    def __call__(self, number, count, _place, /):
        draws = [super(Sticky, self).__call__(k, count, b"") for k in (number, number + 2)]
        return 0.98 * draws[0] + 0.199 * draws[1]


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


def asked(name: str = "blt", releases: int = 64, bounds: Bounds | None = None, **claim: float) -> Gaussian:
    """A right mechanism for (2, 0.1), or for what is asked."""
    given = {"epsilon": 2.0, "delta": 0.1} | claim
    return calibrate(name, releases=releases, sensitivity=(bounds or Bounds()).sensitivity, **given)


def too_much(mechanism: Gaussian, *, times: float) -> Gaussian:
    """Calibrated to a multiple of the μ that was asked for, and honest about it."""
    return replace(mechanism, base_sd=mechanism.base_sd / times)


def ten_delta(mechanism: Gaussian) -> Gaussian:
    """Calibrated to ten times the δ that was asked for, and honest about it."""
    generous = min(0.99, 10 * mechanism.delta)
    times = mu_for(mechanism.epsilon, generous) / mu_for(mechanism.epsilon, mechanism.delta)
    return replace(too_much(mechanism, times=times), delta=generous)


Breaking = Callable[[Gaussian], dict[str, Any]]
BOX = Centring.unit_box(3)
BLANKED = Bounds(adjacency="add-remove")

# What an audit is given, from a right mechanism; dimension 3 and `Bounds()` unless they say otherwise.
MISTAKES: dict[str, Breaking] = {
    "noise halved": lambda m: {"mechanism": weaker(m, share=0.5)},
    "a tenth too little noise": lambda m: {"mechanism": weaker(m, share=0.9)},
    "(N+Nᵀ)/2": lambda m: {"mechanism": halved_symmetrisation(m)},
    "no composition over levels": lambda m: {"mechanism": without_composition(m)},
    "fresh noise at each release": lambda m: {"mechanism": weaker(m, Fresh)},
    "noise reused when the tree does not grow": lambda m: {"mechanism": weaker(m, Reused)},
    "one noise a level": lambda m: {"mechanism": weaker(m, ReusedNodes)},
    "a stream that all agents share": lambda m: {"mechanism": weaker(m, SharedByAgents)},
    "a claim that does not follow": lambda m: {"mechanism": weaker(m, Boastful)},
    "calibrated to 10 δ": lambda m: {"mechanism": ten_delta(m)},
    "calibrated to 2 μ": lambda m: {"mechanism": too_much(m, times=2.0)},
    "contexts unclipped": lambda m: {"mechanism": m, "bounds": Unclipped()},
    "rewards unclipped below": lambda m: {"mechanism": m, "bounds": UnclippedBelow()},
    "a flat diagonal": lambda m: {
        "mechanism": replace(m, base_sd=m.base_sd * BLANKED.sensitivity / 2, sensitivity=BLANKED.sensitivity),
        "bounds": Flat(adjacency="add-remove"),
    },
    "a record in two leaves": lambda m: {"mechanism": m, "privatizer": Twice},
    "the last record again in the next leaf": lambda m: {"mechanism": m, "privatizer": LastAgain},
    "the mean of the data taken off": lambda m: {"mechanism": m, "privatizer": MeanTakenOff},
    "a centre that depends on data": lambda m: {
        "mechanism": replace(
            m,
            base_sd=m.base_sd * BOX.inner_bounds().sensitivity / 2,
            sensitivity=BOX.inner_bounds().sensitivity,
        ),
        "bounds": BOX.inner_bounds(),
        "centring": BOX,
        "privatizer": OwnCentre,
    },
    "noise reused at lag 2": lambda m: {"mechanism": m, "noise": LagTwo},
    "release number mod 16": lambda m: {"mechanism": m, "noise": Modulo16},
    "one constant key": lambda m: {"mechanism": m, "noise": OneKey},
    "one noise for all runs": lambda m: {"mechanism": m, "noise": OneRun},
    "one noise for all agents": lambda m: {"mechanism": m, "noise": OneAgent},
    "draws of sd 0.9": lambda m: {"mechanism": m, "noise": Quiet},
    "uniform draws": lambda m: {"mechanism": m, "noise": Even},
    "draws correlated at lag 2": lambda m: {"mechanism": m, "noise": Sticky},
    "a schedule that looks at the data": lambda m: {"mechanism": m, "public_schedule": False},
}


def mistake(name: str, mechanism: Gaussian) -> dict[str, Any]:
    """The arguments of an audit that must fail, from a right mechanism."""
    claim = {"epsilon": mechanism.epsilon, "delta": mechanism.delta}
    return {"bounds": Bounds(), "dimension": 3} | claim | MISTAKES[name](mechanism)
