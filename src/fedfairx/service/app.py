"""The ASGI application: addresses from the operations, pages beside them, and a life from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fedfairx.service.auth import refuse_cross_site
from fedfairx.service.endpoint import Operation
from fedfairx.service.openapi import document
from fedfairx.service.pages import pages
from fedfairx.service.problems import ProblemError, answer, problem_of
from fedfairx.service.routes import OPERATIONS
from fedfairx.service.service import Service

if TYPE_CHECKING:
    from fedfairx.service.service import Service


class FastRouter:
    """Finds plain addresses in a table: a decision need not pay for Starlette's search and wrapping."""

    def __init__(self, app: Starlette, plain: dict[str, EndpointApp]) -> None:
        self._app = app
        self._plain = plain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = None
        if scope["type"] == "http" and not scope.get("root_path"):
            found = self._plain.get(scope["path"])
        await (found or self._app)(scope, receive, send)


def make_app(service: Service) -> ASGIApp:
    """The application of a service: what can be asked of it, and its pages."""
    service.document = msgspec.json.encode(document(OPERATIONS, version("fedfairx")))
    gates = gates_of(service, OPERATIONS)
    app = Starlette(
        routes=[*(Route(_starlette(path), gate) for path, gate in gates.items()), *pages(service)],
        exception_handlers={Exception: _problem, 404: _problem, 405: _problem},
        lifespan=_life,
    )
    app.router.redirect_slashes = False  # it would answer with whatever host it was asked by
    app.state.service = service
    return FastRouter(app, {path: gate for path, gate in gates.items() if "{" not in path})


def _starlette(path: str) -> str:
    """An action's name may have slashes in it."""
    return path.replace("{action_id}", "{action_id:path}")


def gates_of(service: Service, operations: Iterable[Operation]) -> dict[str, EndpointApp]:
    """One gate for each address, in the order of the operations."""
    by_path: dict[str, list[Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    return {path: EndpointApp(service, found) for path, found in by_path.items()}


async def _problem(_request: Request, error: Exception) -> Response:
    response = answer(problem_of(error))
    response.raw_headers.extend(HEADERS)
    return response


@contextlib.asynccontextmanager
async def _life(app: Starlette) -> AsyncIterator[None]:
    service: Service = app.state.service
    if service.membership is not None:
        service.membership.begin()
    tasks = [asyncio.create_task(service.auth.watch())]
    if service.settings.window is not None:
        tasks.append(asyncio.create_task(service.expire()))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await service.close()


#: On every answer, so that no browser guesses what it is, and nobody on the way keeps it.
HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class EndpointApp:
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
                raise ProblemError("method", f"Allowed here: {allowed}.", {"allow": allowed})
            request = Request(scope, receive, send)
            if operation.method != "GET":
                refuse_cross_site(request)
            if operation.role is not None:
                await self._service.auth.check(request, operation.role)
            response = await operation.handler(self._service, request)
        except ClientDisconnect:
            return
        except Exception as error:  # whatever it is, it must not reach the server's log with its text
            response = answer(problem_of(error))
        name = "unknown" if operation is None else operation.name
        self._service.metrics.request(name, response.status_code, time.perf_counter() - began)
        try:
            response.raw_headers.extend(HEADERS)
            await response(scope, receive, send)
        except Exception as error:  # half way through a long answer: it is logged, and the connection cut
            problem_of(error)
