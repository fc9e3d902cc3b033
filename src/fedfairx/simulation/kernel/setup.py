"""From a scenario, an algorithm and seeds to the arrays that the kernel runs on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedfairx.agent.options import Options
from fedfairx.agent.schedules import Plan, timetable
from fedfairx.core.learner import start
from fedfairx.core.merit_kernels import MOST_BONUS, quadrature_for, table
from fedfairx.core.optimism.problem import scratch_size
from fedfairx.core.optimism.solver import Solver
from fedfairx.core.partners import DIFFER
from fedfairx.core.posterior import Prior
from fedfairx.core.rules import RULES
from fedfairx.core.statistics import packed_size
from fedfairx.errors import require
from fedfairx.lanes.rows import size_of, vectors, zeros
from fedfairx.lanes.vector_llvm import WIDTH
from fedfairx.privacy.budget import INTERCEPT
from fedfairx.privacy.guarantee import DECIDE_FROM
from fedfairx.privacy.mechanisms.noise_share import on_grid
from fedfairx.simulation.kernel.partners import number_of_peers, partner_scratch
from fedfairx.simulation.kernel.random import Keys, generator, stream_key
from fedfairx.simulation.kernel.state import (
    OWN_RELEASED,
    RECORDED,
    REFIT,
    RELEASED,
    RELEASED_LOCAL,
    ArmExposure,
    BlockScratch,
    Counts,
    Delay,
    LaneEnvironment,
    PrivateReleases,
    Regrets,
    Sharing,
    decision_scratch,
    lane_state,
)
from fedfairx.simulation.recorded import Recorded
from fedfairx.simulation.scenario import CONTEXTS, NOISES, Scenario
from fedfairx.util.arrays import Array

Shape = tuple[int, int]  # blocks, and lanes of a block
CODES = dict(zip(DECIDE_FROM, (OWN_RELEASED, RELEASED, RELEASED_LOCAL), strict=True))


class LoopArguments(NamedTuple):
    """The arguments of `loop.run` and `loop.play`; what sharing needs comes first."""

    world: LaneEnvironment
    lane_states: Array  # (B, size, n)
    solver: Solver | None
    sharing: Sharing
    privacy: PrivateReleases | None
    weighing: bool | None  # whether a posterior filters the noise of releases
    differ: bool | None  # whether peers' θ may
    tally: Regrets
    exposure: ArmExposure
    workspace: BlockScratch
    rule: int
    posterior: bool | None  # whether the rule uses it
    quadrature: bool | None
    fair: bool | None
    pgd: bool | None
    winner: bool | None
    least_share: float
    delay: Delay


def prepare(
    scenario: Scenario,
    options: Options,
    seeds: tuple[int, ...],
    grid: Counts,
    *,
    exposure: bool = False,
    most_bonus: float = MOST_BONUS,
) -> LoopArguments:
    """Arrays for all agents of these seeds: lane = seed · agents + agent."""
    named = scenario.contexts == "one-hot"
    point = options.centring if options.private else None
    options = replace(options, intercept=options.has_intercept and not named, centring=point)
    used = len(seeds) * scenario.agents
    shape = math.ceil(used / WIDTH), WIDTH
    lanes = np.arange(math.prod(shape))
    seed_of = np.minimum(lanes // scenario.agents, len(seeds) - 1)  # padding joins the last
    agent_of = lanes % scenario.agents
    algorithm = options.composed
    shares = algorithm.schedule.max_releases(_plan(scenario)) > 0
    decide_from = CODES[algorithm.decide_from] if options.private else RELEASED_LOCAL
    differ = options.partners == DIFFER
    return LoopArguments(
        _world(scenario, options, seeds, seed_of, agent_of, shape),
        _minds(scenario, options, decide_from, agent_of, shape, most_bonus),
        algorithm.solver if options.optimistic else None,
        _sharing(scenario, options, len(seeds), shape),
        _privacy(scenario, options, decide_from, seeds, shape) if options.private else None,
        True if shares and options.private and not (options.optimistic or differ) else None,
        True if shares and differ else None,
        _tally(len(seeds), grid, shape),
        _exposure(len(seeds), scenario.arms if exposure else 0, grid),
        _workspace(scenario, options),
        RULES.index(algorithm.rule),
        None if options.optimistic else True,
        quadrature_for(scenario.merits),
        *algorithm.solver.variant,
        options.minimum_share,
        _delay(scenario, options, seeds, seed_of, agent_of, shape),
    )


def _keys(stream: str, seeds: tuple[int, ...], seed_of: Counts, shape: Shape) -> Keys:
    """(B, n) the lanes' keys of a stream."""
    return np.array([stream_key(seed, stream) for seed in seeds], dtype=np.uint64)[seed_of].reshape(shape)


