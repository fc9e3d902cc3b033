"""Baseline for the service: Starlette and msgspec parse the body and answer a constant."""

from __future__ import annotations

import sys

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class Decision(msgspec.Struct):
    contexts: list[list[float]]


class Made(msgspec.Struct):
    decision_id: str
    action: int
    probability: float
    policy: list[float]


PARSE = msgspec.json.Decoder(Decision)
CONSTANT = Made("o2svxvjvgvqszfpb-0", 1, 0.5, [0.5] * 10)


async def decide(request: Request) -> Response:
    PARSE.decode(await request.body())
    return Response(msgspec.json.encode(CONSTANT), status_code=201, media_type="application/json")


app = Starlette(routes=[Route("/v1/decisions", decide, methods=["POST"])])

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), access_log=False, log_level="warning", server_header=False)
