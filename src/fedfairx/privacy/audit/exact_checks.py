"""The exact part of the audit: what can be looked at is not left to statistics.

- Calibration: μ is taken from the mechanism's own matrices, and δ at the ε that was asked for from the
  definition, not from `accounting.py`.
- Data path: canaries (at the limits, beyond them, at 1e6, infinite, not a number, of either sign) are put
  through the real privatizer without noise. What one of them adds must not depend on the other records,
  must lie in one leaf, and no two may differ by more than the sensitivity. From these three follows what
  the proof needs: that one record changes one leaf by no more than Δ.
- Keys: those of `new_key` differ.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from fedfairx.privacy.audit.subject import AuditedConfig, Check, Record
from fedfairx.privacy.mechanisms import noise
from fedfairx.util.arrays import Array

OVERSIZE = math.sqrt(5.0)
HUGE = 1e6
_LEAVES = 12
_KEYS = 16


def calibration(subject: AuditedConfig, epsilon: float, delta: float) -> tuple[Check, ...]:
    """μ from columns of C = B⁻¹A (what one leaf does to all prefix sums, taken apart), and δ from that μ."""
    from scipy.special import log_ndtr, ndtr

    mechanism = subject.mechanism
    releases = mechanism.releases
    leaves = sorted({1, 2, releases // 3, releases // 2 + 1, releases} & set(range(1, releases + 1)))
    steps = np.arange(1, releases + 1)[:, None] >= np.array(leaves)
    columns = np.linalg.norm(mechanism.factor.decorrelate(steps.astype(np.float64)), axis=0)
    mu = subject.bounds.sensitivity * float(columns.max()) / mechanism.base_sd
    found = float(ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))
    claimed = mechanism.mu
    return (
        Check("calibration: μ of the matrices", mu, f"≤ {claimed:.6g}", mu <= claimed * (1 + 1e-6)),
        Check(
            "calibration: δ at the ε asked for, over that asked for",
            found / delta,
            "≤ 1",
            found <= delta * (1 + 1e-6),
        ),
    )


def canaries(subject: AuditedConfig) -> list[Record]:
    """Records that a clip may get wrong, around the point that records are clipped around."""
    (point, level), (radius, limit) = subject.middle, subject.radii
    generator = np.random.default_rng(0)
    axis = np.zeros(subject.dimension)
    axis[0] = 1.0
    directions = [axis, -axis, np.ones(subject.dimension), *generator.standard_normal((2, subject.dimension))]
    sizes = np.array([1.0, OVERSIZE, HUGE])
    found: list[Record] = []
    for direction, size, reward in product(directions, sizes, (*-sizes, 0.0, *sizes)):
        unit = direction / np.linalg.norm(direction)
        found.append((point + size * radius * unit, level + float(reward) * limit))
    none = (math.nan, math.inf, -math.inf)
    found += [(np.append(first, point[1:]), reward) for first, reward in product((*none, radius), none)]
    if subject.centring is None:
        for context, reward in subject.bounds.worst_pair(subject.dimension):
            found += [(OVERSIZE * context, OVERSIZE * reward), (context, reward)]
    return found


def data_path(subject: AuditedConfig) -> tuple[tuple[Check, ...], tuple[Record | None, Record | None]]:
    """The checks of the data path, and the two records that are furthest apart (None: no record)."""
    records = canaries(subject)
    effects = np.array([subject.sums([[record]])[0] for record in records])
    candidates: list[Record | None] = list(records)
    if subject.bounds.adjacency == "add-remove":  # a blank record adds nothing, or lies at the public point
        candidates += [None, subject.middle]
        effects = np.vstack([effects, np.zeros(subject.size), subject.sums([[subject.middle]])[0]])
    scaled = effects / subject.scale
    squares = np.square(scaled).sum(axis=1)
    apart = np.sqrt(np.maximum(squares[:, None] + squares - 2.0 * scaled @ scaled.T, 0.0))
    if subject.bounds.adjacency == "add-remove":
        apart[: len(records), : len(records)] = 0.0
    largest = float(apart.max())
    # Of the pairs that are as far apart as any, the one that touches fewest entries is cheapest to follow.
    first, second = np.nonzero(apart >= largest * (1 - 1e-4))
    touched = (np.abs(effects[first] - effects[second]) > subject.step).sum(axis=1)
    best = int(np.argmin(touched))
    slack = subject.step * math.sqrt(subject.size)
    sensitivity = subject.bounds.sensitivity
    alone = _alone(subject, records, effects)
    checks = (
        Check("data path: sensitivity", largest, f"≤ {sensitivity:.6g}", largest <= sensitivity + slack),
        Check(
            "data path: one record, one leaf, whatever the others", alone, f"≤ {slack:.2g}", alone <= slack
        ),
    )
    return checks, (candidates[first[best]], candidates[second[best]])


def _alone(subject: AuditedConfig, records: list[Record], effects: Array) -> float:
    """How far what a canary changes is from what it adds by itself, in its own leaf and in no other.

    Every leaf holds two records; the canary takes the place of the first or of the second.
    """
    horizon = min(subject.mechanism.releases, _LEAVES)
    chosen = np.random.default_rng(1).permutation(len(records))
    base = [[records[chosen[(2 * leaf + i) % 12]] for i in (0, 1)] for leaf in range(horizon)]
    before = subject.sums(base)
    worst = 0.0
    for turn, (leaf, place) in enumerate(product(sorted({0, horizon // 2, horizon - 1}), (0, 1))):
        for canary in chosen[12 + 4 * turn : 16 + 4 * turn]:
            changed = [list(leaf_records) for leaf_records in base]
            changed[leaf][place] = records[canary]
            difference = subject.sums(changed) - before
            old = chosen[(2 * leaf + place) % 12]
            difference[leaf] -= effects[canary] - effects[old]
            worst = max(worst, float(np.linalg.norm(difference / subject.scale, axis=1).max()))
    return worst


def keys() -> Check:
    """Keys from the operating system are all different, and long enough."""
    made = {noise.new_key() for _ in range(_KEYS)}
    fine = sum(len(key) >= 32 for key in made)
    return Check("keys: different ones among new ones", fine / _KEYS, "= 1", fine == _KEYS)


def public(schedule: bool) -> Check:
    """A schedule that looks at the data leaks by its timing, whatever the noise."""
    return Check("schedule: fixed before the first record", float(schedule), "= 1", schedule)
