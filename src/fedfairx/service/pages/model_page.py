"""What was learnt, as the model page shows it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from starlette.datastructures import QueryParams

from fedfairx.service import serializers
from fedfairx.service.pages.charts import Scale
from fedfairx.service.pages.page_data import View
from fedfairx.service.pages.pagination import Keys, listed

if TYPE_CHECKING:
    from fedfairx.service.served_agent import ServedAgent


class Coordinate(NamedTuple):
    """A feature or an action without features: its θ, with an interval of 95 %."""

    place: int
    name: str
    value: float
    sd: float
    low: float
    high: float


#: How θ can be sorted.
MODEL: Keys = {
    "name": lambda each: each.name.casefold(),
    "value": lambda each: each.value,
    "sd": lambda each: each.sd,
}


async def model(served: ServedAgent, query: QueryParams, _role: str) -> View:
    def read() -> View:
        values, *others = serializers.estimates(served)
        names, agent = serializers.columns(served), served.agent
        coordinates = [
            Coordinate(*each) for each in zip(range(len(values)), names, values, *others, strict=False)
        ]
        listing = listed(coordinates, query, MODEL, lambda each: each.name)
        ends = [end for each in listing.rows for end in (each.low, each.high)]
        return {
            "listing": listing,
            "range": Scale.around(ends),
            "featureless": served.featureless,
            "retired": set(agent.all_actions) - set(agent.actions),
            "observed": agent.observed,
            "rule": agent.rule,
            "merit": repr(agent.merit),
            "noise_sd": agent.noise_sd,
            "alone": not agent.held,
            "csv": [
                ["name", "estimate", "sd", "low", "high"],
                *([each.name, each.value, each.sd, each.low, each.high] for each in listing.matching),
            ],
        }

    return await asyncio.to_thread(read)