def _world(
    scenario: Scenario,
    options: Options,
    seeds: tuple[int, ...],
    seed_of: Counts,
    agent_of: Counts,
    shape: Shape,
) -> LaneEnvironment:
    parameters = np.array([scenario.parameters(seed) for seed in seeds])[seed_of, agent_of]
    columns, constant = _columns(scenario, options)
    parameters = np.pad(parameters, ((0, 0), (0, columns - scenario.dimension)))
    recorded = isinstance(scenario.contexts, Recorded)
    # Lanes that fill up the last block see arms that are all alike, and cost next to nothing.
    scale = zeros(*shape)
    size = 1.0 / math.sqrt(scenario.dimension) if scenario.contexts == "unit-ball" else 1.0
    scale.ravel()[: len(seeds) * scenario.agents] = size
    streams = ("contexts", "actions", "rewards", "drift", "thompson")
    return LaneEnvironment(
        scenario.arms_per_round(),
        scenario.arms,
        scenario.newcomers > 0,
        RECORDED if recorded else CONTEXTS.index(str(scenario.contexts)),
        NOISES.index(scenario.noise),
        scenario.noise_sd,
        scenario.drift,
        scenario.agents,
        agent_of.astype(np.uint64).reshape(shape),
        scale,
        np.array([_keys(stream, seeds, seed_of, shape) for stream in streams]),
        scenario.dimension,
        constant,
        np.zeros(scenario.dimension) if options.centring is None else np.array(options.centring.context),
        parameters.reshape(*shape, columns).transpose(0, 2, 1).copy(),
        _table(scenario, seeds),
        seed_of.reshape(shape),
    )


def _columns(scenario: Scenario, options: Options) -> tuple[int, float]:
    """The coordinates of an agent's θ, and the intercept that the last of them is of; 0 if there is none."""
    if not options.intercept:
        return scenario.dimension, 0.0
    private = INTERCEPT if options.centring is None else options.centring.constant
    return scenario.dimension + 1, private if options.private else 1.0


def _table(scenario: Scenario, seeds: tuple[int, ...]) -> Array:
    """A copy, because compiled code needs writable arrays."""
    size = (scenario.arms, scenario.dimension)
    if isinstance(scenario.contexts, Recorded):
        return np.array(scenario.contexts.contexts)
    if not scenario.arms_stay:
        return np.zeros((0, *size))
    table = np.array([scenario.features(seed) for seed in seeds], dtype=np.float64)
    require(table.shape[1:] == size, "features", f"must have shape {size}", table.shape[1:])
    return table


def _minds(
    scenario: Scenario,
    options: Options,
    decide_from: int,
    agent_of: Counts,
    shape: Shape,
    most_bonus: float,
) -> Array:
    blocks, lanes = shape
    dimension, constant = _columns(scenario, options)
    lane_states: Array = zeros(blocks, size_of(lane_state, dimension), lanes)
    merits = table([scenario.merits[agent] for agent in agent_of], most_bonus).reshape(-1, *shape)
    reward_range = options.reward_range
    named = scenario.contexts == "one-hot"
    priors = [
        options.prior
        or Prior.for_merit(
            merit, reward_range=reward_range, arms_of_their_own=named, intercept=constant > 0.0
        )
        for merit in scenario.merits
    ]
    for block in range(blocks):
        start(
            lane_states[block],
            dimension,
            merits=merits[:, block],
            rule=options.composed.rule,
            confidence=options.region,
            priors=[priors[agent] for agent in agent_of[block * lanes : (block + 1) * lanes]],
            learning=decide_from != RELEASED,  # un-noised rewards must drive nothing there
            common=range(dimension) if named else range(scenario.dimension, dimension),
            centre=options.centring.reward / constant if options.centring and constant else 0.0,
        )
        lane_state(vectors(lane_states[block]), dimension).notes[REFIT] = 1.0
    return lane_states


def _plan(scenario: Scenario) -> Plan:
    return Plan(scenario.horizon, scenario.agents, scenario.dimension)


def _sharing(scenario: Scenario, options: Options, seeds: int, shape: Shape) -> Sharing:
    when = timetable(options.composed.schedule, _plan(scenario))
    due = np.zeros(scenario.horizon, dtype=np.bool_)
    due[when.rounds - 1] = True
    columns, _ = _columns(scenario, options)
    q, differ = packed_size(columns), options.partners == DIFFER
    peers = number_of_peers(scenario.agents, options.secure)
    return Sharing(
        due,
        when.threshold,
        when.most,
        np.zeros(seeds, dtype=np.int64),
        zeros(shape[0], q if when.most > 0 else 0, WIDTH),
        np.zeros((seeds, q)),
        np.zeros(seeds),
        zeros(q, WIDTH),
        options.secure,
        zeros(shape[0], q if differ else 0, WIDTH),
        np.zeros(seeds),
        zeros(size_of(partner_scratch, columns, peers) if differ else 0),
    )


