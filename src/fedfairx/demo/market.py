"""A small market for demonstrations: suppliers bid for orders, and rewards follow later.

Everything is drawn from a seed, so that agents that decide differently get the same orders and luck.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedfairx.util.arrays import Array

#: The features of an offer: range, and effect of one unit on the probability that the order goes well.
OFFER = {
    "price": (0.0, 10.0, -0.03),
    "quality": (1.0, 5.0, 0.1),
    "days": (0.0, 14.0, -0.015),
    "distance": (0.0, 1000.0, -0.00015),
    "warranty": (0.0, 5.0, 0.03),
    "returns": (0.0, 20.0, -0.01),
    "carbon": (0.0, 50.0, -0.003),
    "support": (1.0, 5.0, 0.04),
}
#: A supplier's group, and the means of its offers.
SUPPLIERS = {
    "Ahorn": ("small", (3.0, 4.5, 6.0, 200.0, 1.0, 4.0, 10.0, 4.0)),
    "Birke": ("small", (4.0, 4.0, 4.0, 500.0, 2.0, 6.0, 20.0, 3.0)),
    "Buche": ("large", (5.0, 3.0, 2.0, 100.0, 3.0, 8.0, 30.0, 2.0)),
    "Eiche": ("large", (6.0, 4.0, 2.0, 700.0, 4.0, 3.0, 15.0, 4.0)),
    "Erle": ("small", (5.0, 2.5, 8.0, 50.0, 1.0, 9.0, 5.0, 3.0)),
    "Linde": ("large", (7.0, 3.5, 1.0, 400.0, 2.0, 5.0, 25.0, 4.5)),
}
NAMES = tuple(OFFER)
LOW, HIGH, ADDS = (np.array(each) for each in zip(*OFFER.values(), strict=True))
TYPICAL, CHANCE = (LOW + HIGH) / 2, 0.35  # an offer in the middle of all ranges, and its probability
FEATURES = ",".join(f"{name}={low:g}:{high:g}" for name, (low, high, _) in OFFER.items())
DIMENSION = len(NAMES) + 1  # with an intercept
STEEPNESS = 10.0  # of the merit; the default
_MEANS = np.array([means for _, means in SUPPLIERS.values()])
_SPREAD = 0.2  # sd of an offer, relative to its mean


class Market:
    """One organisation's orders."""

    def __init__(self, seed: int | list[int] | None = None) -> None:
        self._rng = np.random.default_rng(seed)

    def offers(self, orders: int) -> Array:
        """Offers of all suppliers for each order: (orders, suppliers, features)."""
        drawn = self._rng.normal(_MEANS, _SPREAD * _MEANS, (orders, *_MEANS.shape))
        return np.clip(drawn, LOW, HIGH)

    def luck(self, orders: int) -> Array:
        """A number in [0, 1) for each order, whichever offer is chosen; smaller is better."""
        return self._rng.random(orders)


def worth(offers: Array) -> Array:
    """The probability that an order goes well, which no agent knows."""
    return np.asarray(CHANCE + (offers - TYPICAL) @ ADDS)


def rewards(offers: Array, actions: Sequence[int] | Array, luck: Array) -> list[float]:
    """1 where the order went well, else 0."""
    chosen = np.take_along_axis(worth(offers), np.asarray(actions)[:, None], axis=1)[:, 0]
    return [float(well) for well in luck < chosen]


def unfairness(offers: Array, policies: Array) -> float:
    """Fairness regret: the sum of absolute differences between shares and those that merit entitles to."""
    entitled = np.exp(STEEPNESS * worth(offers))
    entitled /= entitled.sum(axis=1, keepdims=True)
    return float(np.abs(np.asarray(policies) - entitled).sum())


def contexts(offers: Array) -> Array:
    """Contexts as a service with `FEATURES` and an intercept gives them to its agent."""
    scaled = ((offers - LOW) + (offers - HIGH)) / (HIGH - LOW)
    with_constant = np.concatenate([scaled, np.ones((*offers.shape[:-1], 1))], axis=-1)
    return np.asarray(with_constant / np.sqrt(DIMENSION))


def request(offers: Array) -> dict[str, Any]:
    """The body of a request for one order: suppliers by name, with their group."""
    return {
        "actions": [
            {"id": name, "group": group, "features": dict(zip(NAMES, offer, strict=True))}
            for (name, (group, _)), offer in zip(SUPPLIERS.items(), offers.tolist(), strict=True)
        ]
    }
