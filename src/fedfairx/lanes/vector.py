"""A block of lanes in registers: the number type of the stages.

A stage is written as if for one number. Handed one lane, its numbers are floats; handed a block of
WIDTH lanes, each of them is a `Vector`, which LLVM keeps in two registers where the machine has the widest
and in four or eight where it has not. The operations and their order are the same, so a lane's bits depend
neither on its neighbours nor on whether it has any. Without compilation a `Vector` is a NumPy array, and the
functions below are what runs.

    + - * / and unary -         as for floats; a float beside a Vector stands for equal numbers
    fma, sqrt, floor, …         the functions of this file
    where_above(x, y, yes, no)  yes where x > y, else no
    all_above, any_above        whether x > y in every, in some lane

`Words` are as many 64-bit integers, for random numbers and for the bits of a number. `rows` has the arrays
that hold such numbers. To the type checker a Vector is a float: that is how stages are written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin

from fedfairx.lanes.vector_llvm import LLVM, WIDTH, vector, words


def fma(a: float, b: float, c: float) -> float:
    """a·b + c, rounded once. Explicit, so that the compiler has no choice."""
    return a * b + c


def sqrt(x: float) -> float:
    return np.sqrt(x)


def floor(x: float) -> float:
    return np.floor(x)


def absolute(x: float) -> float:
    return np.abs(x)


def larger(x: float, y: float) -> float:
    """x where it is above y, else y."""
    return np.maximum(x, y)


def smaller(x: float, y: float) -> float:
    """x where it is below y, else y."""
    return np.minimum(x, y)


def where_above(x: float, y: float, yes: float, no: float) -> float:
    """`yes` where x > y, else `no`."""
    return cast(float, np.where(x > y, yes, no)[()])


def all_above(x: float, y: float) -> bool:
    return bool(np.all(x > y))


def any_above(x: float, y: float) -> bool:
    return bool(np.any(x > y))


def bits(x: float) -> np.uint64:
    """The 64 bits of a number."""
    return cast(np.uint64, np.asarray(x, dtype=np.float64).view(np.uint64)[()])


def from_bits(x: np.uint64) -> float:
    """The number that has these bits."""
    return cast(float, np.asarray(x, dtype=np.uint64).view(np.float64)[()])


# --- what the same functions are to the compiler ---------------------------------------------------------


def _compiles_to(
    symbol: Any,
    emit: Callable[..., Any],
    *,
    result: Any = None,
    numbers: tuple[Any, Any] = (types.float64, vector),
) -> None:
    """Compile `symbol` of numbers or Vectors to the code that `emit(builder, kind, *values)` writes.

    `numbers` are the argument types, scalar and vector; `result` is the pair of result types, if different.
    """
    single, wide = numbers

    class NumbersTyping(AbstractTemplate):
        key = symbol

        def generic(self, args: Any, kws: Any) -> Any:  # noqa: ARG002
            in_block = wide in args
            return signature((result or numbers)[in_block], *args)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = wide if wide in sig.args else single
        values = (context.cast(builder, a, f, kind) for a, f in zip(args, sig.args, strict=True))
        return emit(builder, kind, *values)

    infer_global(symbol)(NumbersTyping)
    lower_builtin(symbol, types.VarArg(types.Any))(lower)


def _call(name: str) -> Callable[..., Any]:
    """`emit` of a call of LLVM's intrinsic function of this name."""

    def emit(builder: Any, kind: Any, *values: Any) -> Any:
        shape = f"v{WIDTH}f64" if kind == vector else "f64"
        kinds = ir.FunctionType(LLVM[kind], [LLVM[kind]] * len(values))
        function = cgutils.get_or_insert_function(builder.module, kinds, f"llvm.{name}.{shape}")
        return builder.call(function, values)

    return emit


def _pick(relation: str) -> Callable[..., Any]:
    """`emit` of the first of two numbers where it stands in this relation to the second, else the second."""
    return lambda builder, _, x, y: builder.select(builder.fcmp_ordered(relation, x, y), x, y)


def _where(builder: Any, _: Any, x: Any, y: Any, yes: Any, no: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", x, y), yes, no)


def _test(relation: str, mask: int) -> Callable[..., Any]:
    """`emit` of whether the lanes in which x > y, as the bits of an integer, stand so to `mask`."""

    def emit(builder: Any, kind: Any, x: Any, y: Any) -> Any:
        flags = builder.fcmp_ordered(">", x, y)
        if kind != vector:
            return flags
        number = ir.IntType(WIDTH)
        return builder.icmp_unsigned(relation, builder.bitcast(flags, number), number(mask))

    return emit


def _reinterpret(builder: Any, kind: Any, x: Any) -> Any:
    """Write the same bits as the other kind of number."""
    other = {words: vector, vector: words, types.uint64: types.float64, types.float64: types.uint64}
    return builder.bitcast(x, LLVM[other[kind]])


_FLOATS, _WORDS, _TRUTHS = (types.float64, vector), (types.uint64, words), (types.boolean, types.boolean)

for _symbol, _name in ((fma, "fma"), (sqrt, "sqrt"), (floor, "floor"), (absolute, "fabs")):
    _compiles_to(_symbol, _call(_name))
_compiles_to(larger, _pick(">"))
_compiles_to(smaller, _pick("<"))
_compiles_to(where_above, _where)
_compiles_to(all_above, _test("==", -1), result=_TRUTHS)
_compiles_to(any_above, _test("!=", 0), result=_TRUTHS)
_compiles_to(bits, _reinterpret, result=_WORDS)
_compiles_to(from_bits, _reinterpret, result=_FLOATS, numbers=_WORDS)
