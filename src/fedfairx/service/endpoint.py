"""One address and method: who may use it, what it takes and gives. Routes and OpenAPI come from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from fedfairx.service.headers import header_of
from fedfairx.service.problems import ProblemError

if TYPE_CHECKING:
    from fedfairx.service.service import Service


Handler = Callable[["Service", Request], Awaitable[Response]]
Decoded = TypeVar("Decoded")
JSON = "application/json"
CLOSE = {"connection": "close"}  # what is left of the body would be taken for the next request


@dataclass(frozen=True)
class Parameter:
    """A value in the address, the query or a header; `schema` is JSON Schema."""

    name: str
    place: str  # path, query, header
    description: str
    schema: dict[str, Any]
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One thing that can be asked for."""

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    role: str | None  # the least role that may; None: everybody, without a key
    takes: type | None = None
    gives: type | None = None
    status: int = 200
    media_types: tuple[str, ...] = (JSON,)
    problems: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()


def decoder(kind: type[Decoded]) -> Callable[[bytes], Decoded]:
    """Reads a body; made once for each kind, since it compiles what it will check."""
    read = msgspec.json.Decoder(kind).decode

    def decode(body: bytes) -> Decoded:
        try:
            return read(body)
        except RecursionError:
            raise ProblemError("malformed", "The body is nested too deeply.") from None
        except UnicodeDecodeError:
            raise ProblemError("malformed", "The body is not UTF-8.") from None

    return decode


async def body_of(request: Request, limit: int) -> bytes:
    """The whole body; what is longer than `limit` is not read to its end."""
    kind = header_of(request, b"content-type") or ""
    if kind != JSON and kind.partition(";")[0].strip().lower() != JSON:  # so no other site's form gets in
        raise ProblemError("media-type", "The Content-Type must be application/json.")
    parts, size, more = [], 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise ProblemError("too-large", f"The body must be at most {limit} bytes (max_body).", CLOSE)
        parts.append(part)
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def query_of(request: Request, kind: type[Decoded]) -> Decoded:
    """The query, as a Struct: numbers are read from their text, unknown and repeated names are refused."""
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in given or value.lower() == "null":  # which would be read as nothing
            raise ProblemError("invalid", "A name occurs twice in the query, or has no value.")
        given[name] = value
    return msgspec.convert(given, kind, strict=False)


class Json(Response):
    """JSON that is written already; its headers are made in a fifth of the time that Starlette's take."""

    def __init__(self, body: bytes, status: int) -> None:
        self.status_code = status
        self.body = body
        self.background = None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]


def reply(value: object, status: int = 200) -> Response:
    """A value as JSON; nothing where there is none."""
    return Response(status_code=204) if value is None else Json(msgspec.json.encode(value), status)
