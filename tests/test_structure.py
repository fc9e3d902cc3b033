"""The report on the structure counts right, on a small package whose numbers are known."""

from __future__ import annotations

import ast
import importlib
import json
import queue
import threading
from pathlib import Path
from textwrap import dedent

import pytest

import structure

ONE = '''
    """A module's docstring,

    of three lines."""

    # a comment
    from dataclasses import dataclass, field  # behind code
    import enum

    LIMIT, _hidden = 3, 4
    limits: dict[str, int] = {}
    limits["a"] = 1
    TEXT = """two lines of text

    and a blank one"""


    class Colour(enum.Enum):
        """No value type."""

        RED = 1
        """A string below an attribute is documentation, too."""


    async def outer(
        first: int,
        # a comment among parameters
    ) -> int:
        def inner(): "A docstring behind code."
        return first
'''
TWO = """
    import dataclasses
    from typing import NamedTuple, Protocol, TypedDict

    import msgspec
    from numba.core import datamodel as models
    from pack.room.base import Base as Ancestor
    from pack.room import base


    class Body(msgspec.Struct, frozen=True): ...
    class Derived(Body): ...
    class Further(Derived, tag="further"): ...
    class Elsewhere(Ancestor): ...
    class ByModule(base.Base): ...
    class Pair(NamedTuple): ...
    class Keywords(TypedDict, total=False): ...
    class Plain: ...
    class Shape(Protocol): ...
    class Model(models.StructModel): ...


    @dataclasses.dataclass(frozen=True)
    class Record(Plain): ...


    def function():
        class _Local(NamedTuple): ...
"""
BASE = "from msgspec import Struct\nclass Base(Struct): ...\n"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of two rooms."""
    folder = tmp_path / "pack"
    (folder / "room").mkdir(parents=True)
    texts = {"__init__.py": "", "one.py": ONE, "room/__init__.py": '"""A room."""\n', "room/two.py": TWO}
    for name, text in {**texts, "room/base.py": BASE}.items():
        (folder / name).write_text(dedent(text), encoding="utf-8")
    return folder


def test_each_room_is_counted(package: Path) -> None:
    assert structure.rooms(package) == [
        {"room": "`*.py`", "files": 2, "code lines": 14, "value types": 0, "public names": 5},
        {"room": "`room/`", "files": 3, "code lines": 22, "value types": 10, "public names": 13},
        {"room": "all", "files": 5, "code lines": 36, "value types": 10, "public names": 18},
    ]


def test_the_names_of_a_module_are_those_that_it_defines(package: Path) -> None:
    names = structure.public_names(ast.parse((package / "one.py").read_text()))
    assert names == {"LIMIT", "limits", "TEXT", "Colour", "outer"}


CALLS = """
    def outer(other):
        return [other(number) for number in (1, 2)]


    def unused(): ...


    def work(tasks, answers):
        for task in iter(tasks.get, None):
            answers.put(task())
"""
HELP = """
    def helper(number):
        return (lambda: number)()


    def elsewhere():
        return helper(3)
"""


def test_the_functions_of_a_call_are_counted_in_all_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "traced"
    folder.mkdir()
    (folder / "calls.py").write_text(dedent(CALLS), encoding="utf-8")
    (folder / "help.py").write_text(dedent(HELP), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    calls, helps = importlib.import_module("traced.calls"), importlib.import_module("traced.help")
    tasks: queue.Queue[object] = queue.Queue()
    answers: queue.Queue[int] = queue.Queue()
    with structure.Tracer(folder) as tracer:
        thread = threading.Thread(target=calls.work, args=(tasks, answers))
        thread.start()
        tasks.put(helps.elsewhere)
        assert answers.get(timeout=60) == 3  # not traced
        with tracer.trace() as here:
            calls.outer(helps.helper)
            sorted([2, 1])  # of another package
        with tracer.trace() as there:
            tasks.put(helps.elsewhere)
            assert answers.get(timeout=60) == 3
        tasks.put(None)
        thread.join()
    calls.outer(helps.helper)
    # The comprehension and the lambda are functions as well.
    assert here.row("here") == {"call": "here", "functions": 4, "files": 2, "depth": 4}
    # The loop of the thread was entered before, but lies below the others in their stack.
    assert there.row("there") == {"call": "there", "functions": 3, "files": 1, "depth": 4}
    assert {each.co_name for each in there.functions} == {"elsewhere", "helper", "<lambda>"}


def test_a_call_of_median_size_is_typical(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "WARM_UP", 1)
    codes = [compile("", str(number), "exec") for number in range(9)]
    traces = [structure.Trace(set(codes[:size])) for size in (9, 3, 5, 4)]
    assert structure.typical(traces) is traces[3]


def test_rows_become_a_table() -> None:
    rows: list[structure.Row] = [{"room": "`a/`", "files": 1}, {"room": "all", "files": 12_345}]
    assert structure.table(rows) == "| room | files |\n| --- | --- |\n| `a/` | 1 |\n| all | 12 345 |"


@pytest.mark.long
def test_the_whole_report_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(structure, "WARM_UP", 0)
    monkeypatch.setattr(structure, "TIMES", 2)
    structure.main(["--json"])
    report = json.loads(capsys.readouterr().out)
    sizes = {row["room"]: row for row in report["rooms"]}
    assert {"`*.py`", "`core/`", "`service/`"} < {*sizes}
    for count in ("files", "code lines", "value types", "public names"):
        assert sizes["all"][count] == sum(row[count] for room, row in sizes.items() if room != "all") > 0
    assert len(report["calls"]) == 4
    for row in report["calls"]:
        assert row["functions"] > row["files"] > row["depth"] > 5
