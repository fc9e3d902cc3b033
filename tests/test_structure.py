"""Limits of the structure only fall, and its conditions are counted as the script says."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import structure

SOURCE = """
if agent.private and not secure: ...
a = [x for x in y if x.weights is ONE] if names is None else f(private)
require(not self.private, "private", "secure")
"""


def test_conditions_that_mention_an_axis_are_counted() -> None:
    found = structure.axes([ast.parse(SOURCE)])
    assert [*found.values()] == [0, 1, 1, 2, 1]


@pytest.mark.parametrize(
    ("limit", "arguments", "code", "after"),
    [(5, [], 0, 5), (6, [], 0, 6), (6, ["--write"], 0, 5), (4, [], 1, 4), (4, ["--write"], 1, 4)],
)
def test_limits_hold_and_only_fall(
    limit: int, arguments: list[str], code: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "structure.json"
    file.write_text(json.dumps({"methods": limit}), "utf-8")
    monkeypatch.setattr(structure, "FILE", file)
    monkeypatch.setattr(structure, "measure", lambda: ({"methods": 5}, set()))
    monkeypatch.setattr("sys.argv", ["structure.py", *arguments])
    assert structure.main() == code
    assert json.loads(file.read_text("utf-8")) == {"methods": after}
