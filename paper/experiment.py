"""The parts of an experiment: its size, its runs and their results, what the report says, and pictures."""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property, partial
from pathlib import Path
from types import FunctionType
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import fedfairx
from fedfairx import Scenario, simulate
from fedfairx.errors import InvalidInput, require
from fedfairx.evaluation import Estimate
from paper.scores import Array, Claim, Headline, Ratio, Table, counted, estimate, ratio

DATA = Path(__file__).parent / "data"
TEXTS = json.loads((DATA / "report.json").read_text(encoding="utf-8"))
PAPER_HORIZON, PAPER_SEEDS = 100_000, 5
FAIRNESS, REWARD = METRICS = "fairness_regret", "reward_regret"
#: Where an experiment comes from: the paper, this package, or a user.
PAPER: Final = "paper"
OURS: Final = "ours"
OWN: Final = "own"
#: Folders of fedfairx whose code decides what a run computes.
_COMPUTING = ("lanes", "core", "privacy", "agent", "simulation", "federation")
_MADE_BY: list[str] = []


def glossary(*words: str) -> dict[str, str]:
    """Terms with their meaning, in the order of the package's glossary."""
    return {word: meaning for word, meaning in TEXTS["words"].items() if word in words}


@dataclass(frozen=True)
class Size:
    """The size of an experiment: rounds and seeds."""

    horizon: int = PAPER_HORIZON
    seeds: int = PAPER_SEEDS

    def __post_init__(self) -> None:
        for name in ("horizon", "seeds"):
            require(getattr(self, name) >= 1, name, "must be an integer >= 1", getattr(self, name))

    @property
    def comparable(self) -> bool:
        """Whether regret at T may be drawn beside the paper's."""
        return self.horizon >= PAPER_HORIZON

    @property
    def full(self) -> bool:
        """Whether verdicts are given."""
        return self.comparable and self.seeds >= PAPER_SEEDS

    def __str__(self) -> str:
        horizon = f"{self.horizon:,}".replace(",", " ")
        return f"T = {horizon}, {counted(self.seeds, 'seed')}"

    @property
    def note(self) -> str:
        """The note on every figure of a reduced size, beside the paper's."""
        return "" if self.full else f"reduced size: {self} (the paper: {FULL})"


#: The paper's size.
FULL = Size()
#: The size of `--quick`.
QUICK = Size(horizon=2_000, seeds=3)
#: The size of tests.
SMOKE = Size(horizon=120, seeds=2)


@dataclass(frozen=True)
class Outcome:
    """The results of a run: one row for each seed."""

    seeds: Any
    rounds: Any  # (points,)
    fairness_regret: Array  # (seeds, points), cumulative, mean over agents
    reward_regret: Array
    syncs: Any = 0  # (seeds,)
    # What follows is measured by some runs only.
    exposure: Array = field(default_factory=lambda: np.empty(0))  # (seeds, actions) mean share by rank
    weakest: Array = field(default_factory=lambda: np.empty(0))  # (seeds, points) shown over due
    by_agent: Array = field(default_factory=lambda: np.empty(0))  # (seeds, agents, points) fairness regret
    seconds: float = 0.0  # of CPU

    def __post_init__(self) -> None:
        for item in fields(self)[4:-1]:  # one row for each seed all the same
            value = np.asarray(getattr(self, item.name))
            rows = len(self.seeds)
            fit = np.full(rows, value) if value.ndim == 0 else value if value.size else np.empty((rows, 0))
            object.__setattr__(self, item.name, fit)
        object.__setattr__(self, "seconds", float(self.seconds))

    def final(self, metric: str = FAIRNESS) -> Array:
        """(seeds,) at the horizon."""
        return np.asarray(getattr(self, metric)[:, -1])

    def first(self, count: int) -> Outcome:
        """The rows of the first seeds."""
        rows = {
            name: value[:count] for name, value in vars(self).items() if name not in ("rounds", "seconds")
        }
        return Outcome(rounds=self.rounds, seconds=self.seconds, **rows)


