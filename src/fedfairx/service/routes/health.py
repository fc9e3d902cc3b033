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


@endpoint("GET", "/healthz")
async def healthz(_service: Service, _request: Request) -> schemas.Health:
    """Check whether the process is alive."""
    return schemas.Health("alive")


@endpoint("GET", "/readyz", problems=("unavailable", "busy"))
async def readyz(service: Service, _request: Request) -> schemas.Health:
    """Check whether decisions can be made and stored now."""
    await service.write_queue.probe()
    return schemas.Health("ready")


@endpoint("GET", "/metrics", role="reader", media_types=("text/plain; version=0.0.4",))
async def metrics(service: Service, request: Request) -> Response:
    """Get counts and latencies for Prometheus."""
    served = service.default
    ready, exact, change = await served.ready(), sees_exact(request), await served.exposures.change()

    def read() -> list[str]:
        told = serializers.privacy(served.agent, exact=exact)
        lines = [*agent_lines(served.agent, told, change, ready=ready)]
        if served.membership is not None:
            lines += federation_lines(served.membership, exact=exact)
        return lines

    lines = [*service.metrics.lines(), *await asyncio.to_thread(read)]
    return Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4; charset=utf-8")


@endpoint("GET", "/v1/openapi.json")
async def openapi(service: Service, _request: Request) -> Response:
    """Get this document."""
    return Response(service.document, media_type="application/json")
