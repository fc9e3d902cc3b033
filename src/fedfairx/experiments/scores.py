"""Scores of an experiment: ratios beside the paper's, claims with verdicts, tables; and their statistics.

Seeds are paired: contexts and θ* depend on the seed and not on the algorithm, so ratios are
taken seed by seed.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from fedfairx.evaluation.estimators import Estimate as Estimate
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
class Ratio:
    """One ratio of the paper beside ours.

    >>> Ratio("alone / together", paper=2.0, ours=Estimate(2.1, 1.9, 2.3)).agrees
    True
    """

    name: str
    paper: float
    ours: Estimate
    note: str = ""
    judged: bool = True  # False at a reduced size, for which the paper has no figure

    @property
    def agrees(self) -> bool:
        near = abs(math.log(self.ours.value / self.paper)) <= math.log(NEAR) if self.ours.value > 0 else False
        return near or self.ours.low <= self.paper <= self.ours.high

    @property
    def verdict(self) -> str:
        return "not judged" if not self.judged else "agrees" if self.agrees else "differs"


@dataclass(frozen=True)
class Claim:
    """A statement, its criterion, what was found, and the verdict.

    >>> Claim("Sharing helps", "regret is lower", "29 against 51", "holds").verdict
    'holds'
    """

    statement: str
    criterion: str
    found: str
    verdict: Verdict


@dataclass(frozen=True)
class Table:
    """Rows of text under a title.

    >>> Table("Regret", columns=("run", "at T"), rows=(("alone", "51"),)).rows[0]
    ('alone', '51')
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Scores:
    """All scores of an experiment.

    >>> scores = Scores(claims=(Claim("Sharing helps", "regret is lower", "29 against 51", "holds"),))
    >>> scores.unjudged().claims[0].verdict
    'not judged'
    """

    ratios: tuple[Ratio, ...] = ()
    claims: tuple[Claim, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    headline: str = ""  # opens the report, with the experiment's first figure

    def unjudged(self) -> Scores:
        """The same without verdicts, for a reduced size."""
        ratios = tuple(replace(each, judged=False) for each in self.ratios)
        claims = tuple(replace(each, verdict="not judged") for each in self.claims)
        return replace(self, ratios=ratios, claims=claims)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "ratios": [
                {"name": r.name, "paper": r.paper, "ours": r.ours.value}
                | {"low": _plain(r.ours.low), "high": _plain(r.ours.high), "verdict": r.verdict}
                for r in self.ratios
            ],
            "claims": [asdict(claim) for claim in self.claims],
            "tables": [
                {"title": t.title, "columns": list(t.columns), "rows": [list(row) for row in t.rows]}
                for t in self.tables
            ],
            "notes": list(self.notes),
            "headline": self.headline,
        }


def estimate(values: Array) -> Estimate:
    """Mean over seeds with its 95 % interval."""
    mean, half = float(values.mean()), float(half_width(values))
    return Estimate(mean, mean - half, mean + half)


def ratio(above: Array, below: Array) -> Estimate:
    """Geometric mean over seeds of above/below, with the interval of the mean logarithm."""
    logs = np.log(above / below)
    mean, half = float(logs.mean()), float(half_width(logs))
    return Estimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def side(value: Estimate, limit: float) -> Literal["below", "above", "across"]:
    """On which side of a limit the whole interval lies; where one seed gives no interval, the value."""
    low, high = (value.value, value.value) if math.isnan(value.high) else (value.low, value.high)
    return "below" if high < limit else "above" if low > limit else "across"


def holds(condition: bool) -> Verdict:
    """Verdict of a criterion that is met or not."""
    return "holds" if condition else "does not hold"


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
