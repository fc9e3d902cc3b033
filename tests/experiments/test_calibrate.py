"""The calibration looks at B0's curve alone, and is stored with its settings."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fedfairx.experiments import paper_data
from fedfairx.experiments import world as environment
from fedfairx.experiments.calibrate import SearchGrid, Trial, calibrate, choose, distance, write
from fedfairx.experiments.experiment import FULL
from fedfairx.experiments.outcomes import FAIRNESS
from fedfairx.experiments.provenance import SCHEMA


def test_the_distance_of_the_papers_own_curve_is_zero():
    x, y = paper_data.curve("exp1", FAIRNESS, "b0")
    assert distance(x, y, 100_000) == pytest.approx(0)
    assert distance(x, 1.1 * y, 100_000) == pytest.approx(np.log(1.1))


def test_the_preferred_pair_wins_where_it_is_nearly_as_good():
    settings = SearchGrid()
    near = [Trial(5, 0.1, 0.4, 0.100, 1.0), Trial(10, 0.1, 0.5, 0.115, 1.0)]
    far = [Trial(5, 0.1, 0.4, 0.100, 1.0), Trial(10, 0.1, 0.5, 0.215, 1.0)]
    assert choose(near, settings).arms == 10
    assert choose(far, settings).arms == 5


@pytest.mark.long
def test_a_small_calibration(tmp_path: Path):
    settings = SearchGrid(arms=(5,), noise_sds=(0.1,), horizon=2_000, agents=2, scale_tolerance=0.5)
    with ThreadPoolExecutor(1) as pool:
        found = calibrate(settings, executor=pool)
    assert 0.1 <= found["result"]["scale"] <= 1.0
    assert found["trials"][0]["error"] < 1.0
    path = tmp_path / "c.json"
    write(found, path)
    stored = json.loads(path.read_text())
    assert stored["settings"]["horizon"] == 2_000
    assert stored["made_by"]["schema"] == SCHEMA


def test_the_experiments_live_in_the_stored_world():
    stored = environment.stored_calibration()["result"]
    world = environment.scenario(FULL)
    assert (world.arms, world.noise_sd) == (stored["arms"], stored["noise_sd"])
    assert environment.options()["confidence"].scale == stored["scale"]
    assert world.contexts == "unit-ball"
