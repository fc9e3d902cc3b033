"""Warnings about an agent's records: too many are clipped, or contexts are far too long.

A warning instead of a log entry: it is seen without any setup, can be silenced or turned into an error by its
class, and points to the caller's line. It names counts, which the owner may know
(docs/explanation/privacy.md), and no context or reward.
"""

from __future__ import annotations

import inspect
import warnings

import numpy as np

from fedfairx.errors import ClippingWarning, ScaleWarning
from fedfairx.privacy import Privatizer
from fedfairx.util.arrays import Array

TOLERATED = 0.01  # share of the records
ENOUGH = 100  # records before the first warning
LOOKS = 8  # calls whose contexts are checked
FAR = 10.0  # times the expected length


def warn_caller(text: str, kind: type[Warning]) -> None:
    """Warn, and name the line of the first caller outside this package."""
    frame, levels = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("fedfairx."):
        frame, levels = frame.f_back, levels + 1
    warnings.warn(text, kind, stacklevel=levels)


class ClippingWatch:
    """Counts an agent's records, and how many its privatizer clips; warns once."""

    def __init__(self, privatizer: Privatizer) -> None:
        self._privatizer = privatizer
        self._before = privatizer.clipped
        self._records = 0
        self._warned = False

    def look(self, records: int = 1) -> None:
        """Count `records` more, and warn if too many were clipped."""
        if self._warned:
            return
        self._records += records
        clipped = self._privatizer.clipped - self._before
        if self._records < ENOUGH or clipped <= TOLERATED * self._records:
            return
        self._warned = True
        warn_caller(
            f"{clipped} of {self._records} records were clipped to this agent's bounds, more than "
            f"{TOLERATED:.0%}: what is learnt from them is biased, whatever epsilon is. The guarantee holds. "
            "Wider bounds must be chosen without looking at private data, and need a new budget or new terms",
            ClippingWarning,
        )


class ScaleWatch:
    """Checks the length of contexts until it has warned once. `expected` is the length to expect."""

    def __init__(self, expected: float) -> None:
        self._limit = FAR * expected
        self.warning: str | None = None

    def look(self, rows: Array) -> None:
        """Warn if one of these finite contexts (K, d) is far too long."""
        if self.warning is not None or float(np.einsum("kj,kj->k", rows, rows).max()) <= self._limit**2:
            return
        self.warning = (
            f"contexts are longer than {self._limit:g}, far beyond what this agent's prior or confidence "
            "expects: it will learn slowly or starve actions. Scale them (fedfairx.features.unit_ball, or "
            "features with ranges), or give a prior with a smaller sd (rule='optimism': a confidence with a "
            "smaller parameter_norm)"
        )
        warn_caller(self.warning, ScaleWarning)
