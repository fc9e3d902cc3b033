"""The model page, whose numbers are in units of rewards."""

from __future__ import annotations

import csv
import io
from itertools import product
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.service.settings import place_of
from market import looking
from service_helpers import settings_for

LEVELS = {"bike": 0.1, "car": 0.04, "van": -0.05}
WEATHER = {"dry": 0.0, "snow": -0.2}  # that of a bike
FEATURES: dict[str, Any] = {
    "rating": (1.0, 5.0),
    "distance": (0.0, 10.0),
    "vehicle": list(LEVELS),
    "weather": list(WEATHER),
    "fragile": bool,
}
#: By hand from `expected`: of numbers from end to end, of levels and products against the mean.
TRUTH = {
    "rating": 0.28,
    "distance": -0.3,
    "vehicle=bike": 0.1 - 0.1 - (0.1 - 0.1 + 0.04 - 0.05) / 3,
    "vehicle=van": -0.05 - (0.1 - 0.1 + 0.04 - 0.05) / 3,
    "weather=snow": -0.2 / 3 / 2,
    "vehicle=bike:weather=snow": -0.2 / 2 + 0.2 / 3 / 2,
    "rating:fragile=true": 0.06,  # 0.34 instead of 0.28
    "fragile=false": 0.0,
    "intercept": 0.55 + (0.1 - 0.1 + 0.04 - 0.05) / 3,
}


def expected(row: dict[str, Any]) -> float:
    """The expected reward: that of an average rating and distance is 0.55 and what the vehicle adds."""
    slope = 0.07 + 0.03 * (row["fragile"] - 0.5)
    more = WEATHER[row["weather"]] if row["vehicle"] == "bike" else 0.0
    return float(
        0.55 + slope * (row["rating"] - 3.0) - 0.03 * (row["distance"] - 5.0) + LEVELS[row["vehicle"]] + more
    )


def rows_of_every_kind() -> list[dict[str, Any]]:
    values = np.linspace(0.0, 1.0, 5)
    return [
        {"rating": 1 + 4 * a, "distance": 10 * b, "vehicle": vehicle, "weather": weather, "fragile": fragile}
        for a, b, vehicle, weather, fragile in product(values, values, LEVELS, WEATHER, (False, True))
    ]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    """The rows of the page, as its file has them, of a model that has learnt 6 000 rewards."""
    place = str(tmp_path_factory.mktemp("model") / "agent.sqlite")
    products = ["rating:fragile", "vehicle:weather"]
    schema = ffx.features.Schema(FEATURES, shared=["weather", "fragile"], products=products)
    rows, rng = rows_of_every_kind() * 20, np.random.default_rng(1)
    with ffx.Agent.open(place_of(settings_for(place)), schema=schema) as agent:
        agent.learn(rows, [expected(row) + 0.1 * rng.standard_normal() for row in rows])
    with looking(place) as client:
        assert "1 to 5" in client.get("/model").text
        table = csv.DictReader(io.StringIO(client.get("/model?format=csv").text))
        return {row.pop("name"): {key: float(value) for key, value in row.items()} for row in table}


def test_effects_are_those_of_the_simulated_truth(shown: dict[str, dict[str, float]]) -> None:
    for name, truth in TRUTH.items():
        row = shown[name]
        assert row["estimate"] == pytest.approx(truth, abs=0.02), name
        assert row["estimate"] == pytest.approx(truth, abs=4.0 * row["sd"]), name
        assert row["low"] < row["estimate"] < row["high"]
        assert row["high"] - row["low"] == pytest.approx(3.92 * row["sd"], rel=0.15), name


def test_levels_differ_from_their_mean(shown: dict[str, dict[str, float]]) -> None:
    for feature, levels in (("vehicle", LEVELS), ("weather", WEATHER), ("fragile", ("false", "true"))):
        assert sum(shown[f"{feature}={level}"]["estimate"] for level in levels) == pytest.approx(
            0.0, abs=1e-9
        )
