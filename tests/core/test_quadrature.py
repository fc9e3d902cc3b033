"""Expected merit against closed forms in many digits: steep merits, kinks, and posteriors of any width."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest

from fedfairx.core import quadrature
from fedfairx.core.expected_merit import log_expected_merit, log_normal_below
from fedfairx.core.merit import Affine, Custom, Logistic, Merit, Power
from instances import each_merit
from stored_oracle import stored

SMOOTH, KINKED = 1e-9, 1e-6  # the errors of ln E f that docs/explanation/expected-merit.md states

oracle = stored(Path(__file__).with_name("expected_merit.json"))


def found(merit: Merit, mean: float, sd: float) -> float:
    return log_expected_merit(each_merit(merit), 0, mean, sd)


def tails(low: mpmath.mpf, high: mpmath.mpf, mean: float, sd: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """P(μ < low), P(μ > high)."""
    return mpmath.ncdf((low - mean) / mpmath.mpf(sd)), mpmath.ncdf((mean - high) / mpmath.mpf(sd))


@oracle
def power(exponent: int, offset: float, low: float, high: float, mean: float, sd: float) -> float:
    """ln E (offset + μ)^n, μ held to [low, high], by parts: I_n = m I_{n-1} + (n - 1) s² I_{n-2} + ends.

    It cancels: digits are doubled until the answer stays.
    """
    digits, before, now = 100, math.nan, math.inf
    while not abs(before - now) < 1e-12 * max(1.0, abs(now)):
        digits, before = 2 * digits, now
        with mpmath.workdps(digits):
            value = _power(exponent, offset, low, high, mean, sd)
            now = float(mpmath.log(value)) if value > 0 else math.nan
    return now


def _power(exponent: int, offset: float, low: float, high: float, mean: float, sd: float) -> mpmath.mpf:
    at = [mpmath.mpf(offset) + end for end in (low, high)]
    centre, variance = mpmath.mpf(offset) + mean, mpmath.mpf(sd) ** 2
    density = [mpmath.npdf(end, centre, mpmath.mpf(sd)) for end in at]
    below, above = tails(mpmath.mpf(low), mpmath.mpf(high), mean, sd)
    before, now = mpmath.mpf(0), 1 - below - above
    ends = [mpmath.mpf(1), mpmath.mpf(1)]  # end^(n-1)
    for n in range(1, exponent + 1):
        boundary = variance * (ends[0] * density[0] - ends[1] * density[1])
        before, now = now, centre * now + (n - 1) * variance * before + boundary
        ends = [product * end for product, end in zip(ends, at, strict=True)]
    return now + below * ends[0] + above * ends[1]


@pytest.mark.parametrize(("offset", "low", "high"), [(0.1, 0.0, 1.0), (2.0, 0.0, 1.0), (1e-3, 0.0, 20.0)])
@pytest.mark.parametrize(
    ("exponent", "sd"),
    [
        *((30, sd) for sd in (1e-9, 0.05, 0.3, 1e6)),
        *((1000, sd) for sd in (1e-9, 1e-4, 0.01, 0.05, 0.3, 5.0)),
    ],
)
def test_a_power_of_any_steepness(offset: float, low: float, high: float, exponent: int, sd: float) -> None:
    merit = Power(float(exponent), offset, (low, high))
    for mean in (-0.5, 0.3, 0.9, 3.0):
        wanted = power(exponent, offset, low, high, mean, sd)
        assert found(merit, mean, sd) == pytest.approx(wanted, rel=1e-12, abs=SMOOTH)


def test_a_steep_power_tells_arms_apart() -> None:
    """Their merits are e^-707 and e^-683, and the densities of what counts are far smaller still."""
    wanted = power(1000, 0.1, 0.0, 1.0, 0.31, 0.01) - power(1000, 0.1, 0.0, 1.0, 0.3, 0.01)
    assert found(Power(1000.0), 0.31, 0.01) - found(Power(1000.0), 0.3, 0.01) == pytest.approx(
        wanted, abs=1e-9
    )
    assert 5 < wanted < 50


@oracle
def exponential(steepness: float, mean: float, sd: float) -> float:
    """ln E e^{cμ}, μ held to [-1, 1]."""
    with mpmath.workdps(800):
        c, m, s = mpmath.mpf(steepness), mpmath.mpf(mean), mpmath.mpf(sd)
        below, above = tails(mpmath.mpf(-1), mpmath.mpf(1), mean, sd)
        tilted = [mpmath.ncdf((end - m) / s - c * s) for end in (-1, 1)]
        inside = mpmath.exp(c * m + (c * s) ** 2 / 2) * (tilted[1] - tilted[0])
        return float(mpmath.log(below * mpmath.exp(-c) + above * mpmath.exp(c) + inside))


@pytest.mark.parametrize("steepness", [3.0, 10.0, 50.0, 300.0])
@pytest.mark.parametrize("sd", [1e-3, 0.03, 0.2, 1.0, 30.0])
def test_a_steep_smooth_function_of_the_users_own(steepness: float, sd: float) -> None:
    """e^{cμ} held to [-1, 1]: its peak is at mean + c sd², or at an end of the range."""
    merit = Custom(
        lambda mu: math.exp(steepness * mu),
        minimum_merit=0.9 * math.exp(-steepness),
        lipschitz_constant=1.1 * steepness * math.exp(steepness),
    )
    for mean in (-1.3, -0.9, 0.1, 1.3):
        wanted = exponential(steepness, mean, sd)
        assert found(merit, mean, sd) == pytest.approx(wanted, rel=1e-12, abs=SMOOTH)


Points = tuple[tuple[float, float], ...]


def lines(points: Points) -> Custom:
    """A merit that is linear between (μ, f(μ))."""
    knots, values = zip(*points, strict=True)

    def function(mu: float) -> float:
        for k in range(len(knots) - 1):
            if mu <= knots[k + 1]:
                part = (mu - knots[k]) / (knots[k + 1] - knots[k])
                return values[k] + part * (values[k + 1] - values[k])
        return values[-1]

    steepest = np.abs(np.diff(values) / np.diff(knots)).max()
    return Custom(
        function,
        minimum_merit=min(values),
        lipschitz_constant=1.01 * float(steepest),
        reward_range=(knots[0], knots[-1]),
    )


@oracle
def expected_lines(points: Points, mean: float, sd: float, digits: int = 60) -> float:
    """ln E f of such a merit."""
    with mpmath.workdps(digits):
        m, s = mpmath.mpf(mean), mpmath.mpf(sd)
        total = mpmath.mpf(0)
        for (a, at_a), (b, at_b) in itertools.pairwise(points):
            left, right = (a - m) / s, (b - m) / s
            slope = (mpmath.mpf(at_b) - at_a) / (mpmath.mpf(b) - a)
            total += (at_a + slope * (m - a)) * (mpmath.ncdf(right) - mpmath.ncdf(left))
            total += slope * s * (mpmath.npdf(left) - mpmath.npdf(right))
        below, above = tails(mpmath.mpf(points[0][0]), mpmath.mpf(points[-1][0]), mean, sd)
        return float(mpmath.log(total + below * points[0][1] + above * points[-1][1]))


KINKS: list[Points] = [
    ((-1.0, 0.3), (0.2, 0.3), (1.0, 2.0)),
    ((-1.0, 1.0), (0.0, 0.1), (0.3, 3.0), (1.0, 0.2)),
    ((0.0, 1e-6), (0.5, 1e-6), (0.6, 1.0), (1.0, 1.0)),
    ((-1.0, 0.05), (-0.5, 0.05), (-0.4, 1.0), (0.1, 0.8), (0.3, 3.0), (0.6, 3.0), (1.0, 0.4)),
    tuple((k / 30.5 - 1.0, 2.0 if k % 2 else 0.5) for k in range(62)),
]


@pytest.mark.long
@pytest.mark.parametrize("points", KINKS, ids=lambda points: f"{len(points) - 2} kinks")
def test_kinks_wherever_they_are(points: Points) -> None:
    rng, merit = np.random.default_rng(0), lines(points)
    for mean, sd in zip(rng.uniform(-1.2, 1.4, 200), 10 ** rng.uniform(-2.5, 1.0, 200), strict=True):
        assert found(merit, mean, sd) == pytest.approx(expected_lines(points, mean, sd), abs=KINKED)


def test_a_peak_that_the_search_misses_is_found_by_a_panel() -> None:
    """1e400 times the rest, between two points of the search. Without a new scale it would overflow."""
    points = ((-1.0, 1e-200), (0.2525, 1e-200), (0.3125, 1e200), (0.3725, 1e-200), (1.0, 1e-200))
    for mean, sd in ((-0.5, 0.1), (0.0, 1.0), (0.9, 0.05)):
        wanted = expected_lines(points, mean, sd)
        assert found(lines(points), mean, sd) == pytest.approx(wanted, abs=KINKED)


def test_a_budget_bounds_the_work_and_not_the_answer() -> None:
    """A saw of 400 teeth with mean 1, which jumps at each: more than the budget resolves."""
    calls = [0]

    def saw(mu: float) -> float:
        calls[0] += 1
        return 1.0 + (200.0 * mu) % 1.0 - 0.5

    merit = Custom(saw, minimum_merit=0.5, lipschitz_constant=1e6)
    calls[0] = 0
    assert found(merit, 0.1, 0.3) == pytest.approx(0.0, abs=0.01)
    assert calls[0] < 2 * quadrature.MOST_PANELS * (quadrature.DEGREE + 1)


@oracle
def logistic(steepness: float, midpoint: float, floor: float, mean: float, sd: float) -> float:
    """ln E f by mpmath's quadrature, in panels that narrow towards the bend and the mean."""
    with mpmath.workdps(30):
        m, s, c, middle = (mpmath.mpf(number) for number in (mean, sd, steepness, midpoint))
        peak = m + min(c * s**2, max(middle - m, mpmath.mpf(0)))  # of the sigmoid times the density
        marks = {m, middle, peak}
        for start, scale in ((m, s), (peak, s), (middle, 1 / c), (peak, 1 / c)):
            marks |= {start + sign * scale * width for sign in (-1, 1) for width in (0.5, 1, 2, 4, 8, 16, 32)}
        ends = sorted(mark for mark in marks if abs(mark - m) <= 45 * s)

        def integrand(value: mpmath.mpf) -> mpmath.mpf:
            return mpmath.npdf(value, m, s) / (1 + mpmath.exp(-c * (value - middle)))

        return float(mpmath.log(floor + mpmath.quad(integrand, ends)))


