"""Tells an agent's owner when contexts are far larger than what the agent was told to expect.

With the default prior or confidence region an agent expects contexts in the unit ball. Ten times as long, a
merit that grows exponentially takes chance for merit. Only an agent's first contexts are looked at, so that
deciding costs no more; the warning says a limit, and nothing of the contexts.
"""

from __future__ import annotations

import inspect
import warnings

import numpy as np

from fedfairx.errors import ScaleWarning
from fedfairx.util.arrays import Array

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
