"""Compare results side by side, in a table and a figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fedfairx.agent.algorithms import Algorithm
from fedfairx.agent.algorithms import algorithm as find_algorithm
from fedfairx.agent.options import Options
from fedfairx.agent.schedules import EveryRound, Never, Schedule
from fedfairx.errors import InvalidInput, require
from fedfairx.simulation.runner import Result, simulate
from fedfairx.simulation.scenario import Scenario
from fedfairx.util.figure_style import METRIC_NAMES, Curves, draw_curves
from fedfairx.util.formatting import html_table, mean_and_half, number, text_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Comparison:
    """Named results, printed as a table, in a notebook too; `plot()` draws their curves.

    >>> import fedfairx as ffx
    >>> world = ffx.Scenario(agents=2, horizon=50)
    >>> both = ffx.compare(["fairx-bayes", "fed-fairx-bayes"], scenario=world, seeds=1)
    >>> list(both.results)
    ['fairx-bayes', 'fed-fairx-bayes']
    """

    results: Mapping[str, Result]

    def __repr__(self) -> str:
        return text_table(self._columns(), self._rows())

    def _repr_html_(self) -> str:
        return html_table(self._columns(), self._rows())

    def plot(self) -> Figure:
        """A Matplotlib figure: both regrets over rounds, with 95 % bands; `.savefig(path)` keeps it."""
        return draw_curves(
            [
                Curves(name, each.algorithm, each.rounds, {key: getattr(each, key) for key in METRIC_NAMES})
                for name, each in self.results.items()
            ]
        )

    def _columns(self) -> list[str]:
        return ["", "T", "seeds", *METRIC_NAMES.values(), "syncs"]

    def _rows(self) -> list[list[str]]:
        return [
            [
                name,
                number(int(each.rounds[-1])),
                str(len(each.seeds)),
                *(mean_and_half(getattr(each, key)[:, -1]) for key in METRIC_NAMES),
                number(float(each.syncs.mean())),
            ]
            for name, each in self.results.items()
        ]


def compare(
    what: Sequence[Result | str | Algorithm] | Mapping[str, Result],
    *,
    scenario: Scenario | None = None,
    **options: Any,
) -> Comparison:
    """Compare results, or algorithms run in one `scenario`; the keys of a mapping name them.

    Regrets are those at the horizon, per agent: the mean over seeds ± half of its 95 % interval. `options`
    are those of `simulate` and hold for every algorithm named; `epsilon`, `delta`, `mechanism` and
    `decide_from` go to the private ones alone, so that both kinds can stand in one table.

    >>> import fedfairx as ffx
    >>> world = ffx.Scenario(agents=2, arms=3, dimension=2, horizon=50)
    >>> table = ffx.compare(["fairx-bayes", "fed-fairx-bayes"], scenario=world, seeds=2)
    >>> list(table.results)
    ['fairx-bayes', 'fed-fairx-bayes']
    """
    if isinstance(what, Mapping):
        named = list(what.items())
    else:
        text = isinstance(what, str | Algorithm | Result)  # a single name instead of a list
        require(not text, "what", "must be a list of results or names of algorithms", type(what).__name__)
        results = [each if isinstance(each, Result) else _run(each, scenario, options) for each in what]
        named = list(zip(_names(results), results, strict=True))
    require(len(named) >= 1, "what", "must be at least one", len(named))
    for name, each in named:
        require(isinstance(each, Result), "what", "must hold results", f"{name}: {type(each).__name__}")
    return Comparison(dict(named))


_PRIVATE_ALONE = ("epsilon", "delta", "mechanism", "bounds", "centring", "decide_from")


def _run(algorithm: str | Algorithm, scenario: Scenario | None, options: Mapping[str, Any]) -> Result:
    chosen = find_algorithm(algorithm)
    if scenario is None:
        raise InvalidInput(f"scenario must be given to run an algorithm, got {chosen.name!r} and no scenario")
    fitting = {key: value for key, value in options.items() if chosen.private or key not in _PRIVATE_ALONE}
    return simulate(scenario, algorithm=chosen, **fitting)


def _names(results: Sequence[Result]) -> list[str]:
    """Name results by their algorithm, numbered if it occurs again."""
    all_of, seen = Counter(each.algorithm for each in results), Counter[str]()
    names = []
    for each in results:
        seen[each.algorithm] += 1
        more = f" ({seen[each.algorithm]})" if all_of[each.algorithm] > 1 else ""
        names.append(each.algorithm + more)
    return names


def baselines(options: Options) -> dict[str, Options]:
    """Run the same rule "alone", and with "perfect pooling": exact sums of all, at the end of every round.

    Learning alone is what joining must beat, and pooling what no schedule and no noise can.
    """
    schedules: dict[str, Schedule] = {"alone": Never(), "perfect pooling": EveryRound()}
    return {
        name: replace(
            options,
            algorithm=replace(
                options.composed, name=name, schedule=schedule, private=False, decide_from="released+local"
            ),
            schedule=None,
            solver=None,
            epsilon=None,
            decide_from=None,
        )
        for name, schedule in schedules.items()
    }
