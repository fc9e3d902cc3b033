"""The oracle for own records beside features: the dense model of d + K numbers, literal and slow.

    y = v(x·w + u_a) + σε,   w ~ N(mean + δ·common, sd²I),   u_a ~ N(0, τ²),   λ = σ²/sd²,   ρ = σ²/τ²

for a record of a slot of weight v (SLATES: the row (v x, v e_a)). A record whose weight is ω counts as ω
records: that of √ω times its row and its reward. δ ~ N(0, s²) as in `posterior_reference`, which this
extends: s² is the likeliest, and of a constant beside other features so large that the first guess does not
matter.

Everything is in the space of the n rewards, N(A·mean, σ²M) with M = I + A D Aᵀ, so that λ may be infinite for
a column that is known to be its mean, and a λ for each column is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from posterior_reference import Prior


@dataclass
class Records:
    """n records of K names."""

    xs: np.ndarray  # (n, d)
    who: np.ndarray  # (n,) numbers of names
    ys: np.ndarray  # (n,)
    names: int  # K: some may have no record
    slots: np.ndarray | None = None  # (n,) v; None: all 1
    weights: np.ndarray | None = None  # (n,) ω, by a half-life; None: all 1

    @property
    def count(self) -> float:
        return float(len(self.ys) if self.weights is None else self.weights.sum())

    @property
    def whole(self) -> tuple[np.ndarray, np.ndarray]:
        """(n, d + K) rows and (n,) rewards, times √ω."""
        slots, weights = (np.ones(len(self.ys)) if w is None else w for w in (self.slots, self.weights))
        rows = slots[:, None] * pairs(self.xs, self.who, self.names)
        return np.sqrt(weights)[:, None] * rows, np.sqrt(weights) * self.ys

    def part(self, taken: np.ndarray | slice) -> Records:
        """Some of them."""
        slots, weights = (None if w is None else w[taken] for w in (self.slots, self.weights))
        return Records(self.xs[taken], self.who[taken], self.ys[taken], self.names, slots, weights)


def pairs(xs: np.ndarray, who: np.ndarray, names: int) -> np.ndarray:
    """(n, d + K) what the expected rewards of these rows with these names are in w and u."""
    return np.hstack([xs, np.eye(names)[who]])


class Sizes(NamedTuple):
    """σ², λ of all columns or of each (d,), and ρ."""

    variance: float
    ridge: float | np.ndarray
    rho: float


class Belief(NamedTuple):
    """(w, u) given records and sizes: N(mean + δ·slope, σ²·spread), δ ~ N(shift, σ²·looseness)."""

    mean: np.ndarray  # (d + K,) where δ is 0
    slope: np.ndarray  # (d + K,)
    spread: np.ndarray  # (d + K, d + K)
    shift: float
    looseness: float
    variance: float

    def of(self, xs: np.ndarray, who: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of the expected rewards of rows with names, with δ as if known: V's."""
        rows = pairs(xs, who, len(self.mean) - xs.shape[1])
        means = rows @ (self.mean + self.shift * self.slope)
        return means, self.variance * np.einsum("ij,jk,ik->i", rows, self.spread, rows)


def believe(records: Records, prior: Prior, sizes: Sizes) -> Belief:
    rows, ys = records.whole
    d, one = records.xs.shape[1], _common(prior, records)
    scale = _scale(sizes.ridge, sizes.rho, d, records.names)
    inner = np.linalg.inv(np.eye(len(ys)) + (rows * scale) @ rows.T)
    gain = scale[:, None] * rows.T @ inner  # D Aᵀ M⁻¹
    first = np.concatenate([prior.mean, np.zeros(records.names)])
    left, along = ys - rows @ first, rows @ one
    steep, pull = along @ inner @ along, along @ inner @ left
    shift, looseness = 0.0, 0.0
    if prior.common is not None:
        fit = pull / steep if steep > 1e-12 else 0.0
        loose = sizes.variance / float(prior.wide(np.array(fit)))
        shift, looseness = pull / (steep + loose), 1.0 / (steep + loose)
    mean, slope = first + gain @ left, one - gain @ along
    return Belief(mean, slope, np.diag(scale) - gain @ (rows * scale), shift, looseness, sizes.variance)


