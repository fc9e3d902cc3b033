"""Operating the service: liveness, readiness, metrics, and the OpenAPI document."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from fedfairx.errors import StorageError
from fedfairx.fairness.change_test import Change
from fedfairx.service import schemas, serializers
from fedfairx.service.auth import may_use, refuse_other_agents
from fedfairx.service.earnings import Earnings
from fedfairx.service.endpoint import endpoint
from fedfairx.service.metrics import (
    METRICS,
    Metric,
    agent_metrics,
    exposition,
    federation_metrics,
    labelled,
    lines,
    metric,
    storage_metrics,
)
from fedfairx.service.roles import sees_all
from fedfairx.service.schemas import ArrivalTable
from fedfairx.service.served_agent import ServedAgent
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
    agents, everything = service.agents, sees_all(request.scope["role"])
    shown = [served for name, served in list(agents.open.items()) if may_use(request, name)]
    changes = await asyncio.gather(*(served.exposures.change() for served in shown))
    earnings = await asyncio.gather(*(served.exposures.earnings() for served in shown))
    arrivals = await asyncio.gather(*(served.exposures.arrivals() for served in shown))

    def state(served: ServedAgent, change: Change, earned: Earnings, arrived: ArrivalTable) -> list[Metric]:
        privacy = serializers.privacy(served.agent)
        metrics = [*agent_metrics(served.agent, privacy, change, earned, arrived.alarms())]
        if served.membership is not None:
            metrics += federation_metrics(served.membership)
        return [each for each in metrics if everything or not METRICS[each.name].restricted]

    def read() -> list[str]:
        counts = [(name, each.all()) for name, each in list(agents.metrics.items()) if may_use(request, name)]
        states = [
            (each[0].agent.name, state(*each))
            for each in zip(shown, changes, earnings, arrivals, strict=True)
        ]
        damaged = [
            ({"agent": name}, 1) for name in sorted(service.verification.damage) if may_use(request, name)
        ]
        of_key = [*metric("waiting", 0), *metric("damaged", damaged)]
        return [*lines(of_key), *lines(labelled([*counts, *states]))]

    text = await asyncio.to_thread(read)
    if may_use(request, None):  # counts of all agents together
        ready = metric("ready", int(await service.write_queue.ready()))
        opened = metric("agents_open", len(agents.open))
        stored = await asyncio.to_thread(_storage_lines, service)
        verified = lines(metric("verified_steps_total", service.verification.steps))
        text = [*service.metrics.lines(), *lines(ready), *lines(opened), *stored, *verified, *text]
    return exposition(text)


def _storage_lines(service: Service) -> list[str]:
    """The state of the database; nothing while it can't be reached, as `fedfairx_ready` says."""
    try:
        return [*lines(storage_metrics(service.log, waiting=service.write_queue.waiting))]
    except StorageError:
        return []


@endpoint("GET", "/v1/status", role="reader")
async def status(service: Service, request: Request) -> schemas.Status:
    """Show how the service runs: since when, how fast, and how much space it has."""
    refuse_other_agents(request, None)  # these are counts of all agents together
    return await asyncio.to_thread(serializers.status, service.write_queue)


@endpoint("GET", "/v1/openapi.json")
async def openapi(service: Service, _request: Request) -> Response:
    """Get this document."""
    return Response(service.document, media_type="application/json")
