"""The simulator's round loop for the rules of the posterior; `kernel` has optimism's.

A loop of its own, so that a run compiles only what its rule needs. What a round is made of is the same.
"""

from __future__ import annotations

import numpy as np

from fedfairx.core.estimate import REFRESH_EVERY
from fedfairx.core.expectation import expose_by_posterior
from fedfairx.core.exposure import at_least, expose
from fedfairx.core.learner import Learner
from fedfairx.core.posterior import Assumed, noise_variance, posterior_mean, sample
from fedfairx.core.regret import regrets
from fedfairx.core.rules import EXPECTED_MERIT, THOMPSON
from fedfairx.lanes.block import BLOCK
from fedfairx.lanes.compile import glue, leaf, stage
from fedfairx.lanes.linear import scores
from fedfairx.lanes.registers import WIDTH
from fedfairx.lanes.vector import load, load_words, store
from fedfairx.simulation.contexts import draw_contexts
from fedfairx.simulation.deriving import derive_adopted
from fedfairx.simulation.draws import normal
from fedfairx.simulation.exposure import count_exposure
from fedfairx.simulation.kernel import act, drift_parameter, merit_of, mind_of, note
from fedfairx.simulation.observing import deliver
from fedfairx.simulation.pooling import share_beliefs
from fedfairx.simulation.state import RELEASED, Merits, Minds, Room, Sharing, Tally, World


@leaf
def draw_parameters(world: World, mind: Learner, variance: float, room: Room, block: int, t: int) -> None:
    """Thompson: θ̂ of every lane ← a draw of its posterior."""
    dimension = mind.estimate.shape[0]
    normals = room.model[: dimension * WIDTH].reshape(dimension, WIDTH)
    factor = room.square[: dimension * dimension * WIDTH].reshape(dimension, dimension, WIDTH)
    key = load_words(BLOCK, world.thompson_keys, block)
    position = load_words(BLOCK, world.agent, block) + np.uint64(t) * np.uint64(world.agents)
    for j in range(dimension):
        store(normal(key, position * np.uint64(dimension) + np.uint64(j)), BLOCK, normals, j)
    store(variance, BLOCK, mind.radius)
    sample(BLOCK, mind.inverse, mind.radius, normals, factor, mind.estimate)


@glue
def play(
    world: World,
    minds: Minds,
    merits: Merits,
    rule: int,
    prior: Assumed,
    sharing: Sharing,
    tally: Tally,
    room: Room,
    block: int,
    t: int,
) -> None:
    """Round t (from 0) of every lane of a block."""
    dimension, arms = minds.estimate.shape[1], world.arms[t]
    contexts = room.contexts[: arms * dimension * WIDTH].reshape(arms, dimension, WIDTH)
    policy = room.arms[: arms * WIDTH].reshape(arms, WIDTH)
    truth = room.fair[: 3 * arms * WIDTH].reshape(3, arms, WIDTH)
    mind, merit = mind_of(minds, block), merit_of(merits, block)
    if world.drift > 0.0:
        drift_parameter(world, block, t)
    draw_contexts(world, block, t, contexts, room)
    posterior_mean(BLOCK, mind.inverse, mind.statistics, prior.mean, minds.ridge[block], mind.estimate)
    variance = noise_variance(prior, load(BLOCK, minds.surprise, block), load(BLOCK, minds.observed, block))
    if rule == THOMPSON:
        draw_parameters(world, mind, variance, room, block, t)
    expecting = rule == EXPECTED_MERIT
    inverse, theta = mind.inverse, mind.estimate
    expose_by_posterior(
        BLOCK, contexts, theta, inverse, variance, merit, expecting, mind.product, mind.radius, policy
    )
    scores(BLOCK, contexts, world.parameter[block], truth[0])
    expose(BLOCK, merit, truth[0], truth[1], truth[2])
    if merits.least_share > 0.0:
        for l in range(WIDTH):
            at_least(policy, l, merits.least_share)
    regrets(BLOCK, truth[1], policy, truth[0], tally.fairness_now[block], tally.reward_now[block])
    act(world, mind, contexts, policy, truth[0], block, t)
    if tally.exposure.shape[1] > 0:
        count_exposure(tally, world, block, truth[0], truth[1], policy, room.present)
    deliver(world, minds, mind, prior, sharing, room, block, t)
    if (t + 1) % REFRESH_EVERY == 0 and sharing.decide_from != RELEASED:
        store(1.0, BLOCK, room.exchange.adopted, block)
        derive_adopted(minds, prior, room, block)


@stage
def run(
    world: World,
    minds: Minds,
    merits: Merits,
    rule: int,
    prior: Assumed,
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
            play(world, minds, merits, rule, prior, sharing, tally, room, block, t)
        share_beliefs(minds, prior, sharing, tally.syncs, room, world.agents, t)
        if point < tally.points.shape[0] and tally.points[point] == t + 1:
            note(tally, world.agents, point)
            point += 1
