"""What was learnt, as the model page shows it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from starlette.datastructures import QueryParams

from fedfairx.service import serializers
from fedfairx.service.pages.charts import Scale
from fedfairx.service.pages.page_data import View
from fedfairx.service.pages.pagination import Keys, listed
from fedfairx.util.arrays import Array

if TYPE_CHECKING:
    from fedfairx.agent.agent import Agent
    from fedfairx.service.served_agent import ServedAgent


class Coordinate(NamedTuple):
    """A feature, a level, a product or an action without features: what it changes, with an interval of 95 %.

    ends: the lowest and the highest value of a number, between which it changes that.
    """

    place: int
    name: str
    ends: tuple[float, float] | None
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


def _effects(agent: Agent) -> tuple[Array | None, dict[str, tuple[float, float] | None]]:
    """What turns θ into changes of the reward, None where it is that, and the range of each feature."""
    if agent.schema is not None:
        return agent.schema.effects(), {each.name: each.range for each in agent.schema.features}
    return (np.diag([*np.ones(agent.dimension), agent.constant]) if agent.constant else None), {}


async def model(served: ServedAgent, query: QueryParams, _role: str) -> View:
    def read() -> View:
        names, agent = serializers.columns(served), served.agent
        effects, ranges = _effects(agent)
        estimates = serializers.estimates(served, effects)
        coordinates = [
            Coordinate(place, name, ranges.get(name), *each)
            for place, (name, *each) in enumerate(zip(names, *estimates, strict=True))
        ]
        listing = listed(coordinates, query, MODEL, lambda each: each.name)
        ends = [end for each in listing.rows for end in (each.low, each.high)]
        return {
            "listing": listing,
            "range": Scale.around(ends),
            "featureless": served.featureless,
            "described": bool(ranges),
            "retired": set(agent.all_actions) - set(agent.actions),
            "known": agent.knowledge,
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
