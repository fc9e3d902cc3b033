"""Periods that start at fixed times."""

from __future__ import annotations

import datetime

import pytest

from fedfairx.service.pages.periods import fixed_periods, period_of, periods
from fedfairx.service.problems import ProblemError


def test_periods_start_at_fixed_times() -> None:
    one, other = (
        fixed_periods(datetime.datetime(2026, 3, 31, hour, 59, 59, 5, tzinfo=datetime.UTC))
        for hour in (0, 23)
    )
    assert one == other
    starts = {
        each.query: each.since and datetime.datetime.fromtimestamp(each.since, datetime.UTC) for each in one
    }
    assert starts[""] is None
    assert str(starts["year"]) == "2026-01-01 00:00:00+00:00"
    assert str(starts["last-month"]) == "2026-02-01 00:00:00+00:00"
    assert str(starts["month"]) == "2026-03-01 00:00:00+00:00"
    assert str(starts["today"]) == "2026-03-31 00:00:00+00:00"
    ends = {each.query: each.until for each in one if each.until is not None}
    assert ends == {"last-month": starts["month"].timestamp()}


def test_one_is_chosen() -> None:
    assert [each.chosen for each in periods(period_of({"period": "month"}))].count(True) == 1
    with pytest.raises(ProblemError):
        period_of({"period": "since the best day"})
