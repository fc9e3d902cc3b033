"""The model page, whose numbers are in units of rewards."""

from __future__ import annotations

import csv
import io
from itertools import product
from pathlib import Path
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


def test_own_records_have_a_table_and_their_size_is_told_once_it_is_known(tmp_path: Path) -> None:
    """From eight names with two rewards each on; before, nobody can know how far people differ."""
    place = str(tmp_path / "agent.sqlite")
    with ffx.Agent.open(place_of(settings_for(place)), dimension=2, seed=0) as agent:
        names = [f"n{k}" for k in range(60)]
        for name in [*names[:7], *names]:
            agent.learn([[0.5, 0.5]], [float(name < "n3")], names=[name])
        records = {name: agent.record_of(name) for name in agent.names}
    with looking(place, dimension=2) as client:
        text, model = client.get("/model").text, client.get("/v1/model").json()
        assert "People with the same features differ" not in text
        assert (model["names"], model["differ"]) == (7, None)
        for each in model["records"]:
            record = records[each["name"]]
            assert record is not None
            wanted = (record.rewards, record.weight, record.effect, record.sd)
            found = tuple(each[key] for key in ("rewards", "weight", "effect", "sd"))
            assert found == pytest.approx(wanted)
        assert text.count('<h2 id="records">') == 1
    with ffx.Agent.open(place_of(settings_for(place))) as agent:
        agent.learn([[0.5, 0.5]] * 120, [0.5] * 120, names=names * 2)
        differ = agent.own_sd
    with looking(place, dimension=2) as client:
        text, model = client.get("/model?own_page=2").text, client.get("/v1/model").json()
        assert f"People with the same features differ by about {differ:.3f}." in text
        assert (model["names"], model["differ"]) == (60, pytest.approx(differ))
        assert "51 to 60 of 60 names" in text
        found = client.get("/model?own_q=n1&own_sort=-rewards").text
        assert "11 names whose name contains “n1”" in found
        lines = client.get("/model?own_q=n1&table=own&format=csv").text.splitlines()
        assert lines[0] == "name,rewards,effect,sd,weight"
        assert len(lines) == 12
        assert client.get("/model?format=csv").text.splitlines()[0] == "name,estimate,sd,low,high"


def test_names_alone_have_expected_rewards(tmp_path: Path) -> None:
    place = str(tmp_path / "agent.sqlite")
    with ffx.Agent.open(place_of(settings_for(place)), actions=["ann", "ben"], seed=0) as agent:
        agent.learn(["ann"] * 30, [1.0] * 30)
        ann = float(agent.estimate[0] + agent.record_of("ann").effect)  # type: ignore[union-attr]
    with looking(place, dimension=None) as client:
        (line, _) = csv.DictReader(io.StringIO(client.get("/model?format=csv").text))
        assert float(line["estimate"]) == pytest.approx(ann)
        assert float(line["low"]) < ann < float(line["high"])
        assert float(line["rewards"]) == 30.0
        text = client.get("/model").text
        assert "The expected reward of each action." in text
        assert "Own records" not in text
        found = client.get("/share?action=ben").text
        assert "Choose an action" not in found
