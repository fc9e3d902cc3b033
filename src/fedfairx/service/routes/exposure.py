"""The table of exposure as JSON; the page `/exposure` shows the same."""

from __future__ import annotations

import math

from starlette.requests import Request

from fedfairx.fairness import Likely, Row, Share
from fedfairx.service import schemas
from fedfairx.service.endpoint import Named, endpoint, query_of
from fedfairx.service.exposure_cache import YEAR, ExposureSnapshot
from fedfairx.service.served_agent import ServedAgent

ALL = Named()


class ExposureQuery(Named):
    """Which decisions, and which actions.

    since: Made at this time or later, in seconds since 1970.
    until: Made before this time.
    """

    since: schemas.Time | None = None
    until: schemas.Time | None = None


@endpoint("GET", "/v1/exposure", role="reader", query=ExposureQuery)
async def exposure(served: ServedAgent, request: Request) -> schemas.ExposureTable:
    """Show how often each action and group was shown, and what it was entitled to."""
    query = query_of(request, ExposureQuery)
    return _written(await served.exposures.look(since=query.since, until=query.until), query)


def _written(looked: ExposureSnapshot, query: Named = ALL) -> schemas.ExposureTable:
    table = looked.table
    rows = [row for row in table.actions if query.asks_for(row.name)]
    return schemas.ExposureTable(
        [_row(row, looked) for row in rows[: query.limit]],
        len(rows),
        [_row(row, looked) for row in table.groups],
        table.draws,
        table.decisions,
        looked.withdrawn,
        looked.baseline,
        looked.first,
        looked.last,
        looked.bounded,
        looked.gone,
        table.error,
        table.tolerance,
        list(table.claims()),
        table.summary(),
    )


def _row(row: Row, looked: ExposureSnapshot) -> schemas.Exposed:
    return schemas.Exposed(
        row.name,
        row.rounds,
        row.count,
        _interval(row.shown),
        None if math.isnan(row.policy) else float(row.policy),
        _interval(row.entitled),
        _interval(row.shortfall),
        row.verdict,
        None if row.estimate is None else _interval(row.estimate),
        _soon(row.more, None if row.more is None else looked.wait_for(row.more)),
        None if row.likely is None else _likely(row.likely, looked),
        row.left,
    )


def _likely(likely: Likely, looked: ExposureSnapshot) -> schemas.LikelyVerdict:
    wait = None if likely.more is None else looked.wait(likely.more)
    more, days = _soon(likely.more, wait), None if wait is None or wait > YEAR else wait / 86_400
    below, in_line, above = (
        None if math.isnan(each) else each for each in (likely.below, likely.in_line, likely.above)
    )
    return schemas.LikelyVerdict(likely.verdict, below, in_line, above, more, days)


def _soon(more: int | None, wait: float | None) -> int | None:
    return None if wait is not None and wait > YEAR else more


def _interval(share: Share) -> schemas.Interval:
    value = None if math.isnan(share.value) else float(share.value)
    return schemas.Interval(value, float(share.low), float(share.high))
