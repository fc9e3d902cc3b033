"""The BLT for a number of releases: from the table that the package ships, or fitted.

Fits BLT parameters to a number of releases, and writes the table that the package ships.

    python -m fedfairx.privacy.blt_fit > src/fedfairx/privacy/blt_table.py

The objective is the sd of the noisiest release, ‖C‖₁→₂·‖B_τ‖ (McMahan, Xu & Zhang 2024 fit the same
quantity). A poor fit costs noise, never privacy: the norms are taken from whatever coefficients are in
use.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from fedfairx.errors import require
from fedfairx.privacy.blt import Blt
from fedfairx.privacy.blt_table import TABLE
from fedfairx.util.arrays import Array

__all__ = ["blt_for", "fit", "render"]

# Every power of four: the parameters for the next one serve all smaller τ, within the stated 1 %.
GRID = tuple(4**k for k in range(1, 13))


def blt_for(releases: int) -> Blt:
    """The factor that `blt` uses for this many releases: the table's next entry, or a fresh fit beyond it.

    Guarantees:
    - The same parameters on every machine for τ up to the end of the table: they are read, not computed.
    - For τ up to 1 000 000 the sd of every release is within 1 % of sqrt-toeplitz's at the same μ.
    """
    require(releases >= 1, "releases", "must be >= 1", releases)
    for largest, omega, gap in TABLE:
        if releases <= largest:
            return Blt(releases, omega, gap)
    return fit(releases)


def buffers_for(releases: int) -> int:
    """Buffers that keep every release within 1 % of the square root's sd."""
    return int(np.searchsorted([17, 2_000, 70_000, 2_000_000], releases)) + 3


def fit(releases: int, *, buffers: int | None = None) -> Blt:
    """Parameters for `releases`, optimised from a quadrature of 1/√(πk) and rounded to nine digits.

    Guarantees:
    - Never worse than its starting point.
    """
    from scipy.optimize import minimize

    count = buffers or buffers_for(releases)
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
    """A point that can be used as it is: (log ω, logit of 1−θ)."""
    # 1/√(πk) = ∫ e^{−ks} √s/π d(ln s): equally spaced nodes in ln s between 1/τ and 1 are a first quadrature.
    log_gap = np.linspace(math.log(0.5 / max(releases, 2)), math.log(0.3), buffers)
    spacing = log_gap[1] - log_gap[0] if buffers > 1 else 1.0
    log_omega = 0.5 * log_gap + math.log(spacing / math.pi)
    point = np.concatenate([log_omega, log_gap - np.log1p(-np.exp(log_gap))])
    while _factor(point, releases) is None:
        point[:buffers] -= 0.1
    return point


def _factor(point: Array, releases: int) -> Blt | None:
    half = point.size // 2
    if not (np.abs(point) < 40).all():
        return None
    omega, gap = np.exp(point[:half]), 1.0 / (1.0 + np.exp(-point[half:]))
    root = np.sqrt(omega)
    if np.linalg.eigvalsh(np.diag(gap) + np.outer(root, root)).max() >= 1:
        return None
    return Blt(releases, tuple(omega.tolist()), tuple(gap.tolist()))


def _rounded(values: Array) -> tuple[float, ...]:
    return tuple(float(f"{value:.8e}") for value in values)


def render() -> str:
    """The text of `blt_table.py`."""
    lines = [
        '"""BLT parameters: (largest τ, ω, 1−θ), written by `python -m fedfairx.privacy.blt_fit`."""',
        "",
        "from __future__ import annotations",
        "",
        "Entry = tuple[int, tuple[float, ...], tuple[float, ...]]",
        "",
        "TABLE: tuple[Entry, ...] = (",
    ]
    for releases in GRID:
        factor = fit(releases)
        lines += ["    (", f"        {releases},"]
        for values in (factor.omega, factor.gap):
            lines += ["        (", *(f"            {value:.8e}," for value in values), "        ),"]
        lines += ["    ),"]
    return "\n".join([*lines, ")", ""])


if __name__ == "__main__":
    sys.stdout.write(render())
