"""Each name's own record beside features: y = x·w + u_a + noise, with u_a ~ N(0, τ²) for every name a.

A record of a slot of weight v is the row (vx, v) of w and u_a, with reward y. With ρ = σ²/τ² and, for each
name, its tally

    n = Σv²,   s = Σv²x,   r = Σvy,   k = 1/(n + ρ),

integrating all u out leaves a model of w alone, whose Gram matrix and moment are

    G - Σ_a k s sᵀ   and   b - Σ_a k r s:                                      the whitened sums.

They take the places of G and b, so that V⁻¹, θ̂ and all that follows from them is of w, and costs what it does
without names. For a candidate (x, a) the expected reward x·w + u_a has, with z = x - k s,

    mean z·θ̂ + k r   and   variance σ²(zᵀV⁻¹z + k).

A further record of a changes the whitened sums by one term, since all others cancel: that of the row z/√q
with the reward y'/√q, where z = v(x - k s), y' = y - v k r and q = 1 + v²k, all with the tally before it.

Whatever a name's records have in common goes to its u; so w is learnt from how rewards differ within a name
and, as far as τ is small, from how names differ. The evidence of ρ adds -½ Σ_a ln(1 + n/ρ) to that of λ
(`marginal_likelihood`), of which the whitened sums and Σy² - Σ_a k r² take the place of the plain ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fedfairx.core.splitmix import GOLDEN, uniform_of
from fedfairx.lanes.decorators import releasing, stage
from fedfairx.lanes.rows import Rows, floats
from fedfairx.lanes.vector import fma
from fedfairx.util.arrays import Array, Coordinates

# The columns of a tally, (d + 2,) numbers.
RECORDS, REWARDS, CONTEXTS = 0, 1, 2
# A name that has no tally has a place below 0.
#: First guess of τ over the size of rewards, beside features; that of names alone is the prior's sd.
BESIDE_FEATURES = 0.05
#: Records of names that came again, before τ is learnt.
ENOUGH = 8.0
#: ρ is one of these: τ from a 128th of σ to eight times σ.
RATIOS = 2.0 ** np.arange(-6.0, 15.0)


@stage
def whiten(
    contexts: Rows, tallies: Rows, places: Coordinates, ratio: float, white: Rows, beside: Rows
) -> None:
    """white (K, d) ← x - k s, and beside (2, K) ← k r and k.

    contexts (K, d) of the names at these places (K,) of the tallies (n, d + 2), or at none; ratio ρ.
    """
    for a in range(contexts.shape[0]):
        place = places[a]
        if place < 0:
            beside[0, a] = 0.0
            beside[1, a] = 1.0 / ratio
            for j in range(contexts.shape[1]):
                white[a, j] = contexts[a, j]
        else:
            share = 1.0 / (tallies[place, RECORDS] + ratio)
            beside[0, a] = share * tallies[place, REWARDS]
            beside[1, a] = share
            for j in range(contexts.shape[1]):
                white[a, j] = fma(-share, tallies[place, CONTEXTS + j], contexts[a, j])


@stage
def whiten_record(
    tallies: Rows, place: int, ratio: float, weight: float, chosen: Rows, reward: float
) -> float:
    """Replace chosen (d,), which is `weight` times a context, by the whitened row; return the reward so.

    The record is added to the name's tally.
    """
    share = 1.0 / (tallies[place, RECORDS] + ratio)
    root = 1.0 / math.sqrt(fma(weight * weight, share, 1.0))
    left = root * fma(-weight * share, tallies[place, REWARDS], reward)
    tallies[place, RECORDS] = fma(weight, weight, tallies[place, RECORDS])
    tallies[place, REWARDS] = fma(weight, reward, tallies[place, REWARDS])
    for j in range(chosen.shape[0]):
        raw, total = chosen[j], tallies[place, CONTEXTS + j]
        chosen[j] = root * fma(-weight * share, total, raw)
        tallies[place, CONTEXTS + j] = fma(weight, raw, total)
    return left


@stage
def draw_own(beside: Rows, places: Coordinates, variance: float, uniform: float) -> None:
    """Add to beside[0] (K,) draws of u given w, of variance σ²k; equal places have the same draw.

    `uniform` is the seed: a decision has a fixed number of uniforms, and may be among any number of names.
    """
    seed = np.uint64(uniform * 9007199254740992.0)
    for a in range(beside.shape[1]):
        state = seed + GOLDEN * np.uint64(2 * places[a])
        size = math.sqrt(-2.0 * math.log(1.0 - uniform_of(state)))
        normal = size * math.cos(2.0 * math.pi * uniform_of(state + GOLDEN))
        beside[0, a] = fma(math.sqrt(variance * beside[1, a]), normal, beside[0, a])


@releasing
def subtract(packed: Array, tallies: Array, ratio: float) -> tuple[float, float]:
    """packed (q,) ← the whitened sums of plain ones, for tallies (n, d + 2).

    Returns Σ k r² and Σ ln(1 + n/ρ). O(n d²).
    """
    sums, rows = floats(packed), floats(tallies)
    dimension, squares, volume = rows.shape[1] - CONTEXTS, 0.0, 0.0
    first = sums.shape[0] - dimension
    for a in range(rows.shape[0]):
        count = rows[a, RECORDS]
        if count > 0.0:
            share, reward, entry = 1.0 / (count + ratio), rows[a, REWARDS], 0
            squares = fma(share * reward, reward, squares)
            volume = volume + math.log1p(count / ratio)
            for i in range(dimension):
                pull = share * rows[a, CONTEXTS + i]
                for j in range(i, dimension):
                    sums[entry] = fma(-pull, rows[a, CONTEXTS + j], sums[entry])
                    entry += 1
                sums[first + i] = fma(-pull, reward, sums[first + i])
    return squares, volume


def likely_ratios(
    own: Array, tallies: Array, guess: float, *, least: float = ENOUGH
) -> Iterator[tuple[float, Array, Array]]:
    """Each ρ with the whitened sums of plain ones (q,) and what `marginal_likelihood.learnt_sizes` takes.

    tallies (n, d + 2) of the same records, `guess` τ₀². Nothing until names that came again have `least`
    records: how far names differ can't be told from names that came once, and hardly from a few rewards.
    Intervals are averaged over all ρ from the first on.
    """
    tallies = tallies[tallies[:, RECORDS] > 0.0]
    again = tallies[tallies[:, RECORDS] > 1.0, RECORDS]
    for ratio in RATIOS.tolist() if len(tallies) and again.sum() >= least else ():
        white = own.copy()
        squares, volume = subtract(white, tallies, ratio)
        yield ratio, white, np.array([squares, volume, math.log(ratio * guess)])
