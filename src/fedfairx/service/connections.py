"""Limits for clients before they are authenticated: bytes, seconds and connections.

uvicorn limits none of these with httptools. Time is checked for all connections together, so that it costs a
request nothing: once a second, and more often for limits of less than five seconds. When there are too many
connections, those that wait for their client are closed: first those that never sent a whole request, and the
oldest of these first. So a client that sends its request at once gets a response, however many others do not.

This uses parts of uvicorn that it does not document. `pyproject.toml` therefore admits one minor version, and
`tests/service/test_uvicorn.py` names what is used.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from fedfairx.service.app import HEADERS
from fedfairx.service.problems import ProblemError, answer
from fedfairx.service.settings import Settings

HEADER, BODY = "header", "body"
VERSIONS = ("1.1", "1.0")


class ClientConnection(HttpToolsProtocol):
    """One connection."""

    # uvicorn's class has as many attributes as Python can access fast; more would slow down all of them
    __slots__ = (
        "_after_body",
        "_has_body",
        "_most",
        "_most_connections",
        "_part",
        "_seconds",
        "_seen",
        "_since",
        "_start",
    )

    def __init__(self, settings: Settings, **options: Any) -> None:
        super().__init__(**options)
        self._most = settings.max_header
        self._most_connections = settings.max_connections
        self._seconds = {HEADER: settings.header_seconds, BODY: settings.body_seconds}
        self._start = time.monotonic()
        self._part = 0  # bytes of a header that is not whole yet
        self._after_body = 0  # bytes since the last part of a body that is not whole yet, as of trailers
        self._has_body = False  # whether a part of a body came with the data that is being read
        self._seen: tuple[str | None, object] = (None, None)  # what it waited for at the last check,
        self._since = self._start  # and since when

    # --- bytes ---------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        before = self.scope
        self._has_body = False
        HttpToolsProtocol.data_received(self, data)
        size, most = len(data), self._most
        if self._header_is_whole():
            if self._part + size > most and self._length() > most:
                self._refuse_header()
            self._part = 0
            self._after_body = 0 if self._has_body or not self.cycle.more_body else self._after_body + size
            if self._after_body > most:
                self._refuse_header()
        else:  # data may begin with the end of the previous request
            self._part = self._part + size if before is self.scope else min(size, most)
            if self._part > most:
                self._refuse_header()

    def _header_is_whole(self) -> bool:
        """A request gets its scope where it begins, and its cycle once its header is whole."""
        return self.cycle is not None and self.cycle.scope is self.scope

    def on_headers_complete(self) -> None:
        """Refuse what proxies read in different ways; an error here is answered as any that is not HTTP."""
        if self.parser.get_http_version() not in VERSIONS:
            raise ValueError
        if [name for name, _ in self.headers].count(b"host") > 1:
            raise ValueError
        HttpToolsProtocol.on_headers_complete(self)
        self.headers = []  # for trailers, after a chunked body: they could hold a key, and are ignored

    def on_body(self, body: bytes) -> None:
        self._has_body = True
        HttpToolsProtocol.on_body(self, body)

    def _length(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.scope["headers"])

    def _refuse_header(self) -> None:
        rule = f"A header, or the trailers, must be at most {self._most} bytes (max_header)."
        self._refuse(ProblemError("long-header", rule))

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (uvicorn's text says less)
        rule = "It must be HTTP/1.0 or HTTP/1.1, with one Host at most and a path in ASCII."
        self._refuse(ProblemError("no-http", rule))

    # --- seconds -------------------------------------------------------------------------------------

    def waits_for(self) -> str | None:
        """What the client has yet to send; None while it waits for the response."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return HEADER
        return BODY if cycle.more_body else None

    def look(self, now: float) -> None:
        """Close the connection if its client has taken too long; called again and again."""
        waits = self.waits_for()
        if (waits, self.cycle) != self._seen:
            self._seen, self._since = (waits, self.cycle), now
        elif waits is not None and now - self._since >= self._seconds[waits]:
            detail = f"The {waits} must come within {self._seconds[waits]:g} seconds ({waits}_seconds)."
            self._refuse(ProblemError("slow", detail) if waits == BODY or self._part else None)

    # --- connections ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._most_connections:
            self._make_room()

    def _make_room(self) -> None:
        """Close a tenth of the connections, so that the next ones find room; if none can be, this one."""
        others = [
            each for each in self.connections if isinstance(each, ClientConnection) and each is not self
        ]
        waiting = [each for each in others if each.waits_for() is not None or each.flow.write_paused]
        waiting.sort(key=lambda each: (each.cycle is not None, each._start))
        for each in waiting[: 1 + self._most_connections // 10]:
            self.connections.discard(each)  # else others would be closed before it is removed
            each.transport.abort()
        if not waiting:
            self._refuse(ProblemError("busy", f"{len(others)} requests are under way (max_connections)."))

    # --- ending --------------------------------------------------------------------------------------

    def _refuse(self, refused: ProblemError | None) -> None:
        """Send the reason, if it can still be read, and close; a request in flight gets no other response."""
        transport, cycle = self.transport, self.cycle
        if transport.is_closing() or transport.get_write_buffer_size():
            transport.abort()
            return
        begun = False
        if cycle is not None and not cycle.response_complete:
            begun, cycle.disconnected = cycle.response_started, True
            cycle.message_event.set()
        if refused is not None and not begun:
            response = answer(refused)
            response.raw_headers += [*HEADERS, (b"connection", b"close")]
            lines = [name + b": " + value + b"\r\n" for name, value in response.raw_headers]
            transport.write(b"".join([STATUS_LINE[refused.status], *lines, b"\r\n", bytes(response.body)]))
        transport.close()
