"""The parts of an experiment: its size, its runs, and pictures."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from fedfairx.agent.algorithms import Algorithm
from fedfairx.agent.algorithms import algorithm as find_algorithm
from fedfairx.agent.options import Options
from fedfairx.agent.schedules import schedule as find_schedule
from fedfairx.errors import require
from fedfairx.experiments.contents import Contents
from fedfairx.experiments.outcomes import Outcome, Outcomes
from fedfairx.experiments.provenance import Provenance, describe, digest_of
from fedfairx.experiments.scores import Scores
from fedfairx.simulation import Scenario, simulate
from fedfairx.util.formatting import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA = files("fedfairx.experiments") / "data"
PAPER_HORIZON = 100_000
PAPER_SEEDS = 5
#: Where an experiment comes from: the paper, this package, or a user.
PAPER: Final = "paper"
OURS: Final = "ours"
OWN: Final = "own"


_GLOSSARY: Mapping[str, str] = json.loads((DATA / "report.json").read_text(encoding="utf-8"))["words"]


def glossary(*words: str) -> dict[str, str]:
    """Terms of the package with their meaning, in the order of its glossary.

    >>> list(glossary("B0", "fair share"))
    ['fair share', 'B0']
    """
    return {word: meaning for word, meaning in _GLOSSARY.items() if word in words}


@dataclass(frozen=True)
class Size:
    """The size of an experiment: rounds and seeds.

    >>> Size(horizon=2000, seeds=3).full
    False
    """

    horizon: int = PAPER_HORIZON
    seeds: int = PAPER_SEEDS

    def __post_init__(self) -> None:
        require(self.horizon >= 1, "horizon", "must be an integer >= 1", self.horizon)
        require(self.seeds >= 1, "seeds", "must be an integer >= 1", self.seeds)

    @property
    def comparable(self) -> bool:
        """Whether regret at T may be drawn beside the paper's."""
        return self.horizon >= PAPER_HORIZON

    @property
    def full(self) -> bool:
        """Whether verdicts are given."""
        return self.comparable and self.seeds >= PAPER_SEEDS

    @property
    def note(self) -> str:
        """The note on every figure of a reduced size, beside the paper's."""
        if self.full:
            return ""
        horizons = [f"{count:,}".replace(",", " ") for count in (self.horizon, PAPER_HORIZON)]
        seeds = counted(self.seeds, "seed")
        return f"reduced size: T = {horizons[0]}, {seeds} (the paper: T = {horizons[1]}, {PAPER_SEEDS} seeds)"


#: The paper's size.
FULL = Size()
#: The size of `fedfairx reproduce --quick`.
QUICK = Size(horizon=2_000, seeds=3)
#: The size of tests.
SMOKE = Size(horizon=120, seeds=2)


@dataclass(frozen=True)
class Run:
    """One setting to simulate or play, for any number of seeds; score and plot find it by its `key`.

    >>> from fedfairx import Scenario
    >>> Run("alone", Scenario(agents=2), "fairx-bayes").seeds(3)
    range(0, 3)
    """

    key: str
    scenario: Scenario
    algorithm: str | Algorithm
    options: Mapping[str, Any] = field(default_factory=dict)  # keywords of `simulate`
    least_seeds: int = 0  # a minimum, beyond the size's own number
    play: Callable[[Run, Sequence[int]], Outcome] | None = None  # with live agents, instead of `simulate`

    def seeds(self, asked: int) -> range:
        """The seeds to run for a size with `asked` seeds."""
        return range(max(asked, self.least_seeds))

    @property
    def cost(self) -> int:
        """Agent-rounds of one seed."""
        return self.scenario.agents * self.scenario.horizon

    def identity(self, made_by: Provenance) -> str:
        """The id of stored results, a digest of values, not of names."""
        if made_by not in self._identities:
            self._identities[made_by] = digest_of([self.describe(), made_by.to_dict()])
        return self._identities[made_by]

    @cached_property
    def _identities(self) -> dict[Provenance, str]:
        return {}

    def describe(self) -> dict[str, Any]:
        """Plain values of every option of the simulation, defaults included.

        So a run is the same whether a default is spelt out or not, and another if the default changes.
        """
        algorithm = find_algorithm(self.algorithm)
        options = {**_defaults(), **self.options}
        resolved = {
            "decide_from": options["decide_from"] or algorithm.decide_from,
            "schedule": find_schedule(options["schedule"] or algorithm.schedule),
        }
        described = {
            "scenario": describe(self.scenario),
            "algorithm": describe(algorithm),
            "options": describe({**options, **resolved}),
        }
        if self.play is not None:  # it may call anything in its file
            source = hashlib.sha256(Path(inspect.getfile(self.play)).read_bytes()).hexdigest()
            described["play"] = [self.play.__qualname__, source]
        return described


@cache
def _defaults() -> dict[str, Any]:
    """The keywords of `simulate` that may change a result, with their defaults."""
    fixed = ("scenario", "algorithm", "merit", "seeds", "workers", "keywords")
    defaults = {item.name: item.default for item in fields(Options)}
    defaults |= {item.name: item.default for item in inspect.signature(simulate).parameters.values()}
    return {name: value for name, value in defaults.items() if name not in fixed} | {"centring": "scenario"}


@dataclass(frozen=True)
class Picture:
    """A figure with its file name and caption.

    >>> from matplotlib.figure import Figure
    >>> Picture("mine", "My experiment.", Figure()).name
    'mine'
    """

    name: str
    caption: str
    figure: Figure


@dataclass(frozen=True)
class Experiment:
    """An experiment: what to run, what to say about it, how to draw it.

    >>> from fedfairx.experiments.registry import experiments
    >>> experiments()["exp1"].origin
    'paper'
    """

    name: str
    title: str
    question: str
    runs: Callable[[Size], tuple[Run, ...]]
    contents: Callable[[Size], Contents]
    plot: Callable[[Outcomes, Size], Iterator[Picture]]
    origin: Literal["paper", "ours", "own"] = OWN
    words: Mapping[str, str] = field(default_factory=dict)  # terms of its own, with their meaning
    libraries: tuple[str, ...] = ()  # of the extra `data`; without them it is left out

    def reduced(self, size: Size) -> bool:
        """Whether this size is too small for verdicts; one's own experiment has them at any size."""
        return self.origin != OWN and not size.full

    def score(self, outcomes: Outcomes, size: Size) -> Scores:
        """Fill the contents with what was measured; at a reduced size nothing gets a verdict."""
        scores = self.contents(size).measured(outcomes)
        return scores.unjudged() if self.reduced(size) else scores
