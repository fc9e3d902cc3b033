"""Engines that perform runs, and the progress that is shown.

"local"              threads of this process; compiled code lets others work
"dask://HOST:PORT"   a running Dask scheduler and its workers, which need only fedfairx
"""

import importlib
import os
import pickle
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TextIO

from fedfairx.errors import InvalidInput

_DASK = "dask://"
_CONNECT_SECONDS = 10

#: Takes a function and its arguments.
Submit = Callable[..., Future[Any]]


class ResultsError(InvalidInput):
    """Stored results can't be used, or runs could not be performed."""


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def engine(
    name: str = "local", workers: int | None = None, *, ship: tuple[ModuleType, ...] = ()
) -> Iterator[Submit]:
    """What submits calls to workers, for a `with` block, at whose end what has not started is cancelled.

    `workers` is for the local engine (default: one per processor); a cluster has the workers that it has.
    `ship` are modules, such as a user's file, that a cluster's workers don't have: they are sent along.
    """
    if workers is not None and (workers < 1 or name != "local"):
        raise InvalidInput(f"workers must be >= 1, and are for the local engine alone, got workers={workers}")
    if name == "local":
        pool = ThreadPoolExecutor(workers or cores())
        try:
            yield pool.submit
        finally:  # an interrupted program must not wait for compiled code
            pool.shutdown(wait=sys.exc_info()[0] is not KeyboardInterrupt, cancel_futures=True)
        return
    address = name.removeprefix(_DASK)
    if not name.startswith(_DASK) or ":" not in address:
        raise InvalidInput(f"engine must be one of local, dask://HOST:PORT, got engine={name!r}")
    try:
        cloudpickle, distributed = map(importlib.import_module, ("cloudpickle", "distributed"))
    except ImportError:
        raise InvalidInput("engine dask:// needs Dask: pip install distributed") from None
    try:
        client = distributed.Client(f"tcp://{address}", timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError) as error:
        text = f"no Dask scheduler at {address} ({type(error).__name__}); start one with `dask scheduler`"
        raise ResultsError(text) from None
    modules = (importlib.import_module("paper"), *ship)
    try:
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        # Its executor has no shutdown of its own; closing the client cancels what has not finished.
        executor = client.get_executor(pure=False)
        # Dask's own pickling would send functions and classes by name only.
        yield lambda *call: executor.submit(pickle.loads, cloudpickle.dumps(_Call(*call)))
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
        client.close()


class _Call:
    """What calls a function when it is unpickled, and is then what that returns."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> Any:
        return self._call


class Progress:
    """What is done and how long the rest will take: a line that changes on a terminal, lines in a log."""

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._quiet, self._terminal = quiet, self._stream.isatty()
        self.start(0, 0.0)

    def start(self, runs: int, effort: float) -> None:
        """Begin: the number of runs, and the estimated effort of all."""
        self._runs, self._effort = runs, effort
        self._done, self._spent, self._began = 0, 0.0, time.perf_counter()

    def done(self, label: str, effort: float, seconds: float) -> None:
        """Count a run that is stored."""
        self._done, self._spent = self._done + 1, self._spent + effort
        left = (time.perf_counter() - self._began) * (self._effort - self._spent) / self._spent
        text = f"[{self._done}/{self._runs}] {label}: {seconds:.1f} s ({left:.0f} s left)"
        self.say(text, passing=self._terminal and self._done < self._runs)

    def say(self, text: str, *, passing: bool = False) -> None:
        """Show a message; a passing one is replaced by the next."""
        if self._quiet:
            return
        width = shutil.get_terminal_size().columns - 1 if self._terminal else 0
        clear = f"\r{'':{width}}\r" if self._terminal else ""
        shown = text[:width] if passing else f"{text}\n"
        print(f"{clear}{shown}", end="", file=self._stream, flush=True)
