"""The process behind the endpoints: settings, keys, the log with its write queue, metrics, and its agents."""

from __future__ import annotations

import asyncio

from fedfairx.agent.agent import Agent
from fedfairx.service.auth import Authenticator
from fedfairx.service.feature_table import FeatureTable
from fedfairx.service.federation import Membership
from fedfairx.service.metrics import Metrics
from fedfairx.service.served_agent import ServedAgent
from fedfairx.service.settings import Settings
from fedfairx.service.write_queue import WriteQueue

TICK = 1.0  # seconds between two checks for expired decisions


class Service:
    """The agents of one database, with one write queue for all of them."""

    document = b""  # OpenAPI, made by `make_app`

    def __init__(
        self,
        settings: Settings,
        agent: Agent,
        auth: Authenticator,
        features: FeatureTable,
        membership: Membership | None = None,
    ) -> None:
        self.settings = settings
        self.auth = auth
        self.metrics = Metrics()
        self.log = agent.journal.log
        self.write_queue = WriteQueue(self.log, self.metrics, limit=settings.max_waiting)
        self.default = ServedAgent(
            settings, agent, features, membership, write_queue=self.write_queue, metrics=self.metrics
        )
        self.agents = {agent.name: self.default}

    async def expire(self) -> None:
        """Expire decisions whose window is past, every `TICK` seconds until cancelled."""
        while True:
            await asyncio.sleep(TICK)
            for served in self.agents.values():
                try:
                    await served.expire()
                except Exception:  # the storage is unavailable: requests will say so
                    continue

    async def close(self) -> None:
        """Finish waiting steps, and close the agents."""
        await self.write_queue.close()
        for served in self.agents.values():
            await asyncio.to_thread(served.close)
