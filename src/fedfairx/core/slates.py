"""Several arms at once: the exposure that every arm is due, and slots filled so that it gets exactly that.

A slate has m slots with weights v_1 ≥ … ≥ v_m ≥ 0, the attention that each gets. The exposure of an arm is
the weight of its slot, 0 if it is not shown. Its expectation e_a is proportional to merit as far as slots
allow: no arm can have more than v_1, no two more than v_1 + v_2, and so on. In order of merit f the nearest
such exposures are e_a = f_a times the slope of the greatest convex minorant of the points (f_1 + … + f_k,
v_1 + … + v_k). One slot of weight 1 is the fair policy.

Slots are filled in order of merit and then swapped at random. What is majorised by v comes out of v by at
most K - 1 transfers between two arms (Hardy, Littlewood and Pólya), and a transfer is a swap of their slots
with the right probability, so that every expectation is exact.

Only the m arms of most merit need be in order: no weight is left for the others, who share one slope.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fedfairx.core.policy import merits
from fedfairx.core.splitmix import GOLDEN, uniform_of
from fedfairx.errors import InvalidInput, require
from fedfairx.lanes.decorators import layout, releasing, stage
from fedfairx.lanes.rows import Rows, cut, floats, size_of, zeros
from fedfairx.lanes.vector import bits, larger, smaller
from fedfairx.util.arrays import Array

#: Number of actions that are shown as a set, or the weight of every slot of a ranking.
Slots = int | Sequence[float]
Weights = tuple[float, ...]
ONE: Weights = (1.0,)
MOST = 100_000  # slots
_RULE = "must be a number of slots >= 1, or their weights, which must not increase: 1 >= v_1 >= … >= v_m >= 0"
_NO_WEIGHTS = {bool, str}  # what `float` takes, and JSON and TOML have as something else
HIDDEN = -1e300  # log merit of an arm that is left out of a sum
NOTHING = 1e-300  # a sum of merits whose logarithm can still be taken


def as_weights(slots: Slots) -> Weights:
    """The weight of every slot; a number of slots stands for a set, in which all weights are 1.

    One slot of weight 1 is `ONE` itself.
    """
    if type(slots) is int:
        return _set_of(slots)
    if isinstance(slots, np.integer):
        return _set_of(int(slots))
    try:
        if isinstance(slots, str | bytes) or not _NO_WEIGHTS.isdisjoint(map(type, slots)):  # type: ignore[arg-type]
            raise TypeError
        weights = tuple(map(float, slots))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"slots {_RULE}, got slots of type {type(slots).__name__}") from None
    falling = all(one >= other for one, other in pairwise(weights))
    fits = bool(weights) and all(map(math.isfinite, weights)) and falling
    require(fits and weights[-1] >= 0.0 and 0.0 < weights[0] <= 1.0, "slots", _RULE, slots)
    return ONE if weights == ONE else weights


@lru_cache(maxsize=64)
def _set_of(slots: int) -> Weights:
    require(slots >= 1, "slots", _RULE, slots)
    require(slots <= MOST, "slots", f"must be at most {MOST}", slots)
    return ONE if slots == 1 else ONE * slots


def read_slots(text: str) -> Weights:
    """The weights of slots from text: their number, or weights with commas between."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = [math.nan]
    alone = len(numbers) == 1 and text.strip().isdigit()
    return as_weights(int(text) if alone else numbers)


class SlateScratch(NamedTuple):
    """Workspace for m slots among K arms. `merits`, `weights` and `ends` describe blocks of equal slope."""

    shown: Rows  # (m,) the arm in each slot
    order: Rows  # (m,) the arms of most merit, best first
    merits: Rows  # (m,) log of the sum of a block's merits; later: expected weight of an arm in order
    weights: Rows  # (m,) sum of a block's slot weights; later: the slot that an arm in order has
    ends: Rows  # (m,) number of arms in order before the block's end; later: arms that have too much
    logits: Rows  # (m,) log merits in order
    ranked: Rows  # (K,) whether an arm is in `order`


