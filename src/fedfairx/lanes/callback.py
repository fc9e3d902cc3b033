"""C function pointers to user-defined functions, for compiled code to call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fedfairx.lanes.decorators import COMPILING

_INTERPRETED: dict[int, Callable[[float], float]] = {}


class Pointer:
    """A C function pointer to a Python function, compiled where Numba can."""

    def __init__(self, function: Callable[[float], float]) -> None:
        self._keep: Any
        if COMPILING:
            try:
                import numba

                self._keep = numba.cfunc("float64(float64)")(function)
                self.address: int = self._keep.address
            except Exception:  # Numba raises many kinds; any function is still callable from C
                self._keep = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(function)
                self.address = ctypes.cast(self._keep, ctypes.c_void_p).value or 0
        else:
            self.address = id(function)
            _INTERPRETED[self.address] = function


@intrinsic
def _call_pointer(typingctx: Any, address: Any, value: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        function_type = ir.FunctionType(ir.DoubleType(), [ir.DoubleType()])
        pointer = builder.inttoptr(args[0], function_type.as_pointer())
        return builder.call(pointer, [args[1]])

    return types.float64(types.uint64, types.float64), generate


def _call_interpreted(address: np.uint64, value: float) -> float:
    return float(_INTERPRETED[int(address)](value))


#: Call the C function at an address with a number.
call_pointer = cast(Callable[[np.uint64, float], float], _call_pointer if COMPILING else _call_interpreted)
