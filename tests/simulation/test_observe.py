"""What an agent of the simulator releases is what a live privatizer would have made of its records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedfairx.agent.schedules import Doubling
from fedfairx.core.learner import REWARD
from fedfairx.core.statistics import pack, unpack
from fedfairx.lanes.rows import vectors
from fedfairx.lanes.vector_llvm import WIDTH
from fedfairx.privacy import Bounds, Centring
from fedfairx.simulation import Scenario
from fedfairx.simulation.kernel.observe import take_in
from fedfairx.simulation.kernel.state import decision_scratch
from fedfairx.simulation.recorded import Recorded
from simulation_helpers import lanes, options_for, records, setting_for

D, ROUNDS = 2, 12
SCENARIO = Scenario(agents=3, arms=3, dimension=D, horizon=50, noise_sd=1.0)  # most rewards are far outside
LATER = Doubling(start=40)  # until then nobody learns anything, so that all runs choose the same arms
SIGNED = replace(SCENARIO, contexts=Recorded(np.random.default_rng(5).uniform(-0.7, 0.7, (40, 3, D))))
WIDE = Bounds(context_norm=100.0, reward=100.0)
TIGHT = Centring(context=(0.5, 0.2), context_radius=0.15, reward=0.4, reward_radius=0.3, constant=0.25)


@pytest.mark.parametrize("scenario", [SCENARIO, SIGNED], ids=["positive", "signed"])
@pytest.mark.parametrize(
    "change",
    [
        {"bounds": Bounds(context_norm=0.5, reward=0.4)},
        {"bounds": Bounds(context_norm=0.5, reward=0.4, nonnegative=True)},
        {"centring": TIGHT},
        {"bounds": Bounds(context_norm=0.5, reward=0.4, gram_share=2.0, record_norm=0.65)},
        {"centring": replace(TIGHT, record_radius=0.2)},
    ],
    ids=["around zero", "nonnegative", "around a point", "shrunk to zero", "shrunk to a point"],
)
def test_records_are_clipped_as_a_privatizer_clips_them(change: dict[str, Any], scenario: Scenario) -> None:
    raw = setting_for(scenario, options_for("priv-fairx-linucb", schedule=LATER, bounds=WIDE))
    contexts, rewards = records(raw, ROUNDS)
    options = options_for("priv-fairx-linucb", schedule=LATER, **change)
    setting = setting_for(scenario, options)
    records(setting, ROUNDS)
    moved = set()
    for agent in range(scenario.agents):
        expected = np.zeros(setting.sharing.own.shape[1])
        for t in range(ROUNDS):
            x, y = contexts[t, agent], float(rewards[t, agent])
            if options.centring is None:
                clipped_x, clipped_y, _ = options.bounds.clip(x, y)
            else:
                inner_x, inner_y, _ = options.centring.enter(x, y)
                clipped_x, clipped_y = inner_x[:D] + options.centring.context, inner_y + 0.4
            expected += pack(np.outer(clipped_x, clipped_x), clipped_x * clipped_y)
            moved.add(("x", bool(np.abs(clipped_x - x).max() > 0.01)))
            moved.add(("y", int(np.sign(np.round(clipped_y - y, 2)))))
        assert setting.sharing.own[0, :, agent] == pytest.approx(expected, abs=1e-12)
    # Contexts inside and outside, rewards moved up, down and not at all: or a missing clip would not show.
    assert {("x", True), ("y", -1), ("y", 0), ("y", 1)} <= moved


def test_a_lane_without_an_observation_releases_none() -> None:
    # A ball that excludes zero: the privatizer would move a zero context to its edge.
    ball = Centring(context=(0.3, 0.3), context_radius=0.25, reward=0.5, reward_radius=0.25, constant=0.25)
    held = setting_for(SCENARIO, options_for("priv-fairx-linucb", schedule=LATER, centring=ball))
    known = lanes(held)
    known.learner.chosen.array[:, ::2] = 0.6  # outside the ball; the other lanes have nothing
    known.learner.numbers[REWARD] = np.where(np.arange(WIDTH) % 2 == 0, 0.9, 0.0)
    workspace = decision_scratch(vectors(held.workspace.memory), 1, SCENARIO.arms, D)
    take_in(known, None, held.sharing, held.privacy, None, SCENARIO.agents, workspace, 0)
    own = held.sharing.own[0]
    assert (own[:, 1::2] == 0.0).all()
    edge = 0.3 + 0.25 / np.sqrt(D)
    for lane in range(0, WIDTH, 2):
        gram, moment = unpack(own[:, lane].copy())
        assert gram == pytest.approx(np.full((D, D), edge**2))
        assert moment == pytest.approx(np.full(D, edge * 0.75))
