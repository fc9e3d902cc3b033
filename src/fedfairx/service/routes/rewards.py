"""Whether rewards arrive, as JSON; the page `/rewards` shows the same."""

from __future__ import annotations

from starlette.requests import Request

from fedfairx.fairness.missing_test import ERROR
from fedfairx.service import schemas
from fedfairx.service.arrivals import ArrivalRow
from fedfairx.service.endpoint import endpoint
from fedfairx.service.served_agent import ServedAgent


@endpoint("GET", "/v1/rewards", role="reader")
async def rewards(served: ServedAgent, _request: Request) -> schemas.RewardsSeen:
    """Show for how many decisions of each action and group a reward came, and where more are missing."""
    table = await served.exposures.arrivals()
    actions, groups = ([_seen(row) for row in rows] for rows in (table.actions, table.groups))
    return schemas.RewardsSeen(
        actions, groups, [str(each) for each in table.missing], table.tested, table.age, ERROR, table.why
    )


def _seen(row: ArrivalRow) -> schemas.ArrivalSeen:
    return schemas.ArrivalSeen(*row[:-1], row.missing is not None)
