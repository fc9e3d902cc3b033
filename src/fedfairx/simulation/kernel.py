"""The simulator's round loop, compiled: all agents of several seeds in lock step, lanes innermost.

A lane is one agent of one seed. Lanes stand in blocks small enough for the first-level cache. Every round,
each block draws its contexts, decides, observes and learns with the stage functions of core/; then the
seeds whose schedule says so synchronise. Nothing here is mathematics of its own.
"""

from __future__ import annotations

import math

import numpy as np

from fedfairx.core.arithmetic import fma
from fedfairx.core.compile import allocating_stage, glue, stage
from fedfairx.core.confidence import practical_radius
from fedfairx.core.estimate import REFRESH_EVERY, derive, estimate
from fedfairx.core.exposure import draw, expose
from fedfairx.core.learner import Learner, learn
from fedfairx.core.linear import scores
from fedfairx.core.merit import MeritTable
from fedfairx.core.optimism import Solver, choose
from fedfairx.core.problem import ARM_ROWS, LANE_ROWS, MODEL_ROWS, POLICY, SQUARE_ROWS, Region, Scratch
from fedfairx.core.regret import regrets
from fedfairx.core.statistics import Array, add
from fedfairx.simulation.draws import fill_uniform, normal, normalise_rows, uniform
from fedfairx.simulation.sharing import share
from fedfairx.simulation.state import (
    BOUNDED,
    HETEROSCEDASTIC,
    RELEASED,
    UNIT_BALL,
    UNIT_NORM,
    Belief,
    Merits,
    Minds,
    Room,
    Sharing,
    Tally,
    World,
)


@stage
def refresh_radius(minds: Minds, belief: Belief, block: int, dimension: int) -> None:
    """√β of every lane; equal counts, which are the rule, are worked out once."""
    known, value = -1.0, 0.0
    inside, radius = minds.inside[block], minds.radius[block]
    for l in range(inside.shape[0]):
        count = inside[l]
        if count != known:
            known = count
            value = practical_radius(
                count,
                dimension,
                belief.regulariser,
                belief.noise_sd,
                belief.failure,
                belief.parameter_norm,
                belief.scale,
            )
        radius[l] = value


@stage
def draw_contexts(world: World, block: int, t: int, contexts: Array, room: Room) -> None:
    """contexts (K, d, n) of round t: they depend on seed, agent and round alone."""
    dimension, lanes = contexts.shape[1], contexts.shape[2]
    # Counters are spaced by the most arms there can be, so that the number of arms shifts nothing.
    spacing = np.uint64(world.most_arms * dimension)
    base, agent = room.base, world.agent[block]
    before = np.uint64(t) * np.uint64(world.agents)
    for l in range(lanes):
        base[l] = (before + agent[l]) * spacing
    scale = 1.0 / math.sqrt(dimension) if world.contexts == UNIT_BALL else 1.0
    fill_uniform(world.context_keys[block], base, scale, contexts)
    if world.contexts == UNIT_NORM:
        normalise_rows(contexts, room.lane)


@stage
def reward_noise(law: int, sd: float, key: np.uint64, position: np.uint64, mean: float) -> float:
    """The noise of one reward."""
    if law == BOUNDED:
        return sd * math.sqrt(3.0) * (2.0 * uniform(key, position) - 1.0)
    z = sd * normal(key, position)
    return z * (0.5 + abs(mean)) if law == HETEROSCEDASTIC else z


@stage
def act(
    world: World, mind: Learner, contexts: Array, policy: Array, means: Array, block: int, t: int
) -> None:
    """Draw every lane's action and its reward (Alg. 1 line 8); the observation is left at hand."""
    dimension, lanes = mind.chosen.shape
    agent, action_keys, reward_keys = world.agent[block], world.action_keys[block], world.reward_keys[block]
    chosen, reward = mind.chosen, mind.reward
    law, sd = world.noise, world.noise_sd
    before = np.uint64(t) * np.uint64(world.agents)
    for l in range(lanes):
        position = before + agent[l]
        action = draw(policy, l, uniform(action_keys[l], position))
        for j in range(dimension):
            chosen[j, l] = contexts[action, j, l]
        mean = means[action, l]
        reward[l] = mean + reward_noise(law, sd, reward_keys[l], position, mean)


