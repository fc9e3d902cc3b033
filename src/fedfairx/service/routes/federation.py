"""For an engine beside the service, which carries envelopes between the members of a federation."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from fedfairx.federation.exchange.envelope import Envelope
from fedfairx.service import schemas
from fedfairx.service.endpoint import Operation, body_of, decoder, reply
from fedfairx.service.federation import Membership
from fedfairx.service.problems import ProblemError
from fedfairx.service.service import Service

BROUGHT = decoder(schemas.PeersBrought)


def _membership(service: Service) -> Membership:
    if service.membership is None:
        raise ProblemError("alone", "This agent is in no federation.")
    return service.membership


async def latest(service: Service, _request: Request) -> Response:
    member = _membership(service).member
    message = await asyncio.to_thread(lambda: member.message)
    if member.halted is not None:
        raise ProblemError("halted", member.halted)
    if message is None:
        raise ProblemError("no-release", "It has released nothing yet.")
    release = Envelope.parse(message).release
    return reply(schemas.ReleaseSealed(service.agent.name, release.number, message))


async def bring(service: Service, request: Request) -> Response:
    membership = _membership(service)
    envelopes = BROUGHT(await body_of(request, service.settings.max_body)).envelopes
    taken, refused = await asyncio.to_thread(membership.take, envelopes)
    return reply(schemas.PeersTaken(taken, refused))


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/release/latest",
        name="release_latest",
        summary="The agent's own latest release, sealed, to be carried to the others",
        handler=latest,
        role="federation",
        gives=schemas.ReleaseSealed,
        problems=("alone", "no-release", "halted"),
    ),
    Operation(
        method="PUT",
        path="/v1/peers",
        name="bring_peers",
        summary="The others' latest releases, sealed: verified, and taken or refused one by one",
        handler=bring,
        role="federation",
        takes=schemas.PeersBrought,
        gives=schemas.PeersTaken,
        problems=("alone",),
    ),
)
