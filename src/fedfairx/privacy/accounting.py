"""Gaussian differential privacy: μ ↔ (ε, δ).

A Gaussian mechanism with sensitivity Δ and noise sd σ is μ-GDP with μ = Δ/σ, and μ-GDP is (ε, δ)-DP
exactly when

    δ ≥ δ(ε; μ) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2)

(Balle & Wang 2018, Thm 8; Dong, Roth & Su 2022, Cor. 2.13).

The adjacency enters through the sensitivity alone (`bounds.py`), so the same three functions serve
replacement and add/remove.

Computation: with u = ε/μ − μ/2 and the Mills ratio R(z) = (1−Φ(z))/φ(z), and since
e^ε φ(u+μ) = φ(u), the curve is δ = φ(u)·(R(u) − R(u+μ)). The factor φ(u) is taken in logarithms, so δ may
be far below the smallest float; the difference is written as ∫₀^μ (1 − tR(t)) dt for small μ, where
subtracting would cancel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from fedfairx.errors import require

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def delta_for(epsilon: float, mu: float) -> float:
    """Return the smallest δ for which μ-GDP implies (ε, δ)-DP.

    >>> f"{delta_for(2.0, 0.448335):.1e}"
    '1.0e-06'

    Guarantees:
    - Exact for the Gaussian mechanism: neither a bound nor an approximation.
    - Relative error below 1e-9 for δ down to 1e-300; 0.0 only when δ is below the smallest float.
    - `mu=0` gives 0 and `mu=inf` gives 1.
    """
    require(epsilon >= 0 and math.isfinite(epsilon), "epsilon", "must be >= 0 and finite", epsilon)
    require(mu >= 0, "mu", "must be >= 0", mu)
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    log_delta = _log_delta(epsilon, mu)
    return math.exp(log_delta) if log_delta < -0.5 else -math.expm1(_log_not_delta(epsilon, mu))


def epsilon_for(delta: float, mu: float) -> float:
    """Return the smallest ε ≥ 0 for which μ-GDP implies (ε, δ)-DP.

    >>> round(epsilon_for(1e-6, 2 * mu_for(2.0, 1e-6)), 1)  # of a person with two records
    4.3

    Guarantees:
    - `delta_for(epsilon_for(delta, mu), mu)` is `delta`, to 1e-9 relative, unless ε = 0 suffices.
    - `mu=0` gives 0 and `mu=inf` gives inf.
    """
    _require_delta(delta)
    require(mu >= 0, "mu", "must be >= 0", mu)
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return math.inf

    def excess(epsilon: float) -> float:
        return _excess(epsilon, mu, delta)

    if excess(0.0) <= 0:
        return 0.0
    high = max(1.0, mu * mu)
    while excess(high) > 0:
        high *= 2.0
    return _root(excess, 0.0, high)


def mu_for(epsilon: float, delta: float) -> float:
    """Return the largest μ for which μ-GDP implies (ε, δ)-DP: the μ that a mechanism may spend.

    >>> round(mu_for(2.0, 1e-6), 3)
    0.448

    Guarantees:
    - `delta_for(epsilon, mu_for(epsilon, delta))` is `delta`, to 1e-9 relative.
    - Grows with ε and with δ.
    """
    require(epsilon > 0 and math.isfinite(epsilon), "epsilon", "must be > 0 and finite", epsilon)
    _require_delta(delta)
    return _mu_for(epsilon, delta)


@lru_cache(1024)  # a process asks for few, and often
def _mu_for(epsilon: float, delta: float) -> float:
    def excess(log_mu: float) -> float:
        return _excess(epsilon, math.exp(log_mu), delta)

    # u = ε/μ − μ/2 = s is solved by this μ; a δ of 1e-300 lies near s = 37, so few steps are needed.
    middle = math.log(math.sqrt(2.0 * epsilon))
    low = high = middle
    while excess(low) > 0:
        low -= 1.0
    while excess(high) < 0:
        high += 1.0
    return math.exp(_root(excess, low, high))


def _require_delta(delta: float) -> None:
    require(0 < delta < 1, "delta", "must be in (0, 1)", delta)


def _excess(epsilon: float, mu: float, delta: float) -> float:
    """Grows with δ(ε; μ) and is zero where it equals `delta`; well scaled at both ends of (0, 1)."""
    if delta < 0.5:
        return _log_delta(epsilon, mu) - math.log(delta)
    return math.log1p(-delta) - _log_not_delta(epsilon, mu)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq

    if low == high:
        return low
    return float(brentq(function, low, high, xtol=1e-300, rtol=1e-15, maxiter=500))


def _log_delta(epsilon: float, mu: float) -> float:
    """log δ(ε; μ)."""
    from scipy.special import erfcx

    u = epsilon / mu - 0.5 * mu
    if mu < 1.0:
        # δ = φ(u) ∫_u^{u+μ} (1 − tR(t)) dt; the integrand is smooth and positive, and u ≥ −1/2 here.
        t = u + 0.5 * mu * (1.0 + _NODES)
        tail = _one_minus_mills(t)
        return -0.5 * u * u - _LOG_SQRT_2PI + math.log(0.5 * mu * float(_WEIGHTS @ tail))
    if u > -5.0:
        scale = math.sqrt(0.5)
        mills = math.sqrt(0.5 * math.pi) * (erfcx(u * scale) - erfcx((u + mu) * scale))
        return float(-0.5 * u * u - _LOG_SQRT_2PI + math.log(mills))
    # Here δ is within 1e-6 of 1, and its complement is the sum of two small terms.
    return math.log1p(-min(math.exp(_log_not_delta(epsilon, mu)), 1.0 - 2.0**-53))  # 1 is rounding: ε > 1e15


def _log_not_delta(epsilon: float, mu: float) -> float:
    """log(1 − δ(ε; μ)), a sum of two positive terms."""
    from scipy.special import log_ndtr

    u = epsilon / mu - 0.5 * mu
    return float(np.logaddexp(log_ndtr(u), epsilon + log_ndtr(-u - mu)))


def _one_minus_mills(t: np.ndarray) -> np.ndarray:
    """1 − tR(t); beyond t = 20 its asymptotic series, since the difference cancels there."""
    from scipy.special import erfcx

    direct = 1.0 - t * math.sqrt(0.5 * math.pi) * erfcx(t * math.sqrt(0.5))
    s = 1.0 / np.square(np.maximum(t, 20.0))
    series = s * (1.0 + s * (-3.0 + s * (15.0 + s * (-105.0 + s * (945.0 + s * (-10395.0 + s * 135135.0))))))
    return np.asarray(np.where(t > 20.0, series, direct))
