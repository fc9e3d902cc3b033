"""The ASGI application: endpoints, pages, start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import time
from collections.abc import AsyncIterator, Iterable

import msgspec
from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fedfairx.service.auth import refuse_cross_site, refuse_other_agents
from fedfairx.service.endpoint import Operation
from fedfairx.service.fast_path import FastRouter, reply
from fedfairx.service.logs import HEADER
from fedfairx.service.openapi import document
from fedfairx.service.pages import pages
from fedfairx.service.problems import LOG, ProblemError, answer
from fedfairx.service.roles import for_role
from fedfairx.service.routes import OPERATIONS
from fedfairx.service.serializers import VERSION
from fedfairx.service.service import Service

NAMES = re.compile("{(action_id|person)}")


class _Name(StringConvertor):
    """The name of an action or a person, which may have slashes and line breaks in it."""

    regex = "(?s:.*)"


register_url_convertor("name", _Name())


def make_app(service: Service) -> ASGIApp:
    """The application of a service: its endpoints and its pages."""
    service.document = openapi_document()
    by_path: dict[str, list[Operation]] = {}
    for operation in OPERATIONS:
        by_path.setdefault(operation.path, []).append(operation)
        if not operation.whole:
            by_path.setdefault(operation.of_agent.path, []).append(operation)
    endpoints = {path: EndpointApp(service, operations) for path, operations in by_path.items()}
    app = Starlette(
        routes=[
            *(Route(NAMES.sub(r"{\1:name}", path), each) for path, each in endpoints.items()),
            *pages(service),
        ],
        exception_handlers={Exception: _problem, 404: _problem, 405: _problem},
        lifespan=_life,
    )
    app.router.redirect_slashes = False  # a redirect would go to whatever host the request names
    app.state.service = service
    # OpenTelemetry adds middleware to the application, which must then see every request.
    return FastRouter(app, {} if app.user_middleware else endpoints)


@functools.cache  # it is the same for every service
def openapi_document() -> bytes:
    """The description of all endpoints, as JSON."""
    return msgspec.json.encode(document(OPERATIONS, VERSION))


async def _problem(request: Request, error: Exception) -> Response:
    response = answer(request.app.state.service.problem(error))
    response.raw_headers.extend(HEADERS)
    return response


@contextlib.asynccontextmanager
async def _life(app: Starlette) -> AsyncIterator[None]:
    service: Service = app.state.service
    service.begin()
    running = [service.auth.watch(), service.watch(), service.verify()]
    if service.settings.keep:
        running.append(service.drop_contexts())
    tasks = [asyncio.create_task(each) for each in running]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await service.close()


#: On every response, so that no browser guesses its type, and no cache keeps it.
HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class EndpointApp:
    """The ASGI application of one path."""

    def __init__(self, service: Service, operations: Iterable[Operation]) -> None:
        self._service = service
        self._by_method = {operation.method: operation for operation in operations}
        if "GET" in self._by_method:
            self._by_method["HEAD"] = self._by_method["GET"]

    async def _handle(self, operation: Operation, request: Request) -> object:
        """Call the handler with the service, or with the agent that the path names, if the key is for it."""
        agents, in_path = self._service.agents, request.scope.get("path_params")
        name = in_path.get("agent") if in_path else None
        if operation.whole:
            if name is not None:
                refuse_other_agents(request, name)
            return await operation.handler(self._service, request)
        refuse_other_agents(request, name or agents.default_name)
        if name is None:
            return await operation.handler(agents.default, request)
        async with agents.using(name) as served:
            return await operation.handler(served, request)

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
            result = await self._handle(operation, request)
            if operation.method == "GET" and operation.role is not None:
                result = for_role(result, request.scope["role"])
            response = reply(result, operation.status)
        except ClientDisconnect:
            return
        except Exception as error:  # its text must not reach the server's log
            response = answer(self._service.problem(error))
        seconds = time.perf_counter() - began
        try:
            response.raw_headers.extend(HEADERS)
            if "request_id" in scope:
                response.raw_headers.append((HEADER, scope["request_id"]))
            await response(scope, receive, send)
        except Exception as error:  # in the middle of a long response: log it, and cut the connection
            self._service.problem(error)
        name, status = "unknown" if operation is None else operation.name, response.status_code
        self._service.metrics.request(name, status, seconds)  # now that the client need not wait for it
        if self._service.settings.log_requests:
            fields = {"operation": name, "status": status, "seconds": round(seconds, 6)}
            LOG.info("%s: %d in %.4f s", name, status, seconds, extra=fields)
