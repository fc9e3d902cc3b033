"""Exposure over time: what was shown, what was due, and the weakest arm's part of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedfairx.errors import InvalidInput
from fedfairx.simulation import Result, Scenario, simulate

SMALL = Scenario(agents=3, arms=4, dimension=2, horizon=60)


@pytest.mark.parametrize("contexts", ["unit-ball", "persistent"])
def test_sums_grow_to_one_a_round_and_the_last_is_the_exposure(contexts: str) -> None:
    result = simulate(replace(SMALL, contexts=contexts), seeds=2, points=12, exposure=True)
    for sums in (result.shown, result.entitled):
        assert sums.shape == (2, 12, 4)
        assert (np.diff(sums, axis=1) > 0).all()
        assert sums.sum(axis=2) == pytest.approx(np.tile(result.rounds, (2, 1)))
    shares = result.shown[:, -1] / SMALL.horizon
    if contexts == "unit-ball":
        assert shares == pytest.approx(result.exposure)
    else:  # all arms are always there: each has the rank of its mean
        ranks = [
            np.argsort(-(result.scenario.features(seed) @ result.scenario.parameter(seed))) for seed in (0, 1)
        ]
        assert np.array([shares[seed, ranks[seed]] for seed in (0, 1)]) == pytest.approx(result.exposure)


def test_measuring_changes_nothing_and_is_left_out_unless_asked_for() -> None:
    plain, measured = simulate(SMALL, seeds=2), simulate(SMALL, seeds=2, exposure=True)
    assert plain.fairness_regret.tobytes() == measured.fairness_regret.tobytes()
    assert plain.shown.size == plain.entitled.size == 0
    with pytest.raises(InvalidInput, match="exposure must have been asked for"):
        plain.weakest_share()


def measured(scenario: Scenario, shown: list[list[float]], entitled: list[list[float]]) -> Result:
    """A result of seed 0, of which only the exposure matters."""
    points = len(shown)
    nothing = np.zeros((1, points))
    return Result(
        scenario,
        "none",
        (0,),
        np.arange(1, points + 1),
        nothing,
        nothing,
        np.zeros(1, dtype=np.int64),
        np.zeros((1, 2)),
        np.array([shown]),
        np.array([entitled]),
    )


def test_the_weakest_share_of_each_window() -> None:
    world = Scenario(arms=2, dimension=2)
    shown = [[1.0, 0.1], [2.0, 0.1], [3.0, 0.4], [4.0, 0.4]]
    entitled = [[1.0, 0.2], [2.0, 0.3], [3.0, 0.5], [4.0, 0.5]]
    result = measured(world, shown, entitled)
    assert result.weakest_share() == pytest.approx(np.array([[0.5, 0.0, 1.5, np.nan]]), nan_ok=True)
    assert result.weakest_share(window=2) == pytest.approx(np.array([[0.5, 1 / 3, 1.0, 1.5]]))
    assert result.weakest_share(window=None) == pytest.approx(np.array([[0.5, 1 / 3, 0.8, 0.8]]))
    assert result.weakest_share(window=99) == pytest.approx(result.weakest_share(window=None))
    with pytest.raises(InvalidInput, match="window must be None or >= 1, got window=0"):
        result.weakest_share(window=0)
    first = Scenario(arms=2, dimension=2, contexts="one-hot", theta=(0.1, 0.9))  # the weakest is arm 0
    assert measured(first, shown, entitled).weakest_share() == pytest.approx(1.0)


def test_winner_takes_all_starves_the_weakest_arm_and_fair_exposure_does_not() -> None:
    world = Scenario(agents=4, arms=4, dimension=3, horizon=1500, contexts="persistent", presence=0.7)
    late = {
        name: simulate(world, algorithm=name, seeds=4, points=3, exposure=True).weakest_share()[:, -1]
        for name in ("linucb", "fed-fairx-linucb")
    }
    assert (late["linucb"] < 0.5).all()
    assert late["fed-fairx-linucb"] == pytest.approx(1.0, abs=0.2)
