"""Logs that earlier source wrote are read, and replayed to the same state, to the bit."""

from __future__ import annotations

import json

import pytest

import golden_logs

STORED = json.loads(golden_logs.FILE.read_text(encoding="utf-8"))
NAMES = sorted(path.name.partition(".")[0] for path in golden_logs.FOLDER.iterdir())


def test_every_log_has_its_digests() -> None:
    assert NAMES == sorted(golden_logs.SCENARIOS) == sorted(STORED["rows"]) == sorted(STORED["computed"])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_is_the_same(name: str) -> None:
    assert golden_logs.read_rows(name) == STORED["rows"][name]


@pytest.mark.parametrize("name", NAMES)
def test_replay_ends_in_the_same_state(name: str) -> None:
    if STORED["machine"] != golden_logs.machine():
        pytest.skip("golden_logs.json was made by another processor or other libraries")
    found = golden_logs.compute(name)
    assert not golden_logs.differences(STORED["computed"][name], found, name)
    assert found["opened"] == found["replayed"]