@dataclass(frozen=True)
class Run:
    """One setting to simulate or play, for any number of seeds; a report finds it by its `key`."""

    key: str
    scenario: Scenario
    algorithm: str
    options: Mapping[str, Any] = field(default_factory=dict)  # keywords of `simulate`
    least_seeds: int = 0  # a minimum, beyond the size's own number
    play: Callable[[Run, Sequence[int]], Outcome] | None = None  # with live agents, instead of `simulate`

    def seeds(self, asked: int) -> range:
        """The seeds to run for a size with `asked` seeds."""
        return range(max(asked, self.least_seeds))

    def identity(self, made_by: str) -> str:
        """The id of stored results: two runs have the same if they compute the same."""
        if "_described" not in vars(self):  # a `cached_property` can't be sent to a cluster
            what = describe([self.scenario, self.algorithm, self.options])
            if self.play is not None:  # it may call anything in its file
                what += [self.play.__qualname__, Path(inspect.getfile(self.play)).read_text(encoding="utf-8")]
            object.__setattr__(self, "_described", json.dumps(what, sort_keys=True))
        return hashlib.sha256(f"{made_by} {vars(self)['_described']}".encode()).hexdigest()[:16]


class Results(dict[str, Outcome]):
    """The outcomes of an experiment by the keys of its runs, and what is usually asked of them."""

    @cached_property
    def fairness(self) -> pd.DataFrame:
        """Fairness regret at T: a row for each seed, a column for each run; where it has no seed, nothing."""
        columns = {key: pd.Series(each.final(), index=each.seeds) for key, each in self.items()}
        return pd.DataFrame(columns)

    def over(self, run: str, other: str) -> Estimate:
        """Fairness regret of one run at T over that of another, by the seeds that both have."""
        both = self.fairness[[run, other]].dropna()
        return ratio(both[run], both[other])

    def regret(self, run: str, metric: str = FAIRNESS) -> Estimate:
        """Regret of a run at T, the mean over seeds."""
        return estimate(self[run].final(metric))

    def mean(self, run: str, metric: str = FAIRNESS) -> float:
        """The same without its interval."""
        return float(self[run].final(metric).mean())

    def syncs(self, run: str) -> float:
        """The number of synchronisations of a run, the mean over seeds."""
        return float(self[run].syncs.mean())

    def seeds(self, run: str) -> int:
        """The number of seeds of a run."""
        return len(self[run].seeds)

    def table(
        self, title: str, columns: Iterable[str], rows: Iterable[Sequence[str]], note: str = ""
    ) -> Table:
        """A table of runs: a row is a run's key and first cells; both regrets and synchronisations follow."""
        measured = ("fairness regret at T", "reward regret at T", "synchronisations")
        filled = [
            (*cells, *(self.regret(run, each) for each in METRICS), self.syncs(run)) for run, *cells in rows
        ]
        return Table(title, (*columns, *measured), filled, note)


@dataclass(frozen=True)
class Picture:
    """A figure with its file name and caption."""

    name: str
    caption: str
    figure: Figure


#: What a report says: a text is a note.
Part = Ratio | Claim | Table | Picture | Headline | str


@dataclass(frozen=True)
class Experiment:
    """An experiment: what to run, and what the report says and shows of it."""

    name: str
    title: str
    question: str
    runs: Callable[[Size], Iterable[Run]]
    report: Callable[[Results, Size], Iterable[Part]]
    origin: Literal["paper", "ours", "own"] = OWN
    words: Mapping[str, str] = field(default_factory=dict)  # terms of its own, with their meaning
    libraries: tuple[str, ...] = ()  # without them it is left out

    def reduced(self, size: Size) -> bool:
        """Whether this size is too small for verdicts; one's own experiment has them at any size."""
        return self.origin != OWN and not size.full

    def parts(self, results: Results, size: Size) -> Iterator[Part]:
        """The report's parts; claims say whose they are, and at a reduced size nothing gets a verdict."""
        reduced = self.reduced(size)
        for part in self.report(results, size):
            if isinstance(part, Ratio) and reduced:
                yield part._replace(judged=False)
            elif isinstance(part, Claim):
                statement = part.statement + " (ours, not the paper's)" * (self.origin == OURS)
                yield part._replace(statement=statement, verdict="not judged" if reduced else part.verdict)
            else:
                yield part


