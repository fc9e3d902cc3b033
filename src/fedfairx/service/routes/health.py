"""For those who run it: does it live, is it ready, what has it counted, and what can be asked."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from fedfairx.agent.agent import Agent
from fedfairx.service import schemas, serializers
from fedfairx.service.auth import sees_exact
from fedfairx.service.endpoint import Operation, reply
from fedfairx.service.federation import federation_lines
from fedfairx.service.metrics import Sample, text
from fedfairx.service.service import Service


async def healthz(_service: Service, _request: Request) -> Response:
    return reply(schemas.Health("alive"))


async def readyz(service: Service, _request: Request) -> Response:
    await service.probe()
    return reply(schemas.Health("ready"))


async def metrics(service: Service, request: Request) -> Response:
    ready, exact = await service.ready(), sees_exact(request)
    now = await asyncio.to_thread(gauges, service.agent, ready=ready, exact=exact)
    lines = [*service.metrics.lines(), *text(now)]
    if service.membership is not None:
        lines += await asyncio.to_thread(federation_lines, service.membership, exact=exact)
    return Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4; charset=utf-8")


def gauges(agent: Agent, *, ready: bool, exact: bool) -> list[Sample]:
    """What is now, for `/metrics`."""
    now = serializers.privacy(agent, exact=exact)
    return [
        ("fedfairx_pending", "gauge", "Decisions whose reward has not come.", agent.pending),
        ("fedfairx_observed", "gauge", "Rewards that the model has learnt from.", agent.observed),
        ("fedfairx_records_clipped", "gauge", "Records that the privacy bounds moved.", now.clipped),
        ("fedfairx_releases", "gauge", "Messages made.", agent.released),
        ("fedfairx_budget_releases", "gauge", "Messages that the budget allows.", now.releases or 0),
        ("fedfairx_budget_spent", "gauge", "Messages spent of it.", now.spent),
        ("fedfairx_ready", "gauge", "Whether the storage takes a write, as /readyz.", int(ready)),
    ]


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
