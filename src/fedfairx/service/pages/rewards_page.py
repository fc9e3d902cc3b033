"""Whether rewards arrive, as the page of rewards shows it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import astuple
from starlette.datastructures import QueryParams

from fedfairx.service.pages.page_data import View
from fedfairx.service.pages.pagination import Keys, listed
from fedfairx.service.roles import for_role

if TYPE_CHECKING:
    from fedfairx.service.served_agent import ServedAgent

ARRIVED: Keys = {
    "name": lambda row: row.name.casefold(),
    "decisions": lambda row: row.decisions,
    "rewards": lambda row: row.rewards,
    "waiting": lambda row: row.waiting,
    "expired": lambda row: row.expired,
    "oldest": lambda row: -(row.oldest_waiting or math.inf),
    "missing": lambda row: (row.missing is not None, row.decisions),
}


async def rewards(served: ServedAgent, query: QueryParams, role: str) -> View:
    table = for_role(await served.exposures.arrivals(), role)
    actions, groups = (
        listed(rows, query, ARRIVED, lambda row: row.name, "-missing")
        for rows in (table.actions, table.groups)
    )
    return {
        "table": table,
        "actions": actions,
        "groups": groups,
        "window": served.settings.window,
        "csv": [
            ["kind", "name", "decisions", "rewards", "waiting", "expired", "oldest_waiting", "missing"],
            *(
                [kind, *astuple(row)[:-1], int(row.missing is not None)]
                for kind, rows in (("action", actions.matching), ("group", groups.matching))
                for row in rows
            ),
        ],
    }
