"""Decisions that were made, for readers: without contexts and rewards."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from fedfairx.service import schemas
from fedfairx.service.auth import sees_exact
from fedfairx.service.endpoint import Operation, Parameter, query_of, reply
from fedfairx.service.problems import ProblemError
from fedfairx.service.routes.rewards import DECISION_ID
from fedfairx.service.serializers import seen
from fedfairx.service.service import Service

MOST = 1_000
LAST = 4_102_444_800  # seconds since 1970: the year 2100


class Query(Struct, forbid_unknown_fields=True):
    """Which decisions."""

    since: Annotated[float, Meta(ge=0, le=LAST)] | None = None
    until: Annotated[float, Meta(ge=0, le=LAST)] | None = None
    status: Literal["pending", "rewarded", "withdrawn", "expired"] | None = None
    action: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    after: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST)] = 100


async def several(service: Service, request: Request) -> Response:
    query = query_of(request, Query)
    found = await service.read(
        lambda journal: list(
            journal.decisions(
                since=query.since,
                until=query.until,
                status=query.status,
                action=query.action,
                after_seq=-1 if query.after is None else query.after,
                limit=query.limit + 1,  # one more tells whether there is another page
            )
        )
    )
    page = found[: query.limit]
    following = page[-1].seq if len(found) > len(page) else None
    exact = sees_exact(request)
    return reply(schemas.DecisionPage([seen(stored, exact=exact) for stored in page], following))


async def one(service: Service, request: Request) -> Response:
    identity = request.path_params["decision_id"]
    stored = await service.read(lambda journal: journal.decision(identity))
    if stored is None:
        raise ProblemError("unknown-decision", "This service made no such decision.")
    return reply(seen(stored, exact=sees_exact(request)))


_TIME = {"type": "number", "minimum": 0, "maximum": LAST}
SINCE = Parameter("since", "query", "Made at this time or later, in seconds since 1970.", _TIME)
UNTIL = Parameter("until", "query", "Made before this time.", _TIME)
OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/decisions",
        name="decisions",
        summary="Decisions in the order in which they were made, page by page",
        handler=several,
        role="reader",
        gives=schemas.DecisionPage,
        parameters=(
            SINCE,
            UNTIL,
            Parameter(
                "status",
                "query",
                "What became of them.",
                {"type": "string", "enum": ["pending", "rewarded", "withdrawn", "expired"]},
            ),
            Parameter(
                "action",
                "query",
                "The place of the action.",
                {"type": "integer", "minimum": 0, "maximum": 2**31},
            ),
            Parameter(
                "after",
                "query",
                "`next` of the page before.",
                {"type": "integer", "minimum": 0, "maximum": 2**53},
            ),
            Parameter(
                "limit", "query", "Decisions on a page.", {"type": "integer", "minimum": 1, "maximum": MOST}
            ),
        ),
    ),
    Operation(
        method="GET",
        path="/v1/decisions/{decision_id}",
        name="decision",
        summary="One decision, and what became of it",
        handler=one,
        role="reader",
        gives=schemas.DecisionSeen,
        problems=("unknown-decision",),
        parameters=(DECISION_ID,),
    ),
)
