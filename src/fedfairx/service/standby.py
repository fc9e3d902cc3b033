"""Waiting for a database: that another process has (`fedfairx serve --wait`), or that can't be used for now.

Meanwhile the process listens where it will serve. `/healthz` is 200, since the process is well and must not
be killed, and so is `/metrics`, for anybody: keys are in the database. Everything else is 503, so that a load
balancer that asks for `/readyz` sends it nothing.

A process that is paused keeps its lock. A standby takes the database from it, so that it can't write when it
goes on: PostgreSQL ends its session, and for SQLite, on the same machine, the system ends the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

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
from fedfairx.service.metrics import exposition, lines, metric
from fedfairx.service.problems import LOG, ProblemError, answer
from fedfairx.service.server import Server
from fedfairx.service.service import Service
from fedfairx.service.settings import Settings, place_of
from fedfairx.storage.database import InUse

PAUSE = 0.2  # seconds between two tries
PAUSED = 10.0  # seconds after which a paused process loses the database


def open_when_free(settings: Settings) -> Service:
    """Open a service as soon as its database can be opened; raise `KeyboardInterrupt` on SIGTERM too.

    Without the setting `wait`, raise `InUse` if another process has it.
    """
    try:
        return open_service(settings)
    except StorageUnavailable as error:
        reason = error
    paused = PausedHolder(place_of(settings))
    waiting = _Waiting()
    server = Server(waiting.app, settings, doing="waits")
    thread = threading.Thread(target=_serve, args=(server,), daemon=True)
    # A handler of its own: the first process of a container ignores signals that have none.
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        waiting.look(reason, settings)
        thread.start()
        for agent in (Agent(1), Agent(actions=["1", "2"])):  # load now what takes long to load
            warm(agent)
        openapi_document()
        while thread.is_alive():
            time.sleep(PAUSE)
            try:
                return open_service(settings)
            except StorageUnavailable as error:
                waiting.look(error, settings)
                if isinstance(error, InUse) and paused.end():
                    LOG.warning("took the database from a process that was paused for %g seconds", PAUSED)
        sys.exit(1)  # it can't listen; the log says why
    finally:
        server.stop()
        if thread.ident is not None:
            thread.join()  # the service listens in its place
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise `KeyboardInterrupt`, which ends this process, also while code is loaded."""
    sys.unraisablehook = lambda _: None  # libraries complain when what is half made goes
    signal.default_int_handler(number, frame)


class PausedHolder:
    """The process that has a database, if it is paused."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._lock = Path(f"{Path(place).resolve()}.lock")
        self._since: tuple[int, float] | None = None  # which process on this machine, and since when

    def end(self) -> bool:
        """Take the database from it once it was paused for `PAUSED` seconds; whether it was."""
        if "://" in self._place:
            from fedfairx.storage.postgres import end_paused

            return end_paused(self._place, PAUSED)
        process, now = self._paused(), time.monotonic()
        if process is None or self._since is None or self._since[0] != process:
            self._since = None if process is None else (process, now)
        elif now > self._since[1] + PAUSED:
            os.kill(process, signal.SIGKILL)
            return True
        return False

    def _paused(self) -> int | None:
        """The process that has the lock, if it is on this machine and paused; only Linux tells."""
        with suppress(OSError, ValueError, KeyError):
            holder = json.loads(self._lock.read_text())
            process, files = int(holder["process"]), Path(f"/proc/{holder['process']}/fd")
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
            # The number may be that of another process, in another container.
            if state == "T" and holder["host"] == socket.gethostname():
                return process if any(file.samefile(self._lock) for file in files.iterdir()) else None
        return None


class _Waiting:
    """What a waiting process answers and logs."""

    def __init__(self) -> None:
        answered = [Route("/healthz", self._healthz), Route("/metrics", self._metrics)]
        self.app = Starlette(routes=[*answered, Mount("/", app=self._refuse)])
        self._reason = ""
        self._why = ""

    def look(self, error: StorageUnavailable, settings: Settings) -> None:
        """Log what is waited for, once; raise the error if waiting would not help, or is not asked for."""
        in_use = isinstance(error, InUse)
        if (in_use and not settings.wait) or isinstance(error.__cause__, PermissionError):
            raise error
        self._why = "which another one has" if in_use else "which can't be used for now"
        if str(error) != self._reason:
            self._reason = str(error)
            LOG.info("waiting for the database: %s", error)

    async def _healthz(self, _request: Request) -> Response:
        return _with_headers(JSONResponse({"status": "waiting"}))

    async def _metrics(self, _request: Request) -> Response:
        return _with_headers(exposition(lines(metric("waiting", 1))))

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = ProblemError("unavailable", f"This process waits for the database, {self._why}.")
        await _with_headers(answer(refused))(scope, receive, send)


def _with_headers(response: Response) -> Response:
    response.raw_headers.extend(HEADERS)
    return response


def _serve(server: Server) -> None:
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(server.serve())
