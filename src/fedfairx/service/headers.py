"""Request headers, read without decoding those that nobody asks for."""

from __future__ import annotations

from starlette.requests import Request


def header_of(request: Request, name: bytes) -> str | None:
    """A header by its name in lower case."""
    for key, value in request.scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None
