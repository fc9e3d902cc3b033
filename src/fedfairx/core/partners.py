"""The weight of a peer whose θ may differ, learnt from the agent's own rewards and the other peers.

A peer's packed statistics (Gram H, moment h) enter with a power α from 0 to 1 (a power prior). With V = λI +
αH, own Gram G and moment b, the log likelihood of own rewards is, up to a constant,

    ln p(α) = ½ ln|V| - ½ ln|V + G| + [(αh + b)ᵀ(V + G)⁻¹(αh + b) - αhᵀV⁻¹αh]/2σ².

While own rewards are `FEW`, a peer's powers above 0 have less prior weight if most others contradict it
(`judge_by_each_other`). docs/explanation/partners.md has all steps.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedfairx.core.marginal_likelihood import less_mean, solve
from fedfairx.core.noise_filter import filter_noise
from fedfairx.core.statistics import place
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
#: With fewer own rewards than this, peers are also judged by each other.
FEW = 64
#: The share of a usual peer's records that one may count for whom most others contradict.
LEAST_TRUST = 0.01


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


class Peers(NamedTuple):
    """What is known of n peers, and workspace for judging them by each other."""

    releases: Rows  # (n, q) their statistics, filtered
    weights: Rows  # (n, LEVELS) of their powers
    trust: Rows  # (n,) from 0 to 1, by the other peers
    sizes: Rows  # (n,) Gram traces
    likely: Rows  # (n,) log likelihoods
    votes: Rows  # (n, n)


@layout
def peers_of(memory: Rows, dimension: int, count: int) -> tuple[Peers, Rows]:
    """Cut the `Peers` off flat rows; return them and the remaining rows."""
    releases, rest = cut(memory, count, dimension * (dimension + 3) // 2)
    weights, rest = cut(rest, count, LEVELS)
    trust, rest = cut(rest, count)
    sizes, rest = cut(rest, count)
    likely, rest = cut(rest, count)
    votes, rest = cut(rest, count, count)
    return Peers(releases, weights, trust, sizes, likely, votes), rest


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


@stage
def log_likelihood(packed: Rows, ridge: float, variance: float, evidence: PartnerEvidence) -> float:
    """ln p of the rewards in packed statistics (q,) under the prior, up to what does not depend on it."""
    less_mean(packed, evidence.mean, evidence.moment)
    explained, volume = solve(packed, ridge, evidence.moment, evidence.turned)
    return 0.5 * (explained / variance - volume)


@stage
def lower_median(values: Rows) -> float:
    """The lower median of values (n,)."""
    count, median = values.shape[0], values[0]
    for i in range(count):
        less, as_much = 0, 0
        for j in range(count):
            less += values[j] < values[i]
            as_much += values[j] <= values[i]
        if less <= (count - 1) // 2 < as_much:
            median = values[i]
    return median


@stage
def judge_by_each_other(peers: Peers, ridge: float, variance: float, evidence: PartnerEvidence) -> None:
    """`trust` ← how far most peers agree with each; `weights` ← those with as much less prior weight.

    Two peers agree by p(both | one θ) / p(both | each its own θ), at most 1. Each agrees with itself, so that
    a peer is trusted only if more than half of all agree.
    """
    count, size, dimension = peers.trust.shape[0], peers.releases.shape[1], evidence.mean.shape[0]
    for i in range(count):
        peers.likely[i] = log_likelihood(peers.releases[i], ridge, variance, evidence)
        peers.votes[i, i] = 1.0
        for j in range(i):
            for k in range(size):
                evidence.sums[k] = peers.releases[i, k] + peers.releases[j, k]
            together = log_likelihood(evidence.sums, ridge, variance, evidence)
            peers.votes[i, j] = math.exp(min(together - peers.likely[i] - peers.likely[j], 0.0))
            peers.votes[j, i] = peers.votes[i, j]
        peers.sizes[i] = 1e-300
        for j in range(dimension):
            peers.sizes[i] += peers.releases[i, place(dimension, j, j)]
    usual = lower_median(peers.sizes)
    for i in range(count):
        trust = max(lower_median(peers.votes[i]), LEAST_TRUST * min(usual / peers.sizes[i], 1.0))
        peers.trust[i] = trust
        peers.weights[i, 0] *= (1.0 - trust * (1.0 - PRIOR_WEIGHTS[0])) / PRIOR_WEIGHTS[0]
        total = peers.weights[i, 0] + 1e-300
        for k in range(1, LEVELS):
            peers.weights[i, k] *= trust
            total += peers.weights[i, k]
        for k in range(LEVELS):
            peers.weights[i, k] /= total


@releasing
def power_in(
    others: Array, memory: Array, dimension: int, noise_sd: float, size: float, ridge: float, variance: float
) -> float:
    """`believed_power` of others (q,), which are filtered in place; memory holds a `PartnerEvidence`."""
    evidence, _ = partner_evidence(floats(memory), dimension)
    return believed_power(floats(others), noise_sd, size, ridge, variance, evidence)


@releasing
def judge_by_each_other_in(
    peers_memory: Array,
    count: int,
    memory: Array,
    dimension: int,
    noise_sds: Array,
    size: float,
    ridge: float,
    variance: float,
) -> None:
    """`judge_by_each_other` of releases with noise of these sds (n,), which are filtered in place."""
    peers, _ = peers_of(floats(peers_memory), dimension, count)
    evidence, _ = partner_evidence(floats(memory), dimension)
    for i in range(count):
        if noise_sds[i] > 0.0:
            filter_noise(peers.releases[i], noise_sds[i], size, variance, evidence.factor, evidence.turned)
    judge_by_each_other(peers, ridge, variance, evidence)
