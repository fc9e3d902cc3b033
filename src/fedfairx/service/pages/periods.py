"""Periods of time that a page can show.

They start at fixed times (the first of a month or of a year), since confidence intervals hold for a start
that was fixed in advance; "the last 30 days" would start at another time with every look.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fedfairx.service.problems import ProblemError


@dataclass(frozen=True)
class Period:
    """A period from `since` on and before `until`; None means unbounded."""

    name: str
    query: str
    since: float | None = None
    until: float | None = None
    chosen: bool = False  # whether the page shows it


def fixed_periods(now: datetime.datetime) -> list[Period]:
    """All decisions, and this and the last month, quarter and year, in UTC."""
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    year = month.replace(month=1)
    before = (month - datetime.timedelta(days=1)).replace(day=1)
    return [
        Period("All", ""),
        Period("This year", "year", year.timestamp()),
        Period("Last month", "last-month", before.timestamp(), month.timestamp()),
        Period("This month", "month", month.timestamp()),
        Period("Today", "today", now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()),
    ]


def period_of(query: Mapping[str, str]) -> Period:
    """The period of the name `period`, or from the day `since` on and before the day `until`."""
    since, until = (_day(query.get(name, ""), name) for name in ("since", "until"))
    if since is not None or until is not None:
        if since is not None and until is not None and since >= until:
            raise ProblemError("invalid", "since must be before until.")
        return Period("Chosen", "chosen", since, until)
    for each in fixed_periods(datetime.datetime.now(datetime.UTC)):
        if each.query == query.get("period", ""):
            return each
    raise ProblemError("invalid", "The period must be one of those that the page offers.")


def _day(text: str, name: str) -> float | None:
    """The start of a day in UTC, as a form sends it."""
    if not text:
        return None
    try:
        day = datetime.date.fromisoformat(text)
        return datetime.datetime(day.year, day.month, day.day, tzinfo=datetime.UTC).timestamp()
    except ValueError:
        raise ProblemError("invalid", f"{name} must be a day such as 2026-03-01.") from None


def periods(chosen: Period) -> list[Period]:
    """The periods to choose from."""
    now = datetime.datetime.now(datetime.UTC)
    return [replace(each, chosen=each.query == chosen.query) for each in fixed_periods(now)]
