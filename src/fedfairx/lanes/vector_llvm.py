"""Vectors in compiled code: their Numba types, and the LLVM code of their operators."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.core.typeconv.castgraph import Conversion
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import lower_builtin, lower_cast, register_model

#: Lanes of a block: two of the widest registers, so that one works while the other waits for a result.
WIDTH = 16


class VectorType(types.Type):
    """A float for every lane of a block."""

    def __init__(self) -> None:
        super().__init__(name="Vector")

    def can_convert_from(self, typingctx: Any, other: Any) -> Any:  # noqa: ARG002
        return Conversion.safe if other == types.float64 else None

    def unify(self, typingctx: Any, other: Any) -> Any:  # noqa: ARG002
        return self if other == types.float64 else None


class WordsType(types.Type):
    """A 64-bit integer for every lane of a block."""

    def __init__(self) -> None:
        super().__init__(name="Words")

    def can_convert_from(self, typingctx: Any, other: Any) -> Any:  # noqa: ARG002
        return Conversion.safe if other == types.uint64 else None


vector, words = VectorType(), WordsType()
#: The LLVM type of a number, and of a block of them.
LLVM = {
    vector: ir.VectorType(ir.DoubleType(), WIDTH),
    words: ir.VectorType(ir.IntType(64), WIDTH),
    types.float64: ir.DoubleType(),
    types.uint64: ir.IntType(64),
}


@register_model(VectorType)
@register_model(WordsType)
class _Model(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, LLVM[fe_type])


@lower_cast(types.Float, VectorType)
@lower_cast(types.Integer, WordsType)
def _spread(context: Any, builder: Any, fromty: Any, toty: Any, value: Any) -> Any:  # noqa: ARG001
    """Broadcast a number to all lanes."""
    empty = ir.Constant(LLVM[toty], ir.Undefined)
    first = builder.insert_element(empty, value, ir.IntType(32)(0))
    return builder.shuffle_vector(
        first, empty, ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    )


def _register(symbol: Any, kind: Any, arguments: int, emit: Callable[..., Any]) -> None:
    class VectorTyping(ConcreteTemplate):
        key = symbol
        cases = (signature(*(kind,) * (arguments + 1)),)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:  # noqa: ARG001
        return emit(builder, *args)

    infer_global(symbol)(VectorTyping)
    lower_builtin(symbol, *(kind,) * arguments)(lower)


_register(operator.add, vector, 2, ir.IRBuilder.fadd)
_register(operator.sub, vector, 2, ir.IRBuilder.fsub)
_register(operator.mul, vector, 2, ir.IRBuilder.fmul)
_register(operator.truediv, vector, 2, ir.IRBuilder.fdiv)
_register(operator.neg, vector, 1, ir.IRBuilder.fneg)
_register(operator.add, words, 2, ir.IRBuilder.add)
_register(operator.mul, words, 2, ir.IRBuilder.mul)
_register(operator.xor, words, 2, ir.IRBuilder.xor)
_register(operator.and_, words, 2, ir.IRBuilder.and_)
_register(operator.or_, words, 2, ir.IRBuilder.or_)
_register(operator.lshift, words, 2, ir.IRBuilder.shl)
_register(operator.rshift, words, 2, ir.IRBuilder.lshr)
