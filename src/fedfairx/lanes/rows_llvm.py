"""Rows in compiled code: their Numba type, and the LLVM code of their functions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.errors import TypingError
from numba.core.typing.templates import (
    AbstractTemplate,
    AttributeTemplate,
    infer_getattr,
    infer_global,
    signature,
)
from numba.extending import NativeValue, lower_builtin, lower_getattr, register_model, typeof_impl, unbox
from numba.np.numpy_support import from_dtype

from fedfairx.lanes import rows as plain
from fedfairx.lanes.vector_llvm import LLVM, WIDTH, vector, words

_WIDE = {types.float64: vector, types.uint64: words}
_SINGLE = {wide: single for single, wide in _WIDE.items()}


class RowsType(types.Type):
    """Numba type of rows: an address and a shape of `axes` integers."""

    def __init__(self, number: Any, axes: int) -> None:
        super().__init__(name=f"Rows({number}, {axes})")
        self.number, self.axes = number, axes


@register_model(RowsType)
class _Model(models.StructModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        shape = types.UniTuple(types.intp, fe_type.axes)
        super().__init__(dmm, fe_type, [("data", types.voidptr), ("shape", shape)])


class _Rows:
    """A value of a RowsType during lowering.

    Its parts are taken out of the struct in registers. Numba's proxies would put the struct into memory at
    each index and read it back, which is more code to make and to optimise away.
    """

    def __init__(self, builder: Any, kind: Any, value: Any) -> None:
        self._builder, self.kind = builder, kind
        self.data = builder.bitcast(builder.extract_value(value, 0), LLVM[kind.number].as_pointer())
        self.shape = [builder.extract_value(value, [1, axis]) for axis in range(kind.axes)]

    def at(self, places: list[Any]) -> Any:
        """The address of the row at these indices, in C order."""
        offset = places[0]
        for place, extent in zip(places[1:], self.shape[1:], strict=False):
            offset = self._builder.add(self._builder.mul(offset, extent), place)
        for extent in self.shape[len(places) :]:
            offset = self._builder.mul(offset, extent)
        return self._builder.gep(self.data, [offset])


def _make(context: Any, builder: Any, kind: Any, data: Any, shape: list[Any]) -> Any:
    value = ir.Constant(context.get_value_type(kind), ir.Undefined)
    value = builder.insert_value(value, builder.bitcast(data, cgutils.voidptr_t), 0)
    for axis, extent in enumerate(shape):
        value = builder.insert_value(value, extent, [1, axis])
    return value


def _product(builder: Any, extents: list[Any]) -> Any:
    size = ir.Constant(ir.IntType(64), 1)
    for extent in extents:
        size = builder.mul(size, extent)
    return size


def _integers(context: Any, builder: Any, kinds: Any, values: Any) -> list[Any]:
    return [context.cast(builder, v, k, types.intp) for v, k in zip(values, kinds, strict=True)]


def _places(context: Any, builder: Any, kind: Any, index: Any) -> list[Any]:
    if isinstance(kind, types.BaseTuple):
        return _integers(context, builder, kind, cgutils.unpack_tuple(builder, index))
    return _integers(context, builder, (kind,), (index,))


# --- indices ---------------------------------------------------------------------------------------------


def _count(index: Any) -> int:
    kinds: Any = index if isinstance(index, types.BaseTuple) else (index,)
    return len(kinds) if all(isinstance(kind, types.Integer) for kind in kinds) else 0


@infer_global(operator.getitem)
class _Get(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:  # noqa: ARG002
        kind, index = args
        if isinstance(kind, RowsType) and 0 < _count(index) <= kind.axes:
            left = kind.axes - _count(index)
            return signature(RowsType(kind.number, left) if left else kind.number, kind, index)
        return None


@lower_builtin(operator.getitem, RowsType, types.Any)
def _get(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    rows = _Rows(builder, sig.args[0], args[0])
    places = _places(context, builder, sig.args[1], args[1])
    pointer = rows.at(places)
    if isinstance(sig.return_type, RowsType):
        return _make(context, builder, sig.return_type, pointer, rows.shape[len(places) :])
    return builder.load(pointer, align=8)


@infer_global(operator.setitem)
class _Set(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:  # noqa: ARG002
        kind, index, _ = args
        if isinstance(kind, RowsType) and _count(index) == kind.axes:
            return signature(types.none, kind, index, kind.number)
        return None


@lower_builtin(operator.setitem, RowsType, types.Any, types.Any)
def _set(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    rows = _Rows(builder, sig.args[0], args[0])
    pointer = rows.at(_places(context, builder, sig.args[1], args[1]))
    builder.store(context.cast(builder, args[2], sig.args[2], rows.kind.number), pointer, align=8)
    return context.get_dummy_value()


@infer_getattr
class _Attributes(AttributeTemplate):
    key = RowsType

    def resolve_shape(self, kind: Any) -> Any:
        return types.UniTuple(types.intp, kind.axes)


@lower_getattr(RowsType, "shape")
def _shape(context: Any, builder: Any, kind: Any, value: Any) -> Any:  # noqa: ARG001
    return builder.extract_value(value, 1)


# --- functions -------------------------------------------------------------------------------------------


def _function(symbol: Any, type_of: Callable[..., Any]) -> Callable[..., Any]:
    """Register a function over rows with its typing; decorates its lowering."""

    class RowsTyping(AbstractTemplate):
        key = symbol

        def generic(self, args: Any, kws: Any) -> Any:  # noqa: ARG002
            return signature(type_of(*args), *args)

    infer_global(symbol)(RowsTyping)
    written: Callable[..., Any] = lower_builtin(symbol, types.VarArg(types.Any))
    return written


def _of_array(array: Any, wide: bool) -> Any:
    if not isinstance(array, types.Array) or array.layout != "C":
        raise TypingError(f"rows are made of arrays in C order, got {array}")
    return RowsType(_WIDE[array.dtype] if wide else array.dtype, array.ndim - wide)


def _from_array(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    array = context.make_array(sig.args[0])(context, builder, args[0])
    shape = cgutils.unpack_tuple(builder, array.shape)
    return _make(context, builder, sig.return_type, array.data, shape[: sig.return_type.axes])


_function(plain.floats, lambda array: _of_array(array, wide=False))(_from_array)
_function(plain.vectors, lambda array: _of_array(array, wide=True))(_from_array)


def _cut_types(kind: Any, *shape: Any) -> Any:
    return types.Tuple([RowsType(kind.number, len(shape)), RowsType(kind.number, 1)])


@_function(plain.cut, _cut_types)
def _cut(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    rows = _Rows(builder, sig.args[0], args[0])
    shape = _integers(context, builder, sig.args[1:], args[1:])
    size = _product(builder, shape)
    first = _make(context, builder, sig.return_type[0], rows.data, shape)
    left = builder.sub(rows.shape[0], size)
    rest = _make(context, builder, sig.return_type[1], builder.gep(rows.data, [size]), [left])
    return context.make_tuple(builder, sig.return_type, [first, rest])


@_function(plain.by_lane, lambda kind: RowsType(_SINGLE.get(kind.number, kind.number), kind.axes + 1))
def _by_lane(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    rows = _Rows(builder, sig.args[0], args[0])
    lanes = context.get_constant(types.intp, WIDTH if rows.kind.number in _SINGLE else 1)
    return _make(context, builder, sig.return_type, rows.data, [*rows.shape, lanes])


@_function(plain.flat, lambda kind: RowsType(_SINGLE.get(kind.number, kind.number), 1))
def _flat(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    rows = _Rows(builder, sig.args[0], args[0])
    lanes = context.get_constant(types.intp, WIDTH if rows.kind.number in _SINGLE else 1)
    return _make(context, builder, sig.return_type, rows.data, [_product(builder, [*rows.shape, lanes])])


@_function(plain.blocks, lambda kind: RowsType(_WIDE[kind.number], 1))
def _blocks(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    rows = _Rows(builder, sig.args[0], args[0])
    word = ir.IntType(64)
    address = builder.ptrtoint(rows.data, word)
    line = word(8 * WIDTH)
    first = builder.mul(builder.udiv(builder.add(address, word(8 * WIDTH - 1)), line), line)
    lost = builder.udiv(builder.sub(first, address), word(8))
    whole = builder.sdiv(builder.sub(rows.shape[0], lost), word(WIDTH))
    return _make(context, builder, sig.return_type, builder.gep(rows.data, [lost]), [whole])


def _run(context: Any, builder: Any, sig: Any, args: Any, at: int) -> Any:
    rows = _Rows(builder, sig.args[at], args[at])
    places = _integers(context, builder, sig.args[at + 1 :], args[at + 1 :])
    return builder.bitcast(rows.at(places), LLVM[vector].as_pointer())


@_function(plain.run_at, lambda kind, *index: vector)  # noqa: ARG005
def _run_at(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.load(_run(context, builder, sig, args, 0), align=8)


@_function(plain.put_run, lambda value, kind, *index: types.none)  # noqa: ARG005
def _put_run(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    value = context.cast(builder, args[0], sig.args[0], vector)
    builder.store(value, _run(context, builder, sig, args, 1), align=8)
    return context.get_dummy_value()


@_function(plain.one_lane, lambda kind: types.boolean)  # noqa: ARG005
def _one_lane(context: Any, builder: Any, sig: Any, args: Any) -> Any:  # noqa: ARG001
    return context.get_constant(types.boolean, sig.args[0].number not in _SINGLE)


# --- from Python -----------------------------------------------------------------------------------------


@typeof_impl.register(plain.Rows)
def _typeof(value: Any, context: Any) -> Any:  # noqa: ARG001 (Numba's)
    array = value.array
    return _kind_of(array.dtype, array.ndim, array.flags.c_contiguous, value.wide)


@cache  # asking Numba takes longer than many a function call
def _kind_of(number: Any, axes: int, ordered: bool, wide: bool) -> Any:
    return _of_array(types.Array(from_dtype(number), axes, "C" if ordered else "A"), wide=wide)


@unbox(RowsType)
def _unbox(kind: Any, value: Any, c: Any) -> Any:
    wide = kind.number in _SINGLE
    array_kind = types.Array(_SINGLE.get(kind.number, kind.number), kind.axes + wide, "C")
    owner = c.pyapi.object_getattr_string(value, "array")
    native = c.unbox(array_kind, owner)
    array = c.context.make_array(array_kind)(c.context, c.builder, native.value)
    shape = cgutils.unpack_tuple(c.builder, array.shape)
    rows = _make(c.context, c.builder, kind, array.data, shape[: kind.axes])
    c.pyapi.decref(owner)  # the caller's Rows keep the array
    return NativeValue(rows, is_error=native.is_error)
