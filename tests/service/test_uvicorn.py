"""What `connections.py` and `server.py` use of uvicorn, and one connection with its requests.

uvicorn documents none of it. A version that changes it must fail here, and not in production.
"""

from __future__ import annotations

import ast
import asyncio
import gc
import inspect
import re
import tomllib
from collections.abc import Awaitable, Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from fedfairx.service import connections, server
from fedfairx.service.connections import ClientConnection
from service_helpers import settings_for

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"

#: Attributes of a connection, by what holds them, and those of its server.
OF_CONNECTION = {
    "connection_made", "connections", "cycle", "data_received", "flow", "headers", "on_body",
    "on_headers_complete", "parser", "scope", "send_400_response", "transport", "url",
}  # fmt: skip
OF_CYCLE = {"disconnected", "message_event", "more_body", "response_complete", "response_started", "scope"}
OF_FLOW = {"write_paused"}
OF_SERVER = {"config", "on_tick", "server_state", "servers", "should_exit", "started", "startup"}

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

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def app(scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Send) -> None:
    """Answer with the names of the request's headers, once its body has come."""
    while (await receive()).get("more_body"):
        pass
    names = b" ".join(name for name, _ in scope["headers"])
    head = [(b"content-length", b"%d" % len(names))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": names})


def answered(*parts: bytes, look: Callable[[ClientConnection], object] = lambda _: None) -> Wire:
    """What is written for data that comes in parts. `look` is called at the end; then the client goes."""

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
        settings = settings_for("unused", max_header=1_024)
        connection = ClientConnection(settings, config=config, server_state=ServerState(), app_state={})
        wire = Wire()
        connection.connection_made(wire)
        for part in parts:
            if not wire.closed:
                connection.data_received(part)
            await asyncio.sleep(0)
        for _ in range(100):  # enough for all requests that are whole
            await asyncio.sleep(0)
        look(connection)
        connection.connection_lost(None)
        while connection.tasks:
            await asyncio.sleep(0)
        return wire

    return asyncio.run(whole())


# --- what is used -----------------------------------------------------------------------------------------


def test_uvicorn_is_bounded_by_the_minor_version_that_was_tested() -> None:
    service = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"][
        "service"
    ]
    (bounds,) = (line for line in service if line.startswith("uvicorn"))
    least, below = map(int, re.fullmatch(r"uvicorn>=0\.(\d+),<0\.(\d+)", bounds).groups())  # type: ignore[union-attr]
    assert (int(metadata.version("uvicorn").split(".")[1]), below) == (least, least + 1)


def attributes(tree: ast.AST, *owners: str) -> set[str]:
    """The attributes that are used of what has one of these names, or is an attribute of this name."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).rpartition(".")[2] in owners
    }


def test_all_that_is_used_of_uvicorn_is_named_here() -> None:
    tree = ast.parse(inspect.getsource(connections))
    own = {name for name in vars(ClientConnection) if name not in vars(HttpToolsProtocol)}
    calls = attributes(tree, "HttpToolsProtocol") | {"connection_made"}  # by `super`
    assert attributes(tree, "self", "each") - own | calls | {"send_400_response"} == OF_CONNECTION
    assert attributes(tree, "cycle") == OF_CYCLE
    assert attributes(tree, "flow") == OF_FLOW
    tree = ast.parse(inspect.getsource(server.Server))
    own = {name for name in vars(server.Server) if name not in vars(uvicorn.Server)}
    own |= {"_begun", "_doing", "_handshake_seconds", "_must_end", "_ticks"}
    assert attributes(tree, "self") - own | {"on_tick", "startup"} == OF_SERVER


def test_all_that_is_used_of_uvicorn_is_there() -> None:
    def look(connection: ClientConnection) -> None:
        assert vars(connection).keys() | {*dir(HttpToolsProtocol)} >= OF_CONNECTION
        assert {*dir(connection.cycle)} >= OF_CYCLE
        assert {*dir(connection.flow)} >= OF_FLOW
        assert isinstance(connection.cycle, RequestResponseCycle)
        assert connection.cycle.scope is connection.scope

    assert answered(GET, look=look).writes
    assert {*dir(uvicorn.Server(uvicorn.Config(app)))} >= OF_SERVER - {"servers"}  # type: ignore[arg-type]
    assert "self.servers =" in inspect.getsource(uvicorn.Server)
    assert {*dir(ServerState())} >= {"connections", "tasks"}
    assert STATUS_LINE[431].startswith(b"HTTP/1.1 431 ")


# --- trailers ---------------------------------------------------------------------------------------------

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
NAMES = b"host transfer-encoding"


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_trailers_are_no_headers(cut: int) -> None:
    trailers = b"Authorization: Bearer key\r\nExpect: 100-continue\r\n\r\n"
    written = b"".join(answered(CHUNKED + trailers[:cut], trailers[cut:] + GET).writes)
    assert written.count(b"HTTP/1.1 200") == 2  # the next request has its own headers again
    assert written.count(b"\r\n\r\n" + NAMES) == 1
    assert written.endswith(b"\r\n\r\nhost")
    assert b"authorization" not in written


@pytest.mark.parametrize("piece", [b"a: b\r\n" * 50, b"a" * 300], ids=["many", "one that never ends"])
def test_trailers_may_be_as_long_as_a_header(piece: bytes) -> None:
    """A parser keeps each of them until it is whole."""
    short, long = answered(CHUNKED, piece, piece, piece), answered(CHUNKED, *[piece] * 20)
    assert short.writes == []
    (written,) = long.writes
    assert written.startswith(b"HTTP/1.1 431 ")
    assert b"trailers" in written


def test_a_long_body_is_not_taken_for_trailers() -> None:
    chunk = b"%x\r\n" % 900 + b" " * 900 + b"\r\n"
    for parts in ([chunk] * 20, [chunk[:700], chunk[700:]] * 20, [b"1\r\n", b" ", b"\r\n"] * 700):
        head, _, last = CHUNKED.partition(b"2\r\n{}\r\n")
        written = b"".join(answered(head, *parts, last, b"\r\n").writes)
        assert written.startswith(b"HTTP/1.1 200 ")


# --- garbage ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("requests", [GET, GET * 20, CHUNKED], ids=["one", "twenty", "unfinished"])
def test_neither_requests_nor_connections_wait_for_the_garbage_collector(requests: bytes) -> None:
    """With many pending decisions it would stop all requests for 50 ms every 4 000 of them."""

    def alive() -> list[object]:
        return [one for one in gc.get_objects() if type(one) in (ClientConnection, RequestResponseCycle)]

    gc.collect()
    gc.disable()
    try:
        before = {id(one) for one in alive()}
        answered(requests)
        left = [one for one in alive() if id(one) not in before]
        assert not left, gc.get_referrers(left[0])
    finally:
        gc.enable()
