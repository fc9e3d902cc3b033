"""What the agent has learnt and promises, and its actions without features.

Each question runs in a thread: it may have to wait for the write queue, and the event loop must not.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from fedfairx.errors import require
from fedfairx.service import schemas, serializers
from fedfairx.service.auth import sees_exact
from fedfairx.service.endpoint import endpoint
from fedfairx.service.service import Service
from fedfairx.service.settings import LONGEST

REPLACED = "\ufffd"  # what the server makes of bytes that are not UTF-8


@endpoint("GET", "/v1/model", role="reader", gives=schemas.Model)
async def model(service: Service, request: Request) -> object:
    """What was learnt, and how the service is set up."""
    return await asyncio.to_thread(serializers.model, service, exact=sees_exact(request))


@endpoint("GET", "/v1/privacy", role="reader", gives=schemas.Privacy)
async def privacy(service: Service, request: Request) -> object:
    """What is promised about its releases, and what is spent of the budget."""
    return await asyncio.to_thread(serializers.privacy, service.agent, exact=sees_exact(request))


@endpoint("GET", "/v1/actions", role="reader", gives=schemas.ActionList)
async def actions(service: Service, _request: Request) -> object:
    """Actions without features: which are chosen from, and which were retired."""
    return await asyncio.to_thread(serializers.actions, service.agent)


@endpoint(
    "PUT", "/v1/actions/{action_id}", role="admin", status=204, problems=("invalid", "features", "conflict")
)
async def add_action(service: Service, request: Request) -> None:
    """Choose from this action too: a new one, or one that was retired."""
    await service.add_action(_name(request))


@endpoint(
    "DELETE",
    "/v1/actions/{action_id}",
    role="admin",
    status=204,
    problems=("invalid", "unknown-action", "features", "conflict"),
)
async def retire_action(service: Service, request: Request) -> None:
    """Choose from this action no longer; rewards that are still to come are learnt."""
    await service.retire_action(_name(request))


def _name(request: Request) -> str:
    name: str = request.path_params["action_id"]
    fits = 0 < len(name) <= LONGEST and REPLACED not in name
    require(fits, "action_id", f"must be 1 to {LONGEST} characters of UTF-8", f"{len(name)} characters")
    return name
