"""The one kind of array that the package computes with, and how it is made of what a caller gives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Coordinates = NDArray[np.int64]


def as_floats(values: object) -> Array | None:
    """An array of floats, whatever its shape; None where it is none, or would lose its imaginary part.

    NumPy only warns of the latter, and goes on with half of the numbers.
    """
    try:
        given = np.asarray(values)
        odd = given.dtype.kind == "O" and any(np.iscomplexobj(item) for item in given.flat)
        if odd or np.iscomplexobj(given):
            return None
        return np.ascontiguousarray(given, dtype=np.float64) if given.ndim else given.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
