"""From a scenario, an algorithm and seeds to the arrays that the kernel runs on."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fedfairx.arrays import Array
from fedfairx.core.merit import EXPONENTIAL
from fedfairx.core.merit_table import table
from fedfairx.core.optimism.choose import Solver
from fedfairx.core.optimism.problem import (
    ARM_ROWS,
    LANE_ROWS,
    MODEL_ROWS,
    SPARE_CODES,
    SQUARE_ROWS,
    spare_size,
)
from fedfairx.core.posterior import Assumed, Prior, assumed
from fedfairx.core.statistics import packed_size
from fedfairx.errors import require
from fedfairx.federation.options import DECIDE_FROM, Options
from fedfairx.federation.schedules import Plan, timetable
from fedfairx.lanes.registers import WIDTH
from fedfairx.lanes.vector import zeros
from fedfairx.privacy import Bounds
from fedfairx.simulation.draws import generator, stream_key
from fedfairx.simulation.environments import CONTEXTS, NOISES, Scenario
from fedfairx.simulation.recorded import Recorded
from fedfairx.simulation.state import (
    OWN_RELEASED,
    RECORDED,
    RELEASED,
    RELEASED_LOCAL,
    Belief,
    Counts,
    Exchange,
    Merits,
    Minds,
    Room,
    Sharing,
    Tally,
    World,
)

CODES = dict(zip(DECIDE_FROM, (RELEASED, RELEASED_LOCAL, OWN_RELEASED), strict=True))


class Setting(NamedTuple):
    """What a run is made of; optimism's kernel takes all of it, the posterior's all but solver and belief."""

    world: World
    minds: Minds
    merits: Merits
    solver: Solver
    prior: Assumed
    belief: Belief
    sharing: Sharing
    tally: Tally
    room: Room


def prepare(
    scenario: Scenario, options: Options, seeds: tuple[int, ...], grid: Counts, *, exposure: bool = False
) -> Setting:
    """Arrays for all agents of these seeds: lane = seed · agents + agent."""
    used = len(seeds) * scenario.agents
    blocks, lanes = math.ceil(used / WIDTH), WIDTH
    seed_of = np.minimum(
        np.arange(blocks * lanes) // scenario.agents, len(seeds) - 1
    )  # padding joins the last
    agent_of = np.arange(blocks * lanes) % scenario.agents
    shape, region = (blocks, lanes), options.region
    decide_from = CODES[options.composed.decide_from] if options.private else RELEASED_LOCAL
    return Setting(
        _world(scenario, seeds, seed_of, agent_of, shape),
        _minds(scenario, options, decide_from, shape),
        _merits(scenario, options, agent_of, shape),
        options.composed.solver,
        _prior(scenario, options, decide_from),
        Belief(
            region.regulariser,
            region.noise_sd,
            region.failure,
            region.parameter_norm,
            region.scale,
        ),
        _sharing(scenario, options, decide_from, seeds),
        _tally(len(seeds), scenario.arms if exposure else 0, grid, shape),
        _room(scenario, shape, len(seeds)),
    )


def _world(
    scenario: Scenario, seeds: tuple[int, ...], seed_of: Counts, agent_of: Counts, shape: tuple[int, int]
) -> World:
    def keys(stream: str) -> Any:
        return np.array([stream_key(seed, stream) for seed in seeds], dtype=np.uint64)[seed_of].reshape(shape)

    parameters = np.array([scenario.parameter(seed) for seed in seeds])[seed_of]
    recorded = isinstance(scenario.contexts, Recorded)
    # Lanes that fill up the last block see arms that are all alike, and cost next to nothing.
    scale = zeros(*shape)
    size = 1.0 / math.sqrt(scenario.dimension) if scenario.contexts == "unit-ball" else 1.0
    scale.ravel()[: len(seeds) * scenario.agents] = size
    return World(
        scenario.arms_per_round(),
        scenario.arms,
        RECORDED if recorded else CONTEXTS.index(str(scenario.contexts)),
        NOISES.index(scenario.noise),
        scenario.noise_sd,
        scenario.drift,
        scenario.delay,
        scenario.longest_delay,
        scenario.agents,
        agent_of.astype(np.uint64).reshape(shape),
        scale,
        keys("contexts"),
        keys("actions"),
        keys("rewards"),
        keys("delays"),
        keys("drift"),
        keys("thompson"),
        parameters.reshape(*shape, scenario.dimension).transpose(0, 2, 1).copy(),
        _table(scenario, seeds),
        seed_of.reshape(shape),
    )


def _table(scenario: Scenario, seeds: tuple[int, ...]) -> Array:
    """A copy, because compiled code wants arrays that can be written."""
    size = (scenario.arms, scenario.dimension)
    if isinstance(scenario.contexts, Recorded):
        return np.array(scenario.contexts.contexts)
    if not scenario.arms_stay:
        return np.zeros((0, *size))
    table = np.array([scenario.features(seed) for seed in seeds], dtype=np.float64)
    require(table.shape[1:] == size, "features", f"must have shape {size}", table.shape[1:])
    return table


def _minds(scenario: Scenario, options: Options, decide_from: int, shape: tuple[int, int]) -> Minds:
    blocks, lanes = shape
    d, q = scenario.dimension, packed_size(scenario.dimension)
    ridge = zeros(*shape)
    ridge[:] = options.region.regulariser if options.optimistic else (options.prior or Prior()).ridge
    inverse = zeros(blocks, d, d, lanes)
    inverse[:, range(d), range(d)] = 1.0 / ridge[:, None]
    refresh = zeros(*shape)
    refresh[:] = 1.0
    shares = options.composed.schedule.max_releases(_plan(scenario)) > 0
    return Minds(
        zeros(blocks, q, lanes),
        inverse,
        zeros(blocks, d, lanes),
        zeros(*shape),
        zeros(blocks, d, lanes),
        zeros(*shape),
        zeros(blocks, d, lanes),
        zeros(*shape),
        zeros(*shape),
        zeros(*shape),
        zeros(blocks, q if shares else 0, lanes),
        zeros(blocks, q if shares and decide_from == OWN_RELEASED else 0, lanes),
        zeros(*shape),
        ridge,
        zeros(*shape),
        refresh,
    )


def _prior(scenario: Scenario, options: Options, decide_from: int) -> Assumed:
    """What all agents believe beforehand. Un-noised rewards must drive nothing where decisions are
    private.
    """
    learning = decide_from != RELEASED and not options.optimistic
    return assumed(options.prior or Prior(), scenario.dimension, learning=learning)


def _merits(scenario: Scenario, options: Options, agent_of: Counts, shape: tuple[int, int]) -> Merits:
    merits = scenario.merits
    rows = table([merits[agent] for agent in agent_of])
    kind = rows.kind.reshape(shape)
    return Merits(
        (kind == EXPONENTIAL).all(axis=1),
        kind,
        rows.first.reshape(shape),
        rows.second.reshape(shape),
        rows.third.reshape(shape),
        rows.low.reshape(shape),
        rows.high.reshape(shape),
        rows.address.reshape(shape),
        options.minimum_share,
    )


def _plan(scenario: Scenario) -> Plan:
    return Plan(scenario.horizon, scenario.agents, scenario.dimension)


def _sharing(scenario: Scenario, options: Options, decide_from: int, seeds: tuple[int, ...]) -> Sharing:
    when = timetable(options.composed.schedule, _plan(scenario))
    due = np.zeros(scenario.horizon, dtype=np.bool_)
    due[when.rounds - 1] = True
    private = options.private and when.most > 0
    noise, sd = np.zeros((0, 0, 0)), np.zeros(0)
    if private:
        noise, sd = _noise(scenario, options, decide_from, seeds, when.most)
    centring, bounds = options.centring, options.bounds or Bounds()
    low = 0.0 if bounds.nonnegative else -bounds.reward
    summed = scenario.agents if decide_from != OWN_RELEASED else max(scenario.agents - 1, 1)
    return Sharing(
        due,
        when.threshold,
        when.most,
        np.zeros(len(seeds), dtype=np.int64),
        decide_from,
        private,
        np.zeros(scenario.dimension) if centring is None else np.array(centring.context),
        bounds.context_norm if centring is None else centring.context_radius,
        low if centring is None else centring.reward - centring.reward_radius,
        bounds.reward if centring is None else centring.reward + centring.reward_radius,
        noise,
        options.shift * math.sqrt(summed) * sd,
        math.sqrt(summed) * sd,
    )


def _noise(
    scenario: Scenario, options: Options, decide_from: int, seeds: tuple[int, ...], releases: int
) -> tuple[Array, Array]:
    """The privacy noise of every release, and its sd: of the sum over agents, or of each agent."""
    q = packed_size(scenario.dimension)
    each = decide_from == OWN_RELEASED
    bounds = options.inner_bounds
    mechanism = options.calibrated(releases)
    streams = scenario.agents if each else 1
    size = len(seeds) * streams * releases * q
    require(size <= 2**28, "horizon", "must leave the noise of all releases below 2 GiB", scenario.horizon)
    inner = scenario.dimension if options.centring is None else scenario.dimension + 1
    scale = bounds.entry_scale(inner) * (1.0 if each else math.sqrt(scenario.agents))
    noise = np.empty((len(seeds) * streams, releases, q))
    for s, seed in enumerate(seeds):
        for i in range(streams):
            drawn = mechanism.sample(generator(seed, "privacy", i), packed_size(inner)) * scale
            noise[s * streams + i] = drawn if options.centring is None else options.centring.leave(drawn, 0.0)
    return noise, np.asarray(mechanism.sd(np.arange(1, releases + 1)))


def _tally(seeds: int, arms: int, grid: Counts, shape: tuple[int, int]) -> Tally:
    return Tally(
        grid,
        np.zeros((seeds, grid.size)),
        np.zeros((seeds, grid.size)),
        zeros(*shape),
        zeros(*shape),
        np.zeros((seeds, arms)),
        np.zeros(seeds, dtype=np.int64),
        np.zeros((seeds, grid.size, arms)),
        np.zeros((seeds, grid.size, arms)),
        np.zeros((seeds, arms)),
        np.zeros((seeds, arms)),
    )


def _room(scenario: Scenario, shape: tuple[int, int], seeds: int) -> Room:
    blocks, lanes = shape
    d, q = scenario.dimension, packed_size(scenario.dimension)
    waiting = (scenario.longest_delay + 1, blocks) if scenario.delay else (1, 1)
    return Room(
        zeros(scenario.arms * d * lanes),
        zeros(ARM_ROWS * scenario.arms * lanes),
        zeros(3 * scenario.arms * lanes),
        zeros(MODEL_ROWS * d * lanes),
        zeros(LANE_ROWS * lanes),
        zeros(SQUARE_ROWS * d * d * lanes),
        zeros(spare_size(scenario.arms, d)),
        zeros(SPARE_CODES, dtype=np.int64),
        zeros(lanes, dtype=np.uint64),
        zeros(*waiting, d + 1, lanes),
        Exchange(
            zeros(*shape),
            zeros(seeds, q),
            zeros(seeds),
            zeros(q, lanes),
            zeros(lanes),
            zeros(d, d + 1, lanes),
            zeros(q),
            zeros(q),
            zeros(q, 1),
            zeros(d, d, 1),
        ),
        zeros(1 + scenario.arms, 1, lanes),
        zeros(scenario.arms, lanes, dtype=np.int64),
    )
