"""Stretches of time that charts count in."""

from __future__ import annotations

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


def stretches(first: float, now: float) -> tuple[float, float, int, str]:
    """(since, width, count, name) of a chart from the first decision until now, a year at most."""
    since = max(first, now - 365 * 86_400)
    width, name = next((each for each in _LENGTHS if (now - since) / each[0] < _MOST), _LENGTHS[-1])
    since = min(since, now - (_LEAST - 1) * width)  # a single interval would be a dot on an axis of years
    start = since - since % width
    return start, float(width), int((now - start) // width) + 1, name
