"""The simulator's round loop, compiled: all agents of several seeds in lock step, lanes innermost.

A lane is one agent of one seed. WIDTH lanes are a block, which stays in the nearest cache. Every round,
each block draws its contexts, decides, observes and learns with the stage functions of core/; then the
seeds that are due synchronise. The mathematics is in core/.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedfairx.core.estimate import REFRESH_EVERY, estimate
from fedfairx.core.expected_merit import expose_by_posterior
from fedfairx.core.learner import COUNT, NOISE_VARIANCE, REWARD, RIDGE, Learner, radius_of
from fedfairx.core.optimism.problem import POLICY, PULL, Region, Scratch
from fedfairx.core.optimism.solver import Solver, choose
from fedfairx.core.policy import at_least, draw_rows, expose
from fedfairx.core.posterior import posterior_mean, sample
from fedfairx.core.regret import regrets
from fedfairx.core.rules import EXPECTED_MERIT
from fedfairx.core.rules import THOMPSON as BY_THOMPSON
from fedfairx.lanes.decorators import body, releasing, stage
from fedfairx.lanes.linalg import scores
from fedfairx.lanes.rows import Rows, by_lane, vectors
from fedfairx.lanes.vector import absolute, fma, sqrt
from fedfairx.lanes.vector_llvm import WIDTH
from fedfairx.simulation.kernel.contexts import draw_contexts, take_around
from fedfairx.simulation.kernel.exposure import count_exposure, note_exposure
from fedfairx.simulation.kernel.observe import deliver, derive_marked, learns_own
from fedfairx.simulation.kernel.random import normal, uniform
from fedfairx.simulation.kernel.state import (
    ACTIONS,
    BOUNDED,
    DRIFT,
    HETEROSCEDASTIC,
    MARKED,
    REWARDS,
    THOMPSON,
    ArmExposure,
    BlockScratch,
    Delay,
    LaneEnvironment,
    PrivateReleases,
    Regrets,
    Sharing,
    decision_scratch,
    lane_state_of,
)
from fedfairx.simulation.kernel.synchronize import share
from fedfairx.util.arrays import Array


@stage
def refresh_radius(state: Learner) -> None:
    """√β of every lane, computed once for equal counts, which are common."""
    numbers, radius = by_lane(state.numbers), by_lane(state.radius)
    last_count, value = -1.0, 0.0
    for l in range(numbers.shape[1]):
        count = numbers[COUNT, l]
        if count != last_count:
            last_count = count
            value = radius_of(numbers, l, count, state.mean.shape[0])
        radius[0, l] = value


@stage
def act(
    world: LaneEnvironment, state: Learner, contexts: Rows, policy: Rows, means: Rows, block: int, t: int
) -> None:
    """Draw every lane's arm and its reward (Alg. 1 line 8), the current observation."""
    keys = vectors(world.keys)
    position = vectors(world.agent)[block] + np.uint64(t) * np.uint64(world.agents)
    u = uniform(keys[ACTIONS, block], position)
    mean = draw_rows(contexts, policy, means, u, state.chosen)
    if world.noise == BOUNDED:
        noise = world.noise_sd * math.sqrt(3.0) * (2.0 * uniform(keys[REWARDS, block], position) - 1.0)
    else:
        noise = world.noise_sd * normal(keys[REWARDS, block], position)
        if world.noise == HETEROSCEDASTIC:
            noise = noise * (0.5 + absolute(mean))
    state.numbers[REWARD] = mean + noise


@stage
def drift_parameter(drift: float, dimension: int, parameter: Rows, key: np.uint64, t: int) -> None:
    """One step of θ*'s random walk on the sphere; the agents of a seed share the key, hence the walk."""
    square = 0.0
    for j in range(dimension):
        position = np.uint64(t) * np.uint64(dimension) + np.uint64(j)
        value = parameter[j] + drift * normal(key, position)
        parameter[j] = value
        square = fma(value, value, square)
    scale = 1.0 / sqrt(square)
    for j in range(dimension):
        parameter[j] = scale * parameter[j]


@stage
def draw_parameters(
    state: Learner, variance: float, key: np.uint64, position: np.uint64, work: Scratch
) -> None:
    """Thompson sampling: θ̂ of every lane ← a draw of its posterior."""
    normals, dimension = work.model[PULL], state.estimate.shape[0]
    for j in range(dimension):
        normals[j] = normal(key, position * np.uint64(dimension) + np.uint64(j))
    sample(state.inverse, variance, normals, work.square[0], state.estimate)


