"""Scores: ratios beside the paper's, claims marked, tables. With the statistics behind them.

Seeds are paired: contexts and θ* depend on the seed and not on the algorithm, so ratios are
taken seed by seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedfairx.util.arrays import Array
from fedfairx.util.formatting import half_width as half_width  # what experiments show is made of these
from fedfairx.util.formatting import number as number

Verdict = Literal["holds", "does not hold", "undecided", "not judged"]
NEAR = 1.25
CRITERION = (
    f"a ratio agrees when it is within a factor {NEAR:g} of the paper's, or the paper's lies inside our 95 % "
    "interval"
)


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{number(self.value)} [{number(self.low)}, {number(self.high)}]"


@dataclass(frozen=True)
class Ratio:
    """One ratio of the paper beside ours."""

    name: str
    paper: float
    ours: Estimate
    judged: bool  # False at a reduced size, for which the paper has no figure
    note: str = ""

    @property
    def agrees(self) -> bool:
        near = abs(math.log(self.ours.value / self.paper)) <= math.log(NEAR) if self.ours.value > 0 else False
        return near or self.ours.low <= self.paper <= self.ours.high

    @property
    def verdict(self) -> str:
        return "not judged" if not self.judged else "agrees" if self.agrees else "differs"


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, the criterion that we hold it to, what was found."""

    statement: str
    criterion: str
    found: str
    verdict: Verdict


@dataclass(frozen=True)
class Table:
    """Rows of text under a title."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Scores:
    """All that an experiment says in words and numbers."""

    ratios: tuple[Ratio, ...] = ()
    claims: tuple[Claim, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    headline: str = ""  # opens the report, with the experiment's first figure

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "ratios": [
                {
                    "name": r.name,
                    "paper": r.paper,
                    "ours": r.ours.value,
                    "low": _plain(r.ours.low),
                    "high": _plain(r.ours.high),
                    "verdict": r.verdict,
                }
                for r in self.ratios
            ],
            "claims": [
                {"statement": c.statement, "criterion": c.criterion, "found": c.found, "verdict": c.verdict}
                for c in self.claims
            ],
            "tables": [
                {"title": t.title, "columns": list(t.columns), "rows": [list(row) for row in t.rows]}
                for t in self.tables
            ],
            "notes": list(self.notes),
            "headline": self.headline,
        }


def estimate(values: Array) -> Estimate:
    """The mean over seeds."""
    mean, half = float(values.mean()), float(half_width(values))
    return Estimate(mean, mean - half, mean + half)


def ratio(above: Array, below: Array) -> Estimate:
    """The geometric mean over seeds of above/below, with the interval of the mean logarithm."""
    logs = np.log(above / below)
    mean, half = float(logs.mean()), float(half_width(logs))
    return Estimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def below(found: Estimate, limit: float) -> Verdict:
    """Whether a ratio is below a limit, by its whole interval; one seed has none, and its value decides."""
    if math.isnan(found.high):
        return "holds" if found.value < limit else "does not hold"
    return "holds" if found.high < limit else "does not hold" if found.low > limit else "undecided"


def judged(verdict: Verdict, judge: bool) -> Verdict:
    """No verdict at a reduced size."""
    return verdict if judge else "not judged"


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
