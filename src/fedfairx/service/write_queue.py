"""The write queue: the only place that changes agents.

Requests put their tasks into the queue, each with its agent. One thread takes all waiting tasks, runs them
one after the other in one transaction of the log and commits it; only then are they acknowledged. While it
writes, the next tasks gather, so that one flush of the disk serves all of them (group commit), and the event
loop does not wait for a disk. There is one exception: a short task of the only request under way runs at
once in the event loop's own thread, if the last group took less than `SHORT` seconds and no snapshot is due.
It takes half of the time without two changes of threads, and requests that come meanwhile wait for one commit
at most. If another process is writing, the task is undone after a moment, and waits in the queue.

Agents take turns. When the tasks of one agent have taken more than `TURN` seconds of a group and another
agent waits, the group ends there and is committed. The tasks that are left wait again, each agent's in their
order. The next group is that of the other agents.

A task that is refused changes nothing, and the others go on. When the commit fails, the whole group is
undone, in memory and on disk, and all of its tasks fail; for a moment new tasks are then refused at once,
instead of each waiting for a storage that is unavailable. When a task fails for another reason, the tasks of
other agents run again without those of its agent.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, groupby
from typing import Any, TypeVar

from fedfairx.agent.agent import Agent
from fedfairx.errors import FedFairXError, StorageError, StorageUnavailable
from fedfairx.service.metrics import Metrics
from fedfairx.service.outage import Outage
from fedfairx.service.problems import ProblemError
from fedfairx.storage.database import Busy
from fedfairx.storage.transaction_log import Log

Owner = TypeVar("Owner")
Outcome = TypeVar("Outcome")
Task = Callable[[Agent], Outcome]
_Waiting = tuple[Any, Callable[[Any], Any], Callable[[Any], None] | None, asyncio.Future[Any]]

MOST = 1_000  # tasks in a transaction, which bounds the wait of the first
PAUSE = 0.5  # seconds for which tasks are refused after the storage failed
PROBED = 1.0  # seconds for which a successful probe counts
SHORT = 0.005  # seconds of a group, after which a task may run in the event loop
TURN = 0.05  # seconds of one agent's tasks in a group, after which others that wait come first
WORK = 20_000_000  # multiplications, at most, in one call that takes several tasks: some 30 ms
PATIENCE = 5.0  # seconds after which a silent storage counts as unavailable
LATER = object()  # in place of the outcome of a task that has not run


class WriteQueue:
    """Runs tasks on agents, in groups, durably."""

    def __init__(self, log: Log, metrics: Metrics, *, limit: int) -> None:
        self.log = log
        self.metrics = metrics
        self.requests: Collection[object] | None = None  # those under way, if the server says so
        self._limit = limit
        self._waiting: list[_Waiting] = []
        self._at_work = False
        self._closed = False
        self.failed = -math.inf  # when the storage last failed, by the monotonic clock
        self.outage = Outage(metrics)
        self._probed = -math.inf  # when a probe last succeeded
        self._took = math.inf  # seconds, by the last group
        self._slow: set[int] = set()  # ids of owners whose tasks of the last group took more than `TURN`
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="write-queue")

    @property
    def available(self) -> bool:
        """Whether a task may be tried: the storage did not fail within the last `PAUSE` seconds."""
        return time.monotonic() >= self.failed + PAUSE

    @property
    def waiting(self) -> int:
        """Number of tasks that wait."""
        return len(self._waiting)

    async def do(
        self,
        owner: Owner,
        task: Callable[[Owner], Outcome],
        *,
        last: Callable[[Owner], None] | None = None,
        short: bool = False,
    ) -> Outcome:
        """Run a task on its owner, an agent, and return its outcome once it is on disk.

        last: runs once after all tasks of the group in which this task is.
        short: whether the task takes no longer than a commit does; its owner is an agent.
        """
        if self._closed:
            raise ProblemError("unavailable", "The service is being stopped.")
        if not self.available:
            raise ProblemError("unavailable", "It could not be written a moment ago; nothing was changed.")
        if len(self._waiting) >= self._limit:
            raise ProblemError("busy", f"{self._limit} requests wait already (max_waiting).")
        alone = not self._at_work and self.requests is not None and len(self.requests) == 1
        if alone and short and last is None and self._took < SHORT and self._free_for(owner):
            with suppress(Busy):
                return self._do_here(owner, task)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        self._waiting.append((owner, task, last, future))
        if not self._at_work:
            self._at_work = True
            self._idle.clear()
            loop.call_soon(self._take, loop)  # after all requests that have arrived by now
        return await future

    async def probe(self) -> None:
        """Raise unless the storage takes a write; a success counts for `PROBED` seconds."""
        if self.failed < self._probed > time.monotonic() - PROBED:
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await self.do(self.log, _probe)
        except TimeoutError:
            raise ProblemError(
                "unavailable", f"Nothing could be written within {PATIENCE:g} seconds."
            ) from None
        self._probed = time.monotonic()

    async def ready(self) -> bool:
        """Whether `probe` succeeds."""
        try:
            await self.probe()
        except (ProblemError, StorageError):
            return False
        return True

    async def close(self) -> None:
        """Finish waiting tasks, and accept no more."""
        self._closed = True
        await self._idle.wait()
        self._thread.shutdown()

    def _free_for(self, owner: Any) -> bool:
        """Whether a task of this agent waits for nobody and no snapshot follows; if so, the log is taken."""
        return not owner.journal.long_after() and self.log.take_at_once()

    def _do_here(self, owner: Owner, task: Callable[[Owner], Outcome]) -> Outcome:
        """Run a task in this thread; raise `Busy` if another process is writing."""
        began = time.monotonic()
        try:
            with self.log.transaction:
                outcome = task(owner)
        except Busy:  # it was undone, and can wait in the queue
            raise
        except Exception as error:
            if isinstance(error, StorageError) or not isinstance(error, FedFairXError):
                self._count_failure(error)
            raise
        finally:
            self._took = time.monotonic() - began
            self.log.let_go()
        if self.outage.error is not None:
            self.outage.end()
        self.metrics.groups += 1
        self.metrics.grouped += 1
        return outcome

    def _take(self, loop: asyncio.AbstractEventLoop) -> None:
        most = MOST
        if self._slow:  # a group without those that took long, unless nobody else waits
            self._waiting.sort(key=lambda each: id(each[0]) in self._slow)
            quick = sum(id(owner) not in self._slow for owner, *_ in self._waiting)
            most = min(quick or MOST, MOST)
        group, self._waiting = self._waiting[:most], self._waiting[most:]
        if not group:
            self._at_work = False
            self._idle.set()
            return
        work = loop.run_in_executor(self._thread, self._do, group)
        work.add_done_callback(lambda done: self._acknowledge(loop, group, done.result()))

    def _do(self, group: list[_Waiting]) -> list[Any] | Exception:
        """Run a group of tasks: their outcomes or errors, or one error for all."""
        began = time.monotonic()
        self._slow.clear()
        try:
            return self._do_each(group)
        finally:
            self._took = time.monotonic() - began

    def _do_each(self, group: list[_Waiting]) -> list[Any] | Exception:
        done = self._run(group)
        if not isinstance(done, Exception) or isinstance(done, StorageUnavailable):
            return done
        owners = {id(owner) for owner, *_ in group}
        if len(owners) == 1:
            return done
        outcomes: dict[int, Any] = {}  # by place in the group
        for each in owners:  # the mistake of one agent must not fail the others
            places = [place for place, (owner, *_) in enumerate(group) if id(owner) == each]
            done = self._run([group[place] for place in places])
            outcomes |= zip(
                places, [done] * len(places) if isinstance(done, Exception) else done, strict=True
            )
        return [outcomes[place] for place in range(len(group))]

    def _run(self, group: list[_Waiting]) -> list[Any] | Exception:
        """Run tasks in one transaction, until one agent has had its turn and another waits."""
        outcomes: list[Any] = []
        spent: defaultdict[int, float] = defaultdict(float)  # seconds of its turn, by id of the owner
        try:
            with self.log.transaction:
                for owner, tasks in _calls(group):
                    began = time.monotonic()
                    outcomes += _take_tasks(owner, tasks)
                    spent[id(owner)] += time.monotonic() - began
                    if spent[id(owner)] > TURN:
                        self._slow.add(id(owner))
                        if any(other is not owner for other, *_ in chain(group, self._waiting)):
                            break
                        spent[id(owner)] = 0.0  # nobody waits, so it has another turn
                ends = {last: owner for owner, _, last, *_ in group[: len(outcomes)] if last is not None}
                for last, owner in ends.items():
                    last(owner)
        except Exception as error:  # the waiting requests must get it
            return error
        return outcomes + [LATER] * (len(group) - len(outcomes))

    def _acknowledge(
        self,
        loop: asyncio.AbstractEventLoop,
        group: list[_Waiting],
        outcomes: list[Any] | Exception,
    ) -> None:
        if isinstance(outcomes, Exception):
            self._count_failure(outcomes)
            outcomes = [outcomes] * len(group)
        else:
            if self.outage.error is not None:
                self.outage.end()
            self.metrics.groups += 1
            self.metrics.grouped += sum(outcome is not LATER for outcome in outcomes)
        left: list[_Waiting] = []
        for waiting, outcome in zip(group, outcomes, strict=True):
            future = waiting[-1]
            if outcome is LATER:
                left.append(waiting)
            elif future.done():  # the caller has gone; what was done stays done
                continue
            elif isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        self._waiting[:0] = left
        self._take(loop)

    def _count_failure(self, error: Exception) -> None:
        if isinstance(error, StorageUnavailable):  # any other error concerns this agent alone
            self.failed = time.monotonic()
            self.outage.fail(error)
        self.metrics.storage_failures += 1


def _calls(group: Iterable[_Waiting]) -> Iterator[tuple[Any, list[Any]]]:
    """The tasks of a group by calls, each with its owner: one task, or some of one kind up to `WORK`."""
    for _, alike in groupby(group, _kind):
        tasks: list[Any] = []
        work = 0.0
        for owner, task, *_ in alike:
            own = getattr(task, "work", math.inf)
            if tasks and work + own > WORK:
                yield owner, tasks
                tasks, work = [], 0.0
            tasks.append(task)
            work += own
        yield owner, tasks


def _kind(waiting: _Waiting) -> tuple[int, object]:
    """Tasks that follow one another may be taken in one call if this is the same."""
    owner, task, *_ = waiting
    return id(owner), getattr(task, "kind", None)


def _take_tasks(owner: Owner, tasks: Sequence[Any]) -> list[Any]:
    """The outcomes or errors of tasks of one owner and kind.

    Tasks with a kind have `together`, which takes several in one call, to the same effect; where it is
    refused, it has changed nothing, and each is taken by itself. `work` says how much one of them is.
    """
    if len(tasks) > 1:
        try:
            return list(tasks[0].together(owner, tasks))
        except StorageError:
            raise
        except FedFairXError:
            pass
    outcomes: list[Any] = []
    for task in tasks:
        try:
            outcomes.append(task(owner))
        except StorageError:
            raise
        except FedFairXError as error:
            outcomes.append(error)
    return outcomes


def _probe(log: Log) -> None:
    """Write to the disk as any other task does, and change nothing."""
    for change in ("+ 1", "- 1"):  # SQLite writes nothing for `version = version`
        log.write(f"UPDATE fedfairx SET version = version {change}")
