"""When agents synchronise. Each schedule states in advance how many releases it can make at most.

A schedule that is fixed before the first record reveals nothing. One that looks at the data (`Determinant`,
the baseline B1) leaks by its timing alone, and is not `public`. Federations and simulations follow a
`timetable`: the rounds that end with a synchronisation, or the threshold that the data must pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fedfairx.errors import require
from fedfairx.util.config import ABOVE_0, COUNT, Limits, check_fields, option

__all__ = [
    "Determinant",
    "Doubling",
    "EveryRound",
    "FigureGap",
    "Geometric",
    "Never",
    "Paper",
    "Plan",
    "Schedule",
]

Rounds = NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """What a schedule may depend on: public values, fixed before the first round.

    >>> EveryRound().rounds(Plan(horizon=3, agents=2, dimension=5))
    array([1, 2, 3])
    """

    horizon: int
    agents: int
    dimension: int

    def __post_init__(self) -> None:
        for name in ("horizon", "agents", "dimension"):
            value = getattr(self, name)
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            require(bool(whole and value >= 1), name, "must be an integer >= 1", value)


class Schedule(Protocol):
    """When all agents exchange their releases. One that is not `public` also has a `threshold`.

    >>> weekly: Schedule = Paper(gap=7)
    >>> weekly.max_releases(Plan(horizon=70, agents=2, dimension=5))
    12
    """

    @property
    def public(self) -> bool:
        """Whether the rounds are fixed in advance."""
        ...

    def rounds(self, plan: Plan) -> Rounds:
        """The rounds (from 1) that end with a synchronisation; empty if the data decide."""
        ...

    def max_releases(self, plan: Plan) -> int:
        """The largest possible number of releases."""
        ...


@dataclass(frozen=True)
class Timetable:
    """A schedule over a plan."""

    rounds: Rounds  # that end with a synchronisation; empty if the data decide
    most: int  # releases at most
    threshold: float  # for an agent's growth times the rounds since the last one; 0 for public schedules
    horizon: int

    @cached_property
    def _public_rounds(self) -> frozenset[int]:
        return frozenset(self.rounds.tolist())

    def is_due(self, t: int, *, since: int, growths: Iterable[float], releases: int) -> bool:
        """Whether round t (from 1) ends with a synchronisation.

        since: rounds since the last one. growths: of log det V since then, by agent. releases: so far.
        """
        if self.threshold == 0.0:
            return t in self._public_rounds
        left = releases < self.most and t <= self.horizon
        return left and any(growth * since > self.threshold for growth in growths)


def timetable(schedule: Schedule, plan: Plan) -> Timetable:
    """The timetable of a schedule over a plan."""
    threshold = 0.0 if schedule.public else getattr(schedule, "threshold", 0.0)
    require(schedule.public or threshold > 0, "schedule", "must be public, or have a threshold > 0", schedule)
    return Timetable(schedule.rounds(plan), schedule.max_releases(plan), threshold, plan.horizon)


class _Public:
    """A schedule that is fixed in advance."""

    public = True

    def max_releases(self: Schedule, plan: Plan) -> int:
        return int(self.rounds(plan).size)


def _doubling_then(start: int, double_before: int, gap: int, horizon: int) -> Rounds:
    """τ = start; at t = τ: τ ← 2τ while t < double_before, then τ ← τ + gap."""
    rounds = []
    tau = start
    while tau <= horizon and tau < double_before:
        rounds.append(tau)
        tau *= 2
    return np.concatenate(
        [np.array(rounds, dtype=np.int64), np.arange(tau, horizon + 1, gap, dtype=np.int64)]
    )


@dataclass(frozen=True)
class Paper(_Public):
    """Doubling, then every g rounds, g = ⌈T / (m d² ln²(1 + T/d))⌉ (Solanki et al., Alg. 1 lines 10 to 17).

    `gap` replaces g where one is given.

    >>> Paper(gap=10).rounds(Plan(horizon=40, agents=2, dimension=5))
    array([ 1,  2,  4,  8, 16, 26, 36])
    """

    gap: int | None = option(None, limits=COUNT)

    def __post_init__(self) -> None:
        check_fields(self, Paper)

    def gap_for(self, plan: Plan) -> int:
        """g, or the gap that was given."""
        if self.gap is not None:
            return self.gap
        growth = math.log(1.0 + plan.horizon / plan.dimension) ** 2
        return math.ceil(plan.horizon / (plan.agents * plan.dimension**2 * growth))

    def rounds(self, plan: Plan) -> Rounds:
        gap = self.gap_for(plan)
        return _doubling_then(1, gap, gap, plan.horizon)


@dataclass(frozen=True)
class FigureGap(_Public):
    """Doubling to `double_until`, then every `gap`: where the paper's plotted curves bend.

    >>> FigureGap().rounds(Plan(horizon=100_000, agents=10, dimension=5)).size
    34
    """

    double_until: int = option(2048, limits=COUNT)
    gap: int = option(4330, limits=COUNT)

    def __post_init__(self) -> None:
        check_fields(self, FigureGap)

    def rounds(self, plan: Plan) -> Rounds:
        return _doubling_then(1, self.double_until, self.gap, plan.horizon)


@dataclass(frozen=True)
class Doubling(_Public):
    """start, 2·start, 4·start, …: gaps that double (B2).

    >>> Doubling().rounds(Plan(horizon=1000, agents=10, dimension=5))
    array([100, 200, 400, 800])
    """

    start: int = option(100, limits=COUNT)

    def __post_init__(self) -> None:
        check_fields(self, Doubling)

    def rounds(self, plan: Plan) -> Rounds:
        return _doubling_then(self.start, plan.horizon + 1, 1, plan.horizon)


@dataclass(frozen=True)
class Geometric(_Public):
    """start, then each round `ratio` times the one before: few releases, so that each carries little noise.

    Noisy statistics are worth in proportion to their records, so a new release pays when the records have
    grown by a constant factor. Before `start` noise would dominate. The rounds don't depend on the horizon,
    except that a run shorter than twice `start` begins half way, in order to share at all.

    >>> Geometric(ratio=2.0).rounds(Plan(horizon=300, agents=10, dimension=5))
    array([ 30,  60, 120, 240])
    """

    ratio: float = option(1.2, limits=Limits(gt=1))
    start: int = option(30, limits=COUNT)

    def __post_init__(self) -> None:
        check_fields(self, Geometric)

    def rounds(self, plan: Plan) -> Rounds:
        rounds, tau = [], min(self.start, (plan.horizon + 1) // 2)
        while tau <= plan.horizon:
            rounds.append(tau)
            tau = max(tau + 1, math.floor(tau * self.ratio))
        return np.array(rounds, dtype=np.int64)


@dataclass(frozen=True)
class EveryRound(_Public):
    """At the end of every round.

    >>> EveryRound().max_releases(Plan(horizon=300, agents=10, dimension=5))
    300
    """

    def rounds(self, plan: Plan) -> Rounds:
        return np.arange(1, plan.horizon + 1, dtype=np.int64)


@dataclass(frozen=True)
class Never(_Public):
    """No synchronisation: every agent learns alone.

    >>> Never().max_releases(Plan(horizon=300, agents=10, dimension=5))
    0
    """

    def rounds(self, plan: Plan) -> Rounds:  # noqa: ARG002
        return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Determinant:
    """When log(det V / det V at the last sync) · (rounds since it) > threshold for some agent (B1).

    Dubey and Pentland 2020. Not private end to end: the rounds depend on the data (Zhou and Chowdhury
    2024). At most `cap` releases; after them it stops.

    >>> Determinant().public
    False
    """

    threshold: float = option(100.0, limits=ABOVE_0)
    cap: int = option(4096, limits=COUNT)
    public: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self, Determinant)

    def rounds(self, plan: Plan) -> Rounds:  # noqa: ARG002
        return np.empty(0, dtype=np.int64)

    def max_releases(self, plan: Plan) -> int:
        return min(self.cap, plan.horizon)


#: Schedules by name.
SCHEDULES: dict[str, Schedule] = {
    "paper": Paper(),
    "figure-gap": FigureGap(),
    "doubling": Doubling(),
    "geometric": Geometric(),
    "determinant": Determinant(),
    "every-round": EveryRound(),
    "never": Never(),
}


def schedule(name: str | Schedule) -> Schedule:
    """The schedule of that name; a `Schedule` is returned as it is."""
    if not isinstance(name, str):
        return name
    require(name in SCHEDULES, "schedule", f"must be one of {', '.join(SCHEDULES)}", name)
    return SCHEDULES[name]
