"""Actions without features: which there are, and which come and go."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from fedfairx.errors import require
from fedfairx.service import schemas, serializers
from fedfairx.service.endpoint import Operation, Parameter, reply
from fedfairx.service.service import Service
from fedfairx.service.setting_types import LONGEST

ACTION_ID = Parameter(
    "action_id",
    "path",
    "Its name, percent-encoded: a slash is %2F.",
    {"type": "string", "minLength": 1, "maxLength": LONGEST},
)
REPLACED = "\ufffd"  # what the server makes of bytes that are no UTF-8


async def several(service: Service, _request: Request) -> Response:
    return reply(await asyncio.to_thread(serializers.actions, service.agent))


async def add(service: Service, request: Request) -> Response:
    await service.add_action(_name(request))
    return reply(None)


async def retire(service: Service, request: Request) -> Response:
    await service.retire_action(_name(request))
    return reply(None)


def _name(request: Request) -> str:
    name: str = request.path_params["action_id"]
    fits = 0 < len(name) <= LONGEST and REPLACED not in name
    require(fits, "action_id", f"must be 1 to {LONGEST} characters of UTF-8", f"{len(name)} characters")
    return name


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/actions",
        name="actions",
        summary="Actions without features: which are chosen from, and which were retired",
        handler=several,
        role="reader",
        gives=schemas.ActionList,
    ),
    Operation(
        method="PUT",
        path="/v1/actions/{action_id}",
        name="add_action",
        summary="Choose from it too: a new one, or one that was retired",
        handler=add,
        role="admin",
        status=204,
        problems=("invalid", "features", "conflict"),
        parameters=(ACTION_ID,),
    ),
    Operation(
        method="DELETE",
        path="/v1/actions/{action_id}",
        name="retire_action",
        summary="Choose from it no longer; rewards that are still to come are learnt",
        handler=retire,
        role="admin",
        status=204,
        problems=("invalid", "unknown-action", "features", "conflict"),
        parameters=(ACTION_ID,),
    ),
)
