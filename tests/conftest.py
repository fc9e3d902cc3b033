"""The rings of the test suite.

`make check` runs what needs nothing but this process and is not marked `long`, `make test` all but what is
marked `slow`, and `make test-all` everything. A test belongs to the outer rings when it is marked `process`,
or asks for a server by a fixture or a parameter. A test that starts a process and is not marked fails.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

# There are as many workers as cores, and threads of BLAS that wait for each other take their time. It is read
# when NumPy is imported, by the processes that tests start too.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Files of tests lie in memory if it has room for them: thousands of small commits wait for a disk otherwise.
MEMORY, ROOM = "/dev/shm", 4 << 30
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY

pytest_plugins = ("servers",)

# How many examples a property has that states no number: some, and with --hypothesis-profile=all, as `make
# test-all` has it, many. They are the same in every run.
settings.register_profile("some", max_examples=25, deadline=None, derandomize=True)
settings.register_profile("all", max_examples=400, deadline=None, derandomize=True)
settings.load_profile("some")

SERVERS = frozenset({"postgres", "postgresql", "nats", "flower", "cluster"})  # fixtures, values of parameters
STARTS = frozenset({"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"})

_started: list[str] = []


def _audit(event: str, _: Any) -> None:
    if event in STARTS:
        _started.append(event)


def _needs_a_server(item: pytest.Item) -> bool:
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    named = {*getattr(item, "fixturenames", ()), *(value for value in given if isinstance(value, str))}
    return bool(SERVERS & named)


def _without_processes(config: pytest.Config) -> bool:
    """Whether this is the ring whose tests start none."""
    return "not process" in config.getoption("markexpr", "")


def pytest_configure(config: pytest.Config) -> None:
    if _without_processes(config):
        sys.addaudithook(_audit)  # each import and each file opened calls it


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Collect tests without looking for garbage, and never look for it among them: they stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _needs_a_server(item):
            item.add_marker("process")
            if item.get_closest_marker("slow_on_server"):
                item.add_marker("slow")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    yield
    if _started and _without_processes(item.config):
        pytest.fail(f"it starts a process ({_started[0]}): mark it with pytest.mark.process")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    _started.clear()
    return (yield)
