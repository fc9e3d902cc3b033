"""Who was shown and who was entitled to it, for programs; `/exposure` shows the same to people."""

from __future__ import annotations

import math
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from fedfairx.fairness import Row, Share
from fedfairx.service.auth import sees_exact
from fedfairx.service.endpoint import Operation, query_of, reply
from fedfairx.service.exposure_cache import ExposureSnapshot
from fedfairx.service.problems import ProblemError
from fedfairx.service.routes.decision_list import LAST, SINCE, UNTIL
from fedfairx.service.service import Service

Number = Annotated[float, Meta(ge=-1, le=1)]


class Interval(Struct):
    """A share, and between which ones it surely is; `value` is null where nothing is known yet."""

    value: Number | None
    low: Number
    high: Number


class Exposed(Struct):
    """An action or a group, over the decisions in which it was there."""

    name: str
    decisions: Annotated[int, Meta(ge=0, description="In which it was there.")]
    shown_times: Annotated[int, Meta(ge=0, description="In which it was shown.")]
    shown: Interval
    policy: Annotated[
        Number | None,
        Meta(description="The mean of the probabilities that it was given; null but for admins."),
    ]
    entitled: Annotated[Interval, Meta(description="Its share in proportion to true merit.")]
    shortfall: Annotated[Interval, Meta(description="Entitled less shown.")]
    verdict: Annotated[str, Meta(description="within, above, below or too little data.")]


class Drawn(Struct):
    """Whether actions were drawn as the policy said."""

    verdict: str
    p_value: Annotated[
        float,
        Meta(ge=0, le=1, description="How probable it is, at most, that an honest log ever looks like this."),
    ]
    decisions: int


class ExposureTable(Struct):
    """Shown against entitled. All intervals hold at all times at once, with probability 1 - error."""

    actions: list[Exposed]
    groups: list[Exposed]
    draws: Drawn
    decisions: int
    withdrawn: Annotated[int, Meta(ge=0, description="Drawn and never shown; not counted.")]
    baseline: Annotated[int, Meta(ge=0, description="That took the caller's own action; counted as shown.")]
    first: Annotated[
        float | None, Meta(description="When the first of them was made, in seconds since 1970.")
    ]
    last: float | None
    bounded: Annotated[
        bool, Meta(description="Whether earlier ones of the window were left out, being too many.")
    ]
    error: float
    tolerance: float
    claims: list[str]


class Query(Struct, forbid_unknown_fields=True):
    """Over which window."""

    since: Annotated[float, Meta(ge=0, le=LAST)] | UnsetType = UNSET  # None would be what "null" is read as
    until: Annotated[float, Meta(ge=0, le=LAST)] | UnsetType = UNSET


async def table(service: Service, request: Request) -> Response:
    query, exact = query_of(request, Query), sees_exact(request)
    since, until = (None if each is UNSET else each for each in (query.since, query.until))
    if not exact and (since is not None or until is not None):  # many windows of one batch tell it all
        raise ProblemError("forbidden", "since and until need the role admin; pages have fixed periods.")
    return reply(_written(await service.exposures.look(since=since, until=until, exact=exact)))


def _written(looked: ExposureSnapshot) -> ExposureTable:
    found = looked.table
    return ExposureTable(
        [_row(row) for row in found.actions],
        [_row(row) for row in found.groups],
        Drawn(found.draws.verdict, found.draws.p_value, found.draws.decisions),
        found.decisions,
        looked.withdrawn,
        looked.baseline,
        looked.first,
        looked.last,
        looked.bounded,
        found.error,
        found.tolerance,
        list(found.claims()),
    )


def _row(row: Row) -> Exposed:
    return Exposed(
        row.name,
        row.rounds,
        row.count,
        _interval(row.shown),
        None if math.isnan(row.policy) else float(row.policy),
        _interval(row.entitled),
        _interval(row.shortfall),
        row.verdict,
    )


def _interval(share: Share) -> Interval:
    value = None if math.isnan(share.value) else float(share.value)
    return Interval(value, float(share.low), float(share.high))


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/exposure",
        name="exposure",
        summary="Who was shown, and who was entitled to it, per action and per group",
        handler=table,
        role="reader",
        gives=ExposureTable,
        parameters=(SINCE, UNTIL),
    ),
)
