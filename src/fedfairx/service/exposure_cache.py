"""Tables of exposure over windows of the log.

A table is computed in a thread, one at a time, from a bounded number of decisions, and cached: however often
it is read, decisions are not delayed.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedfairx.agent.reward_limits import RewardLimits
from fedfairx.core.agent_kernels import LARGEST
from fedfairx.core.own_record import CONTEXTS, RECORDS, REWARDS
from fedfairx.core.posterior import Posterior
from fedfairx.core.statistics import unpack
from fedfairx.errors import StorageError
from fedfairx.fairness import Exposure, Logged, exposure
from fedfairx.fairness.change_test import MOST_FEATURES, Change, ChangeTest, batch_of
from fedfairx.fairness.decision_log import Codes
from fedfairx.fairness.exposure_table import MOST_COLUMNS, MOST_NAMES
from fedfairx.service.arrivals import NOTHING, Arrivals
from fedfairx.service.earnings import Earnings, LiftReader
from fedfairx.service.schemas import ArrivalTable
from fedfairx.service.stretches import stretches
from fedfairx.storage.journal import Journal
from fedfairx.storage.queries import Records, any_made, last_of, latest, learnt, number_at, records
from fedfairx.storage.records import StoredDecision
from fedfairx.storage.replacement import replaced_between
from fedfairx.storage.rows import labels_of
from fedfairx.util.arrays import Array

if TYPE_CHECKING:
    from fedfairx.agent.agent import Agent
    from fedfairx.service.settings import Settings


KEPT = 32  # tables in the cache
FRESH = 10.0  # seconds for which a table is cached, at least
PATIENCE = 1.0  # seconds that readers wait for what is read from the log
COST = 10.0  # and this many times the seconds that it took to compute
FEW = 1_000, 1 << 18  # decisions, and shares in them, that a first table is computed from in about a second
MOST_SHARES = 1 << 23  # in the decisions of a table: they are in memory
MOST_TALLIES = 20_000  # of names, from the log
YEAR = 365.25 * 86_400.0  # seconds: nothing is forecast beyond


_Window = tuple[float | None, float | None]  # since and until


@dataclass(frozen=True)
class ExposureSnapshot:
    """A table, and the decisions that it was computed from. Times are seconds since 1970."""

    table: Exposure
    first: float | None  # time of the first decision in it
    last: float | None
    when: float  # it was computed, by the monotonic clock: that of the system may go back
    took: float  # seconds
    bounded: bool  # whether decisions of the window were left out because there are too many
    withdrawn: int
    baseline: int  # decisions that took the caller's own action
    end: int  # the number after the last step of the log by then
    stretch: str = ""  # of time, in `table.over_time`
    gone: str | None = None  # what is no longer in the log, as a sentence
    partial: bool = False  # whether it is of the latest decisions alone, while that of all is computed

    def wait(self, decisions: float) -> float | None:
        """About how many seconds so many more decisions take, at the rate so far; None if it has none."""
        if self.first is None or self.last is None or self.last <= self.first:
            return None
        return decisions * (self.last - self.first) / max(self.table.decisions - 1, 1)

    def wait_for(self, rewards: float) -> float | None:
        """The same for so many more rewards."""
        return None if math.isnan(self.table.answered) else self.wait(rewards / self.table.answered)


class _Reading:
    """Reads what is new in the log, in a thread; not again before it may have changed."""

    def __init__(self, read: Callable[[], None]) -> None:
        self._read = read
        self._until = -math.inf  # what was read is current until then, by the monotonic clock
        self._task: asyncio.Task[None] | None = None

    async def done(self) -> None:
        """Return when it is current, or after `PATIENCE` seconds; reading then goes on."""
        if time.monotonic() > self._until:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._look())
            await asyncio.wait([self._task], timeout=PATIENCE)

    async def _look(self) -> None:
        began = time.monotonic()
        try:
            await asyncio.to_thread(self._read)
        except StorageError:
            return
        self._until = time.monotonic() + max(FRESH, COST * (time.monotonic() - began))


class ExposureCache:
    """The cache: each table is computed once for all readers."""

    def __init__(self, agent: Agent, settings: Settings) -> None:
        self._agent, self._settings = agent, settings
        self._one_at_a_time = asyncio.Lock(), asyncio.Lock()  # for tables of all decisions, and of a few
        self._snapshots: dict[_Window, ExposureSnapshot]
        self._making: dict[tuple[_Window, bool], asyncio.Task[ExposureSnapshot]]
        self._arrivals: Arrivals | None
        self.start_over()

    def start_over(self) -> None:
        """Compute everything again: records were deleted, or the agent was rolled back."""
        self._snapshots, self._making = {}, {}  # what is being made goes into the old ones
        self._logged = _Logged()
        self._rewards, self._arrivals = _Rewards(self._agent, self._settings), None
        self._rewards_read = _Reading(self._rewards.update)
        self._arrivals_read = _Reading(self._read_arrivals)

    async def look(self, *, since: float | None = None, until: float | None = None) -> ExposureSnapshot:
        """The table of decisions made from `since` on and before `until`.

        If a new one takes longer than `PATIENCE` seconds, it is the last one.
        """
        window = since, until
        snapshot = self._snapshots.get(window)
        if snapshot is not None and snapshot.partial:
            snapshot = None
        if snapshot is not None and time.monotonic() - snapshot.when <= max(FRESH, COST * snapshot.took):
            self._snapshots[window] = self._snapshots.pop(window)  # the one read last is dropped last
            return snapshot
        task = self._task(window, few=False)
        await asyncio.wait([task], timeout=None if snapshot is None else PATIENCE)
        return snapshot if snapshot is not None and not task.done() else task.result()

    async def glance(
        self, *, since: float | None = None, until: float | None = None
    ) -> ExposureSnapshot | None:
        """The same, but nobody waits for the first one either.

        Until there is one of all decisions it is of the latest ones, or None while these are computed.
        """
        window, ends = (since, until), time.monotonic() + PATIENCE
        if window not in self._snapshots:
            ends += PATIENCE
            first = self._task(window, few=True)
            await asyncio.wait([first], timeout=ends - time.monotonic())
            if not first.done():
                return None
            first.result()  # which may be an error
        snapshot = self._snapshots.get(window)
        if snapshot is None or not snapshot.partial:
            return await self.look(since=since, until=until)
        whole = self._task(window, few=False)
        await asyncio.wait([whole], timeout=max(0.0, ends - time.monotonic()))
        return whole.result() if whole.done() else snapshot

    def _task(self, window: _Window, *, few: bool) -> asyncio.Task[ExposureSnapshot]:
        """What computes a table, of few decisions or of all; the same for all who wait for it."""
        task = self._making.get((window, few))
        if task is None or task.done():
            task = self._making[window, few] = asyncio.create_task(self._keep(window, few))
            task.add_done_callback(
                lambda done: done.cancelled() or done.exception()
            )  # nobody may wait for it
        return task

    async def _keep(self, window: _Window, few: bool) -> ExposureSnapshot:
        snapshots, making = self._snapshots, self._making
        try:
            async with self._one_at_a_time[few]:
                snapshot = await asyncio.to_thread(self._make, *window, few)
            snapshots.pop(window, None)
            snapshots[window] = snapshot
            if len(snapshots) > KEPT:
                del snapshots[next(iter(snapshots))]
            return snapshot
        finally:
            making.pop((window, few), None)

    @property
    def results(self) -> tuple[Change, Earnings] | None:
        """What was last found of change and earnings; None before the log was read."""
        return self._rewards.found

    async def change(self) -> Change:
        """Whether rewards contradict a model that never changes.

        The rate of false alarms is for one beginning of the test. While the storage is unavailable, or a long
        log takes more than a second, it is what was found last.
        """
        await self._rewards_read.done()
        return (self.results or (Change(), Earnings()))[0]

    async def earnings(self) -> Earnings:
        """The mean reward and the lift over controls."""
        await self._rewards_read.done()
        return (self.results or (Change(), Earnings()))[1]

    async def arrivals(self) -> ArrivalTable:
        """Whether rewards arrive, for each action and group; of a long log, first as far as it is read."""
        await self._arrivals_read.done()
        return NOTHING if self._arrivals is None else self._arrivals.table

    def _read_arrivals(self) -> None:
        settings = self._settings
        arrivals = self._arrivals
        if arrivals is None:
            arrivals = self._arrivals = Arrivals(
                self._agent.journal,
                most=settings.exposure_decisions,
                window=settings.window,
                default_reward=settings.default_reward is not None,
            )
        arrivals.update()

    def _make(self, since: float | None, until: float | None, few: bool = False) -> ExposureSnapshot:
        began = time.monotonic()
        agent, settings, journal = self._agent, self._settings, self._agent.journal
        first = 0 if since is None else number_at(journal, since)
        behind, end = journal.end(), number_at(journal, until)
        changing = agent.options.half_life is not None  # then entitlements are not estimated
        sums = None if changing else self._sums()
        most = _at_most(journal, end, settings.exposure_decisions, MOST_SHARES)
        start = last_of(journal, most, first=first, end=end)
        bounded, partial = any_made(journal, first=first, end=start), False
        if few:
            early, start = start, last_of(journal, _at_most(journal, end, *FEW), first=start, end=end)
            partial = any_made(journal, first=early, end=start)
        since_time, width, count, stretch = _stretches(journal, start, end)
        times = [since_time + width * k for k in range(count)]

        def computed(sums: OwnSums | None) -> tuple[_Seen, Exposure]:
            seen = _Seen(agent, since_time, width)
            return seen, exposure(
                seen.read(journal.decisions(after_seq=start - 1, before_seq=end)),
                merit=agent.merit,
                noise_sd=settings.noise_sd or _half_range(agent),
                tolerance=settings.tolerance,
                sums=None if sums is None else self._certain(sums),
                changing=changing,
                posterior=None if sums is None else by_own_rewards(agent, sums),
                times=times,
            )

        try:
            seen, table = computed(sums)
        except np.linalg.LinAlgError:  # contexts so long that rounding makes the sums singular
            assert sums is not None
            seen, table = computed(sums.none())  # as if no reward had come
        return ExposureSnapshot(
            table,
            seen.first,
            seen.last,
            time.monotonic(),
            time.monotonic() - began,
            bounded,
            seen.withdrawn,
            seen.baseline,
            behind,
            stretch,
            journal.amendments().gone(since),
            partial,
        )

    def _sums(self) -> OwnSums:
        """Sums over this agent's rewards only: a peer's parameter may differ."""
        agent = self._agent
        own = None if agent.private else agent.own_records()  # the sums of a private agent are clipped
        if own is None:
            return self._logged.sums(agent.journal, agent, agent.names)
        return OwnSums(*unpack(own[0]), *own[1:])

    def _certain(self, sums: OwnSums) -> tuple[Array, Array]:
        """The same for what is certain, where every record of a name counts for it, its first one too.

        Without that one, the name's own number would be missing from the mean of its reward.
        """
        agent = self._agent
        if not sums.names or (len(sums.names) + agent.columns > MOST_COLUMNS and agent.dimension):
            return sums.gram, sums.moment
        if not (agent.private or agent.actions):
            sums = self._logged.sums(agent.journal, agent, sums.names)
        return sums.with_columns(features=agent.dimension > 0)


class OwnSums(NamedTuple):
    """Σxxᵀ (d, d) and Σxy (d,) over an agent's own rewards, and the tallies (n, d + 2) of names in them."""

    gram: Array
    moment: Array
    names: tuple[str, ...]
    tallies: Array

    def none(self) -> OwnSums:
        """As if no reward had come."""
        return OwnSums(0.0 * self.gram, 0.0 * self.moment, self.names, 0.0 * self.tallies)

    def with_columns(self, *, features: bool) -> tuple[Array, Array]:
        """The sums with a column for each name after the features, or of names alone."""
        counts, rewards, contexts = (
            self.tallies[:, RECORDS],
            self.tallies[:, REWARDS],
            self.tallies[:, CONTEXTS:],
        )
        if not features:
            most = min(counts.size, MOST_NAMES + 1)  # beyond, nothing is certain
            return np.diag(counts[:most]), rewards[:most]
        gram = np.block([[self.gram, contexts.T], [contexts, np.diag(counts)]])
        return gram, np.concatenate([self.moment, rewards])


