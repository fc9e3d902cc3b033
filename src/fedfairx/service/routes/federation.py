"""A member's exchange with its peers: its state, and the endpoints of an engine that carries envelopes."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from fedfairx.federation.exchange.envelope import Envelope
from fedfairx.service import schemas, serializers
from fedfairx.service.endpoint import body_as, endpoint
from fedfairx.service.federation import Membership
from fedfairx.service.problems import ProblemError
from fedfairx.service.served_agent import ServedAgent


@endpoint("GET", "/v1/sync", role="reader")
async def sync(served: ServedAgent, _request: Request) -> schemas.Sync:
    """Show the exchange with peers."""
    return await asyncio.to_thread(serializers.sync, served)


@endpoint("GET", "/v1/release/latest", role="federation", problems=("alone", "no-release", "halted"))
async def release_latest(served: ServedAgent, _request: Request) -> schemas.ReleaseSealed:
    """Get the agent's latest release in an envelope, to be carried to its peers."""
    member = _membership(served).member
    message = await asyncio.to_thread(lambda: member.message)
    if member.halted is not None:
        raise ProblemError("halted", member.halted)
    if message is None:
        raise ProblemError("no-release", "This agent has released nothing yet.")
    release = Envelope.parse(message).release
    return schemas.ReleaseSealed(served.agent.name, release.number, message)


@endpoint("PUT", "/v1/peers", role="federation", takes=schemas.PeersBrought, problems=("alone",))
async def bring_peers(served: ServedAgent, request: Request) -> schemas.PeersTaken:
    """Deliver the latest envelopes of peers: each is verified, and taken or refused."""
    membership = _membership(served)
    envelopes = (await body_as(schemas.PeersBrought, served, request)).envelopes
    names, refused = await asyncio.to_thread(membership.take, envelopes)
    return schemas.PeersTaken(names, refused, membership.member.sign_of_life or b"")


def _membership(served: ServedAgent) -> Membership:
    if served.membership is None:
        raise ProblemError("alone", "This agent is in no federation.")
    return served.membership
