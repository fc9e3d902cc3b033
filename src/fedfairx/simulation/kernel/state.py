"""The state of a simulation: arrays in NamedTuples that compiled code reads. B blocks of n = WIDTH lanes.

A lane is one agent of one seed. Unused parts are None, and then not compiled, or empty.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedfairx.core.learner import Learner, learner
from fedfairx.core.optimism.problem import Scratch, scratch
from fedfairx.lanes.decorators import layout, stage
from fedfairx.lanes.rows import Rows, cut, vectors
from fedfairx.simulation.kernel.random import Keys
from fedfairx.util.arrays import Array

Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]

GAUSSIAN, BOUNDED, HETEROSCEDASTIC = range(3)
UNIT_BALL, RAW, UNIT_NORM, PERSISTENT, ONE_HOT, RECORDED = range(6)  # from PERSISTENT on, arms of a table
RELEASED, RELEASED_LOCAL, OWN_RELEASED = range(3)
#: Streams of random numbers; every lane has a key of each.
CONTEXTS, ACTIONS, REWARDS, DRIFT, THOMPSON = range(5)
#: A lane's numbers beside those of its learner: log det V since the last synchronisation, the observations
#: made at which σ and the prior's sd are learnt again, and 1 where V⁻¹ is to be derived from the sums.
LOG_GROWTH, REFIT, MARKED = range(3)
NOTES = 3


class LaneEnvironment(NamedTuple):
    """The environment of the lanes."""

    arms: Counts  # (T,) arms in each round
    most_arms: int
    joining: bool  # whether the arms of a round are the first ones of the table, not any
    contexts: int  # UNIT_BALL | … | RECORDED
    noise: int
    noise_sd: float
    drift: float
    agents: int
    agent: Keys  # (B, n) number of the lane's agent
    context_scale: Array  # (B, n) that contexts are multiplied by; 0 in lanes that fill up the last block
    keys: Keys  # (5, B, n) of the streams
    dimension: int  # of contexts and θ*, without an intercept
    constant: float  # the intercept of contexts
    point: Array  # (d,) that agents with an intercept take contexts around
    parameter: Array  # θ* (B, d, n); 0 for the intercept
    table: Array  # (rows, K, d) arms that stay, a row for each seed, or recorded rounds; else no rows
    row: Counts  # (B, n) the row of a lane whose arms stay


class LaneState(NamedTuple):
    """The learners and further numbers of a block of lanes."""

    learner: Learner
    notes: Rows  # (NOTES,)


@layout
def lane_state(memory: Rows, dimension: int) -> LaneState:
    """Lay out the lane states of a block in its memory."""
    state, rest = learner(memory, dimension)
    notes, rest = cut(rest, NOTES)
    return LaneState(state, notes)


@stage
def lane_state_of(lane_states: Array, block: int, dimension: int) -> LaneState:
    """The lane states of one block of lane_states (B, size, n)."""
    return lane_state(vectors(lane_states)[block], dimension)


class Regrets(NamedTuple):
    """The measured regrets."""

    points: Counts  # (P,) rounds at which sums are noted, ascending
    fairness: Array  # (seeds, P) cumulative, mean over agents
    reward: Array  # (seeds, P)
    fairness_now: Array  # (B, n) running sums
    reward_now: Array  # (B, n)
    syncs: Counts  # (seeds,)


class ArmExposure(NamedTuple):
    """The measured exposure, by arm where arms stay, else by rank; cumulative, mean over agents.

    K = 0 unless requested.
    """

    by_rank: Array  # (seeds, K) policy mass by rank of the true mean
    shown: Array  # (seeds, P, K) of the policy
    entitled: Array  # (seeds, P, K) of the fair policy
    shown_now: Array  # (seeds, K) running sums
    entitled_now: Array  # (seeds, K)


class Delay(NamedTuple):
    """Delayed rewards."""

    mean: float  # rounds
    longest: int  # 0: none does
    fixed: bool  # whether all take the longest
    keys: Keys  # (B, n)
    silent: Array  # (B, d, n) 1 for coordinates of one-hot arms whose rewards never come
    history: Array  # (longest + 1, B, d + 2, n) observations on their way, and the rounds that they take


class Sharing(NamedTuple):
    """When the agents of a seed share, and their sums.

    Agents that never share have it too, so that both kinds run the same kernel.
    """

    due: Flags  # (T,) a synchronisation at the end of the round; public schedules
    threshold: float  # B1: of log det growth times rounds; 0 for public schedules
    most: int  # releases at most
    last: Counts  # (seeds,) round of the last synchronisation
    own: Array  # (B, q, n) everything observed, as it is released: clipped; q = 0 where nobody shares
    totals: Array  # (seeds, q) workspace: the sum of all releases
    counts: Array  # (seeds,) workspace: observations in it; 0 of the seeds that don't synchronise now
    shared: Array  # (q, n) workspace: what the lanes of a block are about to adopt
    together: bool  # whether peers are seen only as a sum, and judged as one
    latest: Array  # (B, q, n) what each, or all others as one, released last; q = 0 unless peers may differ
    noise_sd: Array  # (seeds,) of an entry of it
    partner_memory: Array  # flat workspace for `partners.partner_scratch`, where peers may differ


class PrivateReleases(NamedTuple):
    """The noise and clipping of private releases."""

    decide_from: int
    centre: Array  # (d,) public point around which contexts are clipped; zeros without centring
    context_low: float  # entries of contexts are clipped to at least this: 0, or -∞
    context_bound: float  # contexts are clipped to this distance from it
    reward_low: float  # rewards are clipped to [low, high]
    reward_high: float
    reward_centre: float  # y₀; whole records are then shrunk towards the public point, until
    gram_share: float  # ‖x - x₀‖² + r (y - y₀)², r this share,
    record_bound: float  # is at most the square of this; ∞ if they are not
    noise: Array  # (seeds, τ, q) of the sum over agents, or (lanes, τ, q) of each agent
    shift: Array  # (τ,) added to the Gram diagonal of the sum (own+released: of the others' sum)
    sum_sd: Array  # (τ,) sd of an entry of that sum
    exact: Array  # (B, q, n) everything observed, as it was; q = 0 unless decisions or sizes come from it


class BlockScratch(NamedTuple):
    """The workspace of one block at a time."""

    memory: Array  # (size, n), laid out by `decision_scratch` for each number of arms
    present: Counts  # (K, n) which arms of a table are there


class DecisionScratch(NamedTuple):
    """The workspace of a decision."""

    contexts: Rows  # (K, d)
    means: Rows  # (K,) true ones
    fair: Rows  # (K,) the fair policy
    slopes: Rows  # (K,)
    chances: Rows  # (1 + most arms, 1) uniforms that pick arms of a table
    turned: Rows  # (d, d + 1)
    work: Scratch


@layout
def decision_scratch(memory: Rows, arms: int, most_arms: int, dimension: int) -> DecisionScratch:
    """Lay out the workspace of a decision among `arms` arms in flat rows."""
    contexts, rest = cut(memory, arms, dimension)
    means, rest = cut(rest, arms)
    fair, rest = cut(rest, arms)
    slopes, rest = cut(rest, arms)
    chances, rest = cut(rest, 1 + most_arms, 1)
    turned, rest = cut(rest, dimension, dimension + 1)
    return DecisionScratch(contexts, means, fair, slopes, chances, turned, scratch(rest, arms, dimension))
