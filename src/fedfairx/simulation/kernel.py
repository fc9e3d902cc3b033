"""The simulator's round loop, compiled: all agents of several seeds in lock step, lanes innermost.

A lane is one agent of one seed. WIDTH lanes are a block, which stays in the nearest cache. Every round,
each block draws its contexts, decides, observes and learns with the stage functions of core/; then the
seeds whose schedule says so synchronise. Nothing here is mathematics of its own.
"""

from __future__ import annotations

import math

import numpy as np

from fedfairx.arrays import Array
from fedfairx.core.estimate import REFRESH_EVERY, derive, estimate
from fedfairx.core.exposure import at_least, draw_rows, expose
from fedfairx.core.learner import Learner
from fedfairx.core.merit_table import MeritTable
from fedfairx.core.optimism.choose import Solver, choose
from fedfairx.core.optimism.problem import (
    ARM_ROWS,
    LANE_ROWS,
    MODEL_ROWS,
    POLICY,
    SQUARE_ROWS,
    Region,
    Scratch,
)
from fedfairx.core.posterior import Assumed
from fedfairx.core.regret import regrets
from fedfairx.lanes.block import BLOCK
from fedfairx.lanes.compile import glue, leaf, stage
from fedfairx.lanes.linear import scores
from fedfairx.lanes.registers import WIDTH
from fedfairx.lanes.vector import absolute, fma, load, load_words, sqrt, store
from fedfairx.simulation.contexts import draw_contexts
from fedfairx.simulation.draws import normal, uniform
from fedfairx.simulation.exposure import count_exposure, note_exposure
from fedfairx.simulation.observing import deliver
from fedfairx.simulation.sharing import believed_radius, share
from fedfairx.simulation.state import (
    BOUNDED,
    HETEROSCEDASTIC,
    RELEASED,
    Belief,
    Merits,
    Minds,
    Room,
    Sharing,
    Tally,
    World,
)


@leaf
def refresh_radius(minds: Minds, belief: Belief, block: int, dimension: int) -> None:
    """√β of every lane; equal counts, which are the rule, are worked out once."""
    known, value = -1.0, 0.0
    for l in range(WIDTH):
        count = minds.inside[block, l]
        if count != known:
            known = count
            value = believed_radius(belief, count, dimension)
        minds.radius[block, l] = value


@leaf
def act(
    world: World, mind: Learner, contexts: Array, policy: Array, means: Array, block: int, t: int
) -> None:
    """Draw every lane's action and its reward (Alg. 1 line 8); the observation is left at hand."""
    position = load_words(BLOCK, world.agent, block) + np.uint64(t) * np.uint64(world.agents)
    u = uniform(load_words(BLOCK, world.action_keys, block), position)
    draw_rows(BLOCK, contexts, policy, means, u, mind.chosen, mind.reward)
    mean, key = load(BLOCK, mind.reward), load_words(BLOCK, world.reward_keys, block)
    if world.noise == BOUNDED:
        noise = world.noise_sd * math.sqrt(3.0) * (2.0 * uniform(key, position) - 1.0)
    else:
        noise = world.noise_sd * normal(key, position)
        if world.noise == HETEROSCEDASTIC:
            noise = noise * (0.5 + absolute(mean))
    store(mean + noise, BLOCK, mind.reward)


@stage
def drift_parameter(world: World, block: int, t: int) -> None:
    """One step of θ*'s random walk on the sphere; the agents of a seed share the key, hence the walk."""
    parameter, key = world.parameter[block], load_words(BLOCK, world.drift_keys, block)
    dimension = parameter.shape[0]
    square = 0.0
    for j in range(dimension):
        position = np.uint64(t) * np.uint64(dimension) + np.uint64(j)
        value = load(BLOCK, parameter, j) + world.drift * normal(key, position)
        store(value, BLOCK, parameter, j)
        square = fma(value, value, square)
    scale = 1.0 / sqrt(square)
    for j in range(dimension):
        store(scale * load(BLOCK, parameter, j), BLOCK, parameter, j)


@glue
def mind_of(minds: Minds, block: int) -> Learner:
    """The learner of one block."""
    return Learner(
        minds.statistics[block],
        minds.inverse[block],
        minds.estimate[block],
        minds.radius[block],
        minds.chosen[block],
        minds.reward[block],
        minds.product[block],
        minds.det_growth[block],
        BLOCK,
    )


