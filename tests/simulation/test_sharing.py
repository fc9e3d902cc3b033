"""Synchronising in the simulator is what an agent's own code makes of the same releases."""

from __future__ import annotations

import numpy as np
import pytest

from fedfairx.core.confidence import Confidence
from fedfairx.core.registers import WIDTH
from fedfairx.federation.aggregate import noise_spread
from fedfairx.federation.algorithms import algorithm
from fedfairx.federation.pool import Pool
from fedfairx.federation.schedules import Doubling
from fedfairx.privacy import Bounds, Release
from fedfairx.simulation import Scenario
from fedfairx.simulation.kernel import run
from fedfairx.simulation.options import Options
from fedfairx.simulation.setup import prepare

AGENTS, DIMENSION, HORIZON = 11, 3, 400  # two seeds are 22 lanes: a seed lies across two blocks
CONFIDENCE = Confidence(noise_sd=0.1, scale=0.5, noise_share=0.7)
SCHEDULE = Doubling(start=100)


@pytest.mark.parametrize("ridge", ["fixed", "adaptive"])
@pytest.mark.parametrize("decide_from", ["released", "own+released"])
def test_an_agent_would_hold_the_same(decide_from: str, ridge: str) -> None:
    scenario = Scenario(agents=AGENTS, arms=4, dimension=DIMENSION, horizon=HORIZON)
    chosen = algorithm("priv-fairx-linucb")
    given = (chosen, SCHEDULE, CONFIDENCE, 2.0, 0.1, "blt", Bounds(), None)
    options = Options(*given, decide_from, 4.0, ridge, False)
    setting = prepare(scenario, options, (0, 1), np.array([HORIZON]))
    run(*setting, 0, 200)  # the second synchronisation ends round 200
    minds, sharing = setting.minds, setting.sharing
    assert setting.tally.syncs.tolist() == [2, 2]
    mechanism = options.calibrate(sharing.most)
    pool = Pool(mechanism, True, CONFIDENCE, 4.0, ridge)
    weights = []
    for seed in range(2):
        lanes = range(seed * AGENTS, (seed + 1) * AGENTS)
        noise = sharing.noise[:, 1]
        own = {lane: minds.own[lane // WIDTH, :, lane % WIDTH] for lane in lanes}
        if decide_from == "released":  # one noise for the sum; here it is the first agent's
            sent = {lane: own[lane] + (noise[seed] if lane == lanes[0] else 0.0) for lane in lanes}
        else:
            sent = {lane: own[lane] + noise[lane] for lane in lanes}
        releases = {lane: Release(2, packed, 200, mechanism.digest()) for lane, packed in sent.items()}
        for lane in lanes:
            block, l = lane // WIDTH, lane % WIDTH
            if decide_from == "released":
                held = pool.all_alike(list(releases.values()), DIMENSION)
            else:
                exact = np.ascontiguousarray(minds.exact[block, :, l])
                held = pool.beside_own(exact, 200, [each for k, each in releases.items() if k != lane])
                weights.append((held.count - 200) / (200 * (AGENTS - 1)))
            assert minds.statistics[block, :, l] == pytest.approx(held.packed, rel=1e-9, abs=1e-9)
            assert minds.inside[block, l] == pytest.approx(held.count)
            inverse = np.ascontiguousarray(minds.inverse[block, :, :, l])
            spread = CONFIDENCE.noise_share * noise_spread(inverse, held.noise_sd, 1.0)
            assert minds.spread[block, l] == pytest.approx(spread)
    if weights:
        assert min(weights) == 0.0 < max(weights)  # or a forgotten weight would not show
