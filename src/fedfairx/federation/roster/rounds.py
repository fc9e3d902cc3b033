"""Rounds at public times: when members with secure aggregation send their rows.

All members must send row k of the same round, so a round can't begin when one of them has enough rewards.
The times are part of the terms, in seconds since 1970, and their number is fixed, since the noise depends on
it. Few rounds carry less noise than many: by default the time since the beginning grows by a fifth from
round to round.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedfairx.errors import require

HOUR = 3_600
_LATEST = 2**40  # seconds since 1970, in tens of thousands of years


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """The rounds of a federation. With the defaults, 50 of them come within a year.

    begin: in seconds since 1970.
    first: seconds from then to the first round.
    ratio: of the time from the beginning to a round and that to the round before; 1 for even spacing, where
        a round comes every `first` seconds.
    count: number of rounds.

    >>> Rounds(begin=0).times[:4], Rounds(begin=0).times[-1] // 86_400
    ((3600, 4320, 5184, 6221), 315)
    >>> Rounds(begin=0, ratio=1, count=3).times
    (3600, 7200, 10800)
    """

    begin: int
    first: int = HOUR
    ratio: float = 1.2
    count: int = 50

    def __post_init__(self) -> None:
        for name, least in (("begin", 0), ("first", 1), ("count", 1)):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
            require(whole, name, f"must be an integer >= {least}", value)
        number = isinstance(self.ratio, int | float) and not isinstance(self.ratio, bool)
        smallest = 1 + 1 / self.first
        fits = number and (self.ratio == 1 or smallest <= self.ratio <= 1e6)
        require(
            fits, "ratio", f"must be 1, or from {smallest:g}, so that rounds are a second apart", self.ratio
        )
        object.__setattr__(self, "ratio", float(self.ratio))
        require(self.count <= 1_000_000, "count", "must be at most a million", self.count)
        last = self._last_offset()
        require(self.begin + last < _LATEST, "count", "must be so few that the last round comes", self.count)

    def _last_offset(self) -> float:
        """About the seconds from the beginning to the last round."""
        if self.ratio == 1.0:
            return float(self.first * self.count)
        offset = float(self.first)
        for _ in range(self.count - 1):
            offset *= self.ratio
            if offset > _LATEST:
                break
        return offset

    @cached_property
    def times(self) -> tuple[int, ...]:
        """The time of each round, in seconds since 1970; the same on every machine."""
        if self.ratio == 1.0:
            return tuple(self.begin + self.first * number for number in range(1, self.count + 1))
        offset, times = float(self.first), []
        for _ in range(self.count):
            times.append(self.begin + round(offset))
            offset *= self.ratio  # a power would differ between machines in its last bits
        return tuple(times)

    def number(self, now: float) -> int:
        """The last round whose time has come; 0 before the first."""
        return bisect_right(self.times, now)

    def next_time(self, now: float) -> int | None:
        """The time of the next round; None after the last."""
        number = self.number(now)
        return self.times[number] if number < self.count else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"begin": self.begin, "first": self.first, "ratio": self.ratio, "count": self.count}
