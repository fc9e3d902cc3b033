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
from fedfairx.core.memory import LARGEST
from fedfairx.core.statistics import unpack
from fedfairx.fairness import Exposure, Logged, exposure
from fedfairx.storage.database import Row
from fedfairx.storage.glances import end_of, for_exposure, last_of, number_at, records
from fedfairx.storage.journal import Journal

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
        self._kept: dict[tuple[float | None, float | None], Looked] = {}
        self._logged = _Logged(service.agent.dimension)

    async def look(self, *, since: float | None = None, until: float | None = None) -> Looked:
        """The table of decisions made from `since` on and before `until`."""
        async with self._one_at_a_time:
            kept = self._kept.pop((since, until), None)
            if kept is None or time.time() - kept.when > max(FRESH, COST * kept.took):
                kept = await asyncio.to_thread(self._make, since, until)
            self._kept[since, until] = kept
            if len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
            return kept

    def _make(self, since: float | None, until: float | None) -> Looked:
        began = time.monotonic()
        service, journal = self._service, self._service.journal
        settings, agent = service.settings, service.agent
        first = 0 if since is None else number_at(journal, since)
        end = number_at(journal, until)
        start = last_of(journal, settings.exposure_decisions, first=first, end=end)
        bounded = start > first and last_of(journal, 1, first=first, end=start) > first
        seen = _Seen()
        table = exposure(
            seen.read(for_exposure(journal, first=start, end=end)),
            merit=agent.merit,
            noise_sd=settings.noise_sd or _half_range(agent),
            tolerance=settings.tolerance,
            sums=self._sums(),
        )
        return Looked(
            table,
            seen.first,
            seen.last,
            time.time(),
            time.monotonic() - began,
            bounded,
            seen.withdrawn,
            seen.baseline,
        )

    def _sums(self) -> tuple[Array, Array]:
        """Over all of the agent's own rewards and nobody else's: a partner's parameter may differ."""
        agent = self._service.agent
        kept = None if agent.private else agent.own_sums()  # a private one clips what it learns
        return self._logged.sums(self._service.journal) if kept is None else unpack(kept)


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


def _half_range(agent: Agent) -> float:
    """σ of rewards whatever their distribution: half of their range (Hoeffding's lemma), which is 1 if
    unknown."""
    low, high = agent.reward_range or (0.0, 1.0)
    return 0.5 * (high - low)


class _Logged:
    """Sums over all rewards in an agent's log. Each call reads what is new since the one before."""

    def __init__(self, dimension: int) -> None:
        self._gram, self._moment = np.zeros((dimension, dimension)), np.zeros(dimension)
        self._end = 0

    def sums(self, journal: Journal) -> tuple[Array, Array]:
        gram, moment, end = self._gram.copy(), self._moment.copy(), end_of(journal)
        for contexts, rewards in records(journal, moment.size, first=self._end, end=end):
            sound = np.abs(rewards) <= LARGEST  # a private agent takes any number, and learns others as 0
            gram += contexts[sound].T @ contexts[sound]
            moment += contexts[sound].T @ rewards[sound]
        self._gram, self._moment, self._end = gram, moment, end  # only once all of it was read
        return gram, moment
