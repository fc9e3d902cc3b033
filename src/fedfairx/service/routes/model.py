"""What was learnt, what is promised, and what was shared."""

from __future__ import annotations

import asyncio  # a question may have to wait for the desk, and others need not wait with it

from starlette.requests import Request
from starlette.responses import Response

from fedfairx.service import schemas, serializers
from fedfairx.service.auth import sees_exact
from fedfairx.service.endpoint import Operation, reply
from fedfairx.service.service import Service


async def model(service: Service, request: Request) -> Response:
    return reply(await asyncio.to_thread(serializers.model, service, exact=sees_exact(request)))


async def privacy(service: Service, request: Request) -> Response:
    return reply(await asyncio.to_thread(serializers.privacy, service.agent, exact=sees_exact(request)))


async def sync(service: Service, request: Request) -> Response:
    return reply(await asyncio.to_thread(serializers.sync, service, exact=sees_exact(request)))


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/model",
        name="model",
        summary="What was learnt, and how the service is set up",
        handler=model,
        role="reader",
        gives=schemas.Model,
    ),
    Operation(
        method="GET",
        path="/v1/privacy",
        name="privacy",
        summary="What is promised about its messages, and what is spent of it",
        handler=privacy,
        role="reader",
        gives=schemas.Privacy,
    ),
    Operation(
        method="GET",
        path="/v1/sync",
        name="sync",
        summary="What was sent to others, and what is held of theirs",
        handler=sync,
        role="reader",
        gives=schemas.Sync,
    ),
)
