"""Baseline for the service: Starlette and msgspec parse the body and answer a constant.

With a file as its second argument, it first stores each body in SQLite, one commit for each.
"""

from __future__ import annotations

import sqlite3
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


DATABASE = sqlite3.connect(sys.argv[2], isolation_level=None) if len(sys.argv) > 2 else None
if DATABASE is not None:
    DATABASE.execute("PRAGMA journal_mode=WAL")
    DATABASE.execute("PRAGMA synchronous=FULL")
    assert DATABASE.execute("PRAGMA synchronous").fetchone() == (2,)
    DATABASE.execute("CREATE TABLE bodies (body BLOB)")


async def decide(request: Request) -> Response:
    body = await request.body()
    PARSE.decode(body)
    if DATABASE is not None:
        DATABASE.execute("INSERT INTO bodies VALUES (?)", (body,))
    return Response(msgspec.json.encode(CONSTANT), status_code=201, media_type="application/json")


app = Starlette(routes=[Route("/v1/decisions", decide, methods=["POST"])])

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), access_log=False, log_level="warning", server_header=False)
