"""ln ∫ f(mean + sd z) φ(z) dz by adaptive quadrature, for any merit f, however steep.

The integration starts where the integrand is largest, which for a steep merit is far from z = 0 or at an end
of its range, and goes out from there panel by panel. In each panel Clenshaw and Curtis's rule integrates the
polynomial through 17 Chebyshev points. The last two coefficients of its Chebyshev series show whether it
fits: a panel whose coefficients are too large is halved, and the next one is twice as wide as the last that
fitted. Values are relative to the largest, so that nothing overflows and what underflows is negligible.
"""

from __future__ import annotations

import math

import numpy as np

from fedfairx.core.merit_kernels import log_value, merit_parts
from fedfairx.lanes.decorators import stage
from fedfairx.lanes.rows import Rows

DEGREE = 16  # of the polynomials
TOLERANCE = 1e-7  # of the coefficients relative to the integral; where f is smooth its error is far smaller
MOST_PANELS = 1_000  # after that many, each is taken as it is
SEARCHES = 64  # for the largest value, each in an eighth of the interval before
DROP = 3.0  # in logarithms, from the largest value to its neighbours: a smaller one ends the search
START = 3.0  # width of the first panel, in steps of the last search
FAR_ABOVE = 1e2  # a value, relative to the largest found, that starts the integration again from there,
RESTARTS = 10  # so often
LOG_ROOT = 0.5 * math.log(2.0 * math.pi)

NODES = np.sin(np.pi * (0.5 - np.arange(DEGREE + 1) / DEGREE))
_COEFFICIENTS = np.linalg.inv(np.polynomial.chebyshev.chebvander(NODES, DEGREE))  # times values at the nodes
_INTEGRALS = np.array([0.0 if j % 2 else 2.0 / (1 - j * j) for j in range(DEGREE + 1)])  # of T_j
WEIGHTS = _INTEGRALS @ _COEFFICIENTS
BEFORE, LAST = _COEFFICIENTS[-2:].copy()


@stage
def _largest(
    merit: Rows, lane: int, mean: float, sd: float, low: float, high: float
) -> tuple[float, float, float]:
    """Where in [low, high] the integrand is largest, its logarithm there, and the step of the search."""
    left, right = low, high
    where, top, step = low, -math.inf, 0.0
    for _ in range(SEARCHES):
        step = (right - left) / DEGREE
        top, least, before = -math.inf, math.inf, math.inf
        rising = False
        for k in range(DEGREE + 1):
            z = left + k * step
            value = log_value(merit, lane, mean + sd * z) - 0.5 * z * z
            if value > top:
                where, top, least, rising = z, value, before, True
            elif rising:
                least, rising = min(least, value), False
            before = value
        if not top - least > DROP:
            break
        left, right = max(where - step, low), min(where + step, high)
    return where, top, step


@stage
def _panel(
    merit: Rows, lane: int, mean: float, sd: float, start: float, width: float, top: float
) -> tuple[float, float, float]:
    """∫ f e^(-z²/2 - top) dz over [start, start + width], the size of the last coefficients, and the largest
    value, at least 1. A width below 0 goes left."""
    half, total, last, before, largest = 0.5 * width, 0.0, 0.0, 0.0, 1.0
    for k in range(DEGREE + 1):
        z = start + half + half * NODES[k]
        power, factor = merit_parts(merit, lane, mean + sd * z)
        value = factor * np.exp(power - 0.5 * z * z - top)  # infinite where `top` is far too low
        if value > largest:
            largest = value
        total += WEIGHTS[k] * value
        last += LAST[k] * value
        before += BEFORE[k] * value
    return abs(half) * total, abs(half) * max(abs(last), abs(before)), largest


@stage
def _outwards(
    merit: Rows,
    lane: int,
    mean: float,
    sd: float,
    low: float,
    high: float,
    peak: float,
    top: float,
    step: float,
    restart: bool,
) -> tuple[float, float, float]:
    """∫ f e^(-z²/2 - top) dz over [low, high], from the peak outwards, and 0, 0.

    If it may `restart` and a panel has a value far above e^top: what it has by then, and the panel's ends.
    """
    total, tried = 0.0, 0
    for end in (high, low):
        at, width = peak, START * step if end > peak else -START * step
        while at != end:
            to_end = abs(width) >= abs(end - at)
            if to_end:
                width = end - at
            value, error, largest = _panel(merit, lane, mean, sd, at, width, top)
            if restart and largest > FAR_ABOVE:
                return total, min(at, at + width), max(at, at + width)
            tried += 1
            if error <= TOLERANCE * (total + value) or tried >= MOST_PANELS:
                total += value
                at = end if to_end else at + width
                width *= 2.0
            else:
                width *= 0.5
    return total, 0.0, 0.0


@stage
def log_integral(merit: Rows, lane: int, mean: float, sd: float, low: float, high: float) -> float:
    """ln ∫ f(mean + sd z) φ(z) dz over [low, high], both finite, of one lane's merit."""
    left, right = low, high
    total, top = 0.0, 0.0
    for k in range(RESTARTS + 1):
        peak, top, step = _largest(merit, lane, mean, sd, left, right)
        total, left, right = _outwards(merit, lane, mean, sd, low, high, peak, top, step, k < RESTARTS)
        if left == right:
            break
    return top + math.log(total) - LOG_ROOT
