"""Who is shown how much, and how much is due to whom: measured only when asked for."""

from __future__ import annotations

from fedfairx.arrays import Array
from fedfairx.lanes.compile import stage
from fedfairx.lanes.registers import WIDTH
from fedfairx.simulation.state import ONE_HOT, PERSISTENT, Counts, Tally, World


@stage
def count_exposure(
    tally: Tally, world: World, block: int, means: Array, fair: Array, policy: Array, present: Counts
) -> None:
    """Add every lane's policy and fair policy (K, n) to its seed's sums.

    By the rank of each arm's true mean in its round (rank 0 is the best arm); the sums over time go by the
    arm's number where arms stay (`present`).
    """
    arms, exposure = means.shape[0], tally.exposure
    stay = world.contexts == PERSISTENT or world.contexts == ONE_HOT
    for l in range(WIDTH):
        seed = (block * WIDTH + l) // world.agents
        if seed >= exposure.shape[0]:
            return  # padding
        for a in range(arms):
            rank = 0
            for b in range(arms):
                if means[b, l] > means[a, l] or (means[b, l] == means[a, l] and b < a):
                    rank += 1
            exposure[seed, rank] += policy[a, l]
            name = present[a, l] if stay else rank
            tally.shown_now[seed, name] += policy[a, l]
            tally.entitled_now[seed, name] += fair[a, l]


@stage
def note_exposure(tally: Tally, agents: int, point: int) -> None:
    """The mean over agents of the running sums, for every seed and arm."""
    for seed in range(tally.shown_now.shape[0]):
        for a in range(tally.shown_now.shape[1]):
            tally.shown[seed, point, a] = tally.shown_now[seed, a] / agents
            tally.entitled[seed, point, a] = tally.entitled_now[seed, a] / agents
