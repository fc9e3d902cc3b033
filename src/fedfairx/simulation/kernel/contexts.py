"""The contexts of a round in every lane of a block, which depend only on seed, agent and round."""

from __future__ import annotations

import numpy as np

from fedfairx.lanes.decorators import stage
from fedfairx.lanes.rows import Rows, by_lane, vectors
from fedfairx.simulation.kernel.random import fill_uniform, normalise_rows
from fedfairx.simulation.kernel.state import (
    CONTEXTS,
    PERSISTENT,
    RECORDED,
    UNIT_NORM,
    Counts,
    DecisionScratch,
    LaneEnvironment,
)
from fedfairx.util.arrays import Array


@stage
def draw_contexts(
    world: LaneEnvironment, block: int, t: int, scratch: DecisionScratch, present: Counts
) -> None:
    """Fill scratch.contexts (K, d) for round t, with fresh draws or arms of a table, and the intercept."""
    contexts, columns = scratch.contexts, world.dimension
    for j in range(columns, contexts.shape[1]):
        for a in range(contexts.shape[0]):
            contexts[a, j] = world.constant
    key, agent = vectors(world.keys)[CONTEXTS, block], vectors(world.agent)[block]
    number = agent + np.uint64(t) * np.uint64(world.agents)
    # Counters are spaced by the largest number of arms, so that the present number shifts nothing.
    if world.contexts >= PERSISTENT:
        fill_uniform(key, number * np.uint64(world.most_arms + 1), 1.0, 1, scratch.chances)
        pick_arms(world, block, by_lane(contexts), by_lane(scratch.chances), present)
        return
    spacing = np.uint64(world.most_arms * columns)
    fill_uniform(key, number * spacing, vectors(world.context_scale)[block], columns, contexts)
    if world.contexts == UNIT_NORM:
        normalise_rows(columns, contexts)


@stage
def take_around(point: Array, contexts: Rows) -> None:
    """Take contexts (K, D), whose last coordinate is the intercept, around a public point (d,)."""
    for a in range(contexts.shape[0]):
        for j in range(point.shape[0]):
            contexts[a, j] = contexts[a, j] - point[j]


@stage
def pick_arms(world: LaneEnvironment, block: int, contexts: Rows, chances: Rows, present: Counts) -> None:
    """contexts ← a uniformly random subset of a table's arms, or, where arms join one by one, the first;
    present (K, n) ← their numbers, ascending.

    Selection sampling (Knuth, The Art of Computer Programming, vol. 2, 3.4.2, algorithm S): each arm in turn
    is taken with probability (places left)/(arms left), which fills all places. `chances` (1 + most arms, 1,
    n) are uniform on [0, 1): the first one picks the round of a record, the others take the arms.
    """
    places = contexts.shape[0]
    rows, arms, dimension = world.table.shape
    for l in range(contexts.shape[2]):
        row = world.row[block, l]
        if world.contexts == RECORDED:
            row = int(chances[0, 0, l] * rows)
        scale = world.context_scale[block, l]
        place = 0
        for a in range(arms):
            first = world.joining and place < places
            if first or chances[a + 1, 0, l] * (arms - a) < places - place:
                for j in range(dimension):
                    contexts[place, j, l] = scale * world.table[row, a, j]
                present[place, l] = a
                place += 1
