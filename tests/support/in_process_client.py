"""A client of an application in this process that changes threads once for a request.

Starlette's `TestClient` changes threads eight times, which takes ten times as long as most requests.
"""

from __future__ import annotations

import asyncio
import warnings
from typing import Any
from urllib.parse import unquote

import httpx

with warnings.catch_warnings():  # Starlette would rather have httpx's successor
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient


class InProcessClient(TestClient):
    """A `TestClient` for a `with` statement; a response is there when its whole body is."""

    def __init__(self, app: Any, *, raise_server_exceptions: bool = True, **given: Any) -> None:
        super().__init__(app, **given)
        self._transport = _OneCall(self, raising=raise_server_exceptions)


class _OneCall(httpx.BaseTransport):
    def __init__(self, client: InProcessClient, *, raising: bool) -> None:
        self._client, self._raising = client, raising

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        portal = self._client.portal
        assert portal is not None, "this client is for a with statement"
        return portal.call(self._ask, request, request.read())

    async def _ask(self, request: httpx.Request, body: bytes) -> httpx.Response:
        url = request.url
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": request.method,
            "path": unquote(url.path),
            "raw_path": url.raw_path.split(b"?", 1)[0],
            "root_path": "",
            "scheme": url.scheme,
            "query_string": url.query,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": ("testclient", 50000),
            "server": (url.host, url.port or {"http": 80, "https": 443}[url.scheme]),
            "state": self._client.app_state.copy(),
        }
        started: list[dict[str, Any]] = []
        parts: list[bytes] = []
        waiting, ended = [body], asyncio.Event()

        async def receive() -> dict[str, Any]:
            if waiting:
                return {"type": "http.request", "body": waiting.pop()}
            await ended.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            assert not ended.is_set(), "a message after the end of the response"
            if message["type"] == "http.response.start":
                assert not started, "a second start of the response"
                started.append(message)
            else:
                assert started, "a body before the start of the response"
                parts.append(bytes(message.get("body", b"")))
                if not message.get("more_body", False):
                    ended.set()

        try:
            await self._client.app(scope, receive, send)
        except Exception:
            if self._raising:
                raise
        if not started:
            return httpx.Response(500, request=request)
        content = b"" if request.method == "HEAD" else b"".join(parts)
        return httpx.Response(
            started[0]["status"],
            headers=started[0].get("headers", []),
            stream=httpx.ByteStream(content),
            request=request,
        )
