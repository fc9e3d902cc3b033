"""The share of one action over a period, and what raised and lowered it: a page to print."""

from __future__ import annotations

import asyncio
import datetime
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from starlette.datastructures import QueryParams

from fedfairx.agent.knowledge import Knowledge
from fedfairx.agent.own_record import OwnRecord
from fedfairx.agent.replay import Replay
from fedfairx.fairness.contributions import changes
from fedfairx.service.explanation import by_name, described, parts_of, unit_of, weights_of
from fedfairx.service.pages.charts import Scale
from fedfairx.service.pages.page_data import View
from fedfairx.service.pages.pagination import link
from fedfairx.service.pages.periods import Period, period_of, periods
from fedfairx.service.schemas import FeatureExplained
from fedfairx.service.share_sentence import EXPECTED, OWN_RECORD, share_sentence
from fedfairx.storage.arrivals import arrivals
from fedfairx.storage.queries import last_of, number_at
from fedfairx.storage.records import StoredDecision

if TYPE_CHECKING:
    from fedfairx.agent.agent import Agent
    from fedfairx.service.served_agent import ServedAgent

LEAST = 0.0005  # change of a share that is shown
NEGLIGIBLE = 1e-3  # of the largest contribution: smaller ones are not shown
MOST = 10_000  # decisions of a period that are read, the latest


@dataclass
class FeatureTotal:
    """Sums over decisions of what a feature adds to a share."""

    contribution: float = 0.0
    gained: float = 0.0  # share, less what it would be with the feature at the mean of the others
    values: Counter[Any] = field(default_factory=Counter)
    others: float = 0.0
    times: int = 0  # decisions in which the action differed from others in it
    last: float | str | bool | None = None  # value


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
    known_share: float = 0.0  # the share in all others
    unsure: float = 0.0  # share, less what it would be without what is not known yet
    inferred: int = 0  # decisions in which that counts with the own record
    first: float | None = None
    last: float | None = None
    unit: str = "log merit"
    least: Knowledge | None = None  # what the first decision rested on,
    most: Knowledge | None = None  # and the last
    guessed: int = 0  # decisions that rested on little
    features: dict[str, FeatureTotal] = field(default_factory=dict)

    def add(
        self,
        served: ServedAgent,
        stored: StoredDecision,
        place: int,
        known: Knowledge,
        then: Agent | None = None,
    ) -> None:
        """Count a decision in which the action has this place, and what it rested on.

        then: the agent as it was, if known.
        """
        agent, weights, arms = served.agent, weights_of(stored), stored.policy.size
        whole = sum(weights)
        share = float(stored.policy[place]) / whole
        self.first, self.last = self.first or stored.time, stored.time
        self.offered += 1
        self.share += share
        self.equal += 1.0 / arms
        self.baseline += stored.mode != "live"
        self.most = known
        self.least = self.least or self.most
        self.guessed += self.most.little
        slots = [slot.action for slot in stored.slots if slot.status != "withdrawn"]
        self.shown += place in (slots if stored.slots else [stored.action])
        if arms == 1:
            self.alone += 1
            self.known_share += share
            return
        self.others += (1.0 - share) / (arms - 1)
        features, parts = parts_of(
            agent, stored, described(served, stored), then=() if then is None else (then,), split=False
        )
        self.inferred += features.effects is not None and features.own is None
        self.unit = unit_of(parts)
        unsure = 0.0 if parts.uncertainty is None else parts.uncertainty[place]
        pieces = np.array([*parts.features[place], unsure])
        gained = np.full(pieces.size, math.nan)
        if parts.adding:
            least = agent.options.minimum_share
            change = changes(parts.log_merit, place, pieces, minimum_share=least, weights=weights)
            with np.errstate(divide="ignore", invalid="ignore"):
                gained = share - share / (1.0 + change)
        finite = bool(np.isfinite(gained).all())
        self.hidden += not finite
        self.known_share += share if finite else 0.0
        self.unsure += float(gained[-1]) if finite else 0.0
        for number, (name, values) in enumerate(zip(features.names, features.compared(), strict=True)):
            total = self.features.setdefault(name, FeatureTotal())
            value, others = values[place]
            total.times += 1
            total.contribution += float(parts.features[place, number])
            total.gained += float(gained[number]) if finite else 0.0
            total.values[value] += 1
            total.last = value
            total.others += others or 0.0

    def rows(self) -> list[FeatureExplained]:
        """Each feature on average, the one that adds or takes most first."""
        rows = [self._row(name, total) for name, total in self.features.items()]
        return sorted(rows, key=lambda each: -abs(length(each)))

    def _row(self, name: str, total: FeatureTotal) -> FeatureExplained:
        values = total.values
        numbers = all(isinstance(value, float) for value in values)
        value = sum(each * times for each, times in values.items()) / total.times if numbers else None
        if len(values) == 1:
            (value,) = values
        if name == OWN_RECORD:
            value = total.last
        return FeatureExplained(
            feature=name,
            value=value,
            others=None if value is None or name == OWN_RECORD else total.others / total.times,
            contribution=total.contribution / (self.offered - self.alone),
            change=self.change(total.gained),
            uncertainty=None,
            uncertainty_change=None,
        )

    def _told(self, row: FeatureExplained) -> FeatureExplained:
        """A row as a sentence has it: the mean of a feature that varied explains nothing."""
        if row.feature in (EXPECTED, OWN_RECORD) or row.feature not in self.varied:
            return row
        return msgspec.structs.replace(row, feature=f"varying {row.feature}", value=None, others=None)

    @property
    def varied(self) -> set[str]:
        """The features whose value was not the same in all decisions."""
        return {name for name, total in self.features.items() if len(total.values) > 1}

    def change(self, gained: float) -> float | None:
        """By what part of itself something changed the average share; None if hidden."""
        compared = self.offered > self.alone + self.hidden
        return gained / (self.known_share - gained) if compared else None

    @property
    def guess(self) -> bool:
        """Whether most decisions rested on so little that shares followed luck as much as merit."""
        return 2 * self.guessed > self.offered

    def sentence(self) -> str:
        """The share and what changed it, in words."""
        return share_sentence(
            self.share / self.offered,
            self.equal / self.offered,
            [self._told(row) for row in self.rows()],
            whole=1.0,
            arms=1 if self.alone == self.offered else 2,
            unit=self.unit,
            uncertainty=self.change(self.unsure),
            of="the decisions in which you could be chosen",
            its="your",
            little=self.most if self.guess else None,
        )


