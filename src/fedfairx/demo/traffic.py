"""One organisation's orders, decided by its service and by a twin agent that learns alone from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedfairx.agent.agent import Agent
from fedfairx.client import Client, ServiceError
from fedfairx.demo.market import DIMENSION, Market, contexts, request, rewards, unfairness
from fedfairx.errors import StateError


class Orders:
    """The orders of an organisation, and the cumulative fairness regret of its service and of the twin."""

    def __init__(self, name: str, url: str, *, seed: int, place: int, key: str | None = None) -> None:
        self.name = name
        self.url = url
        self.client = Client(url, key=key)
        self.together = 0.0
        self.alone = 0.0
        self.kept: dict[str, float | None] = {}  # acknowledged by the service: id → reward
        self._market = Market([seed, place])
        self._twin = Agent(DIMENSION, seed=place, name=name)
        self._owed: dict[str, float] = {}  # rewards that are still to be sent

    @property
    def decisions(self) -> int:
        return len(self.kept)

    @property
    def rewarded(self) -> int:
        return sum(reward is not None for reward in self.kept.values())

    def place(self, count: int) -> None:
        """Place orders at once, unless the service can't be reached; rewards are then sent later."""
        offers, luck = self._market.offers(count), self._market.luck(count)
        try:
            made = self.client.decide_many([request(each) for each in offers])
        except ServiceError:
            return
        self.kept |= {one.id: None for one in made}
        self.together += unfairness(offers, np.array([one.policy for one in made]))
        came = rewards(offers, np.array([one.action for one in made]), luck)
        self._owed |= dict(zip((one.id for one in made), came, strict=True))
        self.settle()
        twins = self._twin.decide_many(contexts(offers))
        self.alone += unfairness(offers, np.array([one.policy for one in twins]))
        self._twin.observe_many(twins, rewards(offers, np.array([one.action for one in twins]), luck))

    def settle(self) -> None:
        """Send the service the rewards of its decisions."""
        if self._owed:
            try:
                self.client.observe_many(list(self._owed), list(self._owed.values()))
            except ServiceError:
                return
            self.kept |= self._owed
            self._owed = {}

    def look(self) -> dict[str, Any]:
        """The state of the service, from `/v1/sync` and `/v1/privacy`; empty while it can't be reached."""
        try:
            return {"sync": self.client.get("/v1/sync"), "privacy": self.client.get("/v1/privacy")}
        except ServiceError:
            return {}

    def lost(self, database: Path) -> int:
        """The number of acknowledged decisions and rewards that are not in the stopped service's database."""
        try:
            with Agent.open(database) as agent:
                found = {row.id: row.reward for row in agent.journal.decisions()}
        except StateError:  # a damaged database counts as lost
            return len(self.kept)
        return sum(
            identity not in found or found[identity] != reward for identity, reward in self.kept.items()
        )
