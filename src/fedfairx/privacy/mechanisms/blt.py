"""Buffered linear Toeplitz (BLT) factorisation: nearly the least noise, with a few vectors of memory.

C is Toeplitz with c₀ = 1 and c_i = Σ_j ω_j θ_j^{i−1} (Dvijotham, McMahan, Pillutla, Steinke & Thakurta
2024), and B = A·C⁻¹. Let W = √ω√ωᵀ. In p = 1/z the generating function of C is 1 + √ωᵀ(p − diag θ)⁻¹√ω,
so that of C⁻¹ is 1 − √ωᵀ(p − diag θ + W)⁻¹√ω: its poles p_j are the eigenvalues of diag θ − W, and B, its
prefix sum, has

    b_k = b_∞ + Σ_j g_j p_j^k,   b_∞ = 1/(1 + Σ ω_j/(1−θ_j)),   g_j = (v_jᵀ√ω)²/(1−p_j),   all positive,

v_j the eigenvectors. So Bz is a positive sum of a running sum and of exponential averages of z: nothing
cancels, and both norms have closed forms. The code computes with 1−θ and 1−p, since both come near 0.

Of all Toeplitz factorisations the square root B = C = A^{1/2} has the smallest largest sd (Henzinger &
Upadhyay 2023; Fichtenberger, Henzinger & Upadhyay 2023), but its stream has to store every z.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib.resources import files

import numpy as np

from fedfairx.errors import InvalidInput, require
from fedfairx.lanes.decorators import allocating
from fedfairx.privacy.mechanisms.factorization import Integers
from fedfairx.util.arrays import Array

_BLOCK = 512


@cache
def table() -> tuple[tuple[int, tuple[float, ...], tuple[float, ...]], ...]:
    """Fitted parameters (largest τ, ω, 1−θ), as `python -m fedfairx.privacy.mechanisms.blt` writes them."""
    text = files("fedfairx.privacy.mechanisms").joinpath("blt_table.json").read_text(encoding="utf-8")
    return tuple((each["releases"], tuple(each["omega"]), tuple(each["gap"])) for each in json.loads(text))


@dataclass(frozen=True)
class Blt:
    """BLT with weights ω = `omega` and decays θ = 1 − `gap`, for τ = `releases`.

    Guarantees:
    - The norms are those of the coefficients in use: a poor ω or θ costs noise, never privacy.
    - Memory is one vector per buffer and one for the running sum, whatever τ.
    """

    releases: int
    omega: tuple[float, ...]
    gap: tuple[float, ...]

    def __post_init__(self) -> None:
        require(len(self.omega) == len(self.gap) >= 1, "omega", "must be as many as gap", len(self.omega))
        require(all(0 < w < np.inf for w in self.omega), "omega", "must be > 0", self.omega)
        require(all(0 < g < 1 for g in self.gap), "gap", "must be in (0, 1)", self.gap)
        require(float(self._poles[1].max()) < 1, "omega", "must keep every pole of 1/C in (0, 1)", self.omega)

    @cached_property
    def _poles(self) -> tuple[Array, Array]:
        """(g, 1−p): gains and gaps of B's terms, the running sum first."""
        omega, gap = np.array(self.omega), np.array(self.gap)
        root = np.sqrt(omega)
        gaps, vectors = np.linalg.eigh(np.diag(gap) + np.outer(root, root))
        gains = np.square(vectors.T @ root) / gaps
        return np.concatenate([[1.0 / (1.0 + np.sum(omega / gap))], gains]), np.concatenate([[0.0], gaps])

    @cached_property
    def column_norm(self) -> float:
        # ‖c‖² = 1 + Σ_jk ω_j ω_k Σ_{i<τ−1} (θ_j θ_k)^i; the first column of C is the longest.
        omega = np.array(self.omega)
        sums = _geometric(_pairs(np.array(self.gap)), np.array([self.releases - 1]))[..., 0]
        return float(np.sqrt(1.0 + omega @ sums @ omega))

    def row_norm(self, number: Integers) -> Array:
        number = np.asarray(number, dtype=np.int64)
        return np.asarray(_row_norm_of(self, int(number))) if number.ndim == 0 else self._row_norms(number)

    def _row_norms(self, number: Integers) -> Array:
        # ‖B_t‖² = Σ_jk g_j g_k Σ_{i<t} (p_j p_k)^i, over pairs j ≤ k
        gains, gaps = self._poles
        first, second = np.triu_indices(gains.size)
        weights = gains[first] * gains[second] * np.where(first == second, 1.0, 2.0)
        pair_gaps = _pairs(gaps)[first, second]
        total = np.zeros(number.shape)
        for weight, pair_gap in zip(weights, pair_gaps, strict=True):
            total += weight * _geometric(pair_gap, number)
        return np.sqrt(total)

    def parameters(self) -> dict[str, object]:
        return {"factor": "blt", "omega": list(self.omega), "gap": list(self.gap)}

    def memory(self, width: int) -> BltMemory:
        return BltMemory(*self._poles, width)

    def correlate(self, base: Array) -> Array:
        gains, gaps = self._poles
        _filter(base, gains, 1.0 - gaps)
        return base

    def decorrelate(self, noise: Array) -> Array:
        # z = C·y for the increments y of the noise: z_t = y_t + Σ_j ω_j s_j, s_j ← θ_j s_j + y_t
        base = np.diff(noise.reshape(len(noise), -1), axis=0, prepend=0.0)
        _unfilter(base, np.array(self.omega), 1.0 - np.array(self.gap))
        return base.reshape(noise.shape)


