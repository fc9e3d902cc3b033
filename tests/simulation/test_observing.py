"""Observations that are learnt at once or late, exactly as they are or inside the privatizer's bounds."""

from __future__ import annotations

import numpy as np
import pytest

from fedfairx.core.confidence import Confidence
from fedfairx.core.registers import WIDTH
from fedfairx.core.statistics import unpack
from fedfairx.federation.algorithms import algorithm
from fedfairx.federation.schedules import Doubling
from fedfairx.privacy import Bounds, Centring
from fedfairx.simulation import Scenario
from fedfairx.simulation.kernel import mind_of
from fedfairx.simulation.observing import take_in
from fedfairx.simulation.options import Options
from fedfairx.simulation.setup import Setting, prepare

DIMENSION, HORIZON = 3, 60
#: A ball that excludes zero: the privatizer moves a zero context to its edge.
CENTRING = Centring(
    context=(0.3,) * DIMENSION, context_radius=0.25, reward=0.5, reward_radius=0.25, constant=0.25
)


def setting() -> Setting:
    scenario = Scenario(agents=2, arms=4, dimension=DIMENSION, horizon=HORIZON)
    given = (algorithm("priv-fairx-linucb"), Doubling(start=20), Confidence(), 2.0, 0.1, "blt", Bounds())
    options = Options(*given, CENTRING, "released", 4.0, "fixed", False)
    return prepare(scenario, options, (0,), np.array([HORIZON]))


def test_a_lane_without_an_observation_releases_none() -> None:
    held = setting()
    mind = mind_of(held.minds, 0)
    mind.chosen[:, ::2] = 0.6  # outside the ball; the other lanes have nothing
    mind.reward[::2] = 0.9
    take_in(held.minds, mind, held.sharing, 0)
    own = held.minds.own[0]
    assert (own[:, 1::2] == 0.0).all()
    edge = 0.3 + 0.25 / np.sqrt(DIMENSION)
    for lane in range(0, WIDTH, 2):
        gram, moment = unpack(own[:, lane].copy())
        assert gram == pytest.approx(np.full((DIMENSION, DIMENSION), edge**2))
        assert moment == pytest.approx(np.full(DIMENSION, edge * 0.75))
