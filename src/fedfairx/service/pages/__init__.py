"""The pages for people. They are rendered here, read-only, and load nothing from other hosts.

`page_data` takes what each page shows from the service, `jinja` renders it from `templates/`, and `access`
checks who may see it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from fedfairx.service.auth import sees_exact
from fedfairx.service.pages import access, page_data
from fedfairx.service.pages.jinja import page, static
from fedfairx.service.pages.periods import periods, window_of
from fedfairx.service.problems import KINDS, ProblemError, problem_of
from fedfairx.service.service import Service

__all__ = ["pages"]

Show = Callable[[Service, Request], Awaitable[object]]
LARGEST = 2**53


async def _overview(service: Service, request: Request) -> object:
    return await page_data.overview(service, exact=sees_exact(request))


async def _exposure(service: Service, request: Request) -> object:
    window = window_of(request.query_params.get("period", ""))
    exact = sees_exact(request)
    looked = await service.exposures.look(since=window.since, until=window.until, exact=exact)
    return page_data.ExposurePage(looked, periods(window))


async def _decisions(service: Service, request: Request) -> object:
    before = request.query_params.get("before", "")
    if before and not (before.isascii() and before.isdigit() and int(before) <= LARGEST):
        raise ProblemError("invalid", "before must be a number that a page linked to.")
    return await page_data.decisions(service, int(before) if before else None, exact=sees_exact(request))


async def _privacy(service: Service, request: Request) -> object:
    return await asyncio.to_thread(page_data.privacy, service, exact=sees_exact(request))


async def _federation(service: Service, request: Request) -> object:
    return await asyncio.to_thread(page_data.federation, service, exact=sees_exact(request))


async def _report(service: Service, request: Request) -> object:
    window = window_of(request.query_params.get("period", ""))
    return await page_data.report(service, window, exact=sees_exact(request))


#: Where each page is, in the order of the navigation.
PAGES: dict[str, tuple[str, Show]] = {
    "overview": ("/", _overview),
    "exposure": ("/exposure", _exposure),
    "decisions": ("/decisions", _decisions),
    "privacy": ("/privacy", _privacy),
    "federation": ("/federation", _federation),
    "report": ("/report", _report),
}


def pages(service: Service) -> list[BaseRoute]:
    """The routes of all pages, for `make_app`."""
    routes: list[BaseRoute] = [
        Route(path, _shown(service, name, show), methods=["GET"]) for name, (path, show) in PAGES.items()
    ]

    async def sign_in(request: Request) -> Response:
        try:
            if request.method == "POST":
                return await access.take(service, request)
            return access.offer(service, root=_root(request), status=200)
        except Exception as error:
            return _failed(service, request, error)

    async def sign_out(request: Request) -> Response:
        try:
            return access.leave(service, request)
        except ProblemError as error:
            return _failed(service, request, error)

    async def asset(request: Request) -> Response:
        return static(request.path_params["name"]) or _failed(service, request, ProblemError("not-found", ""))

    return [
        *routes,
        Route("/sign-in", sign_in, methods=["GET", "POST"]),
        Route("/sign-out", sign_out, methods=["POST"]),
        Route("/static/{version}/{name}", asset, methods=["GET"]),
    ]


def _root(request: Request) -> str:
    """The path under which a proxy shows the service."""
    return str(request.scope.get("root_path", ""))


def _shown(service: Service, name: str, show: Show) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            await access.check(service, request)
            view = await show(service, request)
            exact = sees_exact(request)
            frame = page_data.frame(service, signed_in=access.signed_in(request), exact=exact)
            return page(name, view=view, frame=frame, root=_root(request))
        except Exception as error:  # its text must not reach a page
            return _failed(service, request, error)

    return endpoint


def _failed(service: Service, request: Request, error: Exception) -> Response:
    """The page of a problem; without a key, the page that asks for one."""
    problem = problem_of(error)
    root = _root(request)
    if problem.status == 401:
        return access.offer(service, root=root)
    _, title, remedy = KINDS[problem.kind]
    return page(
        "problem",
        status=problem.status,
        title=title,
        detail=problem.detail,
        remedy=remedy,
        frame=None,
        root=root,
    )
