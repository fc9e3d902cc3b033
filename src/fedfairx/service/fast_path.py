"""The fast path of a request: cheaper versions of what Starlette does for every request.

`FastRouter` finds most paths in a table, `header_of` reads one header without decoding the others, `body_of`
reads a body without a copy, `decode` compiles the checks of each type once, and `Json` makes its headers in a
fifth of the time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedfairx.service.logs import HEADER, REQUEST_ID, id_of
from fedfairx.service.problems import ProblemError, about

Decoded = TypeVar("Decoded")
JSON = "application/json"
DECODERS: dict[type, msgspec.json.Decoder[Any]] = {}  # by what they read: a decoder compiles its checks
PARAMETERS = {"agents": "agent", "decisions": "decision_id"}  # of paths, by the part before them
CLOSE = {"connection": "close"}  # else the rest of the body would be read as the next request


class FastRouter:
    """Calls endpoints directly, for any agent and decision, and Starlette's application for other paths.

    Each request has an id, which its response and its lines in the log have too.
    """

    def __init__(self, app: ASGIApp, endpoints: Mapping[str, ASGIApp]) -> None:
        self._app = app
        self._plain = {path: each for path, each in endpoints.items() if "{" not in path}
        self._by_parts = {  # None stands for a parameter
            tuple(None if part.startswith("{") else part for part in path.split("/")): each
            for path, each in endpoints.items()
            if {*re.findall(r"{(\w+)}", path)} <= {*PARAMETERS.values()}
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        identity = id_of(scope["headers"])
        REQUEST_ID.set(str(identity, "ascii"))
        if not scope.get("root_path"):
            path: str = scope["path"]
            endpoint = self._plain.get(path) or self._with_parameters(path, scope)
            if endpoint is not None:
                scope["request_id"] = identity  # which an endpoint puts into its response itself
                await endpoint(scope, receive, send)
                return

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (HEADER, identity)]
            await send(message)

        await self._app(scope, receive, send_with_id)

    def _with_parameters(self, path: str, scope: Scope) -> ASGIApp | None:
        """The endpoint of a path with the name of an agent or the id of a decision, which the scope gets."""
        parts: list[str | None] = [*path.split("/")]
        parameters = {}
        for before, name in PARAMETERS.items():
            if before in parts[:-1]:
                at = parts.index(before) + 1
                if parts[at]:
                    parameters[name], parts[at] = parts[at], None
                    endpoint = self._by_parts.get(tuple(parts))
                    if endpoint is not None:
                        scope["path_params"] = parameters
                        return endpoint
        return None


def header_of(request: Request, name: bytes) -> str | None:
    """A header by its name in lower case."""
    for key, value in request.scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


async def body_of(request: Request, limit: int) -> bytes:
    """Read the whole body; one longer than `limit` is refused before its end."""
    kind = header_of(request, b"content-type") or ""
    if kind != JSON and kind.partition(";")[0].strip().lower() != JSON:  # which excludes forms of other sites
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


def decode(body: bytes, kind: type[Decoded]) -> Decoded:
    """Decode a body as a value of this type."""
    decoder = DECODERS.get(kind) or DECODERS.setdefault(kind, msgspec.json.Decoder(kind))
    try:
        try:
            value: Decoded = decoder.decode(body)
        except msgspec.ValidationError:
            body = _with_integers(body)
            value = decoder.decode(body)
    except msgspec.ValidationError as error:
        raise ProblemError("invalid", about(error, body)) from None
    except RecursionError:
        raise ProblemError("malformed", "The body is nested too deeply.") from None
    except UnicodeDecodeError:
        raise ProblemError("malformed", "The body is not UTF-8.") from None
    return value


def _with_integers(body: bytes) -> bytes:
    """The body with integers where it has 3.0 or 1e3, which are integers to JSON Schema; else unchanged.

    Only a body that was refused is read again.
    """
    try:
        values = json.loads(body, parse_float=_number, parse_constant=_no_number)
        return json.dumps(values, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return body


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() and abs(number) <= 2**53 else number


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


class Json(Response):
    """A response of JSON that is encoded already."""

    def __init__(self, body: bytes, status: int) -> None:
        self.status_code = status
        self.body = body
        self.background = None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]


def reply(value: object, status: int) -> Response:
    """A value as JSON; None as an empty response; a response as it is."""
    if value is None:
        return Response(status_code=204)
    return value if isinstance(value, Response) else Json(msgspec.json.encode(value), status)
