"""One address and method: who may use it, what it takes and gives. Routes and the OpenAPI document come from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from fedfairx.service.problems import Refused

if TYPE_CHECKING:
    from fedfairx.service.service import Service

__all__ = ["Handler", "Operation", "Parameter", "body_of", "decoder", "query_of", "reply"]

Handler = Callable[["Service", Request], Awaitable[Response]]
Decoded = TypeVar("Decoded")
JSON = "application/json"


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


def decoder(kind: type[Decoded]) -> msgspec.json.Decoder[Decoded]:
    """Made once for each body, since it compiles what it will check."""
    return msgspec.json.Decoder(kind)


async def body_of(request: Request, limit: int) -> bytes:
    """The whole body; what is longer than `limit` is not read to its end."""
    kind = request.headers.get("content-type", JSON)
    if kind.partition(";")[0].strip().lower() != JSON:  # also keeps other sites' plain forms out
        raise Refused("media-type", "The Content-Type must be application/json.")
    too_large = Refused(
        "too-large", f"The body must be at most {limit} bytes (max_body).", {"connection": "close"}
    )
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > limit:
        raise too_large
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise too_large
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def query_of(request: Request, kind: type[Decoded]) -> Decoded:
    """The query, as a Struct: numbers are read from their text, unknown and repeated names are refused."""
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise Refused("invalid", "A name occurs twice in the query.")
        given[name] = value
    return msgspec.convert(given, kind, strict=False)


def reply(value: object, status: int = 200) -> Response:
    """A value as JSON; nothing where there is none."""
    if value is None:
        return Response(status_code=204)
    return Response(msgspec.json.encode(value), status_code=status, media_type=JSON)