def length(row: FeatureExplained) -> float:
    """The length of a feature's bar: the log of what its column says, where that is not the contribution."""
    return row.contribution if row.change is None else math.log1p(row.change)


def _seen(row: FeatureExplained, largest: float) -> bool:
    """Whether what it changes can be seen in the column of numbers, or beside the largest of them."""
    return abs(length(row)) >= (NEGLIGIBLE * largest if row.change is None else LEAST) and largest > 0.0


def _when(period: Period) -> str:
    """ "in October 2026", of a period that a page offers."""
    since = datetime.datetime.fromtimestamp(period.since or 0.0, datetime.UTC)
    names = {"month": "in %B %Y", "last-month": "in %B %Y", "year": "in %Y", "today": "on %Y-%m-%d"}
    return since.strftime(names.get(period.query, ""))


async def share(served: ServedAgent, query: QueryParams, _role: str) -> View:
    action, period = query.get("action", "").strip(), period_of(query)
    total, bounded = await asyncio.to_thread(_read, served, action, period)
    every = total.rows()
    largest = max((abs(length(row)) for row in every), default=0.0)
    rows = [row for row in every if _seen(row, largest)]
    chosen = {name: query.get(name, "") for name in ("period", "since", "until")}
    return {
        "action": action,
        "total": total,
        "rows": rows,
        "faint": [row.feature for row in every if not _seen(row, largest)],
        "sentence": total.sentence() if total.offered else "",
        "unsure": total.change(total.unsure) if total.unsure else None,
        "lengths": [length(row) for row in rows],
        "range": Scale.around([length(row) for row in rows]),
        "bounded": MOST if bounded else None,
        "record": _record(served.agent, action) if total.offered else None,
        "alone": served.featureless,
        "rule": served.agent.rule,
        "several": len(served.slots) > 1,
        "periods": periods(period),
        "when": _when(period),
        "chosen": chosen,
        "csv_link": link({"action": action} | chosen, format="csv"),
        "csv": _csv_rows(total, every),
    }


def _record(agent: Agent, name: str) -> OwnRecord | None:
    """The own record of a name now; None if names play no part."""
    return agent.record_of(name) or (OwnRecord(0.0, 0.0, 0.0, 0.0) if agent.names else None)


def _read(served: ServedAgent, action: str, period: Period) -> tuple[ShareTotal, bool]:
    """The sums of a period, and whether it has more decisions than are read."""
    journal, total, replay = served.journal, ShareTotal(), None
    known, now = served.agent.knowledge, served.agent.observed
    first = 0 if period.since is None else number_at(journal, period.since)
    end = number_at(journal, period.until)
    start = last_of(journal, MOST, first=first, end=end)
    came = arrivals(journal, first=start)
    for stored in journal.decisions(after_seq=start - 1, before_seq=end):
        names = stored.names or []
        if action in names and stored.status != "withdrawn":
            if replay is None and by_name(served.agent, stored):
                replay = Replay(served.agent, stored.seq)
            then = None if replay is None else replay.before(stored.seq)
            later = came.size - int(np.searchsorted(came, stored.seq))
            total.add(served, stored, names.index(action), known.when(now - later), then)
    return total, start > first and last_of(journal, 1, first=first, end=start) > first


def _csv_rows(total: ShareTotal, rows: Sequence[FeatureExplained]) -> Iterator[Sequence[object]]:
    yield ["feature", "value", "others", "contribution", "change"]
    yield from ([row.feature, row.value, row.others, row.contribution, row.change] for row in rows)
    yield ["offered", total.offered, None, None, None]
    yield ["shown", total.shown, None, None, None]
    yield ["share", total.share / max(total.offered, 1), total.others / max(total.offered, 1), None, None]
