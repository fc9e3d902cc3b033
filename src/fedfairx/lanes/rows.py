"""Arrays whose items are numbers of a stage: floats of one lane, or Vectors of a block (see `vector`).

    theta[j]                 the float, or the Vector, at j; `theta[j] = …` puts one there
    square[i]                with fewer indices than it has axes: the rows below, in the same memory
    floats(array)            rows of one lane, of a NumPy array that has no lanes
    vectors(array)           rows of a block, of a NumPy array whose last axis are WIDTH lanes
    cut(rows, 3, d)          the first 3·d of flat rows, as (3, d), and what is left: how memory is laid out
    by_lane(rows)            the same numbers with the lane as a last axis, for what takes lanes one by one
    flat(rows)               all of its numbers, as floats of one lane
    blocks(rows)             flat floats as Vectors, from the first address on that a Vector divides
    run_at, put_run          WIDTH neighbours among floats, as one Vector
    one_lane(rows)           whether the numbers are floats; known while compiling

To compiled code such rows are an address and a shape. They own nothing, indices are neither negative nor
checked, and memory has no gaps. `Rows` is what they are in plain Python: where nothing is compiled, and where
Python hands rows to a compiled function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fedfairx.lanes.vector_llvm import WIDTH

Index = int | tuple[int, ...]


class Rows:
    """Rows in plain Python: a NumPy array, and whether its last axis are the lanes."""

    def __init__(self, array: Any, wide: bool) -> None:
        self.array, self.wide = array, wide

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.array.shape
        return shape[:-1] if self.wide else shape

    def __getitem__(self, index: Index) -> Any:
        part = self.array[index]
        if part.ndim > self.wide:
            return Rows(part, self.wide)
        return part.copy() if self.wide else part

    def __setitem__(self, index: Index, value: Any) -> None:
        self.array[index] = value

    def cut(self, shape: tuple[int, ...]) -> tuple[Rows, Rows]:
        size, lanes = math.prod(shape), self.array.shape[1:]
        return Rows(self.array[:size].reshape(*shape, *lanes), self.wide), Rows(self.array[size:], self.wide)


class _Ruler(Rows):
    """Unlimited memory that counts what is cut off."""

    def __init__(self) -> None:
        super().__init__(np.empty(0), False)
        self.count = 0

    def cut(self, shape: tuple[int, ...]) -> tuple[Rows, Rows]:
        self.count += math.prod(shape)
        return Rows(np.broadcast_to(0.0, shape), False), self


@cache  # an agent asks for the same few sizes each time
def size_of(layout: Callable[..., Any], *arguments: Any) -> int:
    """Number of rows that a layout cuts off its first argument."""
    ruler = _Ruler()
    layout(ruler, *arguments)
    return ruler.count


def zeros(*shape: int, dtype: Any = np.float64) -> Any:
    """np.zeros at an address that a Vector divides: one that straddles two cache lines costs twice."""
    size, item = math.prod(shape), np.dtype(dtype).itemsize
    line = WIDTH * item
    memory = np.zeros(size * item + line, dtype=np.uint8)
    first = -memory.ctypes.data % line
    return memory[first : first + size * item].view(dtype).reshape(shape)


def floats(array: Any) -> Rows:
    return Rows(array, False)


def vectors(array: Any) -> Rows:
    return Rows(array, True)


def cut(rows: Rows, *shape: int) -> tuple[Rows, Rows]:
    return rows.cut(shape)


def by_lane(rows: Rows) -> Rows:
    return Rows(rows.array if rows.wide else rows.array[..., None], False)


def flat(rows: Rows) -> Rows:
    return Rows(rows.array.reshape(-1), False)


def blocks(rows: Rows) -> Rows:
    count = max(rows.array.size // WIDTH - 1, 0)  # as if one were lost to the address
    return Rows(rows.array[: count * WIDTH].reshape(-1, WIDTH), True)


def run_at(rows: Rows, *indices: int) -> float:
    first = indices[-1]
    run: float = rows.array[(*indices[:-1], slice(first, first + WIDTH))].copy()
    return run


def put_run(value: float, rows: Rows, *indices: int) -> None:
    first = indices[-1]
    rows.array[(*indices[:-1], slice(first, first + WIDTH))] = value


def one_lane(rows: Rows) -> bool:
    return not rows.wide