@layout
def slate_scratch(memory: Rows, slots: int, arms: int) -> SlateScratch:
    """Lay out the workspace."""
    shown, rest = cut(memory, slots)
    order, rest = cut(rest, slots)
    block_merits, rest = cut(rest, slots)
    weights, rest = cut(rest, slots)
    ends, rest = cut(rest, slots)
    logits, rest = cut(rest, slots)
    ranked, rest = cut(rest, arms)
    return SlateScratch(shown, order, block_merits, weights, ends, logits, ranked)


@stage
def _worse(scores: Rows, one: float, other: float) -> bool:
    """Whether arm `one` comes after the other: by score, and by number among equals."""
    mine, theirs = scores[int(one)], scores[int(other)]
    return bool(mine < theirs or (mine == theirs and one > other))


@stage
def _sift(scores: Rows, heap: Rows, root: int, size: int) -> None:
    """Restore the heap, whose root is the worst arm, below a changed `root`."""
    while True:
        child = 2 * root + 1
        if child >= size:
            return
        if child + 1 < size and _worse(scores, heap[child + 1], heap[child]):
            child += 1
        if _worse(scores, heap[root], heap[child]):
            return
        heap[root], heap[child] = heap[child], heap[root]
        root = child


@stage
def rank(scores: Rows, order: Rows) -> None:
    """order (m,) ← the arms of the m largest scores (K,), largest first."""
    slots = order.shape[0]
    for p in range(slots):
        order[p] = float(p)
    for p in range(slots // 2 - 1, -1, -1):
        _sift(scores, order, p, slots)
    for a in range(slots, scores.shape[0]):
        if scores[a] > scores[int(order[0])]:
            order[0] = float(a)
            _sift(scores, order, 0, slots)
    for last in range(slots - 1, 0, -1):
        order[0], order[last] = order[last], order[0]
        _sift(scores, order, 0, last)


@stage
def _pool(work: SlateScratch, blocks: int, log_merit: float, weight: float, end: int) -> int:
    """Append a block and pool it with those before it whose slope is not below; return how many there are."""
    while blocks > 0:
        last = work.merits[blocks - 1]
        if work.weights[blocks - 1] * math.exp(log_merit - last) < weight:
            break
        blocks -= 1
        top = larger(last, log_merit)
        log_merit = top + math.log1p(math.exp(smaller(last, log_merit) - top))
        weight += work.weights[blocks]
    work.merits[blocks], work.weights[blocks], work.ends[blocks] = log_merit, weight, float(end)
    return blocks + 1


@stage
def share_out(exposure: Rows, weights: Rows, least_share: float, work: SlateScratch) -> None:
    """Replace log merits in exposure (K,) by the exposures that arms are due for slots of these weights (m,).

    Every arm gets `least_share` of the sum of weights, and the rest is shared by merit.
    """
    arms, slots = exposure.shape[0], weights.shape[0]
    order = work.order
    rank(exposure, order)
    blocks = 0
    for p in range(slots):
        work.logits[p] = exposure[int(order[p])]
        blocks = _pool(work, blocks, work.logits[p], weights[p], p + 1)
    lowest, others = work.logits[slots - 1], 0.0
    if arms > slots:
        for p in range(slots):
            exposure[int(order[p])] = HIDDEN
        others = merits(exposure, lowest)
        blocks = _pool(work, blocks, lowest + math.log(larger(others, NOTHING)), 0.0, slots)
    relative = math.exp(lowest - work.merits[blocks - 1])  # of merits among the others to those in order
    first, scale = 0, 0.0
    for b in range(blocks):
        end = int(work.ends[b])
        total = others * relative if b == blocks - 1 else 0.0
        for p in range(first, end):
            share = math.exp(work.logits[p] - work.merits[b])
            exposure[int(order[p])] = share
            total += share
        scale = work.weights[b] / total
        for p in range(first, end):
            exposure[int(order[p])] *= scale
        first = end
    _mark(work)
    for a in range(arms):
        if work.ranked[a] == 0.0:
            exposure[a] *= scale * relative
    raise_to_least(exposure, weights, least_share)


@releasing
def _share_out_rows(exposures: Array, weights: Array, memory: Array) -> None:
    work = slate_scratch(floats(memory), weights.shape[1], exposures.shape[1])
    for t in range(exposures.shape[0]):
        share_out(floats(exposures[t]), floats(weights[t]), 0.0, work)


def exposures_of(log_merits: Array, weights: Array) -> Array:
    """Exposures (n, K) that arms are due in n decisions, by log merits (n, K) and slots' weights (n, m)."""
    exposures = np.array(log_merits, dtype=np.float64, order="C")
    memory = zeros(size_of(slate_scratch, weights.shape[1], exposures.shape[1]))
    _share_out_rows(exposures, np.ascontiguousarray(weights), memory)
    return exposures


@stage
def _mark(work: SlateScratch) -> None:
    """ranked (K,) ← 1 for the arms in order, else 0."""
    for a in range(work.ranked.shape[0]):
        work.ranked[a] = 0.0
    for p in range(work.order.shape[0]):
        work.ranked[int(work.order[p])] = 1.0


@stage
def give_to_best(exposure: Rows, weights: Rows, least_share: float, work: SlateScratch) -> None:
    """Replace scores in exposure (K,) by the exposures where slots go to the largest scores, in order."""
    rank(exposure, work.order)
    _mark(work)
    for a in range(exposure.shape[0]):
        exposure[a] = 0.0
    for p in range(weights.shape[0]):
        exposure[int(work.order[p])] = weights[p]
    raise_to_least(exposure, weights, least_share)


@stage
def raise_to_least(exposure: Rows, weights: Rows, share: float) -> None:
    """Give every arm `share` of the sum of weights and the rest as it was; see `policy.at_least`."""
    if share > 0.0:
        arms, total = exposure.shape[0], 0.0
        for p in range(weights.shape[0]):
            total += weights[p]
        least, rest = smaller(share, 1.0 / arms), larger(1.0 - arms * share, 0.0)
        for a in range(arms):
            exposure[a] = least * total + rest * exposure[a]


@stage
def fill_slots(exposure: Rows, weights: Rows, uniform: float, work: SlateScratch) -> None:
    """Draw the arm that is `shown` in each slot so that every arm's expected weight is its exposure (K,).

    `work` is as `share_out` or `give_to_best` left it. All coins come from one `uniform`, by a hash.
    """
    arms, slots, shown = exposure.shape[0], weights.shape[0], work.shown
    order, weight_of, slot_of, surplus = work.order, work.merits, work.weights, work.ends
    state, waiting = bits(uniform), 0
    for turn in range(slots + arms):
        ranked = turn < slots
        arm = int(order[turn]) if ranked else turn - slots
        if not ranked and work.ranked[arm] != 0.0:
            continue
        weight, slot = (weights[turn], float(turn)) if ranked else (0.0, -1.0)
        need = exposure[arm] - weight
        while need > 0.0 and waiting > 0:  # nothing waits while something is needed only by rounding
            giver = int(surplus[waiting - 1])
            spare = weight_of[giver] - exposure[int(order[giver])]
            moved = smaller(spare, need)
            state = np.uint64(state + GOLDEN)
            if uniform_of(state) * (weight_of[giver] - weight) < moved:
                slot_of[giver], slot = slot, slot_of[giver]
            weight_of[giver] -= moved
            weight += moved
            need -= moved
            if spare <= moved:
                waiting -= 1
        if ranked:
            weight_of[turn], slot_of[turn] = weight, slot
            if need < 0.0:
                surplus[waiting] = float(turn)
                waiting += 1
        elif slot >= 0.0:
            shown[int(slot)] = float(arm)
    for p in range(slots):
        if slot_of[p] >= 0.0:
            shown[int(slot_of[p])] = order[p]