@lru_cache(maxsize=1024)
def _row_norm_of(factor: Blt, number: int) -> float:
    """Cached norm of one row: every agent computes the same one at each synchronisation."""
    return float(factor._row_norms(np.array([number]))[0])


class BltMemory:
    """One running sum and one exponential average per buffer, of the base vectors."""

    def __init__(self, gains: Array, gaps: Array, width: int) -> None:
        self._gains = gains[:, None]
        self._decay = 1.0 - gaps[:, None]
        self._buffers = np.zeros((gains.size, width))

    def absorb(self, base: Array) -> None:
        self._buffers *= self._decay
        self._buffers += base

    def output(self) -> Array:
        # Not a matrix product: a plain sum gives the same bits every time, on every machine.
        return np.asarray((self._gains * self._buffers).sum(axis=0))


def _pairs(gap: Array) -> Array:
    """Return 1 − p_j p_k from 1 − p_j, without cancellation."""
    return np.asarray(gap[:, None] + gap[None, :] - gap[:, None] * gap[None, :])


def _geometric(gap: Array | float, count: Integers) -> Array:
    """Return Σ_{i<count} (1−gap)^i, over gaps in [0, 1) and counts, the count's axis last."""
    gap = np.asarray(gap, dtype=np.float64)[..., None] if np.ndim(gap) else np.float64(gap)
    safe = np.where(gap > 0, gap, 0.5)
    return np.asarray(np.where(gap > 0, -np.expm1(count * np.log1p(-safe)) / safe, count))


def _filter_rows(rows: Array, gains: Array, decay: Array) -> None:
    """rows ← B·rows in place, a block of columns at a time so that the buffers stay in cache.

    Element by element: an assignment to a slice takes Numba two seconds to compile.
    """
    count, width = rows.shape
    for start in range(0, width, _BLOCK):
        stop = min(start + _BLOCK, width)
        buffers = np.zeros((gains.size, stop - start))
        total = np.empty(stop - start)
        for t in range(count):
            row = rows[t, start:stop]
            for w in range(row.size):
                total[w] = 0.0
            for j in range(gains.size):
                buffer = buffers[j]
                for w in range(row.size):
                    value = decay[j] * buffer[w] + row[w]
                    buffer[w] = value
                    total[w] += gains[j] * value
            for w in range(row.size):
                row[w] = total[w]


