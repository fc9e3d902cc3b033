"""The arrays that a private run is made of: the size of its noise, and what it clips to."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedfairx.agent.schedules import Doubling
from fedfairx.core.statistics import diagonal_entries, packed_size
from fedfairx.errors import InvalidInput
from fedfairx.privacy import Bounds, Centring, budget
from fedfairx.simulation import Scenario
from simulation_helpers import options_for, setting_for

D, SEEDS = 3, tuple(range(200))
SCHEDULE = Doubling(start=10)  # three releases in 40 rounds


@pytest.mark.parametrize(
    ("decide_from", "summed"), [("released", 9), ("released+local", 9), ("own+released", 1)]
)
def test_the_noise_is_that_of_the_sum_over_agents(decide_from: str, summed: int) -> None:
    """Nine agents' releases add up; `own+released` draws each agent's, because they are weighed apart."""
    scenario = Scenario(agents=9, arms=2, dimension=D, horizon=40)
    options = options_for("priv-fairx-linucb", schedule=SCHEDULE, decide_from=decide_from)
    setting = setting_for(scenario, options, SEEDS)
    sharing, privacy = setting.sharing, setting.privacy
    sd = np.asarray(options.budget(sharing.most).calibrate().sd(np.arange(1, sharing.most + 1)))
    diagonal = np.zeros(packed_size(D), dtype=bool)
    diagonal[diagonal_entries(D)] = True
    # 1 200 numbers of each release at least: the sd of their standard deviation is 2 %, six times that 12 %.
    for entries, scale in ((~diagonal, 1.0), (diagonal, math.sqrt(2.0))):
        found = np.sqrt((privacy.noise[:, :, entries] ** 2).mean(axis=(0, 2)))
        tolerance = 0.12 if entries is not diagonal else 0.18  # half as many on the diagonal
        assert found == pytest.approx(scale * math.sqrt(summed) * sd, rel=tolerance)
    others = 9 if decide_from != "own+released" else 8
    assert privacy.sum_sd == pytest.approx(math.sqrt(others) * sd)
    assert privacy.shift == pytest.approx(4.0 * math.sqrt(others) * sd)


@pytest.mark.parametrize(("decide_from", "summed"), [("released", 9), ("own+released", 1)])
def test_with_secure_aggregation_every_agent_adds_its_share(decide_from: str, summed: int) -> None:
    """Nine agents of whom two may collude: each has 1/7 of the variance, on the grid. Errors as above."""
    scenario = Scenario(agents=9, arms=2, dimension=D, horizon=40)
    given = {"schedule": SCHEDULE, "decide_from": decide_from}
    options = options_for("priv-fairx-bayes", aggregation="secure", colluding=2, **given)
    setting = setting_for(scenario, options, SEEDS)
    plain = options_for("priv-fairx-bayes", **given).budget(3).calibrate()
    sd = np.asarray(plain.sd(np.arange(1, 4))) / math.sqrt(7.0)
    mechanism = options.budget(3, agents=9).calibrate()
    off = np.ones(packed_size(D + 1), dtype=bool)
    off[diagonal_entries(D + 1)] = False
    noise = setting.privacy.noise
    found = np.sqrt((noise[:, :, off] ** 2).mean(axis=(0, 2)))
    assert found == pytest.approx(math.sqrt(summed) * sd, rel=0.12)
    assert (noise % mechanism.share.step == 0.0).all()
    others = 9 if decide_from == "released" else 8
    assert setting.privacy.sum_sd == pytest.approx(math.sqrt(others) * sd)
    if decide_from == "released":  # the sum of what each agent draws where it decides from its own data too
        own = options_for(
            "priv-fairx-bayes",
            aggregation="secure",
            colluding=2,
            schedule=SCHEDULE,
            decide_from="own+released",
        )
        each = setting_for(scenario, own, SEEDS).privacy.noise
        assert (each.reshape(len(SEEDS), 9, *each.shape[1:]).sum(axis=1) == noise).all()


def test_with_secure_aggregation_the_horizon_is_that_of_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "RECORDS", 39)
    scenario = Scenario(agents=3, arms=2, dimension=D, horizon=40)
    options = options_for("priv-fairx-bayes", aggregation="secure", schedule=SCHEDULE)
    with pytest.raises(InvalidInput, match="horizon must be at most 39, the records of an agent"):
        setting_for(scenario, options)


def test_a_centred_run_clips_to_the_radii_around_its_point() -> None:
    centring = Centring(
        context=(0.1, 0.2, 0.3), context_radius=0.4, reward=0.7, reward_radius=0.2, constant=0.25
    )
    scenario = Scenario(agents=2, arms=2, dimension=D, horizon=40)
    options = options_for("priv-fairx-linucb", schedule=SCHEDULE, centring=centring)
    privacy = setting_for(scenario, options).privacy
    assert privacy.centre.tolist() == [0.1, 0.2, 0.3]
    assert privacy.context_bound == 0.4
    assert (privacy.reward_low, privacy.reward_high) == pytest.approx((0.5, 0.9))


@pytest.mark.parametrize(("nonnegative", "low"), [(False, -0.6), (True, 0.0)])
def test_without_a_point_it_clips_around_zero(nonnegative: bool, low: float) -> None:
    bounds = Bounds(context_norm=0.8, reward=0.6, nonnegative=nonnegative)
    scenario = Scenario(agents=2, arms=2, dimension=D, horizon=40)
    privacy = setting_for(scenario, options_for("b2", schedule=SCHEDULE, bounds=bounds)).privacy
    assert privacy.centre.tolist() == [0.0] * D
    assert (privacy.context_bound, privacy.reward_low, privacy.reward_high) == (0.8, low, 0.6)
