"""`GET /v1/export`: every decision with contexts, propensities and rewards; for admins."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from fedfairx.service.endpoint import Operation, Parameter, query_of
from fedfairx.service.export import FORMATS, LINES, write_parquet
from fedfairx.service.routes.decision_list import LAST, SINCE, UNTIL
from fedfairx.service.service import Service


class Query(Struct, forbid_unknown_fields=True):
    """Which decisions, and how they are written."""

    format: Literal["jsonl", "csv", "parquet"] = "jsonl"
    since: Annotated[float, Meta(ge=0, le=LAST)] | None = None
    until: Annotated[float, Meta(ge=0, le=LAST)] | None = None


async def export(service: Service, request: Request) -> Response:
    query = query_of(request, Query)
    rows = service.journal.decisions(since=query.since, until=query.until)
    name = f"decisions.{query.format}"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    if query.format != "parquet":
        return StreamingResponse(LINES[query.format](rows), media_type=FORMATS[query.format], headers=headers)
    descriptor, path = tempfile.mkstemp(suffix=".parquet")  # readable by its owner alone
    os.close(descriptor)
    try:
        await asyncio.to_thread(write_parquet, rows, Path(path))
    except BaseException:
        os.unlink(path)
        raise
    return FileResponse(
        path, media_type=FORMATS["parquet"], headers=headers, background=BackgroundTask(os.unlink, path)
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/export",
        name="export",
        summary="Decisions with contexts, propensities and rewards",
        handler=export,
        role="admin",
        media_types=tuple(FORMATS.values()),
        parameters=(
            Parameter("format", "query", "How they are written.", {"type": "string", "enum": list(FORMATS)}),
            SINCE,
            UNTIL,
        ),
    ),
)
