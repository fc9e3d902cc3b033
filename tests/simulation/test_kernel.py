"""The simulator follows the literal transcription of the algorithm, on the same random numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reference
from fedfairx.agent.schedules import Determinant, Doubling, Paper, Plan
from fedfairx.core.confidence import Confidence
from fedfairx.core.merit import Exponential, Logistic
from fedfairx.lanes.decorators import COMPILING
from fedfairx.simulation import Recorded, Scenario
from fedfairx.simulation.kernel.random import normal, stream_key, uniform
from fedfairx.simulation.kernel.setup import prepare
from simulated import held_against_reference
from simulation_helpers import options_for, records, setting_for

AGENTS, ARMS, DIMENSION = 3, 4, 3
HORIZON, PRIVATE = (300, 200) if COMPILING else (60, 50)  # uncompiled they take 50 times as long


SCENARIO = Scenario(agents=AGENTS, arms=ARMS, dimension=DIMENSION, horizon=HORIZON)


@pytest.mark.long
@pytest.mark.parametrize("name", ["fairx-linucb", "fed-fairx-linucb", "linucb"])
def test_algorithms_without_noise(name: str) -> None:
    held_against_reference(name, SCENARIO, reference.Exponential(10.0), ours={}, theirs={})


@pytest.mark.long
def test_a_merit_of_its_own_for_every_agent() -> None:
    merits = (Exponential(3.0), Exponential(20.0), Logistic(8.0, 0.4, 0.1))
    scenario = Scenario(agents=AGENTS, arms=ARMS, dimension=DIMENSION, horizon=120, merit=merits)
    theirs = [reference.Exponential(3.0), reference.Exponential(20.0), reference.Logistic(8.0, 0.4, 0.1)]
    held_against_reference("fed-fairx-linucb", scenario, theirs, ours={}, theirs={})


RECORDED = Recorded(np.random.default_rng(0).normal(size=(30, ARMS, DIMENSION)), scale="unit-ball")


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        {"presence": 0.6},
        {"contexts": "persistent"},
        {"contexts": "persistent", "presence": 0.6},
        {"contexts": "persistent", "presence": 0.6, "drift": 0.02},
        {"contexts": "persistent", "newcomers": 2},
        {"contexts": RECORDED},
        {"contexts": RECORDED, "presence": 0.6},
    ],
    ids=lambda change: " ".join(str(value)[:10] for value in change.values()),
)
def test_arms_that_come_and_go_stay_or_are_recorded(change: dict) -> None:
    scenario = replace(SCENARIO, horizon=100, **change)
    held_against_reference("fed-fairx-linucb", scenario, reference.Exponential(10.0), ours={}, theirs={})


@pytest.mark.parametrize("presence", [1.0, 0.6])
@pytest.mark.parametrize("name", ["linucb", "fed-fairx-linucb"])
def test_one_hot_arms(name: str, presence: float) -> None:
    # One-hot arms that nobody has tried yet are alike, and any of them may lead an optimistic policy. LinUCB
    # takes the first; in a small region the fair policy's best θ lifts them all, and is the only best one.
    scenario = replace(SCENARIO, dimension=ARMS, horizon=100, contexts="one-hot", presence=presence)
    scale = 0.5 if name == "linucb" else 0.02
    ours, theirs = {"confidence": Confidence(noise_sd=0.1, scale=scale)}, {"scale": scale}
    held_against_reference(name, scenario, reference.Exponential(10.0), ours=ours, theirs=theirs)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "schedule", "decide_from"),
    [
        ("priv-fairx-linucb", Paper(), "released"),
        ("priv-fairx-linucb", Paper(gap=7), "released+local"),
        ("b2", Doubling(start=20), "released"),
        ("b1", Determinant(threshold=12.0, cap=15), "released+local"),
    ],
)
def test_private_algorithms_with_the_same_noise(name: str, schedule, decide_from: str) -> None:
    """Without a shift: the noise is small enough."""
    confidence = Confidence(noise_sd=0.02, scale=0.5)
    scenario = Scenario(agents=AGENTS, arms=ARMS, dimension=DIMENSION, horizon=PRIVATE, noise_sd=0.02)
    ours = {
        "schedule": schedule,
        "epsilon": 20.0,
        "delta": 0.1,
        "decide_from": decide_from,
        "shift": 0.0,
        "confidence": confidence,
        "centring": None,
    }
    options = options_for(
        name, schedule=schedule, confidence=confidence, epsilon=20.0, decide_from=decide_from, shift=0.0
    )
    privacy = prepare(scenario, options, (5,), np.array([PRIVATE])).privacy
    drawn = privacy.noise[0]  # of the sum of the agents
    release_noise = np.zeros((drawn.shape[0], AGENTS, drawn.shape[1]))
    release_noise[:, 0] = drawn
    theirs = {
        "release_noise": lambda k, agent: release_noise[k, agent],
        "decide_from": decide_from,
        "bounds": (1.0, 1.0),
    }
    if isinstance(schedule, Determinant):
        theirs |= {"threshold": schedule.threshold, "max_syncs": schedule.cap}
    else:
        theirs |= {"sync_rounds": schedule.rounds(Plan(PRIVATE, AGENTS, DIMENSION))}
    held_against_reference(name, scenario, reference.Exponential(10.0), ours=ours, theirs=theirs)


# --- contexts and noise of other kinds -----------------------------------------------------------------


def noise_of(scenario: Scenario) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(means, noise, uniform or normal numbers that it came from) of 20 rounds of two agents."""
    rounds, seed = 20, 0
    contexts, rewards = records(setting_for(scenario, options_for("fairx-linucb"), (seed,)), rounds)
    means = contexts @ scenario.parameter(seed)
    key = np.uint64(stream_key(seed, "rewards"))
    draw = uniform if scenario.noise == "bounded" else normal
    drawn = np.array([draw(key, np.uint64(c)) for c in range(rounds * 2)]).reshape(rounds, 2)
    return means, rewards - means, drawn


