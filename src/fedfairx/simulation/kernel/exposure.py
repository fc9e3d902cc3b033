"""Exposure and entitlement of every arm, measured on request."""

from __future__ import annotations

from fedfairx.lanes.decorators import stage
from fedfairx.lanes.rows import Rows
from fedfairx.simulation.kernel.state import ONE_HOT, PERSISTENT, ArmExposure, Counts


@stage
def count_exposure(
    exposure: ArmExposure,
    contexts: int,
    agents: int,
    block: int,
    means: Rows,
    fair: Rows,
    policy: Rows,
    present: Counts,
) -> None:
    """Add every lane's policy and fair policy (K, n), `by_lane`, to its seed's sums.

    By the rank of each arm's true mean in its round (rank 0 is the best arm); the sums over time go by the
    arm's number where arms stay (`present`).
    """
    if exposure.by_rank.shape[1] == 0:
        return  # not asked for
    arms, lanes = means.shape
    stay = contexts in (PERSISTENT, ONE_HOT)
    for l in range(lanes):
        seed = (block * lanes + l) // agents
        if seed >= exposure.by_rank.shape[0]:
            return  # padding
        for a in range(arms):
            rank = 0
            for b in range(arms):
                if means[b, l] > means[a, l] or (means[b, l] == means[a, l] and b < a):
                    rank += 1
            exposure.by_rank[seed, rank] += policy[a, l]
            name = present[a, l] if stay else rank
            exposure.shown_now[seed, name] += policy[a, l]
            exposure.entitled_now[seed, name] += fair[a, l]


@stage
def note_exposure(exposure: ArmExposure, agents: int, point: int) -> None:
    """The mean over agents of the running sums, for every seed and arm."""
    for seed in range(exposure.shown_now.shape[0]):
        for a in range(exposure.shown_now.shape[1]):
            exposure.shown[seed, point, a] = exposure.shown_now[seed, a] / agents
            exposure.entitled[seed, point, a] = exposure.entitled_now[seed, a] / agents
