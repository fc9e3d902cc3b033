"""Head and body of a response are one write, whatever the application sends and however it ends."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from fedfairx.service.connections import Connection, OneWrite
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


async def stream(send: Send, *parts: bytes) -> None:
    for place, part in enumerate(parts):
        await send({"type": "http.response.body", "body": part, "more_body": place < len(parts) - 1})


async def app(scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Send) -> None:
    kind = scope["path"]
    if kind == "/reading":
        await receive()
    status = 204 if kind == "/nothing" else 200
    length = [] if kind in ("/chunks", "/nothing") else [(b"content-length", b"4")]
    await send({"type": "http.response.start", "status": status, "headers": length})
    if kind == "/broken":
        raise ZeroDivisionError
    await stream(send, *{"/chunks": (b"ab", b"cd"), "/nothing": (b"",)}.get(kind, (b"body",)))


def answered(request: bytes) -> Wire:
    async def whole() -> Wire:
        config = uvicorn.Config(app, ws="none", lifespan="off", server_header=False, date_header=False)  # type: ignore[arg-type]
        config.load()
        connection = Connection(
            settings_for("unused"), config=config, server_state=ServerState(), app_state={}
        )
        wire = Wire()
        connection.connection_made(wire)
        connection.data_received(request)
        while connection.tasks:
            await asyncio.sleep(0)
        if connection.timeout_keep_alive_task is not None:
            connection.timeout_keep_alive_task.cancel()
        return wire

    return asyncio.run(whole())


@pytest.mark.parametrize(
    ("request_line", "wanted"),
    [
        ("GET /", [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"]),
        ("HEAD /", [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"]),
        ("GET /nothing", [b"HTTP/1.1 204 No Content\r\n\r\n"]),
        (
            "GET /chunks",
            [
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
                b"2\r\ncd\r\n0\r\n\r\n",
            ],
        ),
        ("GET /broken", [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"]),
    ],
)
def test_writes_of_a_response(request_line: str, wanted: list[bytes]) -> None:
    wire = answered(request_line.encode() + b" HTTP/1.1\r\n" + HOST)
    assert [write for write in wire.writes if write] == wanted
    assert wire.closed == ("broken" in request_line)


def test_who_waits_to_send_a_body_is_told_to() -> None:
    """The response to it comes after that, in a write of its own."""
    head = b"POST /reading HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n"
    first, second = answered(head + HOST + b"{}").writes
    assert first == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert second.endswith(b"\r\n\r\nbody")


def test_a_request_leaves_nothing_to_the_garbage_collector() -> None:
    """With many pending decisions it would stop all requests for 50 ms every 4 000 of them."""

    def alive() -> list[object]:
        return [one for one in gc.get_objects() if type(one) in (OneWrite, RequestResponseCycle)]

    gc.collect()
    gc.disable()
    try:
        before = {id(one) for one in alive()}
        answered((b"GET / HTTP/1.1\r\n" + HOST) * 20)
        left = [one for one in alive() if id(one) not in before]
        assert len(left) <= 2, gc.get_referrers(left[0])  # those of the last request
    finally:
        gc.enable()


def test_one_after_the_other() -> None:
    writes = answered((b"GET / HTTP/1.1\r\n" + HOST) * 3).writes
    assert len(writes) == 3
    assert len(set(writes)) == 1
