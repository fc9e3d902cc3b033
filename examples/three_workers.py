"""Give tasks to three workers in proportion to their unknown speeds: 1/7, 2/7 and 4/7.

The paper's motivating example, with default settings. Winner-takes-all would give every task to the third.
"""

import numpy as np

import fedfairx as ffx

speeds = np.array([1, 2, 4]) / 7  # unknown to the agent
merit = ffx.merit.Affine(offset=0.0, slope=1.0, reward_range=(0.01, 1.0))  # f(μ) = μ
contexts = ffx.features.disjoint([1.0], arms=3)  # the workers have no features


def shares(seed: int, *, tasks: int = 2_000) -> np.ndarray:
    agent, noise = ffx.Agent(dimension=3, merit=merit, seed=seed), np.random.default_rng(seed)
    given = np.zeros(3)
    for _ in range(tasks):
        decision = agent.decide(contexts)
        agent.observe(decision, reward=speeds[decision.action] + 0.1 * noise.normal())
        given[decision.action] += 1
    return given / tasks


print("speed", speeds.round(3), "share of the tasks", shares(seed=0).round(3))