def small(**changes) -> Scenario:
    return Scenario(agents=2, arms=3, dimension=2, horizon=30, noise_sd=0.2, **changes)


def test_bounded_noise_has_the_sd_that_it_should() -> None:
    _, noise, drawn = noise_of(small(noise="bounded"))
    # Uniform on [-w, w] has sd w/√3.
    assert noise == pytest.approx(0.2 * np.sqrt(3.0) * (2.0 * drawn - 1.0), abs=1e-12)


def test_heteroscedastic_noise_grows_with_the_mean_as_documented() -> None:
    means, noise, drawn = noise_of(small(noise="heteroscedastic", theta=(0.9, -0.6)))
    assert means.min() < 0.0 < means.max()
    assert noise == pytest.approx(0.2 * (0.5 + np.abs(means)) * drawn, abs=1e-12)
    assert "noise_sd·(0.5 + |mean|)" in (Scenario.__doc__ or "")


@pytest.mark.parametrize(
    ("contexts", "most"), [("unit-norm", 1.0), ("raw", np.sqrt(2.0)), ("unit-ball", 1.0)]
)
def test_contexts_have_the_norms_that_they_should(contexts: str, most: float) -> None:
    chosen, _ = records(setting_for(small(contexts=contexts), options_for("fairx-linucb")), 20)
    norms = np.linalg.norm(chosen, axis=2)
    assert (norms <= most + 1e-12).all()
    assert norms.max() > 0.8 * most
    if contexts == "unit-norm":
        assert norms == pytest.approx(1.0, abs=1e-12)
    else:
        assert norms.min() < 0.8 * most


ONLY_WHAT_IS_ASKED_FOR = """
import fedfairx as ffx
from fedfairx.core.optimism import solver
from fedfairx.simulation.kernel import loop, partners, synchronize
stages = (loop.posterior_policy, solver.optimise, solver.ascend_pgd, solver.favour, synchronize.share,
          synchronize.filter_shared, synchronize.weigh_others, partners.judge_marked)
ffx.simulate(ffx.Scenario(agents=2, horizon=3), algorithm={algorithm!r}, seeds=1, **{options!r})
print(*(stage.__name__ for stage in stages if stage.inside.overloads))
"""


@pytest.mark.process
@pytest.mark.skipif(not COMPILING, reason="nothing is compiled")
@pytest.mark.parametrize(
    ("algorithm", "options", "made"),
    [
        ("linucb", {}, "favour share"),
        pytest.param(
            "fed-fairx-bayes",
            {"partners": "differ"},
            "posterior_policy share judge_marked",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "priv-fairx-bayes",
            {"epsilon": 1.0},
            "posterior_policy share filter_shared",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_only_what_is_asked_for_is_compiled(
    algorithm: str, options: dict[str, Any], made: str, tmp_path: Path
) -> None:
    """A newcomer waits for every stage that is compiled for nothing."""
    code = ONLY_WHAT_IS_ASKED_FOR.format(algorithm=algorithm, options=options)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_DISABLE_JIT": "0"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == made.split()
