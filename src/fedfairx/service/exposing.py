"""The table of exposure over a window of the log.

It is read in a thread, one at a time, from a bounded number of decisions, and kept for a while: whoever
looks at it, and however often, decisions go on being made.
"""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedfairx.arrays import Array
from fedfairx.core.statistics import unpack
from fedfairx.fairness import Exposure, Logged, exposure
from fedfairx.service.published import Published, coarse
from fedfairx.storage.database import Row
from fedfairx.storage.glances import for_exposure, last_of, number_at

if TYPE_CHECKING:
    from fedfairx.federation.agent import Agent
    from fedfairx.service.service import Service

__all__ = ["Exposing", "Looked"]

KEPT = 32  # tables, of as many windows
FRESH = 10.0  # seconds for which a table is shown again as it is, or
COST = 10.0  # times as long as it took to make


@dataclass(frozen=True)
class Looked:
    """A table, and what it was made of. Times are seconds since 1970."""

    table: Exposure
    first: float | None  # time of the first decision in it
    last: float | None
    when: float
    took: float  # seconds
    bounded: bool  # whether decisions of the window were left out because there are too many
    withdrawn: int
    baseline: int  # decisions that took the caller's own action


class Exposing:
    """Tables of exposure, each made once for all who look."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._one_at_a_time = asyncio.Lock()
        self._kept: dict[tuple[float | None, float | None, bool], Looked] = {}
        self._published: Published | None = None

    async def look(self, *, since: float | None = None, until: float | None = None, exact: bool) -> Looked:
        """The table of decisions made from `since` on and before `until`.

        Without `exact` it is as it was at the last whole batch of rewards, and in three digits.
        """
        async with self._one_at_a_time:
            kept = self._kept.pop((since, until, exact), None)
            if kept is None or time.time() - kept.when > max(FRESH, COST * kept.took):
                kept = await asyncio.to_thread(self._make, since, until, exact)
            self._kept[since, until, exact] = kept
            if len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
            return kept

    def _make(self, since: float | None, until: float | None, exact: bool) -> Looked:
        began = time.monotonic()
        service, journal = self._service, self._service.journal
        settings, agent = service.settings, service.agent
        first = 0 if since is None else number_at(journal, since)
        end = number_at(journal, until)
        sums = _exact_sums(agent)
        if not exact:
            published = self._bring_up()
            sums = published.gram, published.moment
            end = end if published.end is None else min(end, published.end)
        start = last_of(journal, settings.exposure_decisions, first=first, end=end)
        bounded = start > first and last_of(journal, 1, first=first, end=start) > first
        seen = _Seen()
        table = exposure(
            seen.read(for_exposure(journal, first=start, end=end)),
            merit=agent.merit,
            noise_sd=settings.noise_sd,
            tolerance=settings.tolerance,
            sums=sums,
        )
        return Looked(
            table if exact else coarse(table),
            seen.first,
            seen.last,
            time.time(),
            time.monotonic() - began,
            bounded,
            seen.withdrawn,
            seen.baseline,
        )

    def _bring_up(self) -> Published:
        """What is published by now; of a long log, from about as many decisions as a table is made from."""
        journal, agent = self._service.journal, self._service.agent
        if self._published is None:
            most = self._service.settings.exposure_decisions
            first = last_of(journal, most, first=0, end=number_at(journal, None))
            self._published = Published(journal, agent.dimension, first=first)
        self._published.bring_up()
        return self._published


class _Seen:
    """Rows of the log as decisions, and what is noticed on the way."""

    first: float | None = None
    last: float | None = None
    withdrawn = 0
    baseline = 0

    def read(self, rows: Iterator[Row]) -> Iterator[Logged]:
        for _, made, policy, contexts, action, drawn, names, groups, status, reward, mode in rows:
            self.last = made / 1e6
            if self.first is None:
                self.first = self.last
            shares = np.frombuffer(policy, "<f8")
            if status == "withdrawn":
                self.withdrawn += 1
            elif mode != "live":
                self.baseline += 1
            yield Logged(
                shares,
                None if status == "withdrawn" else action,
                np.frombuffer(contexts, "<f8").reshape(shares.size, -1),
                _labels(names),
                _labels(groups),
                drawn,
                reward,
            )


@functools.lru_cache(4096)
def _labels(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(json.loads(text))


def _exact_sums(agent: Agent) -> tuple[Array, Array] | None:
    """Sums over all rewards that the agent knows of; of a private one, whose sums have noise, none."""
    if agent.private:
        return None
    with agent._lock:
        gram, moment = unpack(agent._learner.statistics)
    return gram, moment
