"""`simulate`: the same bytes however it is run, fair pairs, and every kind of scenario."""

from __future__ import annotations

import numpy as np
import pytest

from fedfairx.agent.algorithms import algorithms
from fedfairx.core.merit import Custom, Exponential
from fedfairx.errors import InvalidInput
from fedfairx.lanes.vector_llvm import WIDTH
from fedfairx.simulation import Recorded, Scenario, simulate
from fedfairx.simulation.kernel.setup import prepare
from simulation_helpers import options_for

SMALL = Scenario(agents=3, arms=4, dimension=2, horizon=60)
PRIVATE = {"priv-fairx-bayes", "priv-fairx-linucb", "b1", "b2"}


def same(first, second) -> bool:
    return (
        first.fairness_regret.tobytes() == second.fairness_regret.tobytes()
        and first.reward_regret.tobytes() == second.reward_regret.tobytes()
        and first.syncs.tobytes() == second.syncs.tobytes()
    )


@pytest.mark.parametrize("name", algorithms())
def test_workers_change_no_byte(name: str) -> None:
    options = {"epsilon": 2.0, "delta": 0.1} if name in PRIVATE else {}
    alone = simulate(SMALL, algorithm=name, seeds=3, workers=1, **options)
    assert same(alone, simulate(SMALL, algorithm=name, seeds=3, workers=2, **options))


def test_a_seed_does_not_depend_on_its_company() -> None:
    many = simulate(SMALL, seeds=40)  # several blocks
    one = simulate(SMALL, seeds=[33])
    assert many.fairness_regret[33].tobytes() == one.fairness_regret[0].tobytes()


def test_delays_too_do_not_depend_on_company() -> None:
    scenario = Scenario(agents=2, arms=3, dimension=2, horizon=80, delay=4.0)
    many = simulate(scenario, seeds=9)
    assert many.fairness_regret[7].tobytes() == simulate(scenario, seeds=[7]).fairness_regret[0].tobytes()


def test_a_federation_of_one_is_b0_bit_for_bit() -> None:
    scenario = Scenario(agents=1, arms=3, dimension=2, horizon=5000)  # past a re-derivation of V⁻¹
    assert same_regret(scenario, "fairx-linucb", "fed-fairx-linucb")


def same_regret(scenario: Scenario, first: str, second: str) -> bool:
    a, b = (simulate(scenario, algorithm=name, seeds=2) for name in (first, second))
    return bool(a.fairness_regret.tobytes() == b.fairness_regret.tobytes())


def test_learning_together_beats_learning_alone_and_fair_beats_winner_takes_all() -> None:
    scenario = Scenario(agents=8, arms=5, dimension=3, horizon=1500)
    regret = {
        name: simulate(scenario, algorithm=name, seeds=3).fairness_regret[:, -1].mean()
        for name in ("fairx-linucb", "fed-fairx-linucb", "linucb")
    }
    assert regret["fed-fairx-linucb"] < 0.6 * regret["fairx-linucb"] < 0.6 * regret["linucb"]


@pytest.mark.parametrize(
    "change",
    [
        {"contexts": "raw"},
        {"contexts": "unit-norm"},
        {"contexts": "persistent"},
        {"contexts": Recorded(np.random.default_rng(0).random((9, 4, 2)))},
        {"noise": "bounded"},
        {"noise": "heteroscedastic"},
        {"presence": 0.5},
        {"delay": 3.0},
        {"drift": 0.01},
        {"merit": Custom(lambda mu: 1.0 + mu * mu, minimum_merit=1.0, lipschitz_constant=2.0)},
        {"merit": (Exponential(1.0), Exponential(5.0), Exponential(50.0))},
    ],
    ids=lambda change: str(next(iter(change))) + "-" + str(next(iter(change.values())))[:10],
)
def test_every_kind_of_scenario_runs_and_changes_the_outcome(change: dict) -> None:
    scenario = Scenario(agents=3, arms=4, dimension=2, horizon=60, **change)
    plain, changed = simulate(SMALL, seeds=2), simulate(scenario, seeds=2)
    assert np.isfinite(changed.fairness_regret).all()
    assert (np.diff(changed.fairness_regret, axis=1) >= 0).all()
    assert changed.fairness_regret[:, -1].tolist() != plain.fairness_regret[:, -1].tolist()


@pytest.mark.long
def test_late_rewards_and_a_moving_target_cost_regret() -> None:
    base = {"agents": 4, "arms": 4, "dimension": 3, "horizon": 1500}
    now = simulate(Scenario(**base), algorithm="fairx-linucb", seeds=3).fairness_regret[:, -1]
    late = simulate(Scenario(**base, delay=100.0), algorithm="fairx-linucb", seeds=3).fairness_regret[:, -1]
    moving = simulate(Scenario(**base, drift=0.01), algorithm="fairx-linucb", seeds=3).fairness_regret[:, -1]
    assert (late > now).all()
    assert (moving > now).all()


def test_exposure_by_rank_sums_to_one_and_falls() -> None:
    result = simulate(SMALL, seeds=2, exposure=True)
    assert result.exposure.sum(axis=1) == pytest.approx(1.0)
    assert (np.diff(result.exposure, axis=1) < 0).all()
    assert simulate(SMALL, seeds=2).exposure.size == 0


