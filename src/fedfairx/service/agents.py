"""The agents of a service: made by requests, opened when first used, closed when nobody uses them.

An agent that is closed has a snapshot of its latest state, so that opening it again replays nothing. The
default agent stays open, and so do members of federations.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from fedfairx.agent.agent import Agent
from fedfairx.agent.warm import warm
from fedfairx.errors import InvalidInput, PrivacyError, StorageError, require
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.service.agent_factory import compile_for, is_compiled, open_served
from fedfairx.service.metrics import AgentMetrics
from fedfairx.service.problems import ProblemError
from fedfairx.service.served_agent import ServedAgent
from fedfairx.service.settings import OF_AGENT, OF_RUNNING, Settings, for_agent
from fedfairx.service.write_queue import WriteQueue
from fedfairx.storage.agents import ServedRow, forget_served, read_served, store_served
from fedfairx.storage.transaction_log import Log

PATIENCE = 1.0  # seconds for which a request waits until another agent is no longer in use
PAUSE = 0.005  # seconds from one look to the next
NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"  # of an agent that a request makes


class Agents:
    """All agents of a database, by name."""

    def __init__(self, settings: Settings, log: Log, write_queue: WriteQueue) -> None:
        self._settings = settings
        self._log = log
        self._write_queue = write_queue
        self._folders = {MemberFolder.read(folder).name: folder for folder in settings.federations}
        self._own: str | None = None  # the agent of the service's own settings
        self._default: ServedAgent | None = None
        self._changing = asyncio.Lock()  # held while an agent is made, opened, closed or archived
        self._compiling = asyncio.Lock()  # held while a kind of agents is compiled, which may take a minute
        self.rows = read_served(log)
        self.open: dict[str, ServedAgent] = {}
        self.metrics: dict[str, AgentMetrics] = {}  # of all that were open since the service was started

    def start(self) -> None:
        """Open the agent of the service's own settings, or the first one, and members of federations."""
        if self._settings.given & {*OF_AGENT, "name", "federation"} - {"window"}:  # it is of all agents
            self._default = self._open_own()
        else:
            for name in [name for name, row in self.rows.items() if row.exists][:1]:
                self._open(name)
            if not self.open:  # the first request must not wait until code is loaded or compiled
                warm(Agent(1))
                warm(Agent(actions=["1", "2"]))
        for name in self._folders:
            if name in self.rows and name not in self.open:
                self._open(name)

    @property
    def default(self) -> ServedAgent:
        """The agent of requests that name none."""
        if self._default is None:
            raise ProblemError("unknown-agent", "There is no agent yet.")
        return self._default

    @property
    def default_name(self) -> str | None:
        """Its name; None if there is no agent yet."""
        return None if self._default is None else self._default.agent.name

    def row(self, name: str) -> ServedRow:
        """What is kept of an agent."""
        if name not in self.rows:
            raise ProblemError("unknown-agent", "This service has no agent of that name.")
        return self.rows[name]

    def settings_of(self, name: str) -> Settings:
        """The settings of an agent."""
        served, row = self.open.get(name), self.row(name)
        if served is not None:
            return served.settings
        folder = "" if row.archived else self._folders.get(name, "")  # what is archived shares nothing more
        return for_agent(self._settings, name, row.settings or {}, federation=folder)

    # --- opening and closing -------------------------------------------------------------------------

    @asynccontextmanager
    async def using(self, name: str) -> AsyncIterator[ServedAgent]:
        """An agent by its name, which is open until the end."""
        served = self.open.get(name) or await self._opened(name)
        served.users += 1
        try:
            yield served
        finally:
            served.users -= 1
            served.used = time.monotonic()

    async def _opened(self, name: str) -> ServedAgent:
        if self.row(name).settings is not None:
            await self._compile(name, self.settings_of(name))
        async with self._changing:
            served = self.open.get(name)
            return served or await self._open_now(name)

    async def _compile(self, name: str, settings: Settings) -> None:
        """Compile what an agent needs, before other agents have to wait for it."""
        if name in self.metrics:  # it was open
            return
        if not await asyncio.to_thread(is_compiled, settings):
            async with self._compiling:
                await asyncio.to_thread(compile_for, settings)

    async def _open_now(self, name: str) -> ServedAgent:
        self.row(name)
        await self._make_room()
        served = await asyncio.to_thread(self._open, name)
        if served.membership is not None:
            served.membership.begin()
        with suppress(ProblemError, StorageError):  # what was due while it was closed
            await served.expire()
        return served

    def _open(self, name: str) -> ServedAgent:
        metrics = self.metrics.get(name) or AgentMetrics()
        settings, row = self.settings_of(name), self.rows[name]
        served = open_served(settings, write_queue=self._write_queue, metrics=metrics)
        served.archived = row.archived is not None
        self.open[name], self.metrics[name] = served, metrics
        self.rows[name] = row._replace(exists=True)
        self._default = self._default or served
        return served

    def _open_own(self) -> ServedAgent:
        """Open or create the agent of the service's own settings."""
        settings = self._settings
        if not settings.federation:
            others = [name for name, row in self.rows.items() if row.settings is None]
            name = settings.name or (others[0] if len(others) == 1 else "")
            if not name and len(others) > 1:
                names = ", ".join(map(repr, others[:10]))
                raise InvalidInput(f"name must be given: there are {len(others)} agents, {names}")
            if not name and self.rows:
                if not (settings.dimension or settings.features or settings.actions):
                    text = "must be left out: the agents that there are were made by requests"
                    raise InvalidInput(f"{min(settings.given & OF_AGENT)} {text}, with their own settings")
                name = f"agent-{secrets.token_hex(4)}"
            elif name in self.rows and self.rows[name].settings is not None:
                raise InvalidInput(
                    f"name must be another one: agent {name!r} was made by a request, with its own settings"
                )
            if name:
                settings = replace(settings, name=name, given=settings.given | {"name"})
        metrics = AgentMetrics()
        served = open_served(settings, write_queue=self._write_queue, metrics=metrics)
        self._own = name = served.agent.name
        self.open[name], self.metrics[name] = served, metrics
        served.archived = self.rows.setdefault(name, ServedRow()).archived is not None
        return served

    async def close_idle(self) -> None:
        """Close agents that nobody has used for `idle_seconds`."""
        before = time.monotonic() - self._settings.idle_seconds
        for served in list(self.open.values()):
            async with self._changing:
                if served.used < before and self._closable(served):
                    await self._close(served)

    async def _make_room(self) -> None:
        most, end = self._settings.max_open, time.monotonic() + PATIENCE
        while len(self.open) >= most:
            idle = [served for served in self.open.values() if self._closable(served)]
            if idle:
                await self._close(min(idle, key=lambda served: served.used))
            elif time.monotonic() > end:
                raise ProblemError("busy", f"{most} agents are in use already (max_open).")
            else:
                await asyncio.sleep(PAUSE)

    def _closable(self, served: ServedAgent) -> bool:
        in_use = served.users or served.membership is not None or served is self._default
        return not in_use and self.open.get(served.agent.name) is served

    async def _close(self, served: ServedAgent) -> None:
        del self.open[served.agent.name]
        served.closed = True  # now, so that nothing is put into the write queue for it any more
        with suppress(StorageError):  # it is closed all the same
            await asyncio.to_thread(served.close)

    def close(self) -> None:
        """Close all agents."""
        with ExitStack() as closing:
            for served in self.open.values():
                closing.callback(served.close)

    # --- making and archiving ------------------------------------------------------------------------

    async def make(self, name: str, values: dict[str, Any]) -> None:
        """Make an agent with these settings.

        One that is there already is run with them from now on, and offered again if it is archived.
        """
        is_name = re.fullmatch(NAME, name) or name in self.rows
        rule = (
            "must be 1 to 64 letters, digits, dots, hyphens and underscores, and begin with a letter or digit"
        )
        require(bool(is_name), "agent", rule, f"{len(name)} characters")
        if name not in self.rows:
            await self._compile(name, self._asked(name, values))
        async with self._changing:
            await self._make(name, values)

    async def _make(self, name: str, values: dict[str, Any]) -> None:
        row = self.rows.get(name)
        if row is not None and row.exists:
            row = await self._run_with(name, row, values)
            if row.archived:
                await self._set_archived(name, row, archived=False)
            return
        self._asked(name, values)
        await self._make_room()
        await self._write_queue.do(self._log, lambda log: store_served(log, name, values))
        self.rows[name] = ServedRow(values, exists=False)
        try:
            await self._open_now(name)
        except (InvalidInput, PrivacyError):
            await self._write_queue.do(self._log, lambda log: forget_served(log, name))
            del self.rows[name]
            raise

    def _asked(self, name: str, values: dict[str, Any]) -> Settings:
        """The settings of a new agent."""
        folder = self._folders.get(name, "")
        if not folder and not values.keys() & {"dimension", "features", "actions"}:
            raise InvalidInput("dimension, features or actions must be given")
        return for_agent(self._settings, name, values, federation=folder)

    async def _run_with(self, name: str, row: ServedRow, values: dict[str, Any]) -> ServedRow:
        """Run an agent with these settings from now on; refuse to change what it has learnt by."""
        if row.settings is None:
            if values:
                text = f"It was made without a request: {min(values)} must be left out, like all settings."
                raise ProblemError("agent-exists", text)
            return row
        folder = self._folders.get(name, "")
        before, after = (
            for_agent(self._settings, name, options, federation=folder) for options in (row.settings, values)
        )
        changed = [key for key in sorted(OF_AGENT) if getattr(before, key) != getattr(after, key)]
        for key in changed:
            if key not in OF_RUNNING:
                one, two = getattr(before, key), getattr(after, key)
                raise ProblemError("agent-exists", f"{key} must be what the agent has, {one!r}, got {two!r}.")
        if changed:
            served = self.open.get(name) or await self._open_now(name)
            archived = row.archived is not None
            await served.run_with(after, lambda log: store_served(log, name, values, archived=archived))
            row = self.rows[name] = row._replace(settings=values)
        return row

    async def archive(self, name: str) -> None:
        """Archive an agent: it makes no more decisions, and can still be read and get rewards."""
        async with self._changing:
            row = self.row(name)
            if name == self._own:
                text = "The service's own settings name it: stop the service, or leave them out."
                raise ProblemError("agent-exists", text)
            if not row.archived:
                await self._set_archived(name, row, archived=True)

    async def _set_archived(self, name: str, row: ServedRow, *, archived: bool) -> None:
        await self._write_queue.do(
            self._log, lambda log: store_served(log, name, row.settings, archived=archived)
        )
        self.rows[name] = row._replace(archived=time.time() if archived else None)
        served = self.open.get(name)
        if served is None:
            return
        served.archived = archived
        if archived:  # it leaves its federation
            await asyncio.to_thread(served.leave_federation)
        elif name in self._folders and served.membership is None and self._closable(served):
            await self._close(served)
            await self._open_now(name)
