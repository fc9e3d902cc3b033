"""Running the application in uvicorn."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import socket
import time
from collections.abc import Callable
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from fedfairx.errors import require
from fedfairx.service.app import make_app
from fedfairx.service.connections import ClientConnection
from fedfairx.service.logs import start_logging
from fedfairx.service.service import Service
from fedfairx.service.settings import Settings, key_command

TICKS = 10  # tenths of a second between two checks for slow clients, at most
COLLECT = (50_000, 20, 50)  # pending decisions are many, and in no cycles
LOG = logging.getLogger("fedfairx.service")


class Server(uvicorn.Server):
    """uvicorn's server, which also logs its addresses and closes connections of slow clients.

    It stops by itself once `must_end` is true.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        begun: Callable[[Server], None] | None = None,
        *,
        must_end: Callable[[], bool] = lambda: False,
        doing: str = "serves",
    ) -> None:
        super().__init__(config(app, settings))
        self._begun = begun
        self._must_end = must_end
        self._doing = doing
        self._handshake_seconds = settings.header_seconds
        shortest = min(settings.header_seconds, settings.body_seconds)
        self._ticks = max(1, min(TICKS, int(2 * shortest)))  # a fifth of it

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.config.is_ssl:  # uvicorn would give a client a minute for the handshake
            loop = asyncio.get_running_loop()
            listen = partial(loop.create_server, ssl_handshake_timeout=self._handshake_seconds)
            loop.create_server = listen  # type: ignore[method-assign]
        await super().startup(sockets=sockets)
        if self.started:
            gc.collect()
            gc.freeze()  # loaded modules stay: scanning them would only delay responses
            gc.set_threshold(*COLLECT)
            LOG.info("fedfairx %s on %s", self._doing, ", ".join(self.addresses()))
            if self._begun is not None:
                self._begun(self)

    async def on_tick(self, counter: int) -> bool:
        if counter % self._ticks == 0:
            now = time.monotonic()
            for connection in list(self.server_state.connections):
                if isinstance(connection, ClientConnection):
                    connection.look(now)
        return await super().on_tick(counter) or self._must_end()

    def stop(self) -> None:
        """Shut down gracefully, as after a signal; from any thread."""
        self.should_exit = True

    def addresses(self) -> list[str]:
        """The addresses that it listens on."""
        scheme = "https" if self.config.is_ssl else "http"
        addresses = []
        for server in self.servers:
            for each in server.sockets:
                host, port = each.getsockname()[:2]
                addresses.append(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")
        return addresses


def require_port(settings: Settings) -> None:
    """Refuse an address that can't be listened on, such as one that another process has."""
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
        family, kind, _, _, address = found[0]
        with socket.socket(family, kind) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except OSError as error:
        name = "port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "host"
        rule = f"must be one that can be listened on ({error.strerror})"
        require(False, name, rule, getattr(settings, name), f"--{name} takes another")


def serve(service: Service, *, begun: Callable[[Server], None] | None = None) -> None:
    """Serve until stopped, then finish requests in flight, and close the service.

    `begun` is called once it listens. Raise why it ended, if that is because of its database.
    """
    start_logging(service.settings)
    if not service.auth.any_key:
        text = "there is no key, so everybody on this machine is an admin; `%s` makes one, before any proxy"
        LOG.warning(text, key_command(service.settings))
    server = Server(make_app(service), service.settings, begun, must_end=lambda: service.ended is not None)
    service.write_queue.requests = server.server_state.tasks
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(server.serve())
    if service.ended is not None:
        raise service.ended


def config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """uvicorn's configuration; bodies are never logged, and paths, which have ids, only in debug."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        root_path=settings.root_path,
        access_log=settings.log_level == "debug",
        log_config=None,
        log_level="warning" if settings.log_level == "info" else settings.log_level,
        http=partial(ClientConnection, settings),  # type: ignore[arg-type]
        ws="none",
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=settings.shutdown_seconds,
        ssl_certfile=settings.tls_certificate or None,
        ssl_keyfile=settings.tls_key or None,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies or None,
    )
