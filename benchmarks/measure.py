"""Time contestants in turns, and report the results.

In each turn every contestant does its work once. A ratio is taken within a turn, when both met the same
conditions; the figure is the median over the turns with its middle half. Time is CPU time of the process:
other programs do not count, every thread of a contestant does.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

Work = Callable[[], float | None]  # does its work; may return the seconds to count


@dataclass(frozen=True)
class Contestant:
    """A piece of work and its number of units (rounds, decisions)."""

    work: Work
    units: int = 1


@dataclass(frozen=True)
class Timed:
    """Seconds per unit, turn by turn."""

    seconds: np.ndarray

    @property
    def typical(self) -> float:
        return float(np.median(self.seconds))

    def over(self, other: Timed) -> np.ndarray:
        """Ratio of this time to the other's, turn by turn."""
        return np.asarray(self.seconds / other.seconds)


def race(
    contestants: Mapping[str, Contestant], *, turns: int, clock: Callable[[], float] = time.process_time
) -> dict[str, Timed]:
    """Run all contestants for `turns` turns, every other turn in reverse order, so that drift cancels."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    gc.collect()
    gc.freeze()  # so that no turn pays for collecting what compilation left
    for turn in range(turns):
        order = list(contestants) if turn % 2 == 0 else list(reversed(contestants))
        for name in order:
            start = clock()
            counted = contestants[name].work()
            spent = clock() - start if counted is None else counted
            seconds[name].append(spent / contestants[name].units)
    return {name: Timed(np.array(values)) for name, values in seconds.items()}


@dataclass(frozen=True)
class Figure:
    """One number, its middle half over the turns, and the goal."""

    name: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""
    section: str = ""

    @property
    def met(self) -> bool | None:
        if self.at_most is not None:
            return self.value <= self.at_most
        if self.at_least is not None:
            return self.value >= self.at_least
        return None

    def __str__(self) -> str:
        text = f"  {self.name:<58} {_short(self.value):>8} {self.unit:<3}"
        if self.low is not None and self.high is not None:
            text += f" ({_short(self.low)} to {_short(self.high)})"
        if self.met is not None:
            wanted = (
                f"at most {self.at_most:g}" if self.at_most is not None else f"at least {self.at_least:g}"
            )
            text += f"  wanted: {wanted}: {'yes' if self.met else 'NO'}"
        return text + (f"  [{self.note}]" if self.note else "")


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


@dataclass
class Report:
    """The results of a benchmark: printed at once, and as JSON at the end if requested."""

    benchmark: str
    quick: bool
    as_json: bool
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    section: str = ""

    def heading(self, text: str) -> None:
        self.section = text
        self._speak(f"\n{text}")

    def note(self, text: str) -> None:
        self.notes.append(text)
        self._speak(f"  {text}")

    def add(self, name: str, value: float, unit: str, **more: Any) -> None:
        """A plain number."""
        self._take(name, float(value), unit, **more)

    def ratio(self, name: str, ratios: np.ndarray, **more: Any) -> None:
        """The median of ratios taken turn by turn."""
        low, middle, high = (float(q) for q in np.quantile(ratios, (0.25, 0.5, 0.75)))
        self._take(name, middle, "×", low=low, high=high, **more)

    def time(self, name: str, timed: Timed, unit: str = "µs", **more: Any) -> None:
        """Seconds per unit of work, which hold only for this machine at this moment."""
        scale = {"s": 1.0, "ms": 1e3, "µs": 1e6}[unit]
        low, middle, high = (float(q) * scale for q in np.quantile(timed.seconds, (0.25, 0.5, 0.75)))
        self._take(name, middle, unit, low=low, high=high, **more)

    def _take(self, name: str, value: float, unit: str, **more: Any) -> None:
        figure = Figure(name, value, unit, section=self.section, **more)
        self.figures.append(figure)
        self._speak(str(figure))

    def _speak(self, text: str) -> None:
        print(text, file=sys.stderr if self.as_json else sys.stdout, flush=True)

    def as_dict(self) -> dict[str, Any]:
        return {
            "benchmark": self.benchmark,
            "quick": self.quick,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "machine": platform.machine(),
            "figures": [asdict(figure) | {"met": figure.met} for figure in self.figures],
            "notes": self.notes,
        }


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that all benchmarks share."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--quick", action="store_true", help="smaller and noisier: does everything still run?")
    made.add_argument("--json", action="store_true", help="the figures as JSON on stdout, the talk on stderr")
    return made


def main(benchmark: str, run: Callable[[Report], None], description: str | None) -> None:
    """Run one benchmark from the command line."""
    args = parser(description).parse_args()
    finish(Report(benchmark, args.quick, args.json), run)


def play_in(source: str | None, script: str, *arguments: str) -> Any:
    """What a script prints as JSON, with the package of another source folder, or with this one."""
    environment = os.environ if source is None else {**os.environ, "PYTHONPATH": source}
    command = [sys.executable, script, *arguments]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


COMPILE = """
import fedfairx as ffx
from fedfairx.agent.warm import warm
warm(ffx.Agent(2))
ffx.simulate(ffx.Scenario(horizon=2), seeds=1)
"""


def finish(report: Report, run: Callable[[Report], None]) -> None:
    # Compile in another process: a process that has just compiled decides two to three times as slowly.
    subprocess.run([sys.executable, "-c", COMPILE], check=True)
    run(report)
    if report.as_json:
        print(json.dumps(report.as_dict(), ensure_ascii=False, indent=1))
