"""The table of paths, compared with Starlette's own routing."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Route

from fedfairx.service.app import NAMES
from fedfairx.service.fast_path import FastRouter
from fedfairx.service.routes import OPERATIONS

ALL = [each for one in OPERATIONS for each in ((one,) if one.whole else (one, one.of_agent))]
PATHS = [*dict.fromkeys(each.path for each in ALL)]
WORDS = ("a-1", "agents", "decisions", "batch", "reward", "{agent}", "{decision_id}", "é\n", "a/b", "")
FAST = [path for path in PATHS if "{action_id}" not in path and "{person}" not in path]


class Endpoint:
    """Writes into the scope which path it is of."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def __call__(self, scope: Any, *_: Any) -> None:
        scope["found"] = self._path, scope.get("path_params") or {}


ENDPOINTS = {path: Endpoint(path) for path in PATHS}


async def found(router: Any, path: str) -> tuple[str, dict[str, str]] | None:
    """The path of the endpoint that is called, and its parameters; None for 404."""

    async def send(_message: Any) -> None:
        pass

    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": path, "headers": [], "root_path": ""}
    await router(scope, None, send)
    return scope.get("found")


def test_the_table_finds_what_starlette_finds() -> None:
    app = Starlette(routes=[Route(NAMES.sub(r"{\1:name}", path), each) for path, each in ENDPOINTS.items()])
    app.router.redirect_slashes = False
    fast, slow = FastRouter(app, ENDPOINTS), FastRouter(app, {})
    paths = {
        path.replace("{agent}", agent).replace("{decision_id}", decision).replace("{person}", "a/b") + end
        for path, agent, decision, end in product(PATHS, WORDS, WORDS, ("", "/", "/reward"))
    }

    async def compare() -> None:
        for path in sorted(paths):
            assert await found(fast, path) == await found(slow, path), path

    asyncio.run(compare())


def test_starlette_is_not_called_for_agents_and_decisions() -> None:
    async def never(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError(scope["path"])

    for path in FAST:
        given = {name: "x-1" for name in ("agent", "decision_id") if f"{{{name}}}" in path}
        assert asyncio.run(found(FastRouter(never, ENDPOINTS), path.format(**given))) == (path, given)
