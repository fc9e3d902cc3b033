"""A block of lanes in registers: the number type of the stages.

A stage is written as if for one number. Handed one lane, its numbers are floats; handed a block of
WIDTH lanes, each of them is a `Vector`, which LLVM keeps in two registers where the machine has the widest
and in four or eight where it has not. The operations and their order are the same, so a lane's bits depend
neither on its neighbours nor on whether it has any. Without compilation a `Vector` is a NumPy array.

    load, store                 a row of an array whose last axis is the lane
    load_run, store_run         WIDTH neighbours in an array that has no lanes
    + - * / and unary -         as for floats; a float beside a Vector stands for equal numbers
    where_above(x, y, yes, no)  yes where x > y, else no
    all_above, any_above        whether x > y in every, in some lane

`Words` are as many 64-bit integers, for random numbers and for the bits of a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from fedfairx.lanes import uncompiled
from fedfairx.lanes.compile import COMPILING
from fedfairx.lanes.registers import LLVM, WIDTH, vector, words


def zeros(*shape: int, dtype: Any = np.float64) -> Any:
    """np.zeros at an address that a Vector divides: one that straddles two cache lines costs twice."""
    size, item = math.prod(shape), np.dtype(dtype).itemsize
    line = WIDTH * item
    memory = np.zeros(size * item + line, dtype=np.uint8)
    first = -memory.ctypes.data % line
    return memory[first : first + size * item].view(dtype).reshape(shape)


def _wide(*kinds: Any) -> Any:
    """Vector if one of these types is; float64 otherwise."""
    return vector if vector in kinds else types.float64


def _elementwise(emit: Callable[..., Any]) -> Callable[..., Any]:
    """An intrinsic over floats or Vectors; `emit(builder, kind, *values)` writes it."""

    def generic(typingctx: Any, *kinds: Any) -> Any:  # noqa: ARG001
        kind = _wide(*kinds)

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            cast_ = (context.cast(builder, a, f, kind) for a, f in zip(args, sig.args, strict=True))
            return emit(builder, kind, *cast_)

        return kind(*kinds), generate

    return generic


def _call(name: str) -> Callable[..., Any]:
    """`emit` that calls LLVM's own function of this name."""

    def emit(builder: Any, kind: Any, *values: Any) -> Any:
        shape = f"v{WIDTH}f64" if kind == vector else "f64"
        function = ir.FunctionType(LLVM[kind], [LLVM[kind]] * len(values))
        return builder.call(
            cgutils.get_or_insert_function(builder.module, function, f"llvm.{name}.{shape}"), values
        )

    return emit


_emit_fma, _emit_sqrt, _emit_floor, _emit_abs = map(_call, ("fma", "sqrt", "floor", "fabs"))


@intrinsic
def _fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    return _elementwise(_emit_fma)(typingctx, a, b, c)


@intrinsic
def _sqrt(typingctx: Any, a: Any) -> Any:
    return _elementwise(_emit_sqrt)(typingctx, a)


@intrinsic
def _floor(typingctx: Any, a: Any) -> Any:
    return _elementwise(_emit_floor)(typingctx, a)


@intrinsic
def _absolute(typingctx: Any, a: Any) -> Any:
    return _elementwise(_emit_abs)(typingctx, a)


@intrinsic
def _larger(typingctx: Any, a: Any, b: Any) -> Any:
    def emit(builder: Any, kind: Any, x: Any, y: Any) -> Any:  # noqa: ARG001
        return builder.select(builder.fcmp_ordered(">", x, y), x, y)

    return _elementwise(emit)(typingctx, a, b)


@intrinsic
def _smaller(typingctx: Any, a: Any, b: Any) -> Any:
    def emit(builder: Any, kind: Any, x: Any, y: Any) -> Any:  # noqa: ARG001
        return builder.select(builder.fcmp_ordered("<", x, y), x, y)

    return _elementwise(emit)(typingctx, a, b)


@intrinsic
def _where_above(typingctx: Any, x: Any, y: Any, yes: Any, no: Any) -> Any:
    def emit(builder: Any, kind: Any, x: Any, y: Any, yes: Any, no: Any) -> Any:  # noqa: ARG001
        return builder.select(builder.fcmp_ordered(">", x, y), yes, no)

    return _elementwise(emit)(typingctx, x, y, yes, no)


def _test(every: bool) -> Callable[..., Any]:
    def generic(typingctx: Any, x: Any, y: Any) -> Any:  # noqa: ARG001
        kind = _wide(x, y)

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            a, b = (context.cast(builder, v, f, kind) for v, f in zip(args, sig.args, strict=True))
            flags = builder.fcmp_ordered(">", a, b)
            if kind != vector:
                return flags
            bits = builder.bitcast(flags, ir.IntType(WIDTH))
            return builder.icmp_unsigned("==" if every else "!=", bits, ir.IntType(WIDTH)(-1 if every else 0))

        return types.boolean(x, y), generate

    return generic


@intrinsic
def _all_above(typingctx: Any, x: Any, y: Any) -> Any:
    return _test(every=True)(typingctx, x, y)


@intrinsic
def _any_above(typingctx: Any, x: Any, y: Any) -> Any:
    return _test(every=False)(typingctx, x, y)


