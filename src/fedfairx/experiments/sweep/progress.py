"""Progress of a sweep: a bar on a terminal, lines in a log, or nothing."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any, TextIO


class SweepProgress:
    """Callbacks of a sweep, which show nothing here."""

    def start(self, jobs: int, cost: int) -> None:
        """Begin a sweep of this cost, in agent-rounds."""

    def done(self, label: str, cost: int, seconds: float) -> None:
        """Count a job that is stored."""

    def say(self, text: str) -> None:
        """Show a message."""

    def close(self) -> None:
        """End the sweep."""


class Quiet(SweepProgress):
    """Show nothing."""


class ProgressLines(SweepProgress):
    """Print one line for each job, for a log file."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._jobs = self._cost = self._finished = self._passed = 0
        self._began = time.perf_counter()

    def start(self, jobs: int, cost: int) -> None:
        self._jobs, self._cost, self._finished, self._passed = jobs, cost, 0, 0
        self._began = time.perf_counter()

    def done(self, label: str, cost: int, seconds: float) -> None:
        self._finished += 1
        self._passed += cost
        rate = self._passed / max(time.perf_counter() - self._began, 1e-9)
        left = (self._cost - self._passed) / max(rate, 1e-9)
        self.say(
            f"[{self._finished}/{self._jobs}] {label}: {seconds:.1f} s ({rate / 1e6:.2f} M agent-rounds/s, "
            f"{left:.0f} s left)"
        )

    def say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class ProgressBar(SweepProgress):
    """Show a bar of agent-rounds, because jobs differ in size."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._bar: Any = None

    def start(self, jobs: int, cost: int) -> None:
        from tqdm import tqdm

        self.close()
        self._bar = tqdm(
            total=cost,
            unit=" agent-rounds",
            unit_scale=True,
            file=self._stream,
            desc=f"0/{jobs} jobs",
            smoothing=0.1,
            ncols=min(shutil.get_terminal_size().columns, 140),  # tqdm shows nothing where it reads 0
            leave=False,
        )
        self._jobs, self._finished = jobs, 0

    def done(self, label: str, cost: int, seconds: float) -> None:  # noqa: ARG002 (the bar has its own clock)
        self._finished += 1
        self._bar.set_description(f"{self._finished}/{self._jobs} jobs, {label}", refresh=False)
        self._bar.update(cost)

    def say(self, text: str) -> None:
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        else:
            print(text, file=self._stream, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def progress(*, quiet: bool = False, stream: TextIO | None = None) -> SweepProgress:
    """Choose the display for a stream (default: standard error)."""
    if quiet:
        return Quiet()
    return ProgressBar(stream) if (stream or sys.stderr).isatty() else ProgressLines(stream)
