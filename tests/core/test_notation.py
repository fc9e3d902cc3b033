"""docs/reference/notation.md has names that the code has, and every line of Algorithm 1."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import fedfairx

PACKAGE = Path(fedfairx.__file__).parent
TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "notation.md").read_text(encoding="utf-8")
CODE = re.compile(r"`((?:core|privacy|agent|federation|simulation)\.[\w.]+)`")
FUNCTIONS = sorted(set(CODE.findall(TEXT.split("## Algorithm 1")[1])))


def rows(heading: str) -> list[list[str]]:
    section = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_that_is_named_exists(name: str) -> None:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module("fedfairx." + ".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            found = getattr(found, attribute)
        assert callable(found)
        return
    pytest.fail(f"{name} does not exist")


def test_every_line_of_algorithm_1_has_its_function() -> None:
    covered: set[int] = set()
    for lines, _, function in rows("Algorithm 1, line by line"):
        for part in lines.split(","):
            first, _, last = part.strip().partition("–")
            covered |= set(range(int(first), int(last or first) + 1))
        assert "`" in function or lines in ("24–26", "28, 29")
    assert covered == set(range(1, 30))


def test_every_symbol_has_all_its_columns_and_a_name_that_its_module_has() -> None:
    symbols = rows("Symbols")
    assert len(symbols) > 40
    for row in symbols:
        assert len(row) == 5
        assert all(row), row
        module = PACKAGE / (row[4].strip("`").replace(".", "/") + ".py")
        source = module.read_text(encoding="utf-8")
        for name in re.findall(r"`([\w.]+)`", row[1]):
            assert re.search(rf"\b{name.split('.')[-1]}\b", source), row
