"""Log merits of many means at once, for whoever looks back at decisions."""

from __future__ import annotations

import numpy as np

from fedfairx.arrays import Array
from fedfairx.core.merit import Exponential, Merit
from fedfairx.core.merit_table import log_value, table
from fedfairx.lanes.compile import stage
from fedfairx.lanes.rows import floats


@stage
def _fill(merit: Array, means: Array, values: Array) -> None:
    rows = floats(merit)
    for k in range(means.shape[0]):
        values[k] = log_value(rows, 0, means[k])


def log_merit_values(merit: Merit, means: Array) -> Array:
    """log f(μ) of every mean, whatever the shape: f itself may be beyond a float."""
    if isinstance(merit, Exponential):  # nothing to compile
        return merit.steepness * means
    values = np.empty(means.size)
    _fill(table([merit]), np.ascontiguousarray(means).reshape(-1), values)
    return values.reshape(means.shape)
