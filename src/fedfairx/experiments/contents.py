"""What the report says about an experiment, as data: ratios, hypotheses, tables and notes.

Each names what is measured; `Contents.measured` fills in the outcomes. A measure is a function of the
outcomes: `over("fed", "b0")` is one, and so is any function of one's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedfairx.experiments.outcomes import FAIRNESS, METRICS, Outcomes
from fedfairx.experiments.scores import (
    Claim,
    Estimate,
    Ratio,
    Scores,
    Table,
    Verdict,
    estimate,
    holds,
    number,
    ratio,
    side,
)
from fedfairx.util.arrays import Array

#: Measures: an estimate, a number or a text, from the outcomes of the runs.
Estimated = Callable[[Outcomes], Estimate]
Measure = Callable[[Outcomes], Estimate | float | str]
Cell = str | Measure
Rows = Iterable[tuple[Cell, ...]]


def over(run: str, other: str) -> Estimated:
    """Fairness regret of one run at T over that of another, by the seeds that both have.

    >>> below("sharing pays", "Fed/B0", 1.0, over("fed", "b0")).criterion
    'the 95 % interval of Fed/B0 lies below 1'
    """

    def measure(outcomes: Outcomes) -> Estimate:
        own, theirs = outcomes[run].final(), outcomes[other].final()
        both = min(own.size, theirs.size)  # seeds count from 0
        return ratio(own[:both], theirs[:both])

    return measure


def regret(run: str, metric: str = FAIRNESS) -> Estimated:
    """Regret of a run at T, the mean over seeds.

    >>> Grid("Regret", ("run", "at T"), [("alone", regret("alone"))]).columns
    ('run', 'at T')
    """
    return mean(lambda outcomes: outcomes[run].final(metric))


def mean(values: Callable[[Outcomes], Array]) -> Estimated:
    """The mean over seeds of what the function gives for each."""
    return lambda outcomes: estimate(values(outcomes))


def syncs(run: str) -> Callable[[Outcomes], float]:
    """The number of synchronisations of a run, the mean over seeds."""
    return lambda outcomes: float(outcomes[run].syncs.mean())


def seeds_of(run: str) -> Callable[[Outcomes], str]:
    """The number of seeds of a run."""
    return lambda outcomes: str(outcomes[run].seeds.size)


def shown(measure: Measure) -> Callable[[Outcomes], str]:
    """A measure as text, numbers formatted for people."""
    return lambda outcomes: text_of(measure, outcomes)


def words(template: str, *places: Measure, **measures: Measure) -> Callable[[Outcomes], str]:
    """A text with what is measured in its `{fields}`, formatted as `str.format` does.

    >>> words("{count:.1f} of {} runs", lambda outcomes: len(outcomes), count=lambda _: 0.5)({})
    '0.5 of 0 runs'
    """

    def measure(outcomes: Outcomes) -> str:
        named = {name: each(outcomes) for name, each in measures.items()}
        return template.format(*(each(outcomes) for each in places), **named)

    return measure


def text_of(cell: Cell, outcomes: Outcomes) -> str:
    """The text of a cell: as it is, or what is measured, numbers formatted for people."""
    value = cell(outcomes) if callable(cell) else cell
    return str(value) if isinstance(value, str | Estimate) else number(value)


@dataclass(frozen=True)
class Compared:
    """A ratio of the paper, beside which ours is put.

    >>> Compared("Fed / B0", 0.29, over("fed", "b0")).name
    'Fed / B0'
    """

    name: str
    paper: float
    ours: Estimated
    note: str = ""


@dataclass(frozen=True)
class Bar:
    """Limits within which measures must lie, each with a name.

    by: "interval": whole 95 % intervals must; what is partly outside decides nothing. "value": values must.
    "doubt": no whole interval may lie outside.

    >>> Bar({"a share": lambda outcomes: 0.7}, low=0.5).verdict({})
    'holds'
    """

    measures: Mapping[str, Callable[[Outcomes], Estimate | float]]
    high: float = math.inf
    low: float = -math.inf
    by: Literal["interval", "value", "doubt"] = "value"

    def estimates(self, outcomes: Outcomes) -> dict[str, Estimate]:
        """What is measured, by name."""
        values = {name: measure(outcomes) for name, measure in self.measures.items()}
        return {
            name: value if isinstance(value, Estimate) else Estimate(value, math.nan, math.nan)
            for name, value in values.items()
        }

    def outside(self, value: Estimate) -> bool:
        """Whether the whole interval lies outside."""
        return side(value, self.low) == "below" or side(value, self.high) == "above"

    def verdict(self, outcomes: Outcomes) -> Verdict:
        """The verdict on all measures together."""
        estimates = self.estimates(outcomes).values()
        if self.by == "value":
            return holds(all(self.low <= each.value <= self.high for each in estimates))
        if any(self.outside(each) for each in estimates):
            return "does not hold"
        inside = all(
            side(each, self.low) == "above" and side(each, self.high) == "below" for each in estimates
        )
        return "holds" if self.by == "doubt" or inside else "undecided"


@dataclass(frozen=True)
class Hypothesis:
    """A statement with its bars: it becomes a `Claim`.

    `found` says what was found, and may have fields: `{each}` for all measures of the first bar, `{worst}`
    for the largest, `{where}` for its name, `{count}` for their number. Where `refuted` is not empty, it
    takes the place of `found` if some lie outside, which `{outside}` names.

    >>> sharing = Hypothesis("sharing pays", "regret falls", (Bar({"": over("fed", "b0")}, high=1.0),))
    >>> sharing.found
    '{each}'
    """

    statement: str
    criterion: str
    bars: tuple[Bar, ...]
    found: Cell = "{each}"
    refuted: str = ""

    def judged(self, outcomes: Outcomes) -> Claim:
        """The claim with its verdict."""
        verdicts = {bar.verdict(outcomes) for bar in self.bars}
        order: tuple[Verdict, ...] = ("does not hold", "undecided", "holds")
        verdict = next(each for each in order if each in verdicts)
        return Claim(self.statement, self.criterion, self._text(outcomes), verdict)

    def _text(self, outcomes: Outcomes) -> str:
        if not isinstance(self.found, str):
            return text_of(self.found, outcomes)
        bar = self.bars[0]
        estimates = bar.estimates(outcomes)
        outside = {name: each for name, each in estimates.items() if bar.outside(each)}
        where = max(estimates, key=lambda name: estimates[name].value)
        fields: dict[str, Any] = {"worst": estimates[where], "where": where, "count": len(estimates)}
        template = self.refuted if self.refuted and outside else self.found
        return template.format(each=_listed(estimates), outside=_listed(outside), **fields)


def _listed(estimates: Mapping[str, Estimate]) -> str:
    return "; ".join(f"{name}: {each}" if name else str(each) for name, each in estimates.items())


def below(
    statement: str,
    what: str,
    limit: float,
    measures: Estimated | Mapping[str, Estimated],
    *,
    found: Cell = "{each}",
    note: str = "",
) -> Hypothesis:
    """The hypothesis that a quantity, or each of several, lies below a limit with its whole interval.

    >>> half = below("it halves", "the ratio", 0.5, lambda outcomes: Estimate(0.4, 0.3, 0.6))
    >>> half.judged({}).verdict
    'undecided'
    """
    named = measures if isinstance(measures, Mapping) else {"": measures}
    criterion = f"the 95 % interval of {what} lies below {limit:g}{note}"
    return Hypothesis(statement, criterion, (Bar(named, high=limit, by="interval"),), found)


@dataclass(frozen=True)
class Grid:
    """A table whose cells are texts or measures. Rows may be a function, where outcomes decide their order.

    >>> Grid("Regret", ("run", "at T"), [("alone", regret("alone"))]).columns
    ('run', 'at T')
    """

    title: Cell
    columns: tuple[str, ...]
    rows: Rows | Callable[[Outcomes], Rows]
    note: Cell = ""

    def filled(self, outcomes: Outcomes) -> Table:
        """The table with what was measured."""
        rows = self.rows(outcomes) if callable(self.rows) else self.rows
        cells = tuple(tuple(text_of(cell, outcomes) for cell in row) for row in rows)
        return Table(text_of(self.title, outcomes), self.columns, cells, text_of(self.note, outcomes))


def regret_grid(
    title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]], note: str = ""
) -> Grid:
    """A table of runs: a row is a run's key and first cells; both regrets and synchronisations follow."""
    filled: list[tuple[Cell, ...]] = [
        (*cells, *(regret(run, metric) for metric in METRICS), syncs(run)) for run, *cells in rows
    ]
    measured = ("fairness regret at T", "reward regret at T", "synchronisations")
    return Grid(title, (*columns, *measured), filled, note)


@dataclass(frozen=True)
class Contents:
    """All that the report says about an experiment, beside its figures.

    >>> Contents(notes=("All settings are defaults.",)).measured({}).notes
    ('All settings are defaults.',)
    """

    ratios: tuple[Compared, ...] = ()
    claims: tuple[Hypothesis, ...] = ()
    tables: tuple[Grid, ...] = ()
    notes: tuple[Cell, ...] = ()
    headline: Cell = ""  # opens the report, with the experiment's first figure

    def measured(self, outcomes: Outcomes) -> Scores:
        """The same with what was measured."""
        return Scores(
            ratios=tuple(
                Ratio(each.name, each.paper, each.ours(outcomes), each.note) for each in self.ratios
            ),
            claims=tuple(each.judged(outcomes) for each in self.claims),
            tables=tuple(each.filled(outcomes) for each in self.tables),
            notes=tuple(text_of(each, outcomes) for each in self.notes),
            headline=text_of(self.headline, outcomes),
        )