@pytest.mark.parametrize("steepness", [1e-3, 10.0, 1e3])
@pytest.mark.parametrize("floor", [0.05, 1e-12, 1e-300])
@pytest.mark.parametrize("sd", [1e-9, 0.05, 0.3, 10.0])
def test_a_logistic_of_any_steepness_and_floor(steepness: float, floor: float, sd: float) -> None:
    merit = Logistic(steepness, 0.5, floor)
    for mean in (-0.5, 0.2, 0.5, 0.9):
        wanted = logistic(steepness, 0.5, floor, mean, sd)
        close = SMOOTH if steepness * sd < 10 else KINKED  # seen from afar a steep logistic is a jump
        assert found(merit, mean, sd) == pytest.approx(wanted, rel=1e-12, abs=close)


@pytest.mark.parametrize(
    ("offset", "slope", "low", "high"),
    [
        (0.1, 1.0, 0.0, 1.0),
        (1e-300, 1.0, 0.0, 1.0),
        (1e-12, 1e3, 0.0, 1.0),
        (3.0, 0.5, -2.0, 4.0),
        (0.1, 0, 0, 1),
    ],
)
@pytest.mark.parametrize("sd", [1e-9, 0.03, 0.3, 10.0, 1e5, 1e12])
def test_an_affine_merit_does_not_cancel(
    offset: float, slope: float, low: float, high: float, sd: float
) -> None:
    merit = Affine(offset, slope, (low, high))
    with mpmath.workdps(700):
        points = tuple((end, mpmath.mpf(offset) + mpmath.mpf(slope) * end) for end in (low, high))
    for mean in (-0.9, -0.2, 0.0, 0.4, 1.0, 3.0, 1e6):
        wanted = expected_lines(points, mean, sd, 700)
        assert found(merit, mean, sd) == pytest.approx(wanted, rel=1e-12, abs=1e-11)


def test_the_normal_tail_in_logarithms() -> None:
    for z in (-1e5, -200.0, -38.0, -30.001, -29.999, -8.0, 0.0, 3.0, 40.0, math.inf):
        wanted = float(mpmath.log(mpmath.ncdf(z))) if z < math.inf else 0.0
        assert log_normal_below(z) == pytest.approx(wanted, rel=1e-12, abs=1e-15)
    assert log_normal_below(-math.inf) == -math.inf
