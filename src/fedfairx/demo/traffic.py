"""One organisation's orders, decided by its service and by a twin agent that learns alone from them.

The first organisation wrongs a courier: its dispatcher withdraws what is drawn for this one, and asks again
without.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedfairx.agent.agent import Agent
from fedfairx.client import Client, RemoteDecision, ServiceError
from fedfairx.decision import Decision
from fedfairx.demo.couriers import COURIERS, SCHEMA, Couriers, Order
from fedfairx.errors import StateError


class Orders:
    """The orders of an organisation, and the cumulative fairness regret of its service and of the twin.

    wronged: name of the courier who gets no order; None unless it is the first organisation.
    """

    def __init__(self, name: str, url: str, *, seed: int, place: int, key: str | None = None) -> None:
        self.name = name
        self.url = url
        self.client = Client(url, key=key)
        self.together = 0.0
        self.alone = 0.0
        self.placed = 0
        self.rewards: dict[str, float | None] = {}  # acknowledged by the service: id → reward
        self._city = Couriers([seed, place])
        staying = self._city.couriers[COURIERS // 2 :]  # for 8 000 orders or more
        self.wronged = max(staying, key=lambda each: each.rating).name if place == 0 else None
        self._twin = Agent(schema=SCHEMA, seed=place, name=name)
        self._late: dict[str, tuple[int, float]] = {}  # rewards of the service: id → when they come, reward
        self._twins: list[tuple[int, Decision, float]] = []  # the same of the twin

    @property
    def rewarded(self) -> int:
        return sum(reward is not None for reward in self.rewards.values())

    def place(self, count: int) -> None:
        """Place orders at once, unless the service can't be reached; rewards are then sent later."""
        first, orders = self.placed, [self._city.order() for _ in range(count)]
        try:
            decisions = self._decided([order.request for order in orders])
            given = self._given(orders, decisions)
        except ServiceError:
            return
        self.placed += count
        twins = self._twin.decide_many(
            [{"actions": order.rows, "context": order.context} for order in orders]
        )
        for number, (order, one, twin) in enumerate(zip(orders, decisions, twins, strict=True), first):
            self.together += order.unfairness(one.policy)
            self.alone += order.unfairness(twin.policy)
            if order.after is not None:
                identity, action = given[number - first]
                self._late[identity] = number + order.after, order.reward(action)
                self._twins.append((number + order.after, twin, order.reward(twin.action)))
        self.settle(self.placed)
        came = [(twin, reward) for due, twin, reward in self._twins if due < self.placed]
        if came:
            self._twin.observe_many([twin for twin, _ in came], [reward for _, reward in came])
            self._twins = [each for each in self._twins if each[0] >= self.placed]

    def _decided(self, requests: list[dict[str, Any]]) -> list[RemoteDecision]:
        decisions = self.client.decide_many(requests)
        self.rewards |= {one.id: None for one in decisions}
        return decisions

    def _given(self, orders: list[Order], decisions: list[RemoteDecision]) -> list[tuple[str, int]]:
        """The decision by which each order is given, and the courier: another than the wronged one."""
        given = [(one.id, one.action) for one in decisions]
        taken = [k for k, order in enumerate(orders) if order.near[given[k][1]].name == self.wronged]
        if taken:
            self.client.forget_many([given[k][0] for k in taken])
            again = self._decided([orders[k].request | {"excluded": [self.wronged]} for k in taken])
            for k, one in zip(taken, again, strict=True):
                given[k] = one.id, one.action
        return given

    def settle(self, orders: int | None = None) -> None:
        """Send the service the rewards that come within so many orders; by default all that ever come."""
        due = {one: reward for one, (when, reward) in self._late.items() if orders is None or when < orders}
        if due:
            try:
                self.client.observe_many(list(due), list(due.values()))
            except ServiceError:
                return
            self.rewards |= due
            self._late = {one: late for one, late in self._late.items() if one not in due}

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
                stored = {row.id: row.reward for row in agent.journal.decisions()}
        except StateError:  # a damaged database counts as lost
            return len(self.rewards)
        return sum(
            identity not in stored or stored[identity] != reward for identity, reward in self.rewards.items()
        )