def by_own_rewards(agent: Agent, sums: OwnSums) -> Posterior:
    """What is believed by sums of own rewards; they may lack a column that was added meanwhile."""
    posterior, size = agent.posterior, sums.moment.size
    mean, common, names = posterior.prior_mean[:size], posterior.common[:size], posterior.names
    if names is not None:
        places = {name: place for place, name in enumerate(sums.names)}
        names = names._replace(places=places, tallies=sums.tallies)
    return replace(posterior, gram=sums.gram, moment=sums.moment, prior_mean=mean, common=common, names=names)


def _stretches(journal: Journal, start: int, end: int) -> tuple[float, float, int, str]:
    """(since, width, count, name) of the stretches of time between the first and the last decision."""
    first = next((each.time for each in journal.decisions(after_seq=start - 1, before_seq=end, limit=1)), 0.0)
    last = next((each.time for each in latest(journal, limit=1, before=end)), first)
    return stretches(first, max(first, last))


def _at_most(journal: Journal, end: int, decisions: int, shares: int) -> int:
    """How many of the latest decisions have so many shares, by the number of actions of the last one."""
    arms = [each.policy.size for each in latest(journal, limit=1, before=end)]
    return max(1, min([decisions, *(shares // count for count in arms)]))


class _Seen:
    """Converts stored decisions for `exposure`, and counts withdrawn and baseline ones.

    Contexts from before features were added have fewer columns; actions with names alone have places.
    """

    first: float | None = None
    last: float | None = None
    withdrawn = 0
    baseline = 0

    def __init__(self, agent: Agent, since: float, width: float) -> None:
        self._dimension = agent.columns
        names = () if agent.dimension else agent.all_actions
        self._places = {name: place for place, name in enumerate(names)}
        self._of: dict[tuple[str, ...], Codes] = {}  # places of the names of recent decisions
        self._since, self._width = since, width  # of stretches of time

    def read(self, decisions: Iterator[StoredDecision]) -> Iterator[Logged]:
        for decision in decisions:
            self.last = decision.time
            if self.first is None:
                self.first = self.last
            withdrawn = decision.status == "withdrawn"
            if withdrawn:
                self.withdrawn += 1
            elif decision.mode != "live":
                self.baseline += 1
            shares = np.frombuffer(decision.packed_policy, "<f8")
            logged = Logged(
                shares,
                None if withdrawn else decision.action,
                self._contexts(decision, shares.size),
                labels_of(decision.names_json),
                labels_of(decision.groups_json),
                decision.drawn,
                decision.reward,
                stretch=max(0, int((decision.time - self._since) // self._width)),
                baseline=decision.mode != "live",
            )
            if decision.slots:
                logged.slots = [slot.weight for slot in decision.slots]
                logged.action = [
                    None if slot.status == "withdrawn" else slot.action for slot in decision.slots
                ]
                logged.drawn = [slot.drawn for slot in decision.slots]
                logged.reward = [slot.reward for slot in decision.slots]
            yield logged

    def _contexts(self, decision: StoredDecision, arms: int) -> NDArray[Any]:
        """Contexts (K, d), or places (K,) of actions with names alone."""
        if self._places:
            names = labels_of(decision.names_json) or ()
            places = self._of.get(names)
            if places is None:
                places = np.array([self._places[name] for name in names], dtype=np.int64)
                if len(self._of) * arms > MOST_TALLIES:
                    self._of.clear()
                self._of[names] = places
            return places
        rows = np.frombuffer(decision.packed, "<f8").reshape(arms, -1)
        more = self._dimension - rows.shape[1]
        return np.pad(rows, ((0, 0), (0, more))) if more > 0 else rows


def _half_range(agent: Agent) -> float:
    """σ of rewards of any distribution: half of their range (Hoeffding's lemma)."""
    low, high = _range_of(agent)
    return 0.5 * (high - low)


def _range_of(agent: Agent) -> tuple[float, float]:
    """The range of rewards, 0 to 1 if it is unknown.

    Members of a federation without noise that states none have the limits of absurd rewards instead.
    """
    stated = agent.options.reward_range
    absurd = RewardLimits(agent.options.prior or agent.prior, None).ends
    return (0.0, 1.0) if stated is None or stated == absurd else stated


class _Rewards:
    """What rewards say as they come: whether merit changes, their mean, and the lift over controls.

    They are read from the log, of a long one from the decisions of the first table on: what is new since the
    last time or, after a reward was replaced, everything.
    """

    def __init__(self, agent: Agent, settings: Settings) -> None:
        self._agent, self._settings = agent, settings
        self._end = 0  # the number after the last step that was read
        self.found: tuple[Change, Earnings] | None = None  # None before the log was read

    def _start_over(self) -> None:
        agent, settings, journal = self._agent, self._settings, self._agent.journal
        first = last_of(journal, settings.exposure_decisions, first=0, end=number_at(journal, None))
        self._test = ChangeTest(settings.noise_sd or _half_range(agent), separate=not agent.dimension)
        self._next, self._count, self._total = (
            first,
            0,
            0.0,
        )  # after whole batches, and of the rewards in them
        self._columns = _Columns()
        self._lift: LiftReader | None = None
        if settings.control_share:
            ends = _range_of(agent)
            self._lift = LiftReader(journal, first=first, reward_range=ends, wait=settings.window)

    def update(self) -> None:
        """Read what is new."""
        agent, journal = self._agent, self._agent.journal
        end = journal.end()
        if self.found is None or replaced_between(journal, self._end, end):
            self._start_over()
        columns, names = self._columns, agent.names or (() if agent.dimension else agent.all_actions)
        width = columns.add(agent.columns if agent.dimension else 0, names)
        size, count, total = batch_of(width), self._count, self._total
        parts = records(journal, agent.columns, first=self._next, end=end, page=size)
        for part in parts:
            sound = np.abs(part.rewards) <= LARGEST
            count, total = count + int(sound.sum()), total + float(part.rewards[sound].sum())
            if part.rewards.size == size:
                if not agent.dimension:
                    places = columns.places(part.names)[sound]
                    self._test.add_separate(places, part.weights[sound], part.rewards[sound], width)
                elif width <= MOST_FEATURES:
                    self._test.add(columns.rows(part)[sound], part.rewards[sound])
                self._next, self._count, self._total = part.last + 1, count, total
        lift = None if self._lift is None else self._lift.update()
        many = width > MOST_FEATURES and agent.dimension > 0
        change = replace(self._test.change, needed=0 if many else size)
        self._end, self.found = end, (change, Earnings(total / count if count else None, count, lift))


class _Columns:
    """The columns of the test for change: of features and of names, in the order in which they came."""

    def __init__(self) -> None:
        self._features: list[int] = []
        self._names: dict[str, int] = {}

    def add(self, features: int, names: Sequence[str]) -> int:
        """Have columns for so many features and for these names too; return how many there are."""
        width = len(self._features) + len(self._names)
        new = range(width, width + features - len(self._features))
        self._features += new
        for name in names:
            self._names.setdefault(name, len(self._features) + len(self._names))
        return len(self._features) + len(self._names)

    def places(self, names: Sequence[str | None]) -> Codes:
        """The columns (n,) of names, -1 for those without one."""
        return np.array([self._names.get(name or "", -1) for name in names], dtype=np.int64)

    def rows(self, part: Records) -> Array:
        """Records in all columns, times the weights of their slots."""
        rows = np.zeros((len(part.rewards), len(self._features) + len(self._names)))
        rows[:, self._features] = part.contexts
        places = self.places(part.names)
        has = np.flatnonzero(places >= 0)
        rows[has, places[has]] = part.weights[has]
        return rows


class _Logged:
    """Sums over all rewards in an agent's log.

    Each call reads what is new since the last one or, after a reward was replaced, everything.
    """

    def __init__(self) -> None:
        self._sums, self._end = _Sums(0), 0

    def sums(self, journal: Journal, agent: Agent, names: tuple[str, ...]) -> OwnSums:
        """The sums, and the tallies of these names."""
        dimension, end = agent.columns, journal.end()
        replaced = replaced_between(journal, self._end, end)
        first = 0 if replaced else self._end
        sums = _Sums(dimension) if replaced else self._sums.copy(dimension)
        for part in chain(
            learnt(journal, first=first, end=end), records(journal, dimension, first=first, end=end)
        ):
            sums.add(part)
            if len(sums.tallies) > MOST_TALLIES:  # most came once
                sums.tallies = {name: sums.tallies[name] for name in names if name in sums.tallies}
        self._sums, self._end = sums, end  # only after everything was read
        none = np.zeros(dimension + CONTEXTS)
        tallies = [sums.tallies.get(name, none) for name in names]
        return OwnSums(sums.gram, sums.moment, names, np.array(tallies).reshape(len(names), none.size))


class _Sums:
    """(Σxxᵀ, Σxy) over records, and the tallies (d + 2,) of names."""

    def __init__(self, dimension: int) -> None:
        self.gram: Array = np.zeros((dimension, dimension))
        self.moment: Array = np.zeros(dimension)
        self.tallies: dict[str, Array] = {}

    def copy(self, dimension: int) -> _Sums:
        """A copy, in a larger dimension if features were added."""
        copy, old = _Sums(dimension), self.moment.size
        copy.gram[:old, :old], copy.moment[:old] = self.gram, self.moment
        copy.tallies = {name: np.pad(tally, (0, dimension - old)) for name, tally in self.tallies.items()}
        return copy

    def add(self, part: Records) -> None:
        sound = (
            np.abs(part.rewards) <= LARGEST
        )  # a private agent takes any number, and learns larger ones as 0
        size, contexts, rewards = part.contexts.shape[1], part.contexts[sound], part.rewards[sound]
        self.gram[:size, :size] += contexts.T @ contexts
        self.moment[:size] += contexts.T @ rewards
        for place in np.flatnonzero(sound):
            name, weight = part.names[place], part.weights[place]
            if name is not None:
                tally = self.tallies.setdefault(name, np.zeros(self.moment.size + CONTEXTS))
                tally[RECORDS] += weight * weight
                tally[REWARDS] += weight * part.rewards[place]
                tally[CONTEXTS : CONTEXTS + size] += weight * part.contexts[place]
