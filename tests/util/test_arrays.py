"""What becomes an array of floats, and what does not."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from fedfairx.util.arrays import as_floats


@pytest.mark.parametrize(
    ("values", "shape"), [([[1, 2], [3, 4]], (2, 2)), (0.5, ()), ([], (0,)), (np.array([True]), (1,))]
)
def test_numbers(values: Any, shape: tuple[int, ...]) -> None:
    made = as_floats(values)
    assert made is not None
    assert made.shape == shape
    assert made.dtype == np.float64
    assert made.flags.c_contiguous


@pytest.mark.parametrize(
    "values",
    [
        [[1.0], [1.0, 2.0]],
        ["high"],
        [10**400],
        {"a": 1.0},
        1j,
        np.array([1.0 + 0.0j]),
        np.array([1.0, np.complex64(1j)], dtype=object),
    ],
)
def test_no_numbers(values: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert as_floats(values) is None
