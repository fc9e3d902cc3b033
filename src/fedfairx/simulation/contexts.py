"""The arms that a round offers, in every lane of a block; they depend on seed, agent and round alone."""

from __future__ import annotations

import numpy as np

from fedfairx.arrays import Array
from fedfairx.lanes.block import BLOCK
from fedfairx.lanes.compile import leaf, stage
from fedfairx.lanes.registers import WIDTH
from fedfairx.lanes.vector import load, load_words, store
from fedfairx.simulation.draws import fill_uniform, normalise_rows
from fedfairx.simulation.state import PERSISTENT, RECORDED, UNIT_NORM, Counts, Room, World


@leaf
def draw_contexts(world: World, block: int, t: int, contexts: Array, room: Room) -> None:
    """contexts (K, d, n) of round t: drawn anew, or those of arms that are in a table."""
    # Counters are spaced by the most arms there can be, so that the number of arms shifts nothing.
    if world.contexts >= PERSISTENT:
        spacing = np.uint64(world.most_arms + 1)
    else:
        spacing = np.uint64(world.most_arms * contexts.shape[1])
    before = np.uint64(t) * np.uint64(world.agents)
    store((load_words(BLOCK, world.agent, block) + before) * spacing, BLOCK, room.base)
    keys = world.context_keys[block]
    if world.contexts >= PERSISTENT:
        fill_uniform(BLOCK, keys, room.base, 1.0, room.chances)
        pick_arms(world, block, contexts, room.chances, room.present)
        return
    fill_uniform(BLOCK, keys, room.base, load(BLOCK, world.context_scale, block), contexts)
    if world.contexts == UNIT_NORM:
        normalise_rows(BLOCK, contexts)


@stage
def pick_arms(world: World, block: int, contexts: Array, chances: Array, present: Counts) -> None:
    """contexts ← a uniformly random subset of a table's arms, their numbers, ascending, in present (K, n).

    Selection sampling (Knuth, The Art of Computer Programming, vol. 2, 3.4.2, algorithm S): each arm in turn
    is taken with probability (places left)/(arms left), which fills all places. `chances` (1 + most arms, 1,
    n) are uniform on [0, 1): the first one picks the round of a record, the others take the arms.
    """
    places, dimension = contexts.shape[0], contexts.shape[1]
    rows, arms = world.table.shape[0], world.table.shape[1]
    for l in range(WIDTH):
        row = world.row[block, l]
        if world.contexts == RECORDED:
            row = int(chances[0, 0, l] * rows)
        scale = world.context_scale[block, l]
        place = 0
        for a in range(arms):
            if chances[a + 1, 0, l] * (arms - a) < places - place:
                for j in range(dimension):
                    contexts[place, j, l] = scale * world.table[row, a, j]
                present[place, l] = a
                place += 1
