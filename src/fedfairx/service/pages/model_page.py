"""What was learnt, as the model page shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from starlette.datastructures import QueryParams

from fedfairx.fairness.credible import of_names
from fedfairx.service import serializers
from fedfairx.service.pages.charts import Scale
from fedfairx.service.pages.page_data import View
from fedfairx.service.pages.pagination import Keys, Listing, listed
from fedfairx.service.serializers import OwnRow
from fedfairx.util.arrays import Array

if TYPE_CHECKING:
    from fedfairx.agent.agent import Agent
    from fedfairx.service.served_agent import ServedAgent


class Coordinate(NamedTuple):
    """A feature, a level, a product or an action's name alone: what it changes, with an interval of 95 %.

    ends: the lowest and the highest value of a number, between which it changes that.
    """

    place: int
    name: str
    ends: tuple[float, float] | None
    value: float
    sd: float
    low: float
    high: float


#: How θ and own records can be sorted.
MODEL: Keys = {
    "name": lambda each: each.name.casefold(),
    "value": lambda each: each.value,
    "sd": lambda each: each.sd,
}
RECORDS: Keys = {**MODEL, "rewards": lambda each: each.rewards, "weight": lambda each: each.weight}
OF_NAMES = "own_"  # begins the parameters of the table of own records


def _effects(agent: Agent) -> tuple[Array | None, dict[str, tuple[float, float] | None]]:
    """What turns θ into changes of the reward, None where it is that, and the range of each feature."""
    if agent.schema is not None:
        return agent.schema.effects(), {each.name: each.range for each in agent.schema.features}
    return (np.diag([*np.ones(agent.dimension), agent.constant]) if agent.constant else None), {}


def _expected(served: ServedAgent, rows: Sequence[OwnRow]) -> list[Coordinate]:
    """The expected rewards of actions with names alone."""
    ends = of_names(served.agent.posterior, [row.name for row in rows])
    return [
        Coordinate(row.place, row.name, None, row.value, row.sd, float(low), float(high))
        for row, low, high in zip(rows, *ends, strict=True)
    ]


async def model(served: ServedAgent, query: QueryParams, _role: str) -> View:
    def read() -> View:
        agent, own = served.agent, serializers.own_rows(served)
        ranges: dict[str, tuple[float, float] | None] = {}
        alone, whole = bool(own) and served.featureless, query.get("format") == "csv"
        listing: Listing[Any]
        if alone:
            listing = listed(own, query, RECORDS, lambda each: each.name)
            shown = _expected(served, listing.matching if whole else listing.rows)
        else:
            names = serializers.columns(served)
            effects, ranges = _effects(agent)
            coordinates = [
                Coordinate(place, name, ranges.get(name), *each)
                for place, (name, *each) in enumerate(
                    zip(names, *serializers.estimates(served, effects), strict=True)
                )
            ]
            listing = listed(coordinates, query, MODEL, lambda each: each.name)
            shown = list(listing.matching if whole else listing.rows)
        records = listed([] if alone else own, query, RECORDS, lambda each: each.name, prefix=OF_NAMES)
        return {
            "listing": listing,
            "shown": shown,
            "counts": {row.name: row for row in listing.rows} if alone else {},
            "range": Scale.around([end for each in shown for end in (each.low, each.high)]),
            "featureless": served.featureless,
            "described": bool(ranges),
            "records": records,
            "differ": serializers.differ(served, own),
            "retired": set(agent.all_actions) - set(agent.actions),
            "known": agent.knowledge,
            "rule": agent.rule,
            "merit": repr(agent.merit),
            "noise_sd": agent.noise_sd,
            "alone": not agent.held,
            "csv": _own_lines(records.matching)
            if query.get("table") == OF_NAMES.rstrip("_")
            else _lines(shown, own if alone else ()),
        }

    return await asyncio.to_thread(read)


def _lines(shown: Sequence[Coordinate], own: Sequence[OwnRow]) -> Iterator[Sequence[object]]:
    """The table as lines of CSV, with own records of actions with names alone."""
    yield ["name", "estimate", "sd", "low", "high", *(("rewards", "weight") if own else ())]
    for each in shown:
        record = (own[each.place].rewards, own[each.place].weight) if own else ()
        yield [each.name, each.value, each.sd, each.low, each.high, *record]


def _own_lines(rows: Sequence[OwnRow]) -> Iterator[Sequence[object]]:
    yield ["name", "rewards", "effect", "sd", "weight"]
    for row in rows:
        known = (row.value, row.sd) if row.rewards else (None, None)
        yield [row.name, row.rewards, *known, row.weight]
