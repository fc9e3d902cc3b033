"""Couriers for demonstrations: some are near each order, and whether it arrived in time is known late.

Features describe couriers and orders. Again and again a courier leaves and another joins. Rewards come
hundreds of orders late, and some never come. Everything is drawn from a seed, so that agents that decide
differently get the same orders and luck.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedfairx.features import Schema
from fedfairx.util.arrays import Array

FEATURES: dict[str, Any] = {
    "rating": (1.0, 5.0),
    "price": (0.0, 100.0),
    "distance": (0.0, 10.0),
    "vehicle": ["bike", "car", "van"],
    "weather": ["dry", "rain", "snow"],
    "fragile": bool,
}
SHARED = ("weather", "fragile")  # features of the order
SCHEMA = Schema(FEATURES, shared=SHARED)
STEEPNESS = 10.0  # of the merit; the default
COURIERS, NEAR = 40, 8  # at any time, and near an order
CHANGE = 400  # orders after which one courier leaves and another joins
EARLIEST, LATEST = 300, 900  # orders after which a reward comes
NEVER = 0.08  # share of the rewards that never come
_BASE = 0.55
_RATING, _PRICE, _DISTANCE = 0.06, -0.001, -0.03  # effect of one unit
_VEHICLE = {"bike": 0.05, "car": 0.0, "van": -0.05}
_BIKE_IN = {"dry": 0.0, "rain": -0.08, "snow": -0.2}
_CAREFUL = 0.03  # effect of one star of the rating, where an order is fragile


@dataclass(frozen=True)
class Courier:
    """One courier, with the features that stay."""

    name: str
    group: str  # "new" who joined later than the first ones
    rating: float
    price: float
    vehicle: str


@dataclass(frozen=True)
class Order:
    """An order, the couriers near it with their distances, and what is decided by luck."""

    context: dict[str, Any]  # its own features
    near: list[Courier]
    distances: list[float]
    luck: float  # the order arrives in time if this is below its probability
    after: int | None  # orders after which the reward comes; None if never

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The features of the couriers near it."""
        return [
            {"rating": each.rating, "price": each.price, "distance": distance, "vehicle": each.vehicle}
            for each, distance in zip(self.near, self.distances, strict=True)
        ]

    @property
    def request(self) -> dict[str, Any]:
        """What a service is asked: the order, and the couriers near it by name, with their group."""
        actions = [
            {"id": each.name, "group": each.group, "features": row}
            for each, row in zip(self.near, self.rows, strict=True)
        ]
        return {"context": self.context, "actions": actions}

    @property
    def chances(self) -> Array:
        """The probability of each courier to arrive in time, which no agent knows."""
        weather, fragile = self.context["weather"], self.context["fragile"]
        chances = [
            _BASE
            + (_RATING + _CAREFUL * fragile) * (each.rating - 3.0)
            + _PRICE * (each.price - 50.0)
            + _DISTANCE * (distance - 5.0)
            + _VEHICLE[each.vehicle]
            + (_BIKE_IN[weather] if each.vehicle == "bike" else 0.0)
            for each, distance in zip(self.near, self.distances, strict=True)
        ]
        return np.asarray(np.clip(chances, 0.02, 0.98))

    @property
    def entitled(self) -> Array:
        """The shares that merit entitles to."""
        merit = np.exp(STEEPNESS * (self.chances - 0.5))
        return np.asarray(merit / merit.sum())

    def unfairness(self, shares: ArrayLike) -> float:
        """Fairness regret: the sum of absolute differences between shares and entitlements."""
        return float(np.abs(np.asarray(shares) - self.entitled).sum())

    def reward(self, action: int) -> float:
        """1 if this courier arrives in time, else 0."""
        return float(self.luck < self.chances[action])


class Couriers:
    """The orders of one city.

    >>> order = Couriers(seed=0).order()
    >>> len(order.near), sorted(order.context)
    (8, ['fragile', 'weather'])
    """

    def __init__(self, seed: int | list[int] | None = None) -> None:
        self._rng = np.random.default_rng(seed)
        self._orders = 0
        self._joined = 0
        self.couriers = [self._join("first") for _ in range(COURIERS)]

    def _join(self, group: str) -> Courier:
        rng, name = self._rng, f"courier-{self._joined:03d}"
        self._joined += 1
        rating, price = rng.uniform(1.0, 5.0), rng.uniform(0.0, 100.0)
        vehicle = FEATURES["vehicle"][rng.choice(3, p=[0.5, 0.3, 0.2])]
        return Courier(name, group, round(float(rating), 1), round(float(price)), str(vehicle))

    def order(self) -> Order:
        """The next order."""
        rng = self._rng
        if self._orders and self._orders % CHANGE == 0:
            self.couriers = [*self.couriers[1:], self._join("new")]
        self._orders += 1
        weather = FEATURES["weather"][rng.choice(3, p=[0.6, 0.3, 0.1])]
        context = {"weather": str(weather), "fragile": bool(rng.random() < 0.2)}
        places = rng.choice(COURIERS, NEAR, replace=False)
        distances = np.round(rng.uniform(0.0, 10.0, NEAR), 1).tolist()
        after = None if rng.random() < NEVER else int(rng.integers(EARLIEST, LATEST + 1))
        return Order(context, [self.couriers[k] for k in places], distances, float(rng.random()), after)
