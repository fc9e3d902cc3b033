"""Who may look at pages: whoever has a key of any role, in a cookie that only pages read and no script can.

The cookie holds the key itself, so that a revoked key opens nothing any more. It is sent to this site
alone (SameSite) and never opens the API, where a key is asked for in each request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fedfairx.service.doors import refuse_cross_site
from fedfairx.service.pages.rendering import HEADERS, page
from fedfairx.service.problems import Refused

if TYPE_CHECKING:
    from fedfairx.service.service import Service

__all__ = ["check", "leave", "offer", "signed_in", "take"]

COOKIE = "fedfairx-key"
LONGEST = 1_000  # bytes of a form
DAYS = 7


def signed_in(request: Request) -> bool:
    return COOKIE in request.cookies


async def check(service: Service, request: Request) -> None:
    """`Refused` unless the request may see pages."""
    key = request.cookies.get(COOKIE)
    if key and "authorization" not in request.headers:
        await service.doors.check(_with(request, key), "reader")
    else:
        await service.doors.check(request, "reader")


def offer(service: Service, *, root: str, status: int = 401, wrong: bool = False) -> Response:
    """The page that asks for a key."""
    return page("sign-in", status=status, wrong=wrong, frame=None, agent=service.agent.name, root=root)


async def take(service: Service, request: Request) -> Response:
    """A key from the form, kept in the cookie if it opens."""
    refuse_cross_site(request)
    body = (
        await request.body() if int(request.headers.get("content-length") or LONGEST + 1) <= LONGEST else b""
    )
    key = parse_qs(body.decode("latin-1")).get("key", [""])[0].strip()
    try:
        await service.doors.check(_with(request, key), "reader")
    except Refused:
        return offer(service, root=request.scope.get("root_path", ""), wrong=True)
    response = _to(request, "/")
    if not service.doors.keys_needed:  # nothing was checked, and nothing need be kept
        return response
    response.set_cookie(
        COOKIE,
        key,
        max_age=DAYS * 86_400,
        path=request.scope.get("root_path") or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


def leave(request: Request) -> Response:
    """Forget the key."""
    response = _to(request, "/sign-in")
    response.delete_cookie(COOKIE, path=request.scope.get("root_path") or "/")
    return response


def _to(request: Request, path: str) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}{path}", status_code=303, headers=HEADERS)


def _with(request: Request, key: str) -> Request:
    """The same request, as if it carried the key as the API wants it."""
    header = (b"authorization", b"Bearer " + key.encode("latin-1", "replace"))
    others = [pair for pair in request.scope["headers"] if pair[0] != b"authorization"]
    return Request({**request.scope, "headers": [*others, header]})
