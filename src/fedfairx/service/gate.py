"""What every request passes: the method, the caller's site and role, the clock, errors that become problems,
and the headers of every answer."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from fedfairx.service.doors import refuse_cross_site
from fedfairx.service.operations import Operation
from fedfairx.service.problems import Refused, answer, problem_of

if TYPE_CHECKING:
    from fedfairx.service.service import Service

__all__ = ["HEADERS", "Gate"]

#: On every answer, so that no browser guesses what it is, and nobody on the way keeps it.
HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class Gate:
    """The ASGI application of one address."""

    def __init__(self, service: Service, operations: Iterable[Operation]) -> None:
        self._service = service
        self._by_method = {operation.method: operation for operation in operations}
        if "GET" in self._by_method:
            self._by_method["HEAD"] = self._by_method["GET"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        operation = self._by_method.get(scope["method"])
        try:
            if operation is None:
                allowed = ", ".join(sorted(self._by_method))
                raise Refused("method", f"Allowed here: {allowed}.", {"allow": allowed})
            request = Request(scope, receive, send)
            if operation.method != "GET":
                refuse_cross_site(request)
            if operation.role is not None:
                await self._service.doors.check(request, operation.role)
            response = await operation.handler(self._service, request)
        except ClientDisconnect:
            return
        except Exception as error:  # whatever it is, it must not reach the server's log with its text
            response = answer(problem_of(error))
        name = "unknown" if operation is None else operation.name
        self._service.meters.request(name, response.status_code, time.perf_counter() - began)
        try:
            response.raw_headers.extend(HEADERS)
            await response(scope, receive, send)
        except Exception as error:  # half way through a long answer: it is logged, and the connection cut
            problem_of(error)
