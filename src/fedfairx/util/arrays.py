"""The array type of the package, and conversion of a caller's values to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Coordinates = NDArray[np.int64]


def as_floats(values: object) -> Array | None:
    """Convert to an array of floats of any shape; None for values that are not real numbers.

    NumPy would only warn about complex numbers, and drop their imaginary parts.
    """
    try:
        given = np.asarray(values)
        odd = given.dtype.kind == "O" and any(np.iscomplexobj(item) for item in given.flat)
        if odd or np.iscomplexobj(given):
            return None
        return np.ascontiguousarray(given, dtype=np.float64) if given.ndim else given.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
