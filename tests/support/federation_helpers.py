"""Agents with a past, private and not."""

from __future__ import annotations

from typing import Any

import numpy as np

import fedfairx as ffx
from fedfairx.agent.settings import plain_value
from fedfairx.privacy import Bounds, SimulatedNoise, StreamPrivatizer, calibrate

D = 3


def contexts(rng: np.random.Generator, arms: int = 5) -> np.ndarray:
    return rng.random((arms, D)) / np.sqrt(D)


def taught(agent: ffx.Agent, rounds: int, seed: int = 0) -> ffx.Agent:
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        decision = agent.decide(contexts(rng))
        agent.observe(decision, reward=float(rng.random()))
    return agent


def private_agent(decide_from: str = "released", name: str = "agent", seed: int = 0) -> ffx.Agent:
    bounds = Bounds()
    mechanism = calibrate("blt", epsilon=4.0, delta=0.1, releases=20, sensitivity=bounds.sensitivity)
    privatizer = StreamPrivatizer(
        D, mechanism=mechanism, bounds=bounds, noise=SimulatedNoise(seed), decide_from=decide_from
    )
    region = ffx.Confidence()
    return ffx.Agent(D, rule="optimism", confidence=region, privatizer=privatizer, seed=seed, name=name)


def bare(agent: Any) -> dict[str, Any]:
    """An agent's settings and state."""
    return {"name": agent.name, "options": agent.options, **plain_value(agent.state())}