@glue
def merit_of(merits: Merits, block: int) -> MeritTable:
    """The merits of one block."""
    return MeritTable(
        merits.exponential[block],
        merits.kind[block],
        merits.first[block],
        merits.second[block],
        merits.third[block],
        merits.low[block],
        merits.high[block],
        merits.address[block],
    )


@glue
def play(
    world: World,
    minds: Minds,
    merits: Merits,
    solver: Solver,
    prior: Assumed,
    belief: Belief,
    sharing: Sharing,
    tally: Tally,
    room: Room,
    block: int,
    t: int,
) -> None:
    """Round t (from 0) of every lane of a block: Alg. 1 lines 5 to 9."""
    dimension, arms = minds.estimate.shape[1], world.arms[t]
    contexts = room.contexts[: arms * dimension * WIDTH].reshape(arms, dimension, WIDTH)
    work = Scratch(
        room.arms[: ARM_ROWS * arms * WIDTH].reshape(ARM_ROWS, arms, WIDTH),
        room.model.reshape(MODEL_ROWS, dimension, WIDTH),
        room.lane.reshape(LANE_ROWS, WIDTH),
        room.square.reshape(SQUARE_ROWS, dimension, dimension, WIDTH),
        room.spare,
        room.codes,
        BLOCK,
    )
    truth = room.fair[: 3 * arms * WIDTH].reshape(3, arms, WIDTH)
    mind = mind_of(minds, block)
    merit = merit_of(merits, block)
    if world.drift > 0.0:
        drift_parameter(world, block, t)
    draw_contexts(world, block, t, contexts, room)
    estimate(BLOCK, mind.inverse, mind.statistics, mind.estimate)
    refresh_radius(minds, belief, block, dimension)
    choose(contexts, Region(mind.estimate, mind.inverse, mind.radius), merit, work, solver)
    scores(BLOCK, contexts, world.parameter[block], truth[0])
    expose(BLOCK, merit, truth[0], truth[1], truth[2])
    policy = work.arms[POLICY]
    if merits.least_share > 0.0:
        for l in range(WIDTH):
            at_least(policy, l, merits.least_share)
    regrets(BLOCK, truth[1], policy, truth[0], tally.fairness_now[block], tally.reward_now[block])
    act(world, mind, contexts, policy, truth[0], block, t)
    if tally.exposure.shape[1] > 0:
        count_exposure(tally, world, block, truth[0], truth[1], policy, room.present)
    deliver(world, minds, mind, prior, sharing, room, block, t)
    if (t + 1) % REFRESH_EVERY == 0 and sharing.decide_from != RELEASED:
        derive(BLOCK, mind.statistics, minds.ridge[block], mind.inverse)


@stage
def note(tally: Tally, agents: int, point: int) -> None:
    """The mean over agents of the running sums, for every seed."""
    for seed in range(tally.fairness.shape[0]):
        fairness, reward = 0.0, 0.0
        for i in range(agents):
            lane = seed * agents + i
            fairness += tally.fairness_now[lane // WIDTH, lane % WIDTH]
            reward += tally.reward_now[lane // WIDTH, lane % WIDTH]
        tally.fairness[seed, point] = fairness / agents
        tally.reward[seed, point] = reward / agents
    if tally.exposure.shape[1] > 0:
        note_exposure(tally, agents, point)


@stage
def run(
    world: World,
    minds: Minds,
    merits: Merits,
    solver: Solver,
    prior: Assumed,
    belief: Belief,
    sharing: Sharing,
    tally: Tally,
    room: Room,
    begin: int,
    end: int,
) -> None:
    """Rounds `begin` to `end` (exclusive, from 0); call it again to go on."""
    blocks, point = minds.radius.shape[0], 0
    while point < tally.points.shape[0] and tally.points[point] < begin + 1:
        point += 1
    for t in range(begin, end):
        for block in range(blocks):
            play(world, minds, merits, solver, prior, belief, sharing, tally, room, block, t)
        share(minds, sharing, belief, tally.syncs, room.exchange, world.agents, t)
        if point < tally.points.shape[0] and tally.points[point] == t + 1:
            note(tally, world.agents, point)
            point += 1