def test_the_grid_ends_at_the_horizon_and_the_frame_is_tidy() -> None:
    result = simulate(SMALL, seeds=2, points=7)
    assert result.rounds[-1] == SMALL.horizon
    assert len(result.rounds) == 7
    frame = result.to_frame()
    assert len(frame) == 14
    last = frame[(frame["seed"] == 1) & (frame["round"] == SMALL.horizon)]
    assert last["fairness_regret"].item() == result.fairness_regret[1, -1]


@pytest.mark.parametrize("decide_from", ["released", "released+local", "own+released"])
@pytest.mark.parametrize("mechanism", ["paper-tree", "tree", "blt"])
def test_every_mechanism_and_rule_runs(mechanism: str, decide_from: str) -> None:
    result = simulate(
        SMALL,
        algorithm="priv-fairx-linucb",
        seeds=1,
        epsilon=2.0,
        delta=0.1,
        mechanism=mechanism,
        decide_from=decide_from,
    )
    assert np.isfinite(result.fairness_regret).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "none-such"}, "algorithm must be one of"),
        ({"seeds": 0}, "seeds must be at least one"),
        ({"seeds": [-1]}, "seeds must be >= 0"),
        ({"workers": 0}, "workers must be >= 1"),
        ({"points": 0}, "points must be >= 1"),
        ({"epsilon": 1.0}, "epsilon is for private algorithms"),
        ({"algorithm": "priv-fairx-linucb"}, "epsilon must be given"),
        ({"algorithm": "priv-fairx-linucb", "epsilon": 0.0}, "epsilon must be"),
        ({"algorithm": "priv-fairx-linucb", "epsilon": 1.0, "delta": 1.5}, "delta must be a finite number"),
        ({"algorithm": "priv-fairx-linucb", "epsilon": 1.0, "mechanism": "x"}, "must be one of"),
        (
            {"algorithm": "priv-fairx-linucb", "epsilon": 1.0, "decide_from": "x"},
            "decide_from must be one of",
        ),
        ({"algorithm": "b1", "epsilon": 1.0, "decide_from": "released"}, "decide_from must be"),
        ({"shift": -1.0}, "shift must be"),
        ({"decide_from": "released"}, "decide_from is for private algorithms, and fed-fairx-bayes is not"),
    ],
)
def test_bad_options_are_named(options: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        simulate(SMALL, **options)


def test_lanes_that_fill_up_a_block_cost_no_restarts() -> None:
    # They see zero contexts, which are proved at once; the others see all of theirs.
    scenario = Scenario(agents=3, arms=2, dimension=2, horizon=5)
    options = options_for("fed-fairx-linucb")
    scale = prepare(scenario, options, (0, 1), np.array([5])).world.context_scale.ravel()
    assert (scale[:6] == 1.0 / np.sqrt(2.0)).all()
    assert (scale[6:] == 0.0).all()
    assert scale.size == WIDTH


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"horizon": -5}, "horizon must be a whole number >= 1 and <= .*, got horizon=-5"),
        ({"agents": 0}, "agents must be"),
        ({"arms": 2.5}, "arms must be"),
        ({"contexts": "x"}, "contexts must be one of"),
        (
            {"contexts": np.ones((2, 10, 5))},
            "contexts must be one of .* or Recorded.*='ndarray'",
        ),
        (
            {"contexts": "one-hot"},
            "dimension must be the number of actions, 10, for one-hot.* got dimension=5",
        ),
        ({"contexts": Recorded(np.ones((2, 3, 5)))}, "arms must be that of the recorded contexts, 3, .*=10"),
        ({"contexts": Recorded(np.ones((2, 10, 4)))}, "dimension must be that of the recorded contexts, 4"),
        ({"noise": "x"}, "noise must be one of"),
        ({"noise_sd": -1.0}, "noise_sd must be"),
        ({"presence": 0.0}, "presence must be"),
        ({"delay": -1.0}, "delay must be"),
        ({"delays": "x"}, "delays must be one of geometric, fixed, got"),
        ({"delays": "fixed", "delay": 1.5}, "delay must be a whole number of rounds where delays are fixed"),
        ({"newcomers": 1}, "newcomers must be 0 without actions that stay, got newcomers=1"),
        ({"newcomers": 10, "contexts": "persistent"}, "newcomers must be at most 9, one below the actions"),
        (
            {"newcomers": 1, "contexts": "persistent", "presence": 0.5},
            "newcomers must be 0 where presence is below 1",
        ),
        ({"silent": 1, "contexts": "persistent"}, "silent must be 0 without one-hot contexts, got silent=1"),
        ({"silent": 0.5}, "silent must be a whole number >= 0, got silent=0.5"),
        ({"merit": (Exponential(),)}, "merit must be one, or 10"),
    ],
)
def test_bad_scenarios_are_named(change: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Scenario(**change)


def test_arms_that_come_and_go_change_no_byte_either() -> None:
    # The number of arms decides how the workspace of the further starts is laid out.
    scenario = Scenario(agents=3, arms=7, dimension=4, horizon=400, presence=0.5)
    alone = simulate(scenario, algorithm="b0", seeds=5, workers=1)
    assert same(alone, simulate(scenario, algorithm="b0", seeds=5, workers=2))
