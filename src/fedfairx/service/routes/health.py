"""For those who run it: does it live, is it ready, what has it counted, and what can be asked."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from fedfairx.service import schemas
from fedfairx.service.auth import sees_exact
from fedfairx.service.endpoint import Operation, reply
from fedfairx.service.federation import federation_lines
from fedfairx.service.metrics import text
from fedfairx.service.service import Service


async def healthz(_service: Service, _request: Request) -> Response:
    return reply(schemas.Health("alive"))


async def readyz(service: Service, _request: Request) -> Response:
    await service.probe()
    return reply(schemas.Health("ready"))


async def metrics(service: Service, request: Request) -> Response:
    ready, exact = await service.ready(), sees_exact(request)
    gauges = await asyncio.to_thread(service.gauges, ready=ready, exact=exact)
    lines = [*service.metrics.lines(), *text(gauges)]
    if service.membership is not None:
        lines += await asyncio.to_thread(federation_lines, service.membership, exact=exact)
    return Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4; charset=utf-8")


async def document(service: Service, _request: Request) -> Response:
    return Response(service.document, media_type="application/json")


OPERATIONS = (
    Operation(
        method="GET",
        path="/healthz",
        name="healthz",
        summary="Whether the process lives",
        handler=healthz,
        role=None,
        gives=schemas.Health,
    ),
    Operation(
        method="GET",
        path="/readyz",
        name="readyz",
        summary="Whether decisions can be made and kept now",
        handler=readyz,
        role=None,
        gives=schemas.Health,
        problems=("unavailable", "busy"),
    ),
    Operation(
        method="GET",
        path="/metrics",
        name="metrics",
        summary="Counts and latencies for Prometheus",
        handler=metrics,
        role="reader",
        media_types=("text/plain; version=0.0.4",),
    ),
    Operation(
        method="GET",
        path="/v1/openapi.json",
        name="openapi",
        summary="This document",
        handler=document,
        role=None,
    ),
)
