"""The agents of the service: listing, making, describing and archiving them."""

from __future__ import annotations

import msgspec
from starlette.requests import Request

from fedfairx.service import schemas
from fedfairx.service.auth import may_use
from fedfairx.service.endpoint import body_as, endpoint
from fedfairx.service.service import Service


@endpoint("GET", "/v1/agents", role="reader")
async def agents(service: Service, request: Request) -> schemas.AgentList:
    """List the agents that the key is for."""
    return schemas.AgentList([_seen(service, name) for name in service.agents.rows if may_use(request, name)])


@endpoint("GET", "/v1/agents/{agent}", role="reader", problems=("unknown-agent",))
async def agent(service: Service, request: Request) -> schemas.AgentSeen:
    """Describe an agent."""
    return _seen(service, request.path_params["agent"])


@endpoint(
    "PUT",
    "/v1/agents/{agent}",
    role="admin",
    takes=schemas.AgentSettings,
    problems=("agent-exists", "budget"),
)
async def make_agent(service: Service, request: Request) -> schemas.AgentSeen:
    """Make an agent, change how one is run, or offer an archived one again; it may be repeated."""
    name = request.path_params["agent"]
    settings = await body_as(schemas.AgentSettings, service, request)
    await service.agents.make(name, msgspec.to_builtins(settings))
    return _seen(service, name)


@endpoint("DELETE", "/v1/agents/{agent}", role="admin", problems=("unknown-agent", "agent-exists"))
async def archive_agent(service: Service, request: Request) -> None:
    """Archive an agent: it makes no more decisions, but can be read, exported, and given late rewards."""
    await service.agents.archive(request.path_params["agent"])


def _seen(service: Service, name: str) -> schemas.AgentSeen:
    row = service.agents.row(name)
    return schemas.AgentSeen(
        name=name,
        status="archived" if row.archived else "active",
        default=name == service.agents.default_name,
        settings=None if row.settings is None else msgspec.convert(row.settings, schemas.AgentSettings),
    )