@stage
def drift_parameter(world: World, block: int, t: int) -> None:
    """One step of θ*'s random walk on the sphere; the agents of a seed share the key, hence the walk."""
    dimension, lanes = world.parameter.shape[1], world.parameter.shape[2]
    for l in range(lanes):
        square = 0.0
        for j in range(dimension):
            position = np.uint64(t) * np.uint64(dimension) + np.uint64(j)
            world.parameter[block, j, l] += world.drift * normal(world.drift_keys[block, l], position)
            square += world.parameter[block, j, l] ** 2
        for j in range(dimension):
            world.parameter[block, j, l] /= math.sqrt(square)


@stage
def count_exposure(tally: Tally, agents: int, block: int, means: Array, policy: Array) -> None:
    """Add every lane's policy to its seed, by the rank of each arm's true mean (rank 0 is the best arm)."""
    arms, lanes = means.shape
    exposure = tally.exposure
    for l in range(lanes):
        seed = (block * lanes + l) // agents
        if seed >= exposure.shape[0]:
            return  # padding
        for a in range(arms):
            rank = 0
            for b in range(arms):
                if means[b, l] > means[a, l] or (means[b, l] == means[a, l] and b < a):
                    rank += 1
            exposure[seed, rank] += policy[a, l]


@glue
def mind_of(minds: Minds, block: int, lanes: int) -> Learner:
    """The learner of one block."""
    return Learner(
        minds.statistics[block],
        minds.inverse[block],
        minds.estimate[block],
        minds.radius[block],
        minds.chosen[block],
        minds.reward[block],
        minds.product[block],
        minds.gain[block],
        lanes,
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


@stage
def clip(sharing: Sharing, mind: Learner) -> None:
    """Move the observation at hand inside the privatizer's bounds, around its public point."""
    dimension, lanes = mind.chosen.shape
    scale, chosen, reward, centre = mind.gain, mind.chosen, mind.reward, sharing.centre
    bound, low, high = sharing.context_bound, sharing.reward_low, sharing.reward_high
    for l in range(lanes):
        scale[l] = 1e-300
    for j in range(dimension):
        for l in range(lanes):
            offset = chosen[j, l] - centre[j]
            scale[l] = fma(offset, offset, scale[l])
    for l in range(lanes):
        scale[l] = bound / math.sqrt(scale[l])
        reward[l] = min(max(reward[l], low), high)
    for j in range(dimension):
        for l in range(lanes):
            inside = centre[j] + scale[l] * (chosen[j, l] - centre[j])
            chosen[j, l] = inside if scale[l] < 1.0 else chosen[j, l]


@glue
def take_in(minds: Minds, mind: Learner, sharing: Sharing, block: int) -> None:
    """Learn the observation at hand in every lane of a block; a zero context stands for none."""
    lanes = mind.chosen.shape[1]
    if sharing.decide_from != RELEASED:
        learn(mind)
        if sharing.threshold > 0.0:
            growth, gain = minds.growth[block], mind.gain
            for l in range(lanes):
                growth[l] -= math.log(-gain[l])
    if minds.exact.shape[1] > 0:
        add(lanes, minds.exact[block], mind.chosen, mind.reward)
    if minds.own.shape[1] > 0:
        if sharing.private:  # clip, never assert
            clip(sharing, mind)
        add(lanes, minds.own[block], mind.chosen, mind.reward)


@stage
def deliver(
    world: World, minds: Minds, mind: Learner, sharing: Sharing, room: Room, block: int, t: int
) -> None:
    """Learn now, or put the observations on their way and learn those that arrive in round t."""
    dimension, lanes = mind.chosen.shape
    if world.longest_delay == 0:
        observed, inside = minds.observed[block], minds.inside[block]
        learnt = 1.0 if sharing.decide_from != RELEASED else 0.0
        for l in range(lanes):
            observed[l] += 1.0
            inside[l] += learnt
        take_in(minds, mind, sharing, block)
        return
    size = room.history.shape[0]
    for l in range(lanes):
        for j in range(dimension):
            room.history[t % size, block, j, l] = mind.chosen[j, l]
        room.history[t % size, block, dimension, l] = mind.reward[l]
    stay = world.delay / (1.0 + world.delay)
    for age in range(min(t, world.longest_delay) + 1):
        some = False
        for l in range(lanes):
            position = np.uint64(t - age) * np.uint64(world.agents) + world.agent[block, l]
            u = uniform(world.delay_keys[block, l], position)
            wait = min(int(math.log(1.0 - u) / math.log(stay)), world.longest_delay)
            arrives = 1.0 if wait == age else 0.0
            some = some or wait == age
            for j in range(dimension):
                mind.chosen[j, l] = arrives * room.history[(t - age) % size, block, j, l]
            mind.reward[l] = arrives * room.history[(t - age) % size, block, dimension, l]
            minds.observed[block, l] += arrives
            if sharing.decide_from != RELEASED:
                minds.inside[block, l] += arrives
        if some:
            take_in(minds, mind, sharing, block)


@glue
def play(
    world: World,
    minds: Minds,
    merits: Merits,
    solver: Solver,
    belief: Belief,
    sharing: Sharing,
    tally: Tally,
    room: Room,
    block: int,
    t: int,
) -> None:
    """Round t (from 0) of every lane of a block: Alg. 1 lines 5 to 9."""
    dimension, lanes = minds.estimate.shape[1], minds.estimate.shape[2]
    arms = world.arms[t]
    contexts = room.contexts[: arms * dimension * lanes].reshape(arms, dimension, lanes)
    work = Scratch(
        room.arms[: ARM_ROWS * arms * lanes].reshape(ARM_ROWS, arms, lanes),
        room.model.reshape(MODEL_ROWS, dimension, lanes),
        room.lane.reshape(LANE_ROWS, lanes),
        room.square.reshape(SQUARE_ROWS, dimension, dimension, lanes),
        lanes,
    )
    truth = room.fair[: 3 * arms * lanes].reshape(3, arms, lanes)
    mind = mind_of(minds, block, lanes)
    merit = merit_of(merits, block)
    if world.drift > 0.0:
        drift_parameter(world, block, t)
    draw_contexts(world, block, t, contexts, room)
    estimate(lanes, mind.inverse, mind.statistics, mind.estimate)
    refresh_radius(minds, belief, block, dimension)
    choose(contexts, Region(mind.estimate, mind.inverse, mind.radius), merit, work, solver)
    scores(lanes, contexts, world.parameter[block], truth[0])
    expose(lanes, merit, truth[0], truth[1], truth[2], work.lane[0], work.lane[1])
    policy = work.arms[POLICY]
    regrets(lanes, truth[1], policy, truth[0], tally.fairness_now[block], tally.reward_now[block])
    act(world, mind, contexts, policy, truth[0], block, t)
    if tally.exposure.shape[1] > 0:
        count_exposure(tally, world.agents, block, truth[0], policy)
    deliver(world, minds, mind, sharing, room, block, t)
    if (t + 1) % REFRESH_EVERY == 0 and sharing.decide_from != RELEASED:
        derive(mind.statistics, belief.regulariser, mind.inverse)


@stage
def note(tally: Tally, agents: int, point: int) -> None:
    """The mean over agents of the running sums, for every seed."""
    lanes = tally.fairness_now.shape[1]
    for seed in range(tally.fairness.shape[0]):
        fairness, reward = 0.0, 0.0
        for i in range(agents):
            lane = seed * agents + i
            fairness += tally.fairness_now[lane // lanes, lane % lanes]
            reward += tally.reward_now[lane // lanes, lane % lanes]
        tally.fairness[seed, point] = fairness / agents
        tally.reward[seed, point] = reward / agents


@allocating_stage
def run(
    world: World,
    minds: Minds,
    merits: Merits,
    solver: Solver,
    belief: Belief,
    sharing: Sharing,
    tally: Tally,
    room: Room,
    begin: int,
    end: int,
) -> None:
    """Rounds `begin` to `end` (exclusive, from 0); call it again to go on."""
    blocks = minds.radius.shape[0]
    point = int(np.searchsorted(tally.points, begin + 1))
    for t in range(begin, end):
        for block in range(blocks):
            play(world, minds, merits, solver, belief, sharing, tally, room, block, t)
        share(minds, sharing, belief, tally.syncs, world.agents, t)
        if point < tally.points.size and tally.points[point] == t + 1:
            note(tally, world.agents, point)
            point += 1
