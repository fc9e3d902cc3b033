"""Access to pages, after signing in with a key that may read.

A cookie holds the token of a session (`auth.Sessions`), never the key. Only pages accept it, no script can
read it, and browsers send it to this site only (SameSite).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fedfairx.service.auth import SECONDS, admit, refuse_cross_site
from fedfairx.service.pages.jinja import HEADERS, page
from fedfairx.service.problems import ProblemError
from fedfairx.service.roles import ROLES

if TYPE_CHECKING:
    from fedfairx.service.service import Service


LONGEST = 1_000  # bytes of a form


def cookie(request: Request) -> str:
    """The cookie's name, with the port, since browsers send cookies to all ports of a host."""
    _, port = request.scope.get("server") or ("", 0)
    return f"fedfairx-{port}"


def signed_in(request: Request) -> bool:
    return cookie(request) in request.cookies


async def check(service: Service, request: Request, role: str = "reader") -> None:
    """Refuse a request without this role."""
    auth, token = service.auth, request.cookies.get(cookie(request))
    if token is None or "authorization" in request.headers or not auth.any_key:
        await auth.check(request, role)
        return
    key = auth.sessions.key_of(token)
    if key is None:
        raise ProblemError("unauthenticated", "The session is over.")
    admit(request, key, role)


def offer(*, root: str, status: int = 401, wrong: bool = False) -> Response:
    """The page that asks for a key. It names no agent: anybody can see it."""
    return page("sign-in", status=status, wrong=wrong, frame=None, root=root)


async def take(service: Service, request: Request) -> Response:
    """Start a session for a key that may read."""
    refuse_cross_site(request)
    size = int(request.headers.get("content-length") or LONGEST + 1)
    body = await request.body() if size <= LONGEST else b""
    key = parse_qs(body.decode("latin-1")).get("key", [""])[0].strip()
    auth, response = service.auth, _to(request, "/")
    if not auth.any_key:
        await auth.check(request, "reader")
        return response
    holder = await auth.key_of(key)
    if holder is None or "reader" not in ROLES[holder.role]:
        return offer(root=request.scope.get("root_path", ""), wrong=True)
    response.set_cookie(
        cookie(request),
        auth.sessions.begin(holder),
        max_age=SECONDS,
        path=request.scope.get("root_path") or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


def leave(service: Service, request: Request) -> Response:
    """End the session."""
    refuse_cross_site(request)
    service.auth.sessions.end(request.cookies.get(cookie(request), ""))
    response = _to(request, "/sign-in")
    response.delete_cookie(cookie(request), path=request.scope.get("root_path") or "/")
    return response


def _to(request: Request, path: str) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}{path}", status_code=303, headers=HEADERS)
