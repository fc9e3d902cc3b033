"""What the operations of `vector` are without compilation: the same on floats and on NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedfairx.lanes.registers import WIDTH


def load(lanes: Any, array: Any, *indices: int) -> Any:
    return array[(*indices, 0)] if lanes is None else array[indices].copy()


def store(value: Any, lanes: Any, array: Any, *indices: int) -> None:  # noqa: ARG001
    array[indices] = value


def _run(indices: tuple[int, ...]) -> tuple[Any, ...]:
    return (*indices[:-1], slice(indices[-1], indices[-1] + WIDTH))


def load_run(array: Any, *indices: int) -> Any:
    return array[_run(indices)].copy()


def store_run(value: Any, array: Any, *indices: int) -> None:
    array[_run(indices)] = value


def where(x: Any, y: Any, yes: Any, no: Any) -> Any:
    return np.where(x > y, yes, no)[()]


def fma(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def bits(value: Any) -> Any:
    return np.float64(value).view(np.uint64) if np.ndim(value) == 0 else value.view(np.uint64)


def from_bits(value: Any) -> Any:
    return np.uint64(value).view(np.float64) if np.ndim(value) == 0 else value.view(np.float64)
