"""List three of eight sellers, first, second and third, each as often as its quality deserves.

The first place gets twice the attention of the third. A list of the three best sellers would never show the
other five; here every seller's share of the attention is in proportion to its merit.
"""

import numpy as np

import fedfairx as ffx

quality = np.array([0.80, 0.75, 0.70, 0.65, 0.60, 0.55, 0.50, 0.45])  # chance of a sale, unknown
sellers = [f"seller {number}" for number in range(1, 9)]
attention = [1.0, 0.63, 0.5]  # of the first, second and third place


def shares(seed: int, *, visits: int = 10_000) -> tuple[np.ndarray, np.ndarray]:
    """Each seller's share of the attention, and the share that its merit deserves."""
    agent = ffx.Agent(actions=sellers, slots=attention, reward_range=(0.0, 1.0), seed=seed)
    customers, shown = np.random.default_rng(seed), np.zeros(8)
    for _ in range(visits):
        decision = agent.decide()
        sold = customers.random(3) < attention * quality[decision.actions]  # who looks less buys less
        agent.observe(decision, rewards=sold.astype(float).tolist())
        shown[decision.actions] += attention
    merit = np.exp(agent.merit.steepness * quality)  # what 7 % more quality is worth: twice the attention
    return shown / shown.sum(), merit / merit.sum()


given, deserved = shares(seed=0)
for name, one, other in zip(sellers, given, deserved, strict=True):
    print(f"{name}: {one:.3f} of the attention, {other:.3f} by merit")
