"""The process behind the endpoints: settings, keys, the log with its write queue, metrics, and its agents."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from fedfairx.errors import StorageError, StorageUnavailable
from fedfairx.service.agents import Agents
from fedfairx.service.auth import Authenticator
from fedfairx.service.logs import AgentLog
from fedfairx.service.metrics import Metrics
from fedfairx.service.problems import ProblemError, problem_of
from fedfairx.service.served_agent import ServedAgent
from fedfairx.service.settings import Settings, keep_seconds
from fedfairx.service.write_queue import WriteQueue
from fedfairx.storage.database import PAGE
from fedfairx.storage.transaction_log import Log
from fedfairx.storage.verification import SteadyCheck

TICK = 0.5  # seconds between two checks for expired decisions and idle agents
GIVE_UP = 10.0  # seconds for which nothing could be written, after which a process lets its database go
DROP_EVERY = 3_600.0  # seconds, at most, between two checks for contexts that are too old
VERIFY_AFTER = 60.0  # seconds from the start until the first slice of the log is verified,
VERIFY_EVERY = 3_600.0  # and from then on between two slices
SLICE = 100_000  # steps of the log, at most
PAUSES = 9  # times as long as it takes to verify some of them


class Service:
    """The agents of one database, with one write queue for all of them."""

    document = b""  # OpenAPI, made by `make_app`

    def __init__(self, settings: Settings, log: Log, auth: Authenticator) -> None:
        self.settings = settings
        self.log = log
        self.auth = auth
        self.metrics = Metrics()
        self.write_queue = WriteQueue(log, self.metrics, limit=settings.max_waiting)
        self.agents = Agents(settings, log, self.write_queue)
        self.verification = SteadyCheck(log)
        self._gave_up: StorageError | None = None

    @property
    def ended(self) -> StorageError | None:
        """Why this process must not go on; None as long as it may."""
        return self.log.database.ended or self._gave_up

    @property
    def default(self) -> ServedAgent:
        """The agent of requests that name none."""
        return self.agents.default

    def begin(self) -> None:
        """Show life, and start the exchange of members of federations."""
        self.log.show_life()
        for served in self.agents.open.values():
            if served.membership is not None:
                served.membership.begin()

    async def watch(self) -> None:
        """Every `TICK` seconds: show life, check the storage, expire decisions, close idle agents."""
        while True:
            await asyncio.sleep(TICK)
            with suppress(Exception):  # the storage is unavailable: requests will say so
                await asyncio.to_thread(self.log.show_life)
                await self._look_at_storage()
                opened = list(self.agents.open.values())
                for served in opened:
                    served.log_warnings()
                await asyncio.gather(*(served.expire() for served in opened), return_exceptions=True)
                await self.agents.close_idle()

    async def _look_at_storage(self) -> None:
        """Log an outage that goes on, or that a write ends here.

        Give up a database that this process has locked, if it could write nothing for `GIVE_UP` seconds. A
        lost connection to a server has freed the lock, and is made again.
        """
        outage = self.write_queue.outage
        if outage.error is None or await self.write_queue.ready():
            return
        outage.go_on()
        if self.log.database.local and time.monotonic() > outage.since + GIVE_UP:
            self._gave_up = StorageUnavailable(
                f"{outage.error}. This process could write nothing for {GIVE_UP:g} seconds, and ends, so "
                "that another can have the database; all that was acknowledged is there"
            )

    def problem(self, error: Exception) -> ProblemError:
        """The problem of an error by which a request ends; it is counted."""
        if isinstance(error, StorageUnavailable):
            self.write_queue.outage.fail(error)
        problem = problem_of(error)
        self.metrics.problems[problem.kind] += 1
        return problem

    async def verify(self) -> None:
        """Verify a slice of the log every hour, with pauses, until cancelled."""
        await asyncio.sleep(VERIFY_AFTER)
        while True:
            with suppress(StorageError):  # the next hour goes on where this one stopped
                await self.verify_slice()
            await asyncio.sleep(VERIFY_EVERY)

    async def verify_slice(self) -> None:
        """Verify up to `SLICE` steps, to the end of the log at most; log each agent whose log is damaged."""
        known, check = set(self.verification.damage), self.verification
        left, some = SLICE, 1
        while left > 0 and some:
            began = time.monotonic()
            some = await asyncio.to_thread(check.go_on, min(PAGE, left))
            left -= some
            for name in check.damage.keys() - known:
                known.add(name)
                AgentLog(name).error("its log is damaged: %s", check.damage[name])
            await asyncio.sleep(PAUSES * (time.monotonic() - began))

    async def drop_contexts(self) -> None:
        """Drop contexts that are older than `keep`, every hour or more often, until cancelled."""
        keep = keep_seconds(self.settings)
        assert keep is not None
        while True:
            await self.drop_older(keep)
            await asyncio.sleep(min(DROP_EVERY, keep / 10))

    async def drop_older(self, seconds: float) -> None:
        """Drop contexts of all agents that are older than this."""
        for name in [name for name, row in self.agents.rows.items() if row.exists]:
            with suppress(Exception):  # the storage is unavailable: requests will say so
                async with self.agents.using(name) as served:
                    await served.drop_contexts(time.time() - seconds)

    async def close(self) -> None:
        """Finish waiting tasks, and close the agents and the log."""
        await self.write_queue.close()
        for close in (self.agents.close, self.log.close):
            with suppress(StorageError):  # what was acknowledged is on disk
                await asyncio.to_thread(close)
