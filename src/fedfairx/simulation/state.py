"""What a simulation holds: plain arrays, in tuples that compiled code reads. B blocks of n = WIDTH lanes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedfairx.arrays import Array
from fedfairx.simulation.draws import Keys

Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]

GAUSSIAN, BOUNDED, HETEROSCEDASTIC = range(3)
UNIT_BALL, RAW, UNIT_NORM, PERSISTENT, ONE_HOT, RECORDED = range(6)  # from PERSISTENT on, arms of a table
RELEASED, RELEASED_LOCAL, OWN_RELEASED = range(3)


class World(NamedTuple):
    """What the lanes of a block meet. B blocks of n lanes each."""

    arms: Counts  # (T,) arms in each round
    most_arms: int
    contexts: int  # UNIT_BALL | … | RECORDED
    noise: int
    noise_sd: float
    drift: float
    delay: float
    longest_delay: int
    agents: int
    agent: Keys  # (B, n) number of the lane's agent
    context_scale: Array  # (B, n) that contexts are multiplied by; 0 in lanes that fill up the last block
    context_keys: Keys  # (B, n)
    action_keys: Keys
    reward_keys: Keys
    delay_keys: Keys
    drift_keys: Keys
    thompson_keys: Keys
    parameter: Array  # θ* (B, d, n)
    table: Array  # (rows, K, d) arms that stay, a row for each seed, or recorded rounds; else no rows
    row: Counts  # (B, n) the row of a lane whose arms stay


class Minds(NamedTuple):
    """What the lanes know. `Learner`, with a block axis in front."""

    statistics: Array  # (B, q, n)
    inverse: Array  # (B, d, d, n)
    estimate: Array  # (B, d, n)
    radius: Array  # (B, n)
    chosen: Array  # (B, d, n)
    reward: Array  # (B, n)
    product: Array  # (B, d, n)
    det_growth: Array  # (B, n)
    inside: Array  # (B, n) observations inside V
    observed: Array  # (B, n) observations made
    own: Array  # (B, q, n) everything observed, as released (clipped); q = 0 when nothing is shared
    exact: Array  # (B, q, n) everything observed, as it was; q = 0 unless decisions come from it
    growth: Array  # (B, n) log det V since the last synchronisation
    ridge: Array  # (B, n) λ inside V
    surprise: Array  # (B, n) what σ is learnt from: see `core.posterior`
    refresh: Array  # (B, n) observations made at which λ follows σ again


class Belief(NamedTuple):
    """The constants of the confidence region."""

    regulariser: float
    noise_sd: float
    failure: float
    parameter_norm: float
    scale: float


class Merits(NamedTuple):
    """`MeritTable`, with a block axis in front."""

    exponential: Flags  # (B,)
    kind: Counts  # (B, n)
    first: Array
    second: Array
    third: Array
    low: Array
    high: Array
    address: Counts
    least_share: float  # that every arm gets in any case


class Tally(NamedTuple):
    """What is measured."""

    points: Counts  # (P,) rounds at which sums are noted, ascending
    fairness: Array  # (seeds, P) cumulative, mean over agents
    reward: Array  # (seeds, P)
    fairness_now: Array  # (B, n) running sums
    reward_now: Array  # (B, n)
    exposure: Array  # (seeds, K) policy mass by rank of the true mean; K = 0 when not asked for
    syncs: Counts  # (seeds,)
    # By arm where arms stay, else by rank; cumulative, mean over agents; K = 0 when not asked for:
    shown: Array  # (seeds, P, K) of the policy
    entitled: Array  # (seeds, P, K) of the fair policy
    shown_now: Array  # (seeds, K) running sums
    entitled_now: Array  # (seeds, K)


class Exchange(NamedTuple):
    """Room to work in while agents synchronise."""

    adopted: Array  # (B, n) 1 in the lanes whose V⁻¹ is to be derived anew
    totals: Array  # (seeds, q) the sum of all releases of every seed
    due: Array  # (seeds,) 1 for the seeds that synchronise now
    shared: Array  # (q, n) what the lanes of a block are about to adopt
    noise_sd: Array  # (n,) of an entry of it
    turned: Array  # (d, d + 1, n)
    total: Array  # (q,) the sum of all releases
    others: Array  # (q,)
    packed: Array  # (q, 1) what a lane adopts
    inverse: Array  # (d, d, 1)


class Room(NamedTuple):
    """Room to work in, flat, because the number of arms may change."""

    contexts: Array
    arms: Array
    fair: Array
    model: Array
    lane: Array
    square: Array
    spare: Array
    codes: Counts
    base: Keys
    history: Array  # (longest delay + 1, B, d + 1, n) observations on their way
    exchange: Exchange
    chances: Array  # (1 + K, 1, n) uniforms that pick arms of a table
    present: Counts  # (K, n) the arms that they picked


class Sharing(NamedTuple):
    """When and how the agents of a seed share."""

    due: Flags  # (T,) a synchronisation at the end of the round; public schedules
    threshold: float  # B1: of log det growth times rounds; 0 for public schedules
    most: int  # releases at most
    last: Counts  # (seeds,) round of the last synchronisation
    decide_from: int
    private: bool
    centre: Array  # (d,) public point around which contexts are clipped; zeros without centring
    context_bound: float  # private: contexts are clipped to this distance from it
    reward_low: float  # private: rewards are clipped to [low, high]
    reward_high: float
    noise: Array  # (seeds, τ, q) of the sum over agents, or (lanes, τ, q) of each agent; τ = 0 without
    shift: Array  # (τ,) added to the Gram diagonal of the sum (own+released: of the others' sum)
    sum_sd: Array  # (τ,) sd of an entry of that sum
