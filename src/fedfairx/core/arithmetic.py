"""Arithmetic that vectorises over lanes and gives the same bits in a vector, in a tail and alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fedfairx.core.compile import COMPILING, stage

LOG2_E = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01  # ln 2 in two parts, so that x - n ln 2 is exact (Cody and Waite)
LN2_LOW = 1.90821492927058770002e-10
SMALLEST = -708.0  # exp below this is subnormal; such an arm is given exp(SMALLEST) > 0 instead


@intrinsic
def _power_of_two(typingctx: Any, n: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        integer = builder.fptosi(args[0], ir.IntType(64))
        biased = builder.add(integer, ir.Constant(ir.IntType(64), 1023))
        bits = builder.shl(biased, ir.Constant(ir.IntType(64), 52))
        return builder.bitcast(bits, ir.DoubleType())

    return types.float64(types.float64), generate


@intrinsic
def _fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.fma(args[0], args[1], args[2])

    return types.float64(types.float64, types.float64, types.float64), generate


def _plain_power_of_two(n: float) -> float:
    return math.ldexp(1.0, int(n))


def _plain_fma(a: float, b: float, c: float) -> float:
    return a * b + c


#: 2ⁿ for a whole float n in [-1022, 1023], by writing the exponent bits.
power_of_two = cast(Callable[[float], float], _power_of_two if COMPILING else _plain_power_of_two)

#: a·b + c, rounded once. Explicit, because a compiler left to choose may choose differently in the vector and
#: in the tail of a loop, and a lane's bits would depend on its place.
fma = cast(Callable[[float, float, float], float], _fma if COMPILING else _plain_fma)


@stage
def exp(x: float) -> float:
    """e^x for x ≤ 0 (and a little above), to about one unit in the last place, never zero.

    Below `SMALLEST` it stays at e^SMALLEST ≈ 3e-308: a probability made from it is positive.
    """
    x = max(x, SMALLEST)
    n = np.floor(fma(x, LOG2_E, 0.5))
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
