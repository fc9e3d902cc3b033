"""The write queue: the one place that changes the agent, and makes its changes durable.

Requests put their steps into the queue. One thread takes all that wait, does them one after the other in one
transaction and commits it; only then are they acknowledged. While it writes, the next ones gather, so that
one flush of the disk serves all of them (group commit), and the event loop never waits for a disk.

A step that is refused changes nothing and the others go on. When the commit fails, nothing of the group has
happened, in memory or on disk, and all of it is refused; for a moment others are then refused at once,
instead of each waiting for a storage that is gone.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fedfairx.agent.agent import Agent
from fedfairx.errors import FedFairXError, StorageError
from fedfairx.service.metrics import Metrics
from fedfairx.service.problems import ProblemError

Outcome = TypeVar("Outcome")
Step = Callable[[Agent], Outcome]

MOST = 1_000  # steps in a transaction, so that the first of them need not wait for a crowd
PAUSE = 0.5  # seconds for which others are refused after the storage failed


class WriteQueue:
    """Runs steps on the agent, in groups, durably."""

    def __init__(self, agent: Agent, metrics: Metrics, *, limit: int, last: Step[None] | None = None) -> None:
        self._agent = agent
        self._last = last  # what is done at the end of each group, in its transaction
        self._metrics = metrics
        self._limit = limit
        self._waiting: list[tuple[Step[Any], asyncio.Future[Any]]] = []
        self._at_work = False
        self._closed = False
        self.failed = -math.inf  # when the storage last failed, by the monotonic clock
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="write-queue")

    @property
    def available(self) -> bool:
        """Whether a step may be tried: the last one went well, or failed long enough ago."""
        return time.monotonic() >= self.failed + PAUSE

    async def do(self, step: Step[Outcome]) -> Outcome:
        """The step's outcome, once it is on disk."""
        if self._closed:
            raise ProblemError("unavailable", "The service is being stopped.")
        if not self.available:
            raise ProblemError("unavailable", "It could not be written a moment ago; nothing was changed.")
        if len(self._waiting) >= self._limit:
            raise ProblemError("busy", f"{self._limit} requests wait already (max_waiting).")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        self._waiting.append((step, future))
        if not self._at_work:
            self._at_work = True
            self._idle.clear()
            loop.call_soon(self._take, loop)  # after all that have arrived by now
        return await future

    async def close(self) -> None:
        """Finish waiting steps, and accept no more."""
        self._closed = True
        await self._idle.wait()
        self._thread.shutdown()

    def _take(self, loop: asyncio.AbstractEventLoop) -> None:
        group, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        if not group:
            self._at_work = False
            self._idle.set()
            return
        work = loop.run_in_executor(self._thread, self._do, [step for step, _ in group])
        work.add_done_callback(lambda done: self._acknowledge(loop, group, done.result()))

    def _do(self, steps: list[Step[Any]]) -> list[Any] | Exception:
        """Run a group in the queue's thread: outcomes and errors of its steps, or one error for all."""
        outcomes: list[Any] = []
        try:
            with self._agent.transaction():
                for step in steps:
                    try:
                        outcomes.append(step(self._agent))
                    except StorageError:
                        raise
                    except FedFairXError as error:
                        outcomes.append(error)
                if self._last is not None:
                    self._last(self._agent)
        except Exception as error:  # those who wait must get it, whatever it is
            return error
        return outcomes

    def _acknowledge(
        self,
        loop: asyncio.AbstractEventLoop,
        group: list[tuple[Step[Any], asyncio.Future[Any]]],
        outcomes: list[Any] | Exception,
    ) -> None:
        if isinstance(outcomes, Exception):
            self.failed = time.monotonic()
            outcomes = [outcomes] * len(group)
        else:
            self._metrics.groups += 1
            self._metrics.grouped += len(group)
        for (_, future), outcome in zip(group, outcomes, strict=True):
            if future.done():  # the caller has gone; what was done stays done
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        self._take(loop)
