"""The weight of a peer whose θ may differ, learnt from the agent's own rewards.

A peer's packed statistics (Gram H, moment h) enter with a power α from 0 to 1 (a power prior). With V = λI +
αH, own Gram G and moment b, the log likelihood of own rewards is, up to a constant,

    ln p(α) = ½ ln|V| - ½ ln|V + G| + [(αh + b)ᵀ(V + G)⁻¹(αh + b) - αhᵀV⁻¹αh]/2σ².

docs/explanation/partners.md has the two steps: each peer by itself, then all together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedfairx.core.marginal_likelihood import less_mean, solve
from fedfairx.core.noise_filter import filter_noise
from fedfairx.lanes.decorators import layout, releasing, stage
from fedfairx.lanes.rows import Rows, cut, floats
from fedfairx.util.arrays import Array

#: What is assumed of peers: the same θ, as in the paper, or nothing.
PARTNERS = ALIKE, DIFFER = "alike", "differ"
#: The grid of α,
POWERS = np.concatenate([[0.0], 4.0 ** np.arange(-5.0, 1.0)])
LEVELS = POWERS.shape[0]
#: and its prior weights.
PRIOR_WEIGHTS = np.full(LEVELS, 0.5 / (LEVELS - 1))
PRIOR_WEIGHTS[0] = 0.5


class PartnerEvidence(NamedTuple):
    """Own statistics, weights of the grid, and workspace for judging one peer."""

    own: Rows  # (q,) own packed statistics
    mean: Rows  # (d,) of the prior
    prior_weights: Rows  # (LEVELS,) of the powers, before own rewards
    weights: Rows  # (LEVELS,) of the powers, given own rewards
    mine: Rows  # (d,) own moment less the Gram times the mean
    theirs: Rows  # (d,) the peer's
    moment: Rows  # (d,)
    sums: Rows  # (q,)
    factor: Rows  # (d, d)
    turned: Rows  # (d, d + 1)


@layout
def partner_evidence(memory: Rows, dimension: int) -> tuple[PartnerEvidence, Rows]:
    """Cut a `PartnerEvidence` off flat rows; return it and the remaining rows."""
    size = dimension * (dimension + 3) // 2
    own, rest = cut(memory, size)
    mean, rest = cut(rest, dimension)
    prior_weights, rest = cut(rest, LEVELS)
    weights, rest = cut(rest, LEVELS)
    mine, rest = cut(rest, dimension)
    theirs, rest = cut(rest, dimension)
    moment, rest = cut(rest, dimension)
    sums, rest = cut(rest, size)
    factor, rest = cut(rest, dimension, dimension)
    turned, rest = cut(rest, dimension, dimension + 1)
    return PartnerEvidence(
        own, mean, prior_weights, weights, mine, theirs, moment, sums, factor, turned
    ), rest


@stage
def log_evidence(
    others: Rows, power: float, ridge: float, variance: float, evidence: PartnerEvidence
) -> float:
    """ln p of own rewards if others (q,) count with this power; `mine` and `theirs` must be filled."""
    for k in range(others.shape[0]):
        evidence.sums[k] = power * others[k]
    for j in range(evidence.moment.shape[0]):
        evidence.moment[j] = power * evidence.theirs[j]
    peer, volume = solve(evidence.sums, ridge, evidence.moment, evidence.turned)
    for k in range(others.shape[0]):
        evidence.sums[k] += evidence.own[k]
    for j in range(evidence.moment.shape[0]):
        evidence.moment[j] += evidence.mine[j]
    both, whole = solve(evidence.sums, ridge, evidence.moment, evidence.turned)
    return 0.5 * (volume - whole) + 0.5 * (both - peer) / variance


@stage
def believed_power(
    others: Rows, noise_sd: float, size: float, ridge: float, variance: float, evidence: PartnerEvidence
) -> float:
    """Posterior mean power of a peer's statistics others (q,), which are filtered in place; `weights` ← the
    posterior of the powers.

    noise_sd: of an entry, 0 for exact sums; size: E‖θ‖²; ridge λ, variance σ².
    """
    if noise_sd > 0.0:
        filter_noise(others, noise_sd, size, variance, evidence.factor, evidence.turned)
    less_mean(evidence.own, evidence.mean, evidence.mine)
    less_mean(others, evidence.mean, evidence.theirs)
    best, total, power = -math.inf, 0.0, 0.0
    for k in range(LEVELS):
        evidence.weights[k] = log_evidence(others, POWERS[k], ridge, variance, evidence)
        best = max(best, evidence.weights[k])
    for k in range(LEVELS):
        evidence.weights[k] = evidence.prior_weights[k] * math.exp(evidence.weights[k] - best)
        total += evidence.weights[k]
    if total == 0.0:  # no power has any prior weight left: each peer by itself contradicts own rewards
        evidence.weights[0] = total = 1.0
    for k in range(LEVELS):
        evidence.weights[k] /= total
        power += evidence.weights[k] * POWERS[k]
    return power


@releasing
def power_in(
    others: Array, memory: Array, dimension: int, noise_sd: float, size: float, ridge: float, variance: float
) -> float:
    """`believed_power` of others (q,), which are filtered in place; memory holds a `PartnerEvidence`."""
    evidence, _ = partner_evidence(floats(memory), dimension)
    return believed_power(floats(others), noise_sd, size, ridge, variance, evidence)