def _unfilter_rows(rows: Array, omega: Array, theta: Array) -> None:
    """rows ← C·rows in place."""
    count, width = rows.shape
    buffers = np.zeros((omega.size, width))
    for t in range(count):
        for w in range(width):
            increment = rows[t, w]
            for j in range(omega.size):
                rows[t, w] += omega[j] * buffers[j, w]
                buffers[j, w] = theta[j] * buffers[j, w] + increment


_filter = allocating(_filter_rows)
_unfilter = allocating(_unfilter_rows)


# Every power of four: the parameters of an entry serve all τ down to the previous one, within the stated 1 %.
GRID = tuple(4**k for k in range(1, 13))


def blt_for(releases: int) -> Blt:
    """Make the factor of `blt` for this many releases: the table's next entry, or a new fit beyond its end.

    Guarantees:
    - The same parameters on every machine for τ up to the end of the table: they are read, not computed.
    - For τ up to 1 000 000 the sd of every release is within 1 % of the square root's at the same μ.
    """
    require(releases >= 1, "releases", "must be >= 1", releases)
    for largest, omega, gap in table():
        if releases <= largest:
            return Blt(releases, omega, gap)
    return fit(releases)


def fit(releases: int, *, buffers: int | None = None) -> Blt:
    """Fit parameters for `releases`, starting from a quadrature of 1/√(πk), and round them to nine digits.

    Guarantees:
    - Never worse than its starting point.
    """
    from scipy.optimize import minimize

    # By default as many buffers as keep every release within 1 % of the square root's sd.
    count = buffers or int(np.searchsorted([17, 2_000, 70_000, 2_000_000], releases)) + 3
    start = _start(releases, count)

    def objective(point: Array) -> float:
        factor = _factor(point, releases)
        if factor is None:
            return 50.0
        return math.log(factor.column_norm) + math.log(float(factor.row_norm(np.array([releases]))[0]))

    best = minimize(objective, start, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
    best = minimize(
        objective, best.x, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-13, "maxfev": 4000}
    )
    factor = _factor(best.x if best.fun <= objective(start) else start, releases)
    assert factor is not None
    order = np.argsort(factor.gap)[::-1]
    return Blt(releases, _rounded(np.array(factor.omega)[order]), _rounded(np.array(factor.gap)[order]))


def _start(releases: int, buffers: int) -> Array:
    """Return a valid starting point: (log ω, logit of 1−θ)."""
    # 1/√(πk) = ∫ e^{−ks} √s/π d(ln s): equally spaced nodes in ln s between 1/τ and 1 are a first quadrature.
    log_gap = np.linspace(math.log(0.5 / max(releases, 2)), math.log(0.3), buffers)
    spacing = log_gap[1] - log_gap[0] if buffers > 1 else 1.0
    log_omega = 0.5 * log_gap + math.log(spacing / math.pi)
    point = np.concatenate([log_omega, log_gap - np.log1p(-np.exp(log_gap))])
    while _factor(point, releases) is None:
        point[:buffers] -= 0.1
    return point


def _factor(point: Array, releases: int) -> Blt | None:
    """Return the factor at a point; None if the point is invalid."""
    half = point.size // 2
    if not (np.abs(point) < 40).all():
        return None
    omega, gap = np.exp(point[:half]), 1.0 / (1.0 + np.exp(-point[half:]))
    try:
        return Blt(releases, tuple(omega.tolist()), tuple(gap.tolist()))
    except InvalidInput:
        return None


def _rounded(values: Array) -> tuple[float, ...]:
    return tuple(float(f"{value:.8e}") for value in values)


def render() -> str:
    """The text of `blt_table.json`."""
    rows = []
    for releases in GRID:
        factor = fit(releases)
        rows.append(" " + json.dumps({"releases": releases, "omega": factor.omega, "gap": factor.gap}))
    return "[\n" + ",\n".join(rows) + "\n]\n"


if __name__ == "__main__":
    sys.stdout.write(render())
