"""Responses from templates: all values are escaped, invisible characters in them too, and browsers may load
only files of this service."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from fedfairx.service.export import csv_line
from fedfairx.service.pages import charts, formatting
from fedfairx.util.formatting import duration, visible

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
STATIC = {
    each.name: each.read_bytes()
    for each in (files("fedfairx.service.pages") / "static").iterdir()
    if each.name.rpartition(".")[2] in KINDS
}
VERSION = hashlib.sha256(b"".join(STATIC[name] for name in sorted(STATIC))).hexdigest()[:12]


def _finalize(value: object) -> object:
    """A value as it is put into a page; a name may come from anyone."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_templates = Environment(
    loader=PackageLoader("fedfairx.service.pages"),
    autoescape=True,
    finalize=_finalize,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.globals.update(figures=charts, version=VERSION)
_templates.globals.update(between=formatting.between, forecast=formatting.forecast)
_FILTERS = (
    *("percent", "points", "count", "moment", "precise", "iso", "sentence", "milliseconds", "size"),
    *("number", "factor", "change", "others", "written", "breaking", "unbroken", "together"),
)
_templates.filters.update({name: getattr(formatting, name) for name in _FILTERS}, duration=duration)


def page(name: str, *, root: str, agent: str = "", status: int = 200, **values: Any) -> HTMLResponse:
    """A page from its template.

    root: the path of the service; its templates call it `site`.
    agent: the path of an agent below it; both together are `root` to templates, for links between pages.
    """
    text = _templates.get_template(f"{name}.html").render(page=name, site=root, root=root + agent, **values)
    return HTMLResponse(text, status_code=status, headers=HEADERS)


def csv_file(name: str, rows: Iterable[Sequence[object]]) -> Response:
    """What a page shows, as a file for spreadsheets; no text in it begins like a formula."""
    headers = {**HEADERS, "content-disposition": f'attachment; filename="{name}.csv"'}
    return Response(b"".join(map(csv_line, rows)), media_type="text/csv", headers=headers)


def static(name: str) -> Response | None:
    """A file that pages load; its address changes with its content, so a browser may keep it."""
    if name not in STATIC:
        return None
    headers = {**HEADERS, "cache-control": "public, max-age=31536000, immutable"}
    return Response(STATIC[name], media_type=KINDS[name.rpartition(".")[2]], headers=headers)
