"""The web pages: read-only, rendered on the server, and without anything from other hosts.

`page_data` and the modules named after pages read values from the service, `jinja` renders them with
`templates/`, and `access` checks who may see them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from urllib.parse import quote

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from fedfairx.service import serializers
from fedfairx.service.auth import may_use, refuse_other_agents
from fedfairx.service.pages import (
    access,
    decision_pages,
    exposure_page,
    model_page,
    page_data,
    rewards_page,
    share_page,
)
from fedfairx.service.pages.jinja import HEADERS, csv_file, page, static
from fedfairx.service.problems import KINDS, ProblemError
from fedfairx.service.roles import ROLES, sees_all
from fedfairx.service.served_agent import ServedAgent
from fedfairx.service.service import Service

__all__ = ["pages"]


class Page(NamedTuple):
    """A page: its path, what reads its values for a role, and the role that is needed."""

    path: str
    show: Callable[[ServedAgent, QueryParams, str], Awaitable[page_data.View]]
    role: str = "reader"


#: The pages, in the order of the navigation.
PAGES: dict[str, Page] = {
    "overview": Page("/", page_data.overview),
    "exposure": Page("/exposure", exposure_page.exposure),
    "rewards": Page("/rewards", rewards_page.rewards),
    "model": Page("/model", model_page.model, "auditor"),
    "decisions": Page("/decisions", decision_pages.decisions),
    "privacy": Page("/privacy", page_data.privacy),
    "federation": Page("/federation", page_data.federation),
    "report": Page("/report", exposure_page.report, "auditor"),
}
#: Pages that others link to: of one decision, and of one action's share over a period.
LINKED: dict[str, Page] = {
    "decision": Page("/decisions/{decision_id}", decision_pages.decision),
    "share": Page("/share", share_page.share, "auditor"),
}


#: The page of a service without agents.
NO_AGENT = {
    "title": "There is no agent yet",
    "detail": "This service waits for a request that makes one. Its pages are shown here then.",
    "remedy": 'For instance PUT /v1/agents/shop with {"actions": ["ann", "ben", "cid"]}.',
}


def pages(service: Service) -> list[BaseRoute]:
    """The routes of all pages, for `make_app`."""
    routes: list[BaseRoute] = [
        Route(f"{agent}{each.path}", _shown(service, name, each), methods=["GET"])
        for agent in ("", "/agents/{agent}")
        for name, each in (PAGES | LINKED).items()
    ]

    async def choose(request: Request) -> Response:
        """Go from the list of agents to a page of one of them."""
        try:
            await access.check(service, request)
            name, shown = (request.query_params.get(each, "") for each in ("agent", "page"))
            refuse_other_agents(request, name)
            service.agents.row(name)
            return _to_agent(request, name, PAGES.get(shown, PAGES["overview"]).path)
        except Exception as error:
            return _failed(request, error)

    async def sign_in(request: Request) -> Response:
        try:
            if request.method == "POST":
                return await access.take(service, request)
            return access.offer(root=_root(request), status=200)
        except Exception as error:
            return _failed(request, error)

    async def sign_out(request: Request) -> Response:
        try:
            return access.leave(service, request)
        except ProblemError as error:
            return _failed(request, error)

    async def asset(request: Request) -> Response:
        return static(request.path_params["name"]) or _failed(request, ProblemError("not-found", ""))

    return [
        *routes,
        Route("/agents", choose, methods=["GET"]),
        Route("/sign-in", sign_in, methods=["GET", "POST"]),
        Route("/sign-out", sign_out, methods=["POST"]),
        Route("/static/{version}/{name}", asset, methods=["GET"]),
    ]


def _root(request: Request) -> str:
    """The path under which a proxy shows the service."""
    return str(request.scope.get("root_path", ""))


def _agent_path(name: str) -> str:
    return f"/agents/{quote(name, safe='')}"


def _to_agent(request: Request, name: str, path: str) -> Response:
    """A redirect to a page of an agent."""
    return RedirectResponse(f"{_root(request)}{_agent_path(name)}{path}", status_code=303, headers=HEADERS)


def _shown(service: Service, name: str, asked: Page) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            await access.check(service, request, asked.role)
            role, agents = request.scope["role"], service.agents
            seen = [agent for agent in agents.rows if may_use(request, agent)]
            named = request.path_params.get("agent")
            agent = named or agents.default_name
            if named is None and seen and agent not in seen:  # the key is for others than the default
                return _to_agent(request, seen[0], PAGES.get(name, PAGES["decisions"]).path)
            refuse_other_agents(request, agent)
            if agent is None:
                return page("problem", status=404, frame=None, root=_root(request), home=False, **NO_AGENT)
            of_path = {key: value for key, value in request.path_params.items() if key != "agent"}
            query = QueryParams({**request.query_params, **of_path})
            async with agents.using(agent) as served:
                view = await asked.show(served, query, role)
                if query.get("format") == "csv" and "csv" in view:
                    return csv_file(name, view["csv"])
                signed_in = access.signed_in(request)
                offered = {one: each.path for one, each in PAGES.items() if each.role in ROLES[role]}
                frame = page_data.frame(
                    served, agents=seen, pages=offered, signed_in=signed_in, everything=sees_all(role)
                )
            if name == "overview":  # a key that is limited to some agents does not see counts of all together
                queue, whole = service.write_queue, may_use(request, None)
                status = await asyncio.to_thread(serializers.status, queue) if whole else None
                view["status"] = status
            path = "" if named is None else _agent_path(named)
            return page(name, view=view, frame=frame, root=_root(request), agent=path)
        except Exception as error:  # its text must not reach a page
            return _failed(request, error)

    return endpoint


def _failed(request: Request, error: Exception) -> Response:
    """The page of a problem; for one without a valid key, the sign-in page."""
    problem, root = request.app.state.service.problem(error), _root(request)
    status, title, remedy = KINDS[problem.kind]
    if status == 401:
        return access.offer(root=root)
    values = {"title": title, "detail": problem.detail, "remedy": remedy}
    return page("problem", status=status, frame=None, root=root, home=True, **values)
