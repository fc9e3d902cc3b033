"""The calibration looks at B0's curve alone, and is stored with its settings."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from paper import world as environment
from paper.calibrate import SearchGrid, Trial, calibrate, choose, distance
from paper.experiment import DATA, FULL, made_by


def test_the_distance_of_the_papers_own_curve_is_zero():
    x, y = environment.curve("exp1", "b0")
    assert distance(x, y, 100_000) == pytest.approx(0)
    assert distance(x, 1.1 * y, 100_000) == pytest.approx(np.log(1.1))


def test_the_preferred_pair_wins_where_it_is_nearly_as_good():
    settings = SearchGrid()
    near = [Trial(5, 0.1, 0.4, 0.100, 1.0), Trial(10, 0.1, 0.5, 0.115, 1.0)]
    far = [Trial(5, 0.1, 0.4, 0.100, 1.0), Trial(10, 0.1, 0.5, 0.215, 1.0)]
    assert choose(near, settings).arms == 10
    assert choose(far, settings).arms == 5


@pytest.mark.long
def test_a_small_calibration():
    settings = SearchGrid(arms=(5,), noise_sd=(0.1,), horizon=2_000, agents=2, scale_tolerance=0.5)
    with ThreadPoolExecutor(1) as pool:
        found = calibrate(settings, submit=pool.submit)
    assert 0.1 <= found["result"]["scale"] <= 1.0
    assert found["trials"][0]["error"] < 1.0
    stored = json.loads(json.dumps(found))
    assert stored["settings"]["horizon"] == 2_000
    assert stored["made_by"] == made_by()


def test_the_experiments_live_in_the_stored_world():
    stored = json.loads((DATA / "calibration.json").read_text())["result"]
    world = environment.scenario(FULL)
    assert (world.arms, world.noise_sd) == (stored["arms"], stored["noise_sd"])
    assert environment.options()["confidence"].scale == stored["scale"]
    assert world.contexts == "unit-ball"
