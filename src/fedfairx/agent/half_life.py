"""Half-life: how records lose weight with age, so that an agent follows a world that changes.

A record of age a counts 2^(-a/h), where h is the half-life: a number of the agent's own rewards, or a length
of time. All of an agent's sums are multiplied by one factor, while the prior keeps its weight, so what is
known decays towards the prior. The sums are decayed before a reward or a message is taken, and only if 1/64
of a half-life has passed since the last time: V⁻¹ must then be derived again, which takes O(d³). So a weight
can be off by a factor of 2^(1/64), which is 1.1 %; with a half-life of 64 rewards or fewer it is exact.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from fedfairx.errors import InvalidInput

STEPS = 64  # in a half-life
UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}  # seconds
LONGEST = 1e12  # rewards, or seconds
RULE = (
    "must be a number of rewards above 0, or a time such as 30d (units: w, d, h, m, s; from 1s), "
    f"up to {LONGEST:g} rewards or seconds"
)
NOT_PRIVATE = (
    "must be left out where sums are private: noise and accounting are for sums in which each record counts "
    "once and in full"
)

HalfLife = float | str | timedelta


def as_half_life(half_life: Any) -> float | str | None:
    """Check a half-life: a float is a number of rewards, text such as "30d" is a time."""
    if half_life is None:
        return None
    refusal = InvalidInput(f"half_life {RULE}, got half_life={half_life!r}")
    if isinstance(half_life, timedelta):
        return _as_text(half_life.total_seconds(), refusal)
    if isinstance(half_life, str):
        match = re.fullmatch(r"([0-9.]+(?:e[-+]?[0-9]+)?)\s*([a-z]?)", half_life.strip())
        if match is None or match[2] not in ("", *UNITS):
            raise refusal
        try:
            number = float(match[1])
        except ValueError:
            raise refusal from None
        if match[2]:
            return _as_text(number * UNITS[match[2]], refusal)
        half_life = number
    if isinstance(half_life, bool) or not isinstance(half_life, int | float) or not 0 < half_life <= LONGEST:
        raise refusal
    return float(half_life)


def _as_text(seconds: float, refusal: InvalidInput) -> str:
    """A time in the largest unit of which it is a whole number, so that equal times are equal texts."""
    if not 1 <= seconds <= LONGEST:
        raise refusal
    unit = next((name for name, size in UNITS.items() if seconds % size == 0), "s")
    return f"{seconds / UNITS[unit]:.15g}{unit}"


def wall_clock() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


class Aging:
    """How far an agent's sums have decayed: by its rewards, or by a clock.

    at: the number of rewards, or the time in microseconds since 1970, as of which ages count.
    clock: the time now; for a durable agent that of the step, also when the step is replayed.
    """

    def __init__(self, half_life: float | str) -> None:
        self.by_time = isinstance(half_life, str)
        self.at = 0
        self.clock: Callable[[], int] = wall_clock
        if isinstance(half_life, str):
            self._length = float(half_life[:-1]) * UNITS[half_life[-1]] * 1e6
        else:
            self._length = half_life

    def is_due(self, rewards: int) -> bool:
        """Whether sums must decay now, after this number of rewards: enough of the half-life has passed."""
        return self._passed(rewards) * STEPS >= self._length  # also where the clock went back

    def advance(self, rewards: int) -> float:
        """Count ages as of now, after this number of rewards; return the factor by which sums decay."""
        passed = self._passed(rewards)
        if passed * STEPS < self._length:
            return 1.0
        self.at += passed
        return math.exp2(-passed / self._length)

    def _passed(self, rewards: int) -> int:
        """Rewards, or microseconds, since `at`; negative where the clock went back."""
        return (self.clock() if self.by_time else rewards) - self.at

    def weight(self, since: int) -> float:
        """The weight of sums that were as of `since`, a past value of `at`."""
        return math.exp2((since - self.at) / self._length)
