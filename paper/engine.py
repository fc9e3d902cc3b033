"""Engines that perform runs, and the progress that is shown.

"local"              threads of this process; compiled code lets others work
"dask://HOST:PORT"   a running Dask scheduler and its workers, which need only fedfairx
"""

from __future__ import annotations

import importlib
import os
import pickle
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TextIO, TypeVar

from fedfairx.errors import InvalidInput
from paper.scores import number

T = TypeVar("T")
_DASK = "dask://"
_CONNECT_SECONDS = 10


class ResultsError(InvalidInput):
    """Stored results can't be used, or runs could not be performed."""


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def engine(
    name: str = "local", workers: int | None = None, *, ship: tuple[ModuleType, ...] = ()
) -> Iterator[Executor]:
    """An executor for a `with` block, at whose end what has not started is cancelled.

    `workers` is for the local engine (default: one per processor); a cluster has the workers that it has.
    `ship` are modules, such as a user's file, that a cluster's workers don't have: they are sent along.
    """
    if workers is not None and (workers < 1 or name != "local"):
        raise InvalidInput(f"workers must be >= 1, and are for the local engine alone, got workers={workers}")
    if name == "local":
        pool = ThreadPoolExecutor(workers or cores())
        try:
            yield pool
        except KeyboardInterrupt:  # an interrupted program must not wait for compiled code
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
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
        yield _Packed(client.get_executor(pure=False), cloudpickle)
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
        client.close()


class _Packed(Executor):
    """Pickle each call by value: Dask's own pickling would send classes by name only."""

    def __init__(self, inner: Executor, cloudpickle: Any) -> None:
        self._inner, self._cloudpickle = inner, cloudpickle

    def submit(self, fn: Callable[..., T], /, *args: Any, **keywords: Any) -> Future[T]:
        return self._inner.submit(pickle.loads, self._cloudpickle.dumps(_Call(fn, args, keywords)))


class _Call:
    """Something that is called when it is unpickled."""

    def __init__(self, *call: Any) -> None:
        self._call = call

    def __reduce__(self) -> Any:
        fn, args, keywords = self._call
        return _apply, (fn, args, keywords)


def _apply(fn: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return fn(*args, **keywords)


class Progress:
    """What is done and how long the rest will take: a line that changes on a terminal, lines in a log."""

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._quiet, self._terminal = quiet, self._stream.isatty()
        self.start(0, 0, 0.0)

    def start(self, runs: int, rounds: int, effort: float) -> None:
        """Begin: numbers of runs and of agent-rounds, and the estimated effort of all."""
        self._runs, self._rounds, self._effort = runs, rounds, effort
        self._done, self._passed, self._spent, self._began = 0, 0, 0.0, time.perf_counter()

    def done(self, label: str, rounds: int, effort: float, seconds: float) -> None:
        """Count a run that is stored."""
        self._done, self._passed, self._spent = self._done + 1, self._passed + rounds, self._spent + effort
        elapsed = max(time.perf_counter() - self._began, 1e-9)
        left = elapsed * (self._effort - self._spent) / self._spent
        rate = number(self._passed / elapsed)
        text = (
            f"[{self._done}/{self._runs}] {label}: {seconds:.1f} s ({rate} agent-rounds/s, {left:.0f} s left)"
        )
        self.say(text, passing=self._terminal and self._done < self._runs)

    def say(self, text: str, *, passing: bool = False) -> None:
        """Show a message; a passing one is replaced by the next."""
        if self._quiet:
            return
        width = shutil.get_terminal_size().columns - 1 if self._terminal else 0
        clear = f"\r{'':{width}}\r" if self._terminal else ""
        shown = text[:width] if passing else f"{text}\n"
        print(f"{clear}{shown}", end="", file=self._stream, flush=True)
