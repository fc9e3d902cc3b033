"""Engines that run jobs: `concurrent.futures` executors, local or on a cluster.

    "local"              threads of this process; the kernels release the GIL
    "dask://HOST:PORT"   a running Dask scheduler and its workers (`pip install 'fedfairx[dask]'`)

Callers see only the executor interface, so any other executor fits too.
"""

from __future__ import annotations

import importlib
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

from fedfairx.errors import InvalidInput, ResultsError, require

T = TypeVar("T")
ENGINES = ("local", "dask://HOST:PORT")
_DASK = "dask://"
_CONNECT_SECONDS = 10


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def engine(
    name: str = "local", workers: int | None = None, *, ship: tuple[ModuleType, ...] = ()
) -> Iterator[Executor]:
    """An executor for a `with` block, at whose end jobs that have not started are cancelled.

    `workers` is for the local engine (default: one per processor); a cluster has the workers that it has.
    `ship` are modules, such as a user's plug-in, that a cluster's workers don't have: they are sent along.
    """
    require(workers is None or workers >= 1, "workers", "must be >= 1", workers)
    if name == "local":
        pool = ThreadPoolExecutor(workers or cores(), thread_name_prefix="fedfairx")
        try:
            yield pool
        except KeyboardInterrupt:  # an interrupted program must not wait for compiled kernels
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        pool.shutdown(cancel_futures=True)
        return
    address = name.removeprefix(_DASK)
    has_address = name.startswith(_DASK) and ":" in address
    require(has_address, "engine", f"must be one of {', '.join(ENGINES)}", name)
    require(workers is None, "workers", "is for the local engine", workers, "start more Dask workers instead")
    try:
        cloudpickle: Any = importlib.import_module("cloudpickle")
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise InvalidInput("engine dask:// needs the dask extra: pip install 'fedfairx[dask]'") from None
    with _connected(distributed, f"tcp://{address}") as client, _by_value(cloudpickle, ship):
        # The client's executor has no shutdown of its own; closing the client cancels what has not finished.
        yield _Packed(client.get_executor(pure=False), cloudpickle)


class _Packed(Executor):
    """Pickle each call by value: Dask's own pickling would send a plug-in's classes by name only."""

    def __init__(self, inner: Executor, cloudpickle: Any) -> None:
        self._inner, self._cloudpickle = inner, cloudpickle

    def submit(self, fn: Callable[..., T], /, *args: Any, **keywords: Any) -> Future[T]:
        return self._inner.submit(_call, self._cloudpickle.dumps((fn, args, keywords)))


def _call(packed: bytes) -> Any:
    fn, args, keywords = pickle.loads(packed)
    return fn(*args, **keywords)


@contextmanager
def _by_value(cloudpickle: Any, modules: tuple[ModuleType, ...]) -> Iterator[None]:
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


@contextmanager
def _connected(distributed: Any, address: str) -> Iterator[Any]:
    try:
        client = distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise ResultsError(
            f"no Dask scheduler at {address} ({type(error).__name__}); start one with `dask scheduler`"
        ) from None
    try:
        yield client
    finally:
        client.close()
