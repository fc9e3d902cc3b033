"""Exp 12: which places of its grid are run, and what its claims would say of other results."""

from __future__ import annotations

import numpy as np
import pytest

from experiment_helpers import said
from paper import FULL, QUICK, Claim, Outcome, Size, Table
from paper.exp12 import (
    ALONE,
    BEST,
    EPSILONS,
    EXPERIMENT,
    HOWS,
    MEMBERS,
    SEEDS,
    SHORT,
    STRICT_SECURE,
    TOGETHER,
    Place,
    apart,
    by_epsilon,
    by_members,
    runs,
    settings,
)

WHOLE = Size(seeds=SEEDS)
LONG = FULL.horizon


def test_the_whole_grid_is_run_when_ten_seeds_are_asked_for() -> None:
    found = {run.key: run for run in runs(WHOLE)}
    for horizon in (SHORT, LONG):
        for members, numbers in MEMBERS.items():
            for colluding in numbers:
                for epsilon in EPSILONS:
                    each = Place(horizon, members=members, epsilon=epsilon, colluding=colluding)
                    assert {each.key(how) for how in (ALONE, TOGETHER, *HOWS)} <= set(found)
                    options = found[each.key(BEST)].options
                    assert (options["epsilon"], options["delta"]) == (epsilon, 1e-6)
                    assert (options["aggregation"], options["colluding"]) == ("secure", colluding)
                    assert options["decide_from"] == "own+released"
                    assert found[each.key(STRICT_SECURE)].options["decide_from"] == "released"
    assert all(len(run.seeds(WHOLE.seeds)) == SEEDS for run in found.values())
    assert all("colluding" not in run.options for run in found.values() if "plain" in run.key)


def test_an_ordinary_run_is_a_small_part_of_it() -> None:
    ordinary, everything = (
        sum(run.scenario.agents * run.scenario.horizon * len(run.seeds(size.seeds)) for run in runs(size))
        for size in (FULL, WHOLE)
    )
    assert 15 * ordinary < everything
    assert ordinary < 1e8  # agent-rounds: a minute or less
    assert [each.epsilon for each in by_epsilon(FULL, SHORT)] == list(EPSILONS)
    assert [each.epsilon for each in by_epsilon(FULL, LONG)] == [2.0]
    assert {each.members for each in by_members(FULL)} == set(MEMBERS)
    short = [run for run in runs(FULL) if run.scenario.horizon == SHORT]
    assert all(len(run.seeds(FULL.seeds)) == SEEDS for run in short)
    assert {run.scenario.horizon for run in runs(QUICK)} == {QUICK.horizon}
    assert all(
        run.options["partners"] == "differ" for run in runs(FULL) if run.scenario.distance and run.options
    )


def outcomes(ratios: dict[str, float]) -> dict[str, Outcome]:
    """Every run has this regret over that alone, by its key or how it decides; alone it is 100."""
    made = {}
    for run in runs(FULL):
        found = [value for part, value in ratios.items() if f"{run.key},".startswith(f"{part},")]
        seeds = len(run.seeds(FULL.seeds))
        final = 100.0 * (found[-1] if found else 1.0) * np.linspace(0.99, 1.01, seeds)
        made[run.key] = Outcome(
            seeds=np.arange(seeds),
            rounds=np.array([run.scenario.horizon]),
            fairness_regret=final[:, None],
            reward_regret=final[:, None],
            syncs=np.full(seeds, 20),
            exposure=np.empty((seeds, 0)),
            weakest=np.empty((seeds, 0)),
        )
    return made


GOOD = {BEST: 0.5, STRICT_SECURE: 0.6}


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, None),
        ({Place(SHORT).key(BEST): 0.71}, 0),
        ({Place(LONG).key(BEST): 0.56}, 1),
        ({Place(LONG).key(STRICT_SECURE): 0.76}, 2),
        ({Place(SHORT, epsilon=0.5).key(BEST): 1.03}, 3),
        ({Place(SHORT, members=3, colluding=1).key(BEST): 1.03}, 3),
        ({apart(FULL)[0].key(BEST): 1.11}, 4),
    ],
)
def test_each_bar_is_judged(changes: dict[str, float], broken: int | None) -> None:
    verdicts = [claim.verdict for claim in said(EXPERIMENT, outcomes({**GOOD, **changes}), FULL, Claim)]
    assert verdicts == ["does not hold" if i == broken else "holds" for i in range(5)]


def test_its_tables_have_every_place() -> None:
    by_short, by_long, members, distances = said(EXPERIMENT, outcomes(GOOD), FULL, Table)
    assert [row[0] for row in by_short.rows] == ["0.5", "1", "2", "4", "8"]
    assert [row[0] for row in by_long.rows] == ["2"]
    assert [row[1:3] for row in members.rows] == [
        ("3", "1"),
        ("10", "1"),
        ("10", "2"),
        ("10", "5"),
        ("30", "6"),
    ]
    assert [row[0] for row in distances.rows] == ["0.1", "0.3", "1"]
    assert "exp12 --seeds 10" in said(EXPERIMENT, outcomes(GOOD), FULL, str)[0]
    assert set(settings(FULL)) >= {Place(SHORT)._replace(epsilon=epsilon) for epsilon in EPSILONS}
