"""What pytest does differently when `mutants.py` runs it, with `-p mutant_plugin`.

It leaves tests out, and ends the process when one takes too long, which counts as noticed. Without a mutant
it also records how long each test takes, which fail, and which functions of the package run.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

LONGEST = 10.0  # seconds of a core, with a trace, after which a test is left out

plan: dict[str, Any] = json.loads(Path(os.environ["MUTANT_PLAN"]).read_text(encoding="utf-8"))
codes: dict[int, CodeType] = {}
failures: set[str] = set()
seconds: dict[str, float] = {}
processes: set[str] = set()


class TooLong(BaseException):
    """Not an Exception: Hypothesis would try the example again."""


def _trace(frame: FrameType, event: str, argument: object) -> None:
    codes[id(frame.f_code)] = frame.f_code  # a code's own hash takes long


def _stop(number: int, frame: FrameType | None) -> None:
    raise TooLong


if plan["record"]:  # here, so that imports are traced, too
    threading.settrace(_trace)
    sys.settrace(_trace)
    signal.signal(signal.SIGPROF, _stop)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    from conftest import needs_a_server

    left_out = set(plan["left_out"])
    kept = [each for each in items if needs_a_server(each) == plan["servers"] and each.nodeid not in left_out]
    config.hook.pytest_deselected(items=[each for each in items if each not in kept])
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    start = time.perf_counter()
    if plan["record"]:
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
    else:
        faulthandler.dump_traceback_later(plan["limits"][item.nodeid], exit=True)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        faulthandler.cancel_dump_traceback_later()
        seconds[item.nodeid] = time.perf_counter() - start
        if item.get_closest_marker("process"):
            processes.add(item.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        failures.add(report.nodeid)


def pytest_sessionfinish() -> None:
    sys.settrace(None)
    if not plan["record"]:
        return
    package = plan["package"] + os.sep
    functions = {
        f"{code.co_filename.removeprefix(package)}:{code.co_qualname.partition('.<locals>')[0]}"
        for code in codes.values()
        if code.co_filename.startswith(package)
    }
    record = {
        "functions": sorted(functions),
        "left_out": sorted(failures),
        "seconds": {test: took for test, took in seconds.items() if test not in failures},
        "processes": sorted(processes - failures),
    }
    Path(plan["record"]).write_text(json.dumps(record), encoding="utf-8")
