"""Which action? `POST /v1/decisions`, one or several."""

from __future__ import annotations

import hashlib
import re

from starlette.requests import Request
from starlette.responses import Response

from fedfairx.service import schemas
from fedfairx.service.endpoint import Operation, Parameter, body_of, decoder, reply
from fedfairx.service.headers import header_of
from fedfairx.service.problems import ProblemError
from fedfairx.service.service import Service, Wish

ONE, MANY = decoder(schemas.DecisionRequest), decoder(schemas.DecisionBatch)
KEY = r"[!-~]{1,200}"
IDEMPOTENCY = Parameter(
    "Idempotency-Key",
    "header",
    "Of your choice, such as a UUID: the same key answers the same decision, so you can ask again.",
    {"type": "string", "pattern": f"^{KEY}$"},
)
MATCHES = re.compile(KEY).fullmatch


async def decide(service: Service, request: Request) -> Response:
    body = await body_of(request, service.settings.max_body)
    made = await service.decide([ONE(body)], _wish(request, body))
    return reply(made[0], 201)


async def decide_many(service: Service, request: Request) -> Response:
    body = await body_of(request, service.settings.max_body)
    asked = MANY(body).decisions
    service.check_batch(len(asked))
    return reply(schemas.DecisionsMade(await service.decide(asked, _wish(request, body))), 201)


def _wish(request: Request, body: bytes) -> Wish | None:
    """The key of a request and what it was for, where it has one."""
    key = header_of(request, b"idempotency-key")
    if key is None:
        return None
    if not MATCHES(key):
        raise ProblemError("invalid", "Idempotency-Key must be 1 to 200 characters of ASCII without spaces.")
    return Wish(key, hashlib.sha256(body).hexdigest())


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/decisions",
        name="decide",
        summary="Which action?",
        handler=decide,
        role="writer",
        takes=schemas.DecisionRequest,
        gives=schemas.DecisionMade,
        status=201,
        problems=("key-reused",),
        parameters=(IDEMPOTENCY,),
    ),
    Operation(
        method="POST",
        path="/v1/decisions/batch",
        name="decide_many",
        summary="Several decisions at once: all are made, or none",
        handler=decide_many,
        role="writer",
        takes=schemas.DecisionBatch,
        gives=schemas.DecisionsMade,
        status=201,
        problems=("key-reused",),
        parameters=(IDEMPOTENCY,),
    ),
)
