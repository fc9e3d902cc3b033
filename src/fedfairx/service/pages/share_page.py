"""The share of one action over a period, and what raised and lowered it: a page to print."""

from __future__ import annotations

import asyncio
import datetime
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.datastructures import QueryParams

from fedfairx.fairness.contributions import changes
from fedfairx.service.explanation import described, parts_of, unit_of, weights_of
from fedfairx.service.pages.charts import Range
from fedfairx.service.pages.page_data import View
from fedfairx.service.pages.pagination import link
from fedfairx.service.pages.periods import Window, periods, window_of
from fedfairx.service.problems import ProblemError
from fedfairx.service.schemas import FeatureExplained
from fedfairx.service.share_sentence import share_sentence
from fedfairx.storage.queries import last_of, number_at
from fedfairx.storage.records import StoredDecision

if TYPE_CHECKING:
    from fedfairx.service.served_agent import ServedAgent

MOST = 10_000  # decisions of a period that are read, the latest


@dataclass
class FeatureTotal:
    """Sums over decisions of what a feature adds to a share."""

    contribution: float = 0.0
    logs: float = 0.0  # of the share, divided by what it would be with the feature at the mean of the others
    values: Counter[Any] = field(default_factory=Counter)
    others: float = 0.0
    times: int = 0  # decisions in which the action differed from others in it


@dataclass
class ShareTotal:
    """Sums over the decisions of a period in which an action could be chosen."""

    offered: int = 0
    shown: int = 0
    baseline: int = 0  # decisions in which the caller chose
    share: float = 0.0
    others: float = 0.0  # the mean share of the others
    equal: float = 0.0  # the share of the average action
    alone: int = 0  # decisions without another action
    hidden: int = 0  # decisions of which it is not known what features change
    unsure: float = 0.0  # log of the share, divided by what it would be without what is not known yet
    first: float | None = None
    last: float | None = None
    unit: str = "log merit"
    features: dict[str, FeatureTotal] = field(default_factory=dict)

    def add(self, served: ServedAgent, stored: StoredDecision, place: int) -> None:
        """Count a decision in which the action has this place."""
        agent, weights, arms = served.agent, weights_of(stored), stored.policy.size
        whole = sum(weights)
        share = float(stored.policy[place]) / whole
        self.first, self.last = self.first or stored.time, stored.time
        self.offered += 1
        self.share += share
        self.equal += 1.0 / arms
        self.baseline += stored.mode != "live"
        slots = [slot.action for slot in stored.slots if slot.status != "withdrawn"]
        self.shown += place in (slots if stored.slots else [stored.action])
        if arms == 1:
            self.alone += 1
            return
        self.others += (1.0 - share) / (arms - 1)
        features = described(served, stored)
        parts = parts_of(agent, stored, features, again=False)
        self.unit = unit_of(parts)
        unsure = 0.0 if parts.uncertainty is None else parts.uncertainty[place]
        asked = np.array([*parts.features[place], unsure])
        logs = np.full(asked.size, math.nan)
        if parts.adding:
            least = agent.options.minimum_share
            logs = np.log1p(changes(parts.log_merit, place, asked, minimum_share=least, weights=weights))
        known = bool(np.isfinite(logs).all())
        self.hidden += not known
        self.unsure += float(logs[-1]) if known else 0.0
        for number, (name, values) in enumerate(zip(features.names, features.compared(), strict=True)):
            total = self.features.setdefault(name, FeatureTotal())
            value, others = values[place]
            total.times += 1
            total.contribution += float(parts.features[place, number])
            total.logs += float(logs[number]) if known else 0.0
            total.values[value] += 1
            total.others += others or 0.0

    def rows(self) -> list[FeatureExplained]:
        """Each feature on average, the one that adds or takes most first."""
        order = sorted(self.features.items(), key=lambda each: -abs(each[1].contribution))
        return [self._row(name, total) for name, total in order]

    def _row(self, name: str, total: FeatureTotal) -> FeatureExplained:
        values = total.values
        numbers = all(isinstance(value, float) for value in values)
        value = sum(each * times for each, times in values.items()) / total.times if numbers else None
        if len(values) == 1:
            (value,) = values
        return FeatureExplained(
            feature=name,
            value=value,
            others=None if value is None else total.others / total.times,
            contribution=total.contribution / (self.offered - self.alone),
            change=self.change(total.logs),
            uncertainty=None,
            uncertainty_change=None,
        )

    def change(self, logs: float) -> float | None:
        """By what part of itself something changed the share on average, a geometric mean; None if hidden."""
        known = self.offered - self.alone - self.hidden
        return math.expm1(logs / known) if known else None

    def sentence(self) -> str:
        """The share and what changed it, in words."""
        return share_sentence(
            self.share / self.offered,
            self.equal / self.offered,
            self.rows(),
            whole=1.0,
            arms=1 if self.alone == self.offered else 2,
            unit=self.unit,
            uncertainty=self.change(self.unsure),
            of="the decisions in which you could be chosen",
            its="your",
        )


def _when(window: Window) -> str:
    """ "in October 2026", of a period that a page offers."""
    since = datetime.datetime.fromtimestamp(window.since or 0.0, datetime.UTC)
    names = {"month": "in %B %Y", "last-month": "in %B %Y", "year": "in %Y", "today": "on %Y-%m-%d"}
    return since.strftime(names.get(window.query, ""))


async def share(served: ServedAgent, query: QueryParams, exact: bool) -> View:
    if not exact:
        raise ProblemError("forbidden", "This page needs the role admin: shares and features reveal rewards.")
    action, window = query.get("action", "").strip(), window_of(query, free=True)
    total, bounded = await asyncio.to_thread(_read, served, action, window)
    rows = total.rows()
    chosen = {name: query.get(name, "") for name in ("period", "since", "until")}
    return {
        "action": action,
        "total": total,
        "rows": rows,
        "sentence": total.sentence() if total.offered else "",
        "unsure": total.change(total.unsure) if total.unsure else None,
        "range": Range.around([row.contribution for row in rows]),
        "bounded": MOST if bounded else None,
        "rule": served.agent.rule,
        "several": len(served.slots) > 1,
        "periods": periods(window),
        "when": _when(window),
        "chosen": chosen,
        "csv_link": link({"action": action} | chosen, format="csv"),
        "csv": _csv_rows(total, rows),
    }


def _read(served: ServedAgent, action: str, window: Window) -> tuple[ShareTotal, bool]:
    """The sums of a period, and whether it has more decisions than are read."""
    journal, total = served.journal, ShareTotal()
    first = 0 if window.since is None else number_at(journal, window.since)
    end = number_at(journal, window.until)
    start = last_of(journal, MOST, first=first, end=end)
    for stored in journal.decisions(after_seq=start - 1, before_seq=end):
        names = stored.names or []
        if action in names and stored.status != "withdrawn":
            total.add(served, stored, names.index(action))
    return total, start > first and last_of(journal, 1, first=first, end=start) > first


def _csv_rows(total: ShareTotal, rows: Sequence[FeatureExplained]) -> Iterator[Sequence[object]]:
    yield ["feature", "value", "others", "contribution", "change"]
    yield from ([row.feature, row.value, row.others, row.contribution, row.change] for row in rows)
    yield ["offered", total.offered, None, None, None]
    yield ["shown", total.shown, None, None, None]
    yield ["share", total.share / max(total.offered, 1), total.others / max(total.offered, 1), None, None]