# --- running, and what decides its result ----------------------------------------------------------------


def perform(run: Run, seeds: Sequence[int], expected: str) -> dict[str, Any]:
    """Simulate or play: the function that a worker calls. Returns the fields of an `Outcome`."""
    if made_by() != expected:  # a cluster's worker with another installation
        raise InvalidInput(f"a worker must have {expected}, got {made_by()}")
    began = time.thread_time()
    if run.play is not None:
        outcome = vars(run.play(run, seeds))
    else:
        result = simulate(run.scenario, algorithm=run.algorithm, seeds=tuple(seeds), **run.options)
        shown = result.shown.shape[2] > 0
        outcome = {
            "seeds": np.asarray(result.seeds),
            **{name: getattr(result, name) for name in ("rounds", *METRICS, "syncs", "exposure")},
            **({"weakest": result.weakest_share()} if shown else {}),
        }
    return {**outcome, "seconds": time.thread_time() - began}


def made_by() -> str:
    """The version of fedfairx, and a digest of its source that decides what a run computes."""
    if not _MADE_BY:  # `cache` would make a function that can't be sent to a cluster
        package, digest = Path(inspect.getfile(fedfairx)).parent, hashlib.sha256()
        for folder in _COMPUTING:
            for path in sorted((package / folder).rglob("*")):
                if path.suffix in (".py", ".json"):
                    digest.update(path.read_bytes())
        _MADE_BY.append(f"fedfairx {fedfairx.__version__} (code {digest.hexdigest()[:12]})")
    return _MADE_BY[0]


def describe(value: Any) -> Any:
    """Plain JSON values that describe a value completely; what is not fedfairx's own with its source."""
    value = getattr(value, "py_func", value)  # what Numba wrapped
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray) and value.dtype != object:  # by its bytes: recorded data are large
        return [hashlib.sha256(value.tobytes()).hexdigest(), value.dtype.str, list(value.shape)]
    if isinstance(value, np.generic | np.ndarray):
        return describe(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): describe(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((describe(item) for item in value), key=str)
    if type(value) in (list, tuple, range):
        return [describe(item) for item in value]
    if isinstance(value, partial):
        return describe([value.func, value.args, value.keywords])
    if isinstance(value, FunctionType):
        enclosed = inspect.getclosurevars(value).nonlocals
        return [value.__qualname__, inspect.getsource(value), describe(enclosed)]
    if isinstance(value, type):
        return [_source(base) for base in value.__mro__]
    if is_dataclass(value):
        return describe([type(value), {item.name: getattr(value, item.name) for item in fields(value)}])
    if hasattr(value, "_asdict") or hasattr(value, "__dict__"):
        return describe([type(value), value._asdict() if hasattr(value, "_asdict") else vars(value)])
    kind = type(value).__name__
    raise InvalidInput(f"a run's values must be plain, dataclasses or functions for its id, got a {kind}")


def _source(kind: type) -> Any:
    """The name of a class, or its source and what it encloses if it is neither Python's nor fedfairx's."""
    if kind.__module__.partition(".")[0] in {"fedfairx", "numpy", *sys.stdlib_module_names}:
        return kind.__qualname__
    file = inspect.getsourcefile(kind)  # not of what `dataclass` adds
    own = [each for each in vars(kind).values() if isinstance(each, FunctionType)]
    own = [each for each in own if each.__code__.co_filename == file]
    return [inspect.getsource(kind), describe([inspect.getclosurevars(each).nonlocals for each in own])]
