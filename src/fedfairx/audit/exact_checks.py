"""The exact part of the audit: checks that need no statistics.

- Calibration: μ is computed from the mechanism's matrices, and δ at the requested ε from the definition, not
  with `accounting.py`.
- Data path: canaries (records at the limits, beyond them, at 1e6, infinite, NaN, of either sign) go through
  the real privatizer without noise, and no two effects may differ by more than the sensitivity.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from scipy.special import log_ndtr, ndtr

from fedfairx.audit.subject import AuditedConfig, CheckResult, Pair, Record

OVERSIZE = math.sqrt(5.0)
HUGE = 1e6


def calibration(subject: AuditedConfig, epsilon: float, delta: float) -> tuple[CheckResult, ...]:
    """Compute μ from columns of C = B⁻¹A (the effect of one leaf, decorrelated), and δ from that μ."""
    mechanism = subject.mechanism
    releases = mechanism.releases
    leaves = sorted({1, 2, releases // 3, releases // 2 + 1, releases} & set(range(1, releases + 1)))
    steps = np.arange(1, releases + 1)[:, None] >= np.array(leaves)
    columns = np.linalg.norm(mechanism.factor.decorrelate(steps.astype(np.float64)), axis=0)
    mu = subject.bounds.sensitivity * float(columns.max()) / subject.seen_sd
    actual = float(ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))
    claimed, over = mechanism.mu, actual / delta
    return (
        CheckResult("calibration: μ of the matrices", mu, f"≤ {claimed:.6g}", mu <= claimed * (1 + 1e-6)),
        CheckResult("calibration: δ at the requested ε, over the requested δ", over, "≤ 1", over <= 1 + 1e-6),
    )


def canaries(subject: AuditedConfig) -> list[Record]:
    """Return records that a faulty clip may get wrong, around the point that records are clipped around."""
    (point, level), (radius, limit) = subject.middle, subject.radii
    generator = np.random.default_rng(0)
    axis = np.zeros(subject.columns)
    axis[0] = 1.0
    directions = [axis, -axis, np.ones(subject.columns), *generator.standard_normal((2, subject.columns))]
    sizes = np.array([1.0, OVERSIZE, HUGE])
    records: list[Record] = []
    for direction, size, reward in product(directions, sizes, (*-sizes, 0.0, *sizes)):
        unit = direction / np.linalg.norm(direction)
        records.append((point + size * radius * unit, level + float(reward) * limit))
    none = (math.nan, math.inf, -math.inf)
    records += [(np.append(first, point[1:]), reward) for first, reward in product((*none, radius), none)]
    if subject.centring is None:
        for context, reward in subject.bounds.worst_pair(subject.columns):
            records += [(OVERSIZE * context, OVERSIZE * reward), (context, reward)]
    return records


def data_path(subject: AuditedConfig) -> tuple[CheckResult, Pair]:
    """Check the sensitivity of the data path; return the check, and the two records furthest apart."""
    records = canaries(subject)
    effects = np.array([subject.sums([[record]])[0] for record in records])
    candidates: list[Record | None] = list(records)
    if subject.bounds.adjacency == "add-remove":  # a blank record adds nothing, or is the public point
        candidates += [None, subject.middle]
        effects = np.vstack([effects, np.zeros(subject.size), subject.sums([[subject.middle]])[0]])
    scaled = effects / subject.scale
    squares = np.square(scaled).sum(axis=1)
    apart = np.sqrt(np.maximum(squares[:, None] + squares - 2.0 * scaled @ scaled.T, 0.0))
    if subject.bounds.adjacency == "add-remove":
        apart[: len(records), : len(records)] = 0.0
    largest = float(apart.max())
    # Among the pairs that are furthest apart, the one that touches fewest entries is cheapest to attack.
    first, second = np.nonzero(apart >= largest * (1 - 1e-4))
    touched = (np.abs(effects[first] - effects[second]) > subject.step).sum(axis=1)
    best = int(np.argmin(touched))
    slack = subject.step * math.sqrt(subject.size)
    sensitivity = subject.bounds.sensitivity
    check = CheckResult(
        "data path: sensitivity", largest, f"≤ {sensitivity:.6g}", largest <= sensitivity + slack
    )
    return check, (candidates[first[best]], candidates[second[best]])