@stage
def posterior_policy(
    world: LaneEnvironment,
    state: Learner,
    rule: int,
    quadrature: bool | None,
    contexts: Rows,
    work: Scratch,
    block: int,
    t: int,
) -> None:
    """The policy of every lane by a rule of the posterior."""
    posterior_mean(state.inverse, state.statistics, state.mean, state.numbers[RIDGE], state.estimate)
    variance = state.numbers[NOISE_VARIANCE]
    if rule == BY_THOMPSON:
        position = vectors(world.agent)[block] + np.uint64(t) * np.uint64(world.agents)
        draw_parameters(state, variance, vectors(world.keys)[THOMPSON, block], position, work)
    expose_by_posterior(
        contexts,
        state.estimate,
        state.inverse,
        variance,
        state.merit,
        rule == EXPECTED_MERIT,
        quadrature,
        state.product,
        work.arms[POLICY],
    )


@body
def play(
    world: LaneEnvironment,
    lane_states: Array,
    solver: Solver | None,
    sharing: Sharing,
    privacy: PrivateReleases | None,
    _weighing: bool | None,
    differ: bool | None,
    tally: Regrets,
    exposure: ArmExposure,
    workspace: BlockScratch,
    rule: int,
    posterior: bool | None,
    quadrature: bool | None,
    fair: bool | None,
    pgd: bool | None,
    winner: bool | None,
    least_share: float,
    delay: Delay,
    block: int,
    t: int,
) -> None:
    """Round t (from 0) of every lane of a block: Alg. 1 lines 5 to 9."""
    parameter = vectors(world.parameter)[block]
    dimension, arms = parameter.shape[0], world.arms[t]
    table = decision_scratch(vectors(workspace.memory), arms, world.most_arms, dimension)
    contexts, means, entitled, policy = table.contexts, table.means, table.fair, table.work.arms[POLICY]
    lanes = lane_state_of(lane_states, block, dimension)
    state = lanes.learner
    if world.drift > 0.0:
        drift_parameter(world.drift, world.dimension, parameter, vectors(world.keys)[DRIFT, block], t)
    draw_contexts(world, block, t, table, workspace.present)
    scores(contexts, parameter, means)
    if world.constant > 0.0:
        take_around(world.point, contexts)
    if posterior is not None:
        posterior_policy(world, state, rule, quadrature, contexts, table.work, block, t)
    if solver is not None:
        estimate(state.inverse, state.statistics, state.estimate)
        refresh_radius(state)
        region = Region(state.estimate, state.inverse, state.radius)
        choose(contexts, region, state.merit, table.work, solver, fair, pgd, winner)
    if least_share > 0.0:
        at_least(policy, least_share)
    expose(state.merit, means, entitled, table.slopes)
    unfair, lost = vectors(tally.fairness_now), vectors(tally.reward_now)
    unfair[block], lost[block] = regrets(entitled, policy, means, unfair[block], lost[block])
    act(world, state, contexts, policy, means, block, t)
    sums = by_lane(means), by_lane(entitled), by_lane(policy)
    count_exposure(exposure, world.contexts, world.agents, block, *sums, workspace.present)
    deliver(world, lanes, posterior, sharing, privacy, differ, delay, table, block, t)
    if (t + 1) % REFRESH_EVERY == 0 and learns_own(privacy):
        lanes.notes[MARKED] = 1.0
        derive_marked(lanes, table.work.square[0], False)


@stage
def note(tally: Regrets, agents: int, point: int) -> None:
    """The mean over agents of the running sums, for every seed."""
    for seed in range(tally.fairness.shape[0]):
        fairness, reward = 0.0, 0.0
        for lane in range(seed * agents, (seed + 1) * agents):
            fairness += tally.fairness_now[lane // WIDTH, lane % WIDTH]
            reward += tally.reward_now[lane // WIDTH, lane % WIDTH]
        tally.fairness[seed, point] = fairness / agents
        tally.reward[seed, point] = reward / agents


@releasing
def run(begin: int, end: int, *setting: Any) -> None:
    """Run rounds `begin` to `end` (exclusive, from 0) of these `LoopArguments`; call it again to go on.

    lane_states (B, size, n). Optimism has a `solver` with its `variant`, other rules a `posterior`.
    Parameters that are None are not compiled: Numba drops the body of `if x is not None` where the argument
    x is None, and compiles any `else`, so there is none. It does so for arguments, not for fields of a
    NamedTuple, which is why they are passed one by one.
    """
    world, lane_states, solver, sharing, privacy, weighing, differ, tally, exposure, workspace = setting[:10]
    blocks, point, dimension = lane_states.shape[0], 0, world.parameter.shape[1]
    while point < tally.points.shape[0] and tally.points[point] < begin + 1:
        point += 1
    for t in range(begin, end):
        for block in range(blocks):
            play(*setting, block, t)  # type: ignore[call-arg]  # the length of a setting is known
        table = decision_scratch(vectors(workspace.memory), 1, world.most_arms, dimension)
        share(lane_states, solver, sharing, privacy, weighing, differ, tally.syncs, table, world.agents, t)
        if point < tally.points.shape[0] and tally.points[point] == t + 1:
            note(tally, world.agents, point)
            note_exposure(exposure, world.agents, point)
            point += 1
