"""Whether rewards arrive, as JSON; the page `/rewards` shows the same."""

from __future__ import annotations

from starlette.requests import Request

from fedfairx.service import schemas
from fedfairx.service.endpoint import endpoint
from fedfairx.service.served_agent import ServedAgent


@endpoint("GET", "/v1/rewards", role="reader")
async def rewards(served: ServedAgent, _request: Request) -> schemas.ArrivalTable:
    """Show for how many decisions of each action and group a reward came, and where more are missing."""
    return await served.exposures.arrivals()
