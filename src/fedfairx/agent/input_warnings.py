"""Tells an agent's owner when clipping moves too many of its records.

A warning and no log entry: it is seen without setting anything up, it can be silenced or made an error by its
class, and it says where in the owner's code the agent is used. It names counts, which are the owner's to know
(docs/explanation/privacy.md), and no context or reward.
"""

from __future__ import annotations

import inspect
import warnings

import numpy as np

from fedfairx.errors import ClippingWarning, ScaleWarning
from fedfairx.privacy import Privatizer
from fedfairx.util.arrays import Array

TOLERATED = 0.01  # of the records
ENOUGH = 100  # records before anything is said


class ClippingWatch:
    """Counts the records that an agent gives its privatizer and how many are clipped; speaks once."""

    def __init__(self, privatizer: Privatizer) -> None:
        self._privatizer = privatizer
        self._before = privatizer.clipped
        self._records = 0
        self._said = False

    def look(self, records: int = 1) -> None:
        """After so many more records: warn whoever called the agent's method that calls this."""
        if self._said:
            return
        self._records += records
        clipped = self._privatizer.clipped - self._before
        if self._records < ENOUGH or clipped <= TOLERATED * self._records:
            return
        self._said = True
        warnings.warn(
            f"{clipped} of {self._records} records were clipped to this agent's bounds, more than "
            f"{TOLERATED:.0%}: what is learnt from them is biased, whatever epsilon is. What is promised "
            "holds. Wider bounds must be chosen without looking at private data, and need a new budget or "
            "new terms",
            ClippingWarning,
            stacklevel=levels_to_caller(),
        )


LOOKS = 8  # calls that are looked at
FAR = 10.0  # times the length that is expected


def levels_to_caller() -> int:
    """For `warnings.warn` where this is called: how far up it is to the first frame that is not ours."""
    frame, levels = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("fedfairx."):
        frame, levels = frame.f_back, levels + 1
    return levels


class ScaleWatch:
    """Looks at contexts until it has spoken once. `expected` is their length, as the agent expects it."""

    def __init__(self, expected: float) -> None:
        self._limit = FAR * expected
        self._said = False

    def look(self, rows: Array) -> None:
        """Contexts (K, d), all finite: warn whoever called the agent's method that calls this."""
        if self._said or float(np.einsum("kj,kj->k", rows, rows).max()) <= self._limit**2:
            return
        self._said = True
        warnings.warn(
            f"contexts are longer than {self._limit:g}, far beyond what this agent's prior or confidence "
            "expects: it will learn slowly or starve arms. Scale them (fedfairx.features.unit_ball), or give "
            "a prior with a smaller sd (rule='optimism': a confidence with a smaller parameter_norm)",
            ScaleWarning,
            stacklevel=levels_to_caller(),
        )
