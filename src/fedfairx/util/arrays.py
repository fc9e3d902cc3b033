"""The array type of the package, and conversion of a caller's values to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfairx.errors import InvalidInput
from fedfairx.util.places import kind_of, place

Array = NDArray[np.float64]
Coordinates = NDArray[np.int64]


def as_floats(values: object) -> Array | None:
    """Convert to an array of floats of any shape; None for values that are not real numbers.

    NumPy would only warn about complex numbers, and drop their imaginary parts.
    """
    try:
        array = np.asarray(values)
        odd = array.dtype.kind == "O" and any(np.iscomplexobj(item) for item in array.flat)
        if odd or np.iscomplexobj(array):
            return None
        return np.ascontiguousarray(array, dtype=np.float64) if array.ndim else array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return None


def not_finite(name: str, values: Array, most: float) -> InvalidInput:
    """The error for an array with numbers that are not finite or larger than `most`: where the first is."""
    bad = ~(np.isfinite(values) & (np.abs(values) <= most))
    at = np.unravel_index(int(bad.argmax()), values.shape)
    kind = kind_of(values[at].item())
    rule = "finite" if np.isinf(most) else f"finite and at most {most:g} in size"
    larger = "a larger number" if kind == "a number" else kind
    return InvalidInput(f"{place(name, *map(int, at))} must be {rule}, got {larger}")


def not_numbers(name: str, rows: object) -> InvalidInput:
    """The error for values of which `as_floats` makes no (K, d) array: where the first odd one is."""
    length: int | None = None
    for index, row in enumerate(rows if isinstance(rows, list | tuple | np.ndarray) else ()):
        numbers = as_floats(row)
        if numbers is None:
            for column, value in enumerate(row if isinstance(row, list | tuple | np.ndarray) else ()):
                number = as_floats(value)
                if number is None or number.ndim:
                    return InvalidInput(
                        f"{place(name, index, column)} must be a number, got {kind_of(value)}"
                    )
        if numbers is None or numbers.ndim != 1:
            return InvalidInput(f"{place(name, index)} must be a list of numbers, got {kind_of(row)}")
        if numbers.size != (length or numbers.size):
            text = f"must be {length} numbers, as the rows before, got {numbers.size}"
            return InvalidInput(f"{place(name, index)} {text}")
        length = numbers.size
    return InvalidInput(f"{name} must be a (K, d) array of numbers, got {kind_of(rows)}")
