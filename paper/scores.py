"""What the report says: ratios beside the paper's, claims with verdicts, tables; and their statistics.

Seeds are paired: contexts and θ* depend on the seed and not on the algorithm, so ratios are taken seed by
seed.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedfairx.evaluation import Estimate

Array = NDArray[np.float64]
Verdict = Literal["holds", "does not hold", "undecided", "not judged"]
NEAR = 1.25
CRITERION = (
    f"a ratio agrees when it is within a factor {NEAR:g} of the paper's, or the paper's lies inside our 95 % "
    "interval"
)


# --- numbers ---------------------------------------------------------------------------------------------


def half_width(values: Array) -> Array:
    """Half of the 95 % interval of the mean over the first axis (Student's t); NaN for one seed."""
    from scipy.special import stdtrit

    count = len(values)
    if count < 2:
        return np.full(values.shape[1:], np.nan)
    return np.asarray(stdtrit(count - 1, 0.975) * values.std(axis=0, ddof=1) / math.sqrt(count))


def estimate(values: Any) -> Estimate:
    """Mean over seeds with its 95 % interval."""
    values = np.asarray(values)
    mean, half = float(values.mean()), float(half_width(values))
    return Estimate(mean, mean - half, mean + half)


def ratio(above: Any, below: Any = 1.0) -> Estimate:
    """Geometric mean over seeds of above/below, with the interval of the mean logarithm."""
    logs = estimate(np.log(np.asarray(above) / np.asarray(below)))
    return Estimate(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high))


def number(value: float) -> str:
    """Format a number with three or four figures and spaced thousands."""
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 1e7:
        return f"{value:.1e}"
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 100 else f"{value:.3g}"


def counted(count: int, what: str) -> str:
    """ "1 seed", "5 seeds"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def listed(measured: Mapping[str, Estimate]) -> str:
    """Estimates with their names."""
    return "; ".join(f"{name}: {each}" if name else str(each) for name, each in measured.items())


# --- ratios and claims -----------------------------------------------------------------------------------


class Ratio(NamedTuple):
    """One ratio of the paper beside ours."""

    name: str
    paper: float
    ours: Estimate
    note: str = ""
    judged: bool = True  # not at a reduced size, for which the paper has no figure

    @property
    def verdict(self) -> str:
        if not self.judged:
            return "not judged"
        near = self.ours.value > 0 and abs(math.log(self.ours.value / self.paper)) <= math.log(NEAR)
        return "agrees" if near or self.ours.low <= self.paper <= self.ours.high else "differs"


class Claim(NamedTuple):
    """A statement, its criterion, what was found, and the verdict."""

    statement: str
    criterion: str
    found: str
    verdict: Verdict


Measured = float | Estimate | Mapping[str, Estimate]


def judge(
    measured: Measured,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    by: Literal["interval", "value", "doubt"] = "value",
) -> Verdict:
    """The verdict on all measures together: whether they lie within the limits.

    by: "interval": whole 95 % intervals must; what is partly outside decides nothing. "value": values must.
    "doubt": no whole interval may lie outside.
    """
    estimates = _estimates(measured)
    if by == "value":
        return "holds" if all(low <= each.value <= high for each in estimates) else "does not hold"
    if any(outside(each, low=low, high=high) for each in estimates):
        return "does not hold"
    inside = all(side(each, low) == "above" and side(each, high) == "below" for each in estimates)
    return "holds" if by == "doubt" or inside else "undecided"


def below(
    statement: str, what: str, measured: Measured, limit: float, found: str = "", *, note: str = ""
) -> Claim:
    """The claim that a quantity, or each of several, lies below a limit with its whole 95 % interval."""
    named = measured if isinstance(measured, Mapping) else {"": _estimates(measured)[0]}
    criterion = f"the 95 % interval of {what} lies below {limit:g}{note}"
    return Claim(statement, criterion, found or listed(named), judge(measured, high=limit, by="interval"))


def worst(measured: Mapping[str, Estimate]) -> tuple[str, Estimate]:
    """The largest, with its name."""
    name = max(measured, key=lambda each: measured[each].value)
    return name, measured[name]


def outside(value: Estimate, *, low: float = -math.inf, high: float = math.inf) -> bool:
    """Whether the whole interval lies outside of the limits."""
    return side(value, low) == "below" or side(value, high) == "above"


def side(value: Estimate, limit: float) -> Literal["below", "above", "across"]:
    """On which side of a limit the whole interval lies; where one seed gives no interval, the value."""
    low, high = (value.value, value.value) if math.isnan(value.high) else (value.low, value.high)
    return "below" if high < limit else "above" if low > limit else "across"


def _estimates(measured: Measured) -> list[Estimate]:
    if isinstance(measured, Mapping):
        return list(measured.values())
    return [measured if isinstance(measured, Estimate) else Estimate(float(measured), math.nan, math.nan)]


# --- tables ----------------------------------------------------------------------------------------------


class Table:
    """Rows under a title; estimates and numbers become text."""

    def __init__(
        self, title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]], note: str = ""
    ) -> None:
        self.title, self.columns, self.note = title, tuple(columns), note
        self.rows = [tuple(_text(cell) for cell in row) for row in rows]


def _text(cell: Any) -> str:
    return str(cell) if isinstance(cell, str | Estimate) else number(cell)


class Headline(str):
    """A sentence that opens the report, with the experiment's first figure."""

    __slots__ = ()
