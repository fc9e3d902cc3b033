"""Operating the service: liveness, readiness, metrics, and the OpenAPI document."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from fedfairx.service import schemas, serializers
from fedfairx.service.auth import sees_exact
from fedfairx.service.endpoint import endpoint
from fedfairx.service.metrics import agent_lines, federation_lines
from fedfairx.service.service import Service


@endpoint("GET", "/healthz", gives=schemas.Health)
async def healthz(_service: Service, _request: Request) -> object:
    """Whether the process is alive."""
    return schemas.Health("alive")


@endpoint("GET", "/readyz", gives=schemas.Health, problems=("unavailable", "busy"))
async def readyz(service: Service, _request: Request) -> object:
    """Whether decisions can be made and stored now."""
    await service.probe()
    return schemas.Health("ready")


@endpoint("GET", "/metrics", role="reader", media_types=("text/plain; version=0.0.4",))
async def metrics(service: Service, request: Request) -> object:
    """Counts and latencies for Prometheus."""
    ready, exact = await service.ready(), sees_exact(request)
    told = await asyncio.to_thread(serializers.privacy, service.agent, exact=exact)
    lines = [
        *service.metrics.lines(),
        *await asyncio.to_thread(agent_lines, service.agent, told, ready=ready),
    ]
    if service.membership is not None:
        lines += await asyncio.to_thread(federation_lines, service.membership, exact=exact)
    return Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4; charset=utf-8")


@endpoint("GET", "/v1/openapi.json")
async def openapi(service: Service, _request: Request) -> object:
    """This document."""
    return Response(service.document, media_type="application/json")