def log_evidence(
    records: Records, prior: Prior, tau: float, ridges: np.ndarray, rhos: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """ln p and σ² (g, h), for each λ (g,) and ρ (h,): `posterior_reference.likeliest` with one more size.

    τ is lognormal around its first guess, as sd is. λ is that of all columns, and no λ is refused.
    """
    rows, ys = records.whole
    d, n, one = records.xs.shape[1], records.count, _common(prior, records)
    left, along = ys - rows[:, :d] @ prior.mean, rows @ one
    found = np.empty((2, len(ridges), len(rhos)))
    for i, ridge in enumerate(ridges):
        for j, rho in enumerate(rhos):
            matrix = np.eye(len(ys)) + (rows * _scale(ridge, rho, d, records.names)) @ rows.T
            delta, wide, steep = 0.0, 1.0, 0.0
            if prior.common is not None:
                solved = np.linalg.solve(matrix, np.column_stack([along, left]))
                steep, pull = along @ solved
                fit = pull / steep
                wide = float(prior.wide(np.array(fit)))
                rest = (left - fit * along) @ (solved[:, 1] - fit * solved[:, 0])
                delta = pull / (steep + (2 * prior.noise_sd**2 + rest) / (2 + n) / wide)
            apart = left - delta * along
            rest = apart @ np.linalg.solve(matrix, apart)
            variance = (2 * prior.noise_sd**2 + rest) / (2 + n)
            logs = -np.linalg.slogdet(matrix)[1] / 2 - (2 + n) / 2 * np.log(variance)
            logs -= (delta**2 / wide + np.log(1 + steep * wide / variance)) / 2
            for size, guess in ((ridge, prior.sd), (rho, tau)):
                logs -= np.log(np.sqrt(variance / size) / guess) ** 2 / 2
            found[:, i, j] = logs, variance
    return found[0], found[1]


def draws(
    records: Records,
    prior: Prior,
    tau: float,
    ridges: np.ndarray,
    rhos: np.ndarray,
    *,
    count: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """(count, d + K) joint draws of (w, u), with σ², λ, ρ and δ as likely as records make them."""
    logs, variances = log_evidence(records, prior, tau, ridges, rhos)
    chances = np.exp(logs - logs.max()).ravel()
    cases = rng.choice(chances.size, size=count, p=chances / chances.sum())
    freedom, found = 2 + records.count, []
    for case in np.unique(cases):
        i, j = np.unravel_index(case, logs.shape)
        belief = believe(records, prior, Sizes(float(variances[i, j]), float(ridges[i]), float(rhos[j])))
        much = int((cases == case).sum())
        sd = np.sqrt(belief.variance * freedom / rng.chisquare(freedom, much))
        shift = belief.shift + sd * np.sqrt(belief.looseness) * rng.standard_normal(much)
        moves = rng.multivariate_normal(np.zeros(len(belief.mean)), belief.spread, much)
        found.append(belief.mean + shift[:, None] * belief.slope + sd[:, None] * moves)
    return rng.permutation(np.concatenate(found))


def _scale(ridge: float | np.ndarray, rho: float, d: int, names: int) -> np.ndarray:
    """(d + K,) D: prior variances over σ²."""
    return np.concatenate([np.broadcast_to(1.0 / np.asarray(ridge), d), np.full(names, 1.0 / rho)])


def _common(prior: Prior, records: Records) -> np.ndarray:
    """(d + K,) 1 where the mean is learnt."""
    columns = np.zeros(records.xs.shape[1]) if prior.common is None else prior.common
    return np.concatenate([columns, np.zeros(records.names)])


def known_mean(prior: Prior) -> Prior:
    """The same, with a mean that is not learnt."""
    return replace(prior, common=None)
