"""A prepared setting, and the records that its agents make, round by round."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedfairx.agent.algorithms import algorithm
from fedfairx.agent.options import Options
from fedfairx.core.confidence import Confidence
from fedfairx.core.learner import REWARD
from fedfairx.core.rules import OPTIMISM
from fedfairx.lanes.rows import vectors
from fedfairx.lanes.vector_llvm import WIDTH
from fedfairx.simulation import Scenario
from fedfairx.simulation.kernel.loop import run
from fedfairx.simulation.kernel.setup import LoopArguments, prepare
from fedfairx.simulation.kernel.state import LaneState, lane_state


def options_for(name: str, **changes: Any) -> Options:
    """At (2, 0.1) where it is private, clipped to 1 around zero, and with the theorem's radius."""
    chosen = algorithm(name)
    values: dict[str, Any] = {"algorithm": chosen, "delta": 0.1}
    if chosen.private:
        values["epsilon"] = 2.0
    if chosen.rule == OPTIMISM:
        values["confidence"] = Confidence()
    return Options(**{**values, **changes})


def setting_for(scenario: Scenario, options: Options, seeds: tuple[int, ...] = (0,)) -> LoopArguments:
    return prepare(scenario, options, seeds, np.array([scenario.horizon]))


def lanes(setting: LoopArguments, block: int = 0) -> LaneState:
    """What the lanes of a block know."""
    return lane_state(vectors(setting.lane_states[block]), setting.world.parameter.shape[1])


def records(setting: LoopArguments, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Contexts (T, m, d) and rewards (T, m) of the first seed's agents, as they were learnt."""
    agents = setting.world.agents
    assert agents <= WIDTH
    contexts, rewards = [], []
    for t in range(rounds):
        run(t, t + 1, *setting)
        state = lanes(setting).learner
        contexts.append(state.chosen.array.T[:agents].copy())
        rewards.append(state.numbers[REWARD][:agents])
    return np.array(contexts), np.array(rewards)