def _pointer(context: Any, builder: Any, sig: Any, args: Any, at: int, kind: Any, *more: Any) -> Any:
    """Where array[indices, *more] lies, as a place for a `kind`; args[at:] are the array and the indices.

    Indices are never negative.
    """
    each = zip(cgutils.unpack_tuple(builder, args[at + 1]), sig.args[at + 1], strict=True)
    places = [context.cast(builder, index, index_kind, types.intp) for index, index_kind in each]
    view = context.make_array(sig.args[at])(context, builder, args[at])
    pointer = cgutils.get_item_pointer(
        context, builder, sig.args[at], view, [*places, *more], wraparound=False
    )
    return builder.bitcast(pointer, LLVM[kind].as_pointer())


def _one_or_block(lanes: Any, array: Any) -> Any:
    if isinstance(lanes, types.NoneType):
        return array.dtype
    if lanes != types.Tuple(()):
        raise TypingError(f"lanes must be None or BLOCK, got {lanes}")
    return {types.float64: vector, types.uint64: words}[array.dtype]


@intrinsic
def _load(typingctx: Any, lanes: Any, array: Any, *indices: Any) -> Any:  # noqa: ARG001
    kind = _one_or_block(lanes, array)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        first = context.get_constant(types.intp, 0)
        return builder.load(_pointer(context, builder, sig, args, 1, kind, first), align=8)

    return kind(lanes, array, types.BaseTuple.from_types(indices)), generate


@intrinsic
def _store(typingctx: Any, value: Any, lanes: Any, array: Any, *indices: Any) -> Any:  # noqa: ARG001
    kind = _one_or_block(lanes, array)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        first = context.get_constant(types.intp, 0)
        number = context.cast(builder, args[0], sig.args[0], kind)
        builder.store(number, _pointer(context, builder, sig, args, 2, kind, first), align=8)
        return context.get_dummy_value()

    return types.none(value, lanes, array, types.BaseTuple.from_types(indices)), generate


@intrinsic
def _item(typingctx: Any, array: Any, *indices: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, sig, args, 0, array.dtype), align=8)

    return array.dtype(array, types.BaseTuple.from_types(indices)), generate


@intrinsic
def _load_run(typingctx: Any, array: Any, *indices: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, sig, args, 0, vector), align=8)

    return vector(array, types.BaseTuple.from_types(indices)), generate


@intrinsic
def _store_run(typingctx: Any, value: Any, array: Any, *indices: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        number = context.cast(builder, args[0], sig.args[0], vector)
        builder.store(number, _pointer(context, builder, sig, args, 1, vector), align=8)
        return context.get_dummy_value()

    return types.none(value, array, types.BaseTuple.from_types(indices)), generate


def _reinterpret(single: Any, wide: Any, other_single: Any, other_wide: Any) -> Callable[..., Any]:
    def generic(typingctx: Any, value: Any) -> Any:  # noqa: ARG001
        target = other_wide if value == wide else other_single
        source = wide if value == wide else single

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            number = context.cast(builder, args[0], sig.args[0], source)
            return builder.bitcast(number, LLVM[target])

        return target(value), generate

    return generic


@intrinsic
def _bits(typingctx: Any, value: Any) -> Any:
    return _reinterpret(types.float64, vector, types.uint64, words)(typingctx, value)


@intrinsic
def _from_bits(typingctx: Any, value: Any) -> Any:
    return _reinterpret(types.uint64, words, types.float64, vector)(typingctx, value)


def _either(compiled: Any, plain: Any) -> Any:
    return compiled if COMPILING else plain


# To the type checker a Vector is a float: that is how stages are written.
_Unary = Callable[[float], float]
_Binary = Callable[[float, float], float]
_Test = Callable[[float, float], bool]

#: load(lanes, array, i, …): the number, or the Vector, at array[i, …].
load: Callable[..., float] = _either(_load, uncompiled.load)
#: The same for arrays of 64-bit integers.
load_words: Callable[..., np.uint64] = _either(_load, uncompiled.load)
#: store(value, lanes, array, i, …)
store: Callable[..., None] = _either(_store, uncompiled.store)
#: item(array, i, …): the number at array[i, …]; indices are not negative, which saves looking.
item: Callable[..., float] = _either(_item, lambda array, *indices: array[indices])
#: load_run(array, …, i): the Vector of the WIDTH numbers from array[…, i] on, of an array without lanes.
load_run: Callable[..., float] = _either(_load_run, uncompiled.load_run)
#: store_run(value, array, …, i)
store_run: Callable[..., None] = _either(_store_run, uncompiled.store_run)
#: a·b + c, rounded once. Explicit, so that no compiler may choose.
fma: Callable[[float, float, float], float] = _either(_fma, uncompiled.fma)
sqrt: _Unary = _either(_sqrt, np.sqrt)
floor: _Unary = _either(_floor, np.floor)
absolute: _Unary = _either(_absolute, np.abs)
larger: _Binary = _either(_larger, np.maximum)
smaller: _Binary = _either(_smaller, np.minimum)
where_above: Callable[[float, float, float, float], float] = _either(_where_above, uncompiled.where)
all_above: _Test = _either(_all_above, lambda x, y: bool(np.all(x > y)))
any_above: _Test = _either(_any_above, lambda x, y: bool(np.any(x > y)))
#: The 64 bits of a number, and back.
bits: Callable[[float], np.uint64] = _either(_bits, uncompiled.bits)
from_bits: Callable[[np.uint64], float] = _either(_from_bits, uncompiled.from_bits)
