"""V⁻¹ anew from the sums, in some lanes of a block: the others keep theirs, to the bit."""

from __future__ import annotations

from fedfairx.arrays import Array
from fedfairx.core.estimate import derive
from fedfairx.core.posterior import Assumed, noise_variance
from fedfairx.lanes.block import BLOCK
from fedfairx.lanes.compile import leaf, stage
from fedfairx.lanes.registers import WIDTH
from fedfairx.lanes.vector import load, store, where_above
from fedfairx.simulation.state import Minds, Room


@stage
def double_refresh(minds: Minds, adopted: Array, block: int) -> None:
    """Mark the lanes whose own observations have doubled since λ last followed σ."""
    for l in range(WIDTH):
        if minds.observed[block, l] >= minds.refresh[block, l]:
            adopted[block, l] = 1.0


@leaf
def follow_noise(minds: Minds, prior: Assumed, adopted: Array, block: int) -> None:
    """λ ← σ²/sd² in the marked lanes, and when next: at the next power of two of own observations."""
    marked = load(BLOCK, adopted, block)
    surprise, observed = load(BLOCK, minds.surprise, block), load(BLOCK, minds.observed, block)
    ridge = noise_variance(prior, surprise, observed) / prior.variance
    store(where_above(marked, 0.0, ridge, load(BLOCK, minds.ridge, block)), BLOCK, minds.ridge, block)
    for l in range(WIDTH):
        while adopted[block, l] > 0.0 and minds.refresh[block, l] <= minds.observed[block, l]:
            minds.refresh[block, l] *= 2.0


@stage
def derive_adopted(minds: Minds, prior: Assumed, room: Room, block: int) -> None:
    """V⁻¹ of the marked lanes from their sums, with λ as the noise learnt until now makes it."""
    adopted, dimension = room.exchange.adopted, minds.estimate.shape[1]
    size = dimension * dimension * WIDTH
    fresh = room.square[:size].reshape(dimension, dimension, WIDTH)
    follow_noise(minds, prior, adopted, block)
    derive(BLOCK, minds.statistics[block], minds.ridge[block], fresh)
    marked, inverse = load(BLOCK, adopted, block), minds.inverse[block]
    for i in range(dimension):
        for j in range(dimension):
            old, new = load(BLOCK, inverse, i, j), load(BLOCK, fresh, i, j)
            store(where_above(marked, 0.0, new, old), BLOCK, inverse, i, j)
    store(0.0, BLOCK, adopted, block)
