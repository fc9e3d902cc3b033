"""A standby: a process that waits for a database that another one has (`fedfairx serve --wait`).

Meanwhile it listens where it will serve. `/healthz` is 200, since the process is well and must not be killed;
everything else is 503, so that a load balancer that asks for `/readyz` sends it nothing.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from fedfairx.agent.agent import Agent
from fedfairx.agent.warm import warm
from fedfairx.errors import StorageUnavailable
from fedfairx.service.app import HEADERS, openapi_document
from fedfairx.service.factory import open_service
from fedfairx.service.problems import LOG, ProblemError, answer
from fedfairx.service.server import Server
from fedfairx.service.service import Service
from fedfairx.service.settings import Settings

PAUSE = 0.2  # seconds between two tries


def open_when_free(settings: Settings) -> Service:
    """Open a service as soon as its database can be opened; raise `KeyboardInterrupt` on SIGTERM too."""
    try:
        return open_service(settings)
    except StorageUnavailable as error:
        reason = str(error)
    LOG.info("waiting for the database: %s", reason)
    server = Server(_app(), settings, doing="waits")
    thread = threading.Thread(target=_serve, args=(server,), daemon=True)
    # A handler of its own: the first process of a container ignores signals that have none.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    thread.start()
    try:
        for agent in (Agent(1), Agent(actions=["1", "2"])):  # load now what takes long to load
            warm(agent)
        openapi_document()
        while thread.is_alive():
            time.sleep(PAUSE)
            try:
                return open_service(settings)
            except StorageUnavailable as error:
                if str(error) != reason:
                    reason = str(error)
                    LOG.info("waiting for the database: %s", reason)
        sys.exit(1)  # it can't listen; the log says why
    finally:
        server.stop()
        thread.join()  # the service listens in its place
        signal.signal(signal.SIGTERM, before)


def _serve(server: Server) -> None:
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(server.serve())


def _app() -> Starlette:
    return Starlette(routes=[Route("/healthz", _healthz), Mount("/", app=_refuse)])


async def _healthz(_request: Request) -> Response:
    return JSONResponse({"status": "alive"}, headers={name.decode(): text.decode() for name, text in HEADERS})


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    problem = ProblemError("unavailable", "This process waits for the database, which another one has.")
    response = answer(problem)
    response.raw_headers.extend(HEADERS)
    await response(scope, receive, send)
