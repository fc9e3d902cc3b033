"""The exposure table and the report that is made from it, as their pages show them."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from starlette.datastructures import QueryParams

from fedfairx.fairness import Likely, Row, Share, likely
from fedfairx.service import serializers
from fedfairx.service.exposure_cache import ExposureSnapshot
from fedfairx.service.pages.page_data import View, overview, privacy
from fedfairx.service.pages.pagination import Keys, Listing, listed
from fedfairx.service.pages.periods import Period, period_of, periods
from fedfairx.service.roles import for_role, sees_all
from fedfairx.storage.queries import length_and_head

if TYPE_CHECKING:
    from fedfairx.service.served_agent import ServedAgent

#: How the exposure table can be sorted.
EXPOSED: Keys = {
    "name": lambda row: row.name.casefold(),
    "verdict": lambda row: severity(row),
    "shown": lambda row: row.shown.value,
    "entitled": lambda row: _or_least(row.estimated),
    "shortfall": lambda row: _or_least(_shortfall(row)),
    "decisions": lambda row: row.rounds,
}


MOST_REPORTED = 500  # actions in a report
#: Who needs a look first: likely verdicts, the worst last.
ORDER = (likely.IN_LINE, likely.UNKNOWN, likely.ABOVE, likely.BELOW)


def severity(row: Row) -> tuple[int, float]:
    """Who needs a look first is the largest: by the likely verdict, and then by the shortfall.

    Of those who are likely above, by what they have too much.
    """
    place, shortfall = 0 if row.likely is None else ORDER.index(row.likely.verdict), _shortfall(row)
    above = row.likely is not None and row.likely.verdict == likely.ABOVE
    return place, -shortfall if above else _or_least(shortfall)


def _shortfall(row: Row) -> float:
    return row.estimated - row.shown.value


def _or_least(value: float) -> float:
    return -math.inf if math.isnan(value) else value


async def exposure(served: ServedAgent, query: QueryParams, role: str) -> View:
    period, seen = period_of(query), served.exposures
    read = seen.look if query.get("format") == "csv" else seen.glance
    looked = await read(since=period.since, until=period.until)
    return view_of(for_role(looked, role), period, query, "-verdict" if sees_all(role) else "-shown")


def view_of(looked: ExposureSnapshot | None, period: Period, query: QueryParams, order: str) -> View:
    """The values of the exposure page for a table, or without one while it is computed."""
    view = {
        "looked": looked,
        "periods": periods(period),
        "chosen": {name: query.get(name, "") for name in ("period", "since", "until")},
    }
    if looked is None:
        return view
    table = looked.table
    actions, groups = (
        listed(rows, query, EXPOSED, lambda row: row.name, order) for rows in (table.actions, table.groups)
    )
    return view | {
        "actions": actions,
        "groups": groups,
        "chart": _chart(looked, query.get("chart", ""), actions, open_end=period.until is None),
        "csv": _exposure_rows(actions.matching, groups.matching),
    }


def _chart(looked: ExposureSnapshot, name: str, actions: Listing[Row], *, open_end: bool) -> View | None:
    """The shares of one action over time: the one of this name, or the first of the page."""
    shares = looked.table.over_time
    if shares is None or not actions.rows:
        return None
    chosen = name if name in shares.shown else actions.rows[0].name
    series = (
        [None if math.isnan(share) else round(share, 3) for share in each[chosen]]
        for each in (shares.shown, shares.entitled)
    )
    times, (shown, entitled) = [int(at) for at in shares.times], series
    data = {"times": times, "shown": shown, "entitled": entitled, "open": open_end}
    return {"name": chosen, "stretch": looked.stretch, "data": data}


def _exposure_rows(*tables: Sequence[Row]) -> Iterator[Sequence[object]]:
    """The table as lines of CSV."""
    shares = ("shown", "entitled", "estimated", "shortfall")
    ends = [f"{share}{end}" for share in shares for end in ("", "_low", "_high")]
    later = [
        "likely",
        "probability_below",
        "probability_in_line",
        "probability_above",
        "more_decisions",
        "left",
    ]
    yield ["kind", "name", "verdict", "decisions", "shown_times", *ends, "more_rewards", *later]
    for kind, rows in zip(("action", "group"), tables, strict=True):
        for row in rows:
            quantities = (row.shown, row.entitled, row.estimate, row.shortfall)
            numbers = [None if each is None else end for each in quantities for end in _ends(each)]
            values = [None] * 5 if row.likely is None else _outlook(row.likely)
            yield [
                kind,
                row.name,
                row.verdict,
                row.rounds,
                row.count,
                *numbers,
                row.more,
                *values,
                int(row.left),
            ]


def _outlook(outlook: Likely) -> list[object]:
    chances = (outlook.below, outlook.in_line, outlook.above)
    return [outlook.verdict, *(None if math.isnan(each) else each for each in chances), outlook.more]


def _ends(share: Share | None) -> tuple[float | None, ...]:
    if share is None:
        return None, None, None
    return tuple(None if math.isnan(end) else float(end) for end in (share.value, share.low, share.high))


async def report(served: ServedAgent, query: QueryParams, role: str) -> View:
    agent, shown = served.agent, await exposure(served, query, role)
    looked = shown["looked"]
    if looked is None:
        return shown
    length, head = await served.read(lambda journal: length_and_head(journal, before=looked.end))
    return {
        **shown,
        "sorted": [
            sorted(rows, key=severity, reverse=True) for rows in (looked.table.groups, looked.table.actions)
        ],
        "certain": Counter(row.verdict for row in (*looked.table.groups, *looked.table.actions)),
        "overview": await overview(served, query, role),
        "privacy": await privacy(served, query, role),
        "version": serializers.VERSION,
        "features": [] if served.featureless else serializers.columns(served),
        "featureless": served.featureless,
        "named": bool(agent.names),
        "most": MOST_REPORTED,
        "minimum_share": agent.options.minimum_share,
        "model_version": agent.model_version,
        "length": length,
        "head": head,
        "number": _report_number(served, shown["chosen"], looked, head),
    }


def _report_number(served: ServedAgent, chosen: View, looked: ExposureSnapshot, head: str) -> str:
    """The number of a report: the same for the same agent, period and log, and no other."""
    settings = served.settings
    subject = (served.agent.name, chosen, looked.first, looked.last, looked.table.decisions, head)
    rules = (repr(served.agent.merit), settings.tolerance, settings.noise_sd, serializers.VERSION)
    return hashlib.sha256(repr((subject, rules)).encode()).hexdigest()[:12]