def _privacy(
    scenario: Scenario, options: Options, decide_from: int, seeds: tuple[int, ...], shape: Shape
) -> PrivateReleases:
    most = options.composed.schedule.max_releases(_plan(scenario))
    noise, sd = np.zeros((0, 0, 0)), np.zeros(0)
    if most > 0:
        noise, sd = _noise(scenario, options, decide_from, seeds, most)
    centring, bounds = options.centring, options.record_bounds
    columns, constant = _columns(scenario, options)
    centre = np.append(np.zeros(scenario.dimension), constant)
    if centring is not None and not constant:  # else contexts are around it already
        centre[:-1] = centring.context
    low = 0.0 if bounds.nonnegative else -bounds.reward
    summed = scenario.agents if decide_from != OWN_RELEASED else max(scenario.agents - 1, 1)
    exact = decide_from == OWN_RELEASED or (decide_from == RELEASED_LOCAL and not options.optimistic)
    return PrivateReleases(
        decide_from,
        centre[:columns].copy(),  # the intercept is not clipped
        0.0 if bounds.nonnegative and centring is None else -math.inf,
        bounds.context_norm if centring is None else centring.context_radius,
        low if centring is None else centring.reward - centring.reward_radius,
        bounds.reward if centring is None else centring.reward + centring.reward_radius,
        0.0 if centring is None else centring.reward,
        bounds.gram_share,
        (bounds.record_norm if centring is None else centring.record_radius) or math.inf,
        noise,
        options.shift * math.sqrt(summed) * sd,
        math.sqrt(summed) * sd,
        zeros(shape[0], packed_size(columns) if exact and most > 0 else 0, WIDTH),
    )


def _delay(
    scenario: Scenario,
    options: Options,
    seeds: tuple[int, ...],
    seed_of: Counts,
    agent_of: Counts,
    shape: Shape,
) -> Delay:
    parameters = np.array([scenario.parameters(seed) for seed in seeds])[seed_of, agent_of]
    columns, _ = _columns(scenario, options)
    ranks = parameters.argsort(axis=1).argsort(axis=1).reshape(*shape, scenario.dimension).transpose(0, 2, 1)
    silent: Array = zeros(shape[0], columns, WIDTH)
    silent[:, : scenario.dimension][ranks < scenario.silent] = 1.0
    history = zeros(scenario.longest_delay + 1, shape[0], columns + 2, WIDTH)
    keys = _keys("delays", seeds, seed_of, shape)
    fixed = scenario.delays == "fixed"
    return Delay(scenario.delay, scenario.longest_delay, fixed, keys, silent, history)


def _noise(
    scenario: Scenario, options: Options, decide_from: int, seeds: tuple[int, ...], releases: int
) -> tuple[Array, Array]:
    """The privacy noise of every release: of the sum over agents, or of each agent; and the sd of one's.

    With secure aggregation every agent's noise is drawn, and rounded to the grid as its row would be: the sum
    then has the law of a sum of rows but for a part of less than a step, by which the records' own sums
    are off the grid.
    """
    columns, constant = _columns(scenario, options)
    q = packed_size(columns)
    each = decide_from == OWN_RELEASED
    budget = options.budget(releases, agents=scenario.agents)
    mechanism = budget.calibrate()
    streams = scenario.agents if each else 1
    size = len(seeds) * streams * releases * q
    require(size <= 2**28, "horizon", "must leave the noise of all releases below 2 GiB", scenario.horizon)
    inner = columns if options.centring is None or constant else columns + 1
    share = mechanism.share
    once = 1.0 if each or share is not None else math.sqrt(scenario.agents)
    scale = budget.summed_bounds.entry_scale(inner) * once
    if share is not None:
        fits = scenario.horizon <= (share.records or 0)
        require(
            fits, "horizon", f"must be at most {share.records}, the records of an agent", scenario.horizon
        )
    noise = np.empty((len(seeds) * streams, releases, q))
    for s, seed in enumerate(seeds):
        for i in range(streams):
            drawn = mechanism.sample(generator(seed, "privacy", i), packed_size(inner)) * scale
            if share is not None:
                drawn = on_grid(drawn, share)
                for j in range(1, 1 if each else scenario.agents):
                    other = mechanism.sample(generator(seed, "privacy", j), packed_size(inner)) * scale
                    drawn += on_grid(other, share)
            noise[s * streams + i] = drawn if budget.centring is None else budget.centring.leave(drawn, 0.0)
    return noise, np.asarray(mechanism.sd(np.arange(1, releases + 1)))


def _tally(seeds: int, grid: Counts, shape: Shape) -> Regrets:
    return Regrets(
        grid,
        np.zeros((seeds, grid.size)),
        np.zeros((seeds, grid.size)),
        zeros(*shape),
        zeros(*shape),
        np.zeros(seeds, dtype=np.int64),
    )


def _exposure(seeds: int, arms: int, grid: Counts) -> ArmExposure:
    return ArmExposure(
        np.zeros((seeds, arms)),
        np.zeros((seeds, grid.size, arms)),
        np.zeros((seeds, grid.size, arms)),
        np.zeros((seeds, arms)),
        np.zeros((seeds, arms)),
    )


def _workspace(scenario: Scenario, options: Options) -> BlockScratch:
    arms, (d, _) = scenario.arms, _columns(scenario, options)
    size = size_of(decision_scratch, arms, arms, d) + scratch_size(arms, d, lanes=WIDTH)
    return BlockScratch(zeros(size, WIDTH), zeros(arms, WIDTH, dtype=np.int64))
