"""A whole response is one write (`Connection.send_whole`), unless something is unusual."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from fedfairx.service.connections import Connection
from fedfairx.service.fast_path import WHOLE, FastRouter, Json
from service_helpers import settings_for

HOST = b"Host: localhost\r\n\r\n"
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Wire(asyncio.Transport):
    """A transport that remembers its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        assert not self.closed
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def app(scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Send) -> None:
    if scope["path"] == "/reading":
        await receive()
    if scope["path"] == "/middleware":
        del scope[WHOLE]
    response = Json(b"body", 200)
    await response(scope, receive, send)
    if scope["path"] == "/twice":
        await response(scope, receive, send)


def answered(
    request: bytes, change: Callable[[Connection], object] = lambda _: None, *, lost: bool = False
) -> Wire:
    """What is written for requests; `change` is called once they were read, and the client may go at last."""

    async def whole() -> Wire:
        config = uvicorn.Config(
            app,  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            server_header=False,
            date_header=False,
            access_log=False,
            log_config=None,
        )
        config.load()
        connection = Connection(
            settings_for("unused"), config=config, server_state=ServerState(), app_state={}
        )
        wire = Wire()
        connection.connection_made(wire)
        connection.data_received(request)
        change(connection)
        while connection.tasks:
            await asyncio.sleep(0)
        if connection.timeout_keep_alive_task is not None:
            connection.timeout_keep_alive_task.cancel()
        if lost:
            connection.connection_lost(None)
        return wire

    return asyncio.run(whole())


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\ncontent-type: application/json\r\n"
WRITES = [HEAD + b"\r\nbody"]


@pytest.mark.parametrize(
    ("request_head", "wanted"),
    [
        ("GET / HTTP/1.1", WRITES),
        ("GET /middleware HTTP/1.1", [HEAD + b"\r\n", b"body"]),
        ("HEAD / HTTP/1.1", [HEAD + b"\r\n"]),
        ("GET / HTTP/1.0", [HEAD + b"connection: close\r\n\r\n", b"body"]),
        ("GET / HTTP/1.1\r\nConnection: close", [HEAD + b"connection: close\r\n\r\n", b"body"]),
        ("GET /twice HTTP/1.1", WRITES),
    ],
)
def test_writes_of_a_response(request_head: str, wanted: list[bytes]) -> None:
    wire = answered(request_head.encode() + b"\r\n" + HOST)
    assert [write for write in wire.writes if write] == wanted
    assert wire.closed == (b"close" in wanted[0] or "twice" in request_head)


def test_headers_of_the_server_come_first() -> None:
    def add(connection: Connection) -> None:
        connection.cycle.default_headers = [(b"date", b"today")]

    (written,) = answered(b"GET / HTTP/1.1\r\n" + HOST, add).writes
    assert written == WRITES[0].replace(b"content-length", b"date: today\r\ncontent-length")


def test_a_request_is_logged_if_it_is_to_be(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def log(connection: Connection) -> None:
        connection.cycle.access_log = True
        monkeypatch.setattr(connection.cycle.access_logger, "propagate", True)

    with caplog.at_level("INFO", logger="uvicorn.access"):
        assert b"".join(answered(b"GET / HTTP/1.1\r\n" + HOST, log).writes) == WRITES[0]
    assert "GET / HTTP/1.1" in caplog.text


def test_a_client_that_reads_nothing_is_waited_for() -> None:
    order: list[str] = []

    def pause(connection: Connection) -> None:
        connection.flow.pause_writing()

        def resume() -> None:
            order.extend(f"{len(connection.transport.writes)} written")  # type: ignore[attr-defined]
            connection.flow.resume_writing()

        for delay in (0.0, 0.01):
            connection.loop.call_later(delay, resume)

    assert b"".join(answered(b"GET / HTTP/1.1\r\n" + HOST, pause).writes) == WRITES[0]
    assert "".join(order).startswith("0 written")


def _refuse(connection: Connection) -> None:
    connection.cycle.disconnected = True


@pytest.mark.parametrize("end", [_refuse, lambda connection: connection.connection_lost(None)])
def test_a_client_that_was_refused_or_has_gone_gets_nothing(end: Callable[[Connection], object]) -> None:
    assert answered(b"GET / HTTP/1.1\r\n" + HOST, end).writes == []


def test_a_connection_waits_for_the_next_request_as_long_as_uvicorn_does() -> None:
    seen: list[Connection] = []
    assert answered(b"GET / HTTP/1.1\r\n" + HOST, seen.append).writes == WRITES
    (connection,) = seen
    assert connection.timeout_keep_alive_task is not None
    assert connection.server_state.total_requests == 1


def test_who_waits_to_send_a_body_is_told_to() -> None:
    """The response to it comes after that, in a write of its own."""
    head = b"POST /reading HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n"
    first, second = answered(head + HOST + b"{}").writes
    assert first == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert second.endswith(b"\r\n\r\nbody")


PLAIN = b"GET / HTTP/1.1\r\n" + HOST
UNFINISHED = b"POST /reading HTTP/1.1\r\nContent-Length: 9\r\n" + HOST + b"some"


@pytest.mark.parametrize("requests", [PLAIN, PLAIN * 20, PLAIN.replace(b"/ ", b"/middleware "), UNFINISHED])
def test_neither_requests_nor_connections_wait_for_the_garbage_collector(requests: bytes) -> None:
    """With many pending decisions it would stop all requests for 50 ms every 4 000 of them."""

    def alive() -> list[object]:
        return [one for one in gc.get_objects() if type(one) in (Connection, RequestResponseCycle)]

    def lose(connection: Connection) -> None:
        if requests.endswith(UNFINISHED):
            connection.connection_lost(None)

    gc.collect()
    gc.disable()
    try:
        before = {id(one) for one in alive()}
        answered(requests, lose, lost=not requests.endswith(UNFINISHED))
        left = [one for one in alive() if id(one) not in before]
        assert not left, gc.get_referrers(left[0])
    finally:
        gc.enable()


def test_one_after_the_other() -> None:
    wire = answered((b"GET / HTTP/1.1\r\n" + HOST) * 3)
    assert b"".join(wire.writes) == 3 * WRITES[0]


def test_middleware_sees_every_message() -> None:
    """A path that no endpoint has directly goes through Starlette, and whatever was added to it."""
    seen = []

    async def other(scope: dict[str, Any], _receive: object, _send: object) -> None:
        seen.append(WHOLE in scope)

    router = FastRouter(other, {"/direct": other})  # type: ignore[arg-type, dict-item]
    for path in ("/direct", "/elsewhere"):
        scope = {"type": "http", "path": path, "headers": [], WHOLE: lambda *_: True}
        asyncio.run(router(scope, None, None))  # type: ignore[arg-type]
    assert seen == [True, False]
