"""The model of the agent, its privacy guarantee, and its declared actions.

Each query runs in a thread: it may have to wait for the write queue, and the event loop must not wait.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from fedfairx.errors import require
from fedfairx.service import schemas, serializers
from fedfairx.service.endpoint import Named, endpoint, query_of
from fedfairx.service.served_agent import ServedAgent
from fedfairx.util.config import LONGEST

REPLACED = "\ufffd"  # what the server makes of bytes that are not UTF-8
CHANGE = ("invalid", "features", "conflict", "archived")  # why an action may not be changed


@endpoint("GET", "/v1/model", role="reader", query=Named)
async def model(served: ServedAgent, request: Request) -> schemas.Model:
    """Show what was learnt, and the settings."""
    asked = query_of(request, Named)
    change = await served.exposures.change()
    earned = await served.exposures.earnings()
    return await asyncio.to_thread(serializers.model, served, change, earned, asked)


@endpoint("GET", "/v1/privacy", role="reader")
async def privacy(served: ServedAgent, _request: Request) -> schemas.Privacy:
    """Show the privacy guarantee of releases, and how much of the budget is spent."""
    return await asyncio.to_thread(serializers.privacy, served.agent)


@endpoint("GET", "/v1/actions", role="reader")
async def actions(served: ServedAgent, _request: Request) -> schemas.ActionList:
    """List declared actions, active and retired."""
    return await asyncio.to_thread(serializers.actions, served.agent)


@endpoint("PUT", "/v1/actions/{action_id}", role="admin", problems=CHANGE)
async def add_action(served: ServedAgent, request: Request) -> None:
    """Offer an action: a new one, or one that was retired."""
    await served.add_action(name_in(request, "action_id"))


@endpoint("DELETE", "/v1/actions/{action_id}", role="admin", problems=("unknown-action", *CHANGE))
async def retire_action(served: ServedAgent, request: Request) -> None:
    """Retire an action: it is no longer offered, but rewards that come later are learnt."""
    await served.retire_action(name_in(request, "action_id"))


def name_in(request: Request, parameter: str) -> str:
    """The name of an action or a person in the path."""
    name: str = request.path_params[parameter]
    is_name = 0 < len(name) <= LONGEST and REPLACED not in name
    require(is_name, parameter, f"must be 1 to {LONGEST} characters of UTF-8", f"{len(name)} characters")
    return name
