"""Merits of many means at once, for whoever looks back at decisions."""

from __future__ import annotations

import numpy as np

from fedfairx.arrays import Array
from fedfairx.core.merit import Merit
from fedfairx.core.merit_table import merit_value, table
from fedfairx.lanes.compile import stage
from fedfairx.lanes.rows import floats


@stage
def _fill(merit: Array, means: Array, values: Array) -> None:
    rows = floats(merit)
    for k in range(means.shape[0]):
        values[k] = merit_value(rows, 0, means[k])


def merit_values(merit: Merit, means: Array) -> Array:
    """f(μ) of every mean, whatever the shape."""
    values = np.empty(means.size)
    _fill(table([merit]), np.ascontiguousarray(means).reshape(-1), values)
    return values.reshape(means.shape)
