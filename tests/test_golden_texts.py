"""What users read, and programs rely on, changes only on purpose."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import golden_texts
from fedfairx.cli.main import parser

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != golden_texts.PYTHON, reason="texts were stored by another version of Python"
)


@pytest.mark.long
def test_no_text_has_changed() -> None:
    lines = golden_texts.differences()
    assert not lines, "\n".join([*lines, "if that is meant: python tests/golden_texts.py --write"])


def test_the_texts_are_complete() -> None:
    stored = {path.name: path.read_text("utf-8") for path in golden_texts.FOLDER.iterdir()}
    paths = json.loads(stored["openapi.json"])["paths"]
    assert {"/v1/decisions", "/v1/export"} <= paths.keys()
    for command in golden_texts.generated._commands(parser()):
        assert f"\nusage: {command.prog} " in stored["cli.md"]
    assert "fedfairx.Agent(" in stored["fedfairx.txt"]
    assert "fedfairx.Agent.decide(" in stored["fedfairx.txt"]


def test_a_change_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.txt").write_text("a\nb\n")
    (tmp_path / "gone.txt").write_text("c\n")
    monkeypatch.setattr(golden_texts, "FOLDER", tmp_path)
    monkeypatch.setattr(golden_texts, "texts", lambda: {"one.txt": "a\nd\n", "new.txt": "e\n"})
    changed = [line for line in golden_texts.differences() if line[:2] in ("-b", "+d", "-c", "+e")]
    assert changed == ["-c", "+e", "-b", "+d"]
    golden_texts.write()
    assert golden_texts.differences() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.txt", "one.txt"]
