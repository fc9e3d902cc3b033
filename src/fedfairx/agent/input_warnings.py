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
HEIGHT_AFTER = 50  # rewards before an intercept is missed; wide contexts take more
FALSE_ALARMS = 1e-4  # of such tests where rewards are linear in the contexts


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


class HeightWatch:
    """Tests once, on the first rewards of an agent without an intercept, whether residuals are around 0.

    It is the F test of a constant beside the contexts' own columns. With normal noise, and contexts that do
    not follow rewards, it fires falsely with probability `FALSE_ALARMS`. It finds nothing where a column is
    constant. Wide contexts fit few rewards of any height, so it waits for two rewards for each number.
    """

    def __init__(self, remedy: str) -> None:
        self._remedy = remedy
        self._records: list[tuple[Array, float]] = []
        self.warning: str | None = None
        self.open, self.due = True, False

    def look(self, row: Array, reward: float) -> None:
        """Take one record while it is open; after the last that is needed, test."""
        if not self.open:
            return
        self._records.append((np.array(row), reward))
        count = len(self._records)
        self.open = count < max(HEIGHT_AFTER, 2 * row.size)
        if not self.open and self._misses():
            self.due = True
            self.warning = (
                f"the first {count} rewards are not around what contexts predict: this agent has no "
                f"intercept, and shares depend on how high rewards are. {self._remedy}"
            )

    def _misses(self) -> bool:
        from scipy.stats import f

        x, y = map(np.array, zip(*self._records, strict=True))
        self._records.clear()
        both = np.column_stack([y, np.ones(len(y))])
        solution, _, rank, _ = np.linalg.lstsq(x, both)
        residuals = both - x @ solution
        (without, shared), (_, apart) = residuals.T @ residuals  # apart: of the constant from the columns
        free = len(y) - int(rank) - 1
        gained = shared**2 / apart if apart > 1e-9 * len(y) else 0.0
        if free <= 0 or gained <= 1e-9 * float(y @ y):
            return False
        return bool(f.sf(gained * free / max(without - gained, 1e-300), 1, free) < FALSE_ALARMS)

    def warn(self) -> None:
        """Issue the warning that is due, if any. Call it last: a warning may be turned into an error."""
        if self.due and self.warning is not None:
            self.due = False
            warn_caller(self.warning, ScaleWarning)


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
