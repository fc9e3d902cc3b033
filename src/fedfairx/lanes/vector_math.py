"""Elementary functions of a number or a Vector, made of the same operations in both cases.

So they vectorise, and give the same bits for a number and in a Vector.
"""

from __future__ import annotations

import math

import numpy as np

from fedfairx.lanes.decorators import stage
from fedfairx.lanes.vector import bits, floor, fma, from_bits, larger, where_above

LOG2_E = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01  # ln 2 in two parts, so that x - n ln 2 is exact (Cody and Waite)
LN2_LOW = 1.90821492927058770002e-10
SMALLEST = -708.0  # exp below this is subnormal; such an arm is given exp(SMALLEST) > 0 instead

# A whole number n added to 1.5·2⁵² stands in the last bits of the sum.
INTEGER = 6755399441055744.0
BIAS = 1023.0
FRACTION_BITS = np.uint64(52)
FRACTION = np.uint64((1 << 52) - 1)
ONE = np.uint64(1023 << 52)
WHOLE = np.uint64(0x4330000000000000)  # 2⁵²
TWO_52 = 4503599627370496.0

# Taylor coefficients from the last but one down to the first: 1/21, …, 1/3, 1 and 1/19!, …, 1/3!, 1.
ARTANH = tuple(1.0 / k for k in range(21, 0, -2))
SINE = tuple(1.0 / math.factorial(k) for k in range(19, 0, -2))


@stage
def power_of_two(n: float) -> float:
    """2ⁿ for a whole n in [-1022, 1023], by writing the exponent's bits."""
    return from_bits(bits(n + (INTEGER + BIAS)) << FRACTION_BITS)


@stage
def exp(x: float) -> float:
    """e^x for x ≤ 0 (and a little above), to about one unit in the last place, never zero.

    Below `SMALLEST` it stays at e^SMALLEST ≈ 3e-308: a probability made from it is positive.
    """
    x = larger(x, SMALLEST)
    n = floor(fma(x, LOG2_E, 0.5))
    r = fma(-n, LN2_LOW, fma(-n, LN2_HIGH, x))
    # Taylor to r^13 on |r| ≤ ln(2)/2 (the remainder is below 1e-17), by Estrin's scheme: short chains.
    r2 = r * r
    r4 = r2 * r2
    low = fma(r2, fma(r, 1.0 / 6.0, 0.5), fma(r, 1.0, 1.0))
    middle = fma(r2, fma(r, 1.0 / 5040.0, 1.0 / 720.0), fma(r, 1.0 / 120.0, 1.0 / 24.0))
    high = fma(r2, fma(r, 1.0 / 39916800.0, 1.0 / 3628800.0), fma(r, 1.0 / 362880.0, 1.0 / 40320.0))
    top = fma(r, 1.0 / 6227020800.0, 1.0 / 479001600.0)
    series = fma(r4, fma(r4, fma(r4, top, high), middle), low)
    return series * power_of_two(n)


@stage
def log(x: float) -> float:
    """ln x for a positive, normal x, to about one unit in the last place of the larger of ln x and 1."""
    word = bits(x)
    mantissa = from_bits((word & FRACTION) | ONE)  # in [1, 2)
    exponent = from_bits((word >> FRACTION_BITS) | WHOLE) - (TWO_52 + BIAS)
    exponent = where_above(mantissa, math.sqrt(2.0), exponent + 1.0, exponent)
    mantissa = where_above(mantissa, math.sqrt(2.0), 0.5 * mantissa, mantissa)  # in (√½, √2]
    s = (mantissa - 1.0) / (mantissa + 1.0)  # ln m = 2 artanh s
    s2 = s * s
    series = 1.0 / 23.0
    for coefficient in ARTANH:
        series = fma(series, s2, coefficient)
    return fma(exponent, LN2_HIGH, fma(exponent, LN2_LOW, 2.0 * s * series))


@stage
def cosine_of_turn(x: float) -> float:
    """cos 2πx for x in [0, 1], to about 5e-16: 1 - 2 sin²(πy) with y = x less the nearest whole number."""
    y = math.pi * (x - floor(x + 0.5))
    y2 = y * y
    series = 1.0 / 51090942171709440000.0  # 1/21!
    for coefficient in SINE:
        series = fma(-series, y2, coefficient)
    sine = y * series
    return fma(-2.0 * sine, sine, 1.0)
