"""Periods of time that a page can show.

Windows start at fixed times (the first of a month or of a year), since confidence intervals hold for a start
that was fixed in advance; "the last 30 days" would start at another time with every look.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace

from fedfairx.service.problems import ProblemError

_LENGTHS = (
    (1, "second"),
    (10, "10 seconds"),
    (60, "minute"),
    (600, "10 minutes"),
    (3_600, "hour"),
    (21_600, "6 hours"),
    (86_400, "day"),
    (604_800, "week"),
)
_MOST = 60  # intervals in a chart
_LEAST = 10


@dataclass(frozen=True)
class Window:
    """A period from `since` on and before `until`; None means unbounded."""

    name: str
    query: str
    since: float | None = None
    until: float | None = None
    chosen: bool = False  # whether the page shows it


def windows(now: datetime.datetime) -> list[Window]:
    """All decisions, and this and the last month, quarter and year, in UTC."""
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    year = month.replace(month=1)
    before = (month - datetime.timedelta(days=1)).replace(day=1)
    return [
        Window("All", ""),
        Window("This year", "year", year.timestamp()),
        Window("Last month", "last-month", before.timestamp(), month.timestamp()),
        Window("This month", "month", month.timestamp()),
        Window("Today", "today", now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()),
    ]


def window_of(query: str) -> Window:
    """The window of this name."""
    for each in windows(datetime.datetime.now(datetime.UTC)):
        if each.query == query:
            return each
    raise ProblemError("invalid", "The period must be one of those that the page offers.")


def periods(chosen: Window) -> list[Window]:
    """The windows to choose from."""
    now = datetime.datetime.now(datetime.UTC)
    return [replace(each, chosen=each.query == chosen.query) for each in windows(now)]


def stretches(first: float, now: float) -> tuple[float, float, int, str]:
    """(since, width, count, name) of a chart from the first decision until now, a year at most."""
    since = max(first, now - 365 * 86_400)
    width, name = next((each for each in _LENGTHS if (now - since) / each[0] < _MOST), _LENGTHS[-1])
    since = min(since, now - (_LEAST - 1) * width)  # a single interval would be a dot on an axis of years
    start = since - since % width
    return start, float(width), int((now - start) // width) + 1, name
