"""Orders of the demonstration: couriers come and go, rewards are late, and one courier is wronged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedfairx.agent.agent import Agent
from fedfairx.decision import Decision
from fedfairx.demo.couriers import SCHEMA, Couriers
from fedfairx.demo.traffic import Orders


def test_twins_see_what_services_see() -> None:
    """The first orders, before any reward: the shares of a service are those of its twin."""
    seen: list[Any] = []

    class Desk:
        """A service that answers as an agent would that has learnt nothing."""

        agent = Agent(schema=SCHEMA, seed=0)

        def decide_many(self, requests: list[dict[str, Any]]) -> list[Decision]:
            seen.extend(requests)
            rows = [
                {
                    "actions": {each["id"]: each["features"] for each in one["actions"]},
                    "context": one["context"],
                }
                for one in requests
            ]
            return self.agent.decide_many(rows)

    orders = Orders("org2", "http://none", seed=0, place=1)
    orders.client = Desk()  # type: ignore[assignment]
    orders.place(50)
    assert len(seen) == orders.placed == 50
    assert orders.together == orders.alone > 0


def test_couriers_come_and_go_and_rewards_are_late_or_never_come() -> None:
    groups: list[set[str]] = []
    names: set[str] = set()
    late: list[int] = []  # orders placed when a reward came, after its own

    class Desk:
        def decide_many(self, requests: list[dict[str, Any]]) -> list[SimpleNamespace]:
            (request,) = requests
            groups.append({each["group"] for each in request["actions"]})
            names.update(each["id"] for each in request["actions"])
            return [SimpleNamespace(id=str(len(groups)), action=0, policy=[0.125] * 8)]

        def observe_many(self, identities: list[str], rewards: list[float]) -> None:
            assert set(rewards) <= {0.0, 1.0}
            late.extend(len(groups) - int(each) for each in identities)

    orders = Orders("org2", "http://none", seed=0, place=1)
    orders.client = Desk()  # type: ignore[assignment]
    for _ in range(3_000):
        orders.place(1)
    assert (min(late), max(late)) == (300, 900)
    due = 3_000 - 600  # rewards that should have come, were none lost; 0.03 is four sds
    assert len(late) / due == pytest.approx(0.92, abs=0.03)
    assert all(found == {"first"} for found in groups[:400])
    assert any("new" in found for found in groups[400:800])
    assert len(names) == 47
    assert orders.rewarded == len(late)
    orders.settle()
    assert 0.9 < orders.rewarded / 3_000 < 0.94


def test_regret_is_that_of_the_fair_policy() -> None:
    order = Couriers(4).order()
    merits = np.exp(10.0 * order.chances)
    assert order.unfairness(merits / merits.sum()) == pytest.approx(0.0, abs=1e-12)
    fair = merits / merits.sum()
    assert order.unfairness(np.eye(8)[0]) == pytest.approx(2.0 * (1.0 - fair[0]))


def test_the_first_organisation_withdraws_what_is_drawn_for_one_courier() -> None:
    """The order is asked for again without this one, whose place in it another reward would have."""
    asked: list[dict[str, Any]] = []
    withdrawn: list[str] = []
    rewarded: dict[str, float] = {}

    class Desk:
        """A service that draws the courier who is wronged, wherever it may."""

        def decide_many(self, requests: list[dict[str, Any]]) -> list[SimpleNamespace]:
            made = []
            for request in requests:
                names = [each["id"] for each in request["actions"]]
                free = [name not in request.get("excluded", ()) for name in names]
                wanted = orders.wronged in names and free[names.index(orders.wronged)]
                action = names.index(orders.wronged) if wanted else free.index(True)
                made.append(SimpleNamespace(id=str(len(asked)), action=action, policy=[0.125] * 8))
                asked.append(request)
            return made

        def forget_many(self, identities: list[str]) -> None:
            withdrawn.extend(identities)

        def observe_many(self, identities: list[str], rewards: list[float]) -> None:
            rewarded.update(zip(identities, rewards, strict=True))

    orders = Orders("org1", "http://none", seed=0, place=0)
    orders.client = Desk()  # type: ignore[assignment]
    for _ in range(10):
        orders.place(100)
    orders.settle()
    near = [any(each["id"] == orders.wronged for each in request["actions"]) for request in asked]
    again = [request for request in asked if "excluded" in request]
    assert orders.placed == 1000
    assert len(asked) == 1000 + len(withdrawn)
    assert len(withdrawn) == len(again) == sum(near) // 2 > 150  # of 200 in the mean
    assert all(request["excluded"] == [orders.wronged] for request in again)
    assert not rewarded.keys() & set(withdrawn)
    assert orders.rewards == dict.fromkeys(map(str, range(len(asked)))) | rewarded
    city = Couriers([0, 0])
    stays = next(each for each in city.couriers if each.name == orders.wronged)
    assert stays.rating == max(each.rating for each in city.couriers[20:])
    assert Orders("org2", "http://none", seed=0, place=1).wronged is None
